"""Names what a branch computes, from the operations between the stream and its end."""

import math
from typing import TYPE_CHECKING

from torch import nn

from skipway.wiring import operations as ops
from skipway.wiring.states import STORED, Region

if TYPE_CHECKING:
    from skipway.wiring.graph import Graph
    from skipway.wiring.record import Node

_DISPATCH = frozenset(["topk", "one_hot", "index_add", "scatter_add", "_grouped_mm", "bincount", "histc"])      # operations that no mixer has
_SCANS = frozenset(["cumsum", "cumprod", "exp", "softplus", "maximum", "_cummax_helper", "logcumsumexp"]) | ops.RECURRENCES


def kind_of(g: "Graph", region: Region) -> str:
    """One of the kinds of a branch; "other" is what no kind names."""
    inside = set(region.nodes)
    names = {g.nodes[n].op for n in region.nodes}
    attends = [g.attention[n] for n in region.nodes if n in g.attention] or _sampled(g, region)
    if attends:
        return _attention(g, region, inside, attends[-1])
    learned = [n for n in region.nodes if g.learned[n]]
    products = [n for n in learned if g.state[n] is not None and g.state[n].via == "product"]  # type: ignore[union-attr]
    weights = [n for n in learned if n not in products]
    convolutions = [n for n in weights if g.nodes[n].op in ops.CONVOLUTIONS]
    chosen = any(g.depends[i] and g.table[i] & STORED for n in weights for i in g.nodes[n].ins if not g.signal[i])
    if names & _DISPATCH or chosen:                     # weights picked by the input
        return "moe"
    cells = any(isinstance(g.record.calls[g.nodes[n].call].module, nn.RNNBase | nn.RNNCellBase) for n in learned)
    if cells or _recurs(g, region, convolutions, names, products):
        return "ssm" if cells or _causal(g, convolutions) or names & ops.RECURRENCES else "other"
    weighted = [g.weighted[n] for n in region.nodes if n in g.weighted]
    if weighted:
        return _attention(g, region, inside, weighted[-1])
    made = [s.via for n in region.nodes if (s := g.state[n]) is not None and s.node == n and n not in g.square and n not in g.statistic]
    bent, active = "act" in made or "product" in made, "act" in made
    spatial = [n for n in convolutions if _kernel(g, n) > 1]
    if spatial:
        dense = [n for n in weights if g.nodes[n].op in ops.MATMULS]
        return "ffn" if weights[0] in dense and len(dense) > 1 and len(spatial) == 1 and active else "conv"
    if _routes(g, region, inside, names):
        return "moe"
    if _summed_softmax(g, region):
        return "self_attention"
    if products or _foreign(g, region, inside):
        return "other"
    return "ffn" if len(weights) >= 2 and bent else "other"


def _foreign(g: "Graph", region: Region, inside: set[int]) -> bool:
    """Whether a product brings in a signal that is not computed from the stream."""
    known = inside | {h for h in region.hits if (s := g.state[h]) is not None and s.via in ("join", "norm")}
    return any(n in inside and not (a in known and b in known) for n, a, b in g.products)


def _attention(g: "Graph", region: Region, inside: set[int], operands: tuple[int, ...]) -> str:
    """Whether the values come from the stream itself, not from elsewhere and not through another stream that began on it."""
    own = {s.root for h in region.hits if (s := g.state[h]) is not None}
    stack = [operands[-1]]
    seen = set(stack)
    while stack:
        n = stack.pop()
        if n in region.hits:
            return "self_attention"
        state = g.state[n]
        if n not in inside or (state is not None and state.via == "join" and state.depth > 1 and state.root not in own):
            continue
        fresh = [i for i in g.nodes[n].ins if i not in seen]
        seen.update(fresh)
        stack += fresh
    return "cross_attention"


def _sampled(g: "Graph", region: Region) -> list[tuple[int, ...]]:
    """Deformable attention: values sampled at learned places and weighed by a softmax."""
    if not any(g.nodes[n].op in ops.SOFTMAXES for n in region.nodes):
        return []
    return [(g.nodes[n].ins[0],) for n in region.nodes if g.nodes[n].op.startswith("grid_sampler")]


def _summed_softmax(g: "Graph", region: Region) -> bool:
    """A softmax over tokens that weighs values which are then summed over tokens: attention with one query."""
    softmaxes = [n for n in region.nodes if g.nodes[n].op in ops.SOFTMAXES and not _over_outputs(g, n)]
    return bool(softmaxes) and any(g.nodes[n].op == "sum" for n in region.nodes)


def _over_outputs(g: "Graph", softmax: int) -> bool:
    """Whether a softmax runs over the outputs of the learned map that made its logits, as a router's does."""
    node = g.nodes[softmax]
    dim = node.args[1] if len(node.args) > 1 and isinstance(node.args[1], int) else -1
    made = g.nodes[node.ins[0]]
    while made.op in ops.IDENTITY | ops.PARTS and made.ins:
        made = g.nodes[made.ins[0]]
    convolved = made.op in ops.CONVOLUTIONS
    if node.shape[dim] == 1:
        return False
    return dim % len(node.shape) == (1 if convolved else len(node.shape) - 1)


def _kernel(g: "Graph", n: int) -> int:
    weight = g.nodes[g.nodes[n].ins[1]].shape if len(g.nodes[n].ins) > 1 else ()
    return max(weight[2:], default=1)


def _causal(g: "Graph", convolutions: list[int]) -> bool:
    """A depthwise convolution over one axis, as state-space mixers have before their scan."""
    for n in convolutions:
        weight = g.nodes[g.nodes[n].ins[1]].shape if len(g.nodes[n].ins) > 1 else ()
        if len(weight) == 3 and weight[1] == 1 and weight[2] > 1:
            return True
    return False


def _recurs(g: "Graph", region: Region, convolutions: list[int], names: set[str], products: list[int]) -> bool:
    """Whether tokens are mixed by a scan: a decay (an exponential or a cumulative sum), or a recurrent cell."""
    if names & ops.RECURRENCES:
        return True
    if names & {"softmax", "_softmax", "_safe_softmax"} and not _causal(g, convolutions):
        return False
    scans = bool(names & (_SCANS - {"softplus"})) or bool(products)
    return scans and (_causal(g, convolutions) or bool(names & {"exp", "cumsum"}))


def _routes(g: "Graph", region: Region, inside: set[int], names: set[str]) -> bool:
    """Whether a router picks or weighs experts: a choice of indices, or a softmax over experts that scales their results."""
    for n in region.hits | inside:
        for u in g.users[n]:
            if g.nodes[u].op in ("topk", "argmax", "sort") and (u in inside or g.depends[u]):
                return True
    experts = [n for n in region.nodes if g.nodes[n].op in ops.SOFTMAXES and _over_outputs(g, n)]
    return any(_weighs(g.nodes[n], g.nodes[u]) for n in experts for u in g.users[n])


def _weighs(softmax: "Node", user: "Node") -> bool:
    """Whether a softmax is cut into its entries, or spread over something larger."""
    return user.op in ops.PARTS or (user.op == "mul" and math.prod(softmax.shape) * 2 <= math.prod(user.shape))

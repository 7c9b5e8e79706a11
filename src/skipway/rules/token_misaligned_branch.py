"""token-misaligned-branch: the branch's rows are permuted against the shortcut's rows.

What it does
    Changes one element of the state that a branch reads and works the branch out anew, on values alone, with the mixing of its
    attention held still: keys and values keep their numbers, so that a token can speak only through its own query. Reports
    an attention of which other rows change, and a branch without any mixing whose result lands in another row.
Why it matters
    Heads that are merged by `reshape(b, t, h * d)` without the permute, or windows that are not moved back, give every shape
    right and hand each token a mixture of other tokens' results. Small tasks still train, which is why it stays in for
    years; reported in hackiey/QAnet-pytorch#2, jsbaan/transformer-from-scratch#6, ajhalthor/Transformer-Neural-Network#4
    and meta-pytorch/opacus#825.
Fires on
    `(softmax(q @ k.T) @ v).reshape(b, t, -1)` on (batch, head, token, channel); a wrong permute before the output projection; a
    roll or a flip of the tokens that is not undone; height and width exchanged on the way back; `x.view(b, c, t)` for a transpose
    around 1x1 convolutions.
Quiet on
    Heads permuted back, in any layout (token first, windows, grouped heads, axial). Causal, padded and relative attention, with
    positions of any kind. Attention over channels. Branches that mix tokens by other means (convolution, recurrence, pooling,
    token MLPs): of those nothing can be said this way.
What to do
    Put the axes back in the order in which they were taken apart: `y.transpose(1, 2).reshape(b, t, h * d)`.
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from skipway.rules._base import Example, Facts, Hit, Spot
from skipway.rules._local import Branch
from skipway.rules._real import Real
from skipway.wiring import operations as ops
from skipway.wiring.record import Node

CODE = "SKW502"
STAGE = "values"
SEVERITY = "error"

TRIES = 5           # elements that are changed, one at a time
MIXES = frozenset(["pixel_shuffle", "pixel_unshuffle", "as_strided", "unfold", "im2col", "diagonal", "take", "take_along_dim", "masked_select"])
SHIFTS = frozenset(["constant_pad_nd", "cat", "stack", "patch", "slice_scatter", "select_scatter"])      # tokens moved by design
ELEMENTWISE = frozenset(["add", "sub", "rsub", "mul", "div", "neg", "addcmul", "addcdiv", "lerp", "where", "cat", "stack", "maximum", "minimum",
                         "native_dropout", "patch", "slice_scatter", "select_scatter"])


@dataclass(frozen=True)
class Reach:
    """What changes of single elements reach: how many had an effect, how many stayed in their row, and one that did not."""

    effects: int
    own: int
    stray: tuple[int, int] | None           # rows that one element reached, and how many of them are other rows
    moved: bool                             # each effect was in exactly one row
    parts: bool                             # each effect was in parts of several rows

    @property
    def aligned(self) -> bool:
        return 2 * self.own > self.effects

    @property
    def strays(self) -> bool:
        return self.effects > 0 and 2 * self.own <= self.effects


def check(facts: Facts) -> Iterator[Hit]:
    real = facts.real
    known: dict[Any, Reach | None] = {}
    for spot in real.spots:
        branch = Branch(real, spot.place)
        lanes = spot.place.join.shortcut in real.graph.lane
        if not branch.plain or lanes or any(t.kind == "moe" for t in spot.place.terms):
            continue
        key = branch.likeness
        if key not in known:
            known[key] = _judged(branch)
        reach = known[key]
        if reach is not None:
            yield _hit(real, spot, reach)


def _judged(branch: Branch) -> Reach | None:
    """How the branch strays, where it does."""
    g = branch.real.graph
    inside = set(branch.path())
    attends = [n for n in g.attention if n in inside]
    if not attends:
        reach = _reach(branch.behind_norm(), {}, {}) if _by_row(branch, set(), shifts=False) else None
        return reach if reach is not None and reach.strays and (reach.moved or reach.parts) else None
    found = []
    for role in range(3):                                   # only the query, only the key, only the value of each token varies
        held = _held(branch, attends, role)
        reach = _reach(branch, held, {}) if _by_row(branch, set(held)) else None
        if reach is None or (reach.effects and reach.aligned):
            return None
        found.append(reach)
    if not any(reach.effects for reach in found[:2]):
        return _by_values(branch, attends)
    varying = [reach for role, reach in enumerate(found[:2]) if any(g.attention[n][role] in inside for n in attends)]
    read = any(g.attention[n][2] in inside for n in attends)
    if not all(reach.strays for reach in varying) or (read and len(varying) < 2):       # a memory that is read has no rows of its own here
        return None
    return min(varying, key=lambda reach: reach.stray or (0, 0))       # a key reaches every row, wherever the heads go


def _held(branch: Branch, attends: list[int], role: int) -> dict[int, Tensor]:
    """What the other operands of each attention hold: random keys and values, the keys large enough for a query to matter."""
    real, g = branch.real, branch.real.graph
    wanted = {operand for n in attends for operand in g.attention[n]}
    with torch.no_grad():
        made = {n: v.detach() for n, v in real.evaluate(wanted, branch.base, branch.choices).items()}
    held: dict[int, Tensor] = {}
    for n in attends:
        operands = g.attention[n]
        for k, operand in enumerate(operands):
            if k == role:
                continue
            value = made[operand]
            if role < 2:
                spread = 1.0 if k == 2 else 2 / max(float(made[operands[role]].float().square().mean().sqrt()), 1e-6)
                value = torch.empty_like(value).copy_(spread * torch.randn(value.shape, generator=torch.Generator().manual_seed(k)))
            held[operand] = value
    return held


def _by_values(branch: Branch, attends: list[int]) -> Reach | None:
    """The same where queries and keys have no effect (a mask leaves each token itself alone): each token passes its own value on."""
    g = branch.real.graph
    held = _held(branch, attends, 2)
    own = {n: g.attention[n][2] for n in attends}
    if len(own) > 1 or any(g.nodes[n].shape != g.nodes[value].shape for n, value in own.items()) or not _by_row(branch, set(held)):
        return None
    reach = _reach(branch, held, own)
    return reach if reach.strays else None


def _reach(branch: Branch, held: dict[int, Tensor], own: dict[int, int]) -> Reach:
    """Change some elements of the state, one at a time, while the nodes `held` keep their values.

    own: attention -> its values, where it hands each token's own value on.
    """
    real = branch.real

    def results(given: dict[int, Tensor]) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            values = real.evaluate(own.values(), given, branch.choices)
        return branch.results({**given, **{n: values[value].detach() for n, value in own.items()}})

    base = {**branch.base, **held}
    first = results(base)
    shape = real.graph.nodes[branch.place.join.node].shape
    width = _width(branch)
    effects, kept, stray, moved, parts = 0, 0, None, True, width is not None
    for number, element in enumerate(_elements(shape)):
        mask = torch.zeros(shape, dtype=torch.bool)
        mask[element] = True
        _, reached = branch.moved(first, results({**base, branch.start: branch.other(mask, number)}))
        places = reached.nonzero()
        if not len(places):
            continue
        effects += 1
        rows = _rows(places, element)
        if rows == (1, 0):
            kept += 1
        elif stray is None:
            stray = rows
        moved = moved and rows[0] == 1
        parts = parts and width is not None and rows[0] > 1 and _in_parts(places, width, shape[width])
    return Reach(effects, kept, stray, moved, parts)


def _width(branch: Branch) -> int | None:
    """The axis of features at the join: the last one, or that of an image's channels, where it has the width of what is multiplied first."""
    g = branch.real.graph
    shape = g.nodes[branch.place.join.node].shape
    on_path = {branch.start, *branch.path()}
    for n in branch.path():
        node = g.nodes[n]
        if g.learned[n] and node.op in ops.MATMULS | ops.CONVOLUTIONS:
            weights = [g.nodes[i].shape for i in node.ins if i not in on_path and len(g.nodes[i].shape) > 1]
            return next((axis for axis in (len(shape) - 1, 1) if weights and shape[axis] in weights[0]), None)
    return None


def _in_parts(places: Tensor, axis: int, size: int) -> bool:
    """Whether the changed places cover no rows as a whole: tokens that are cut up, not tokens that are stacked or merged."""
    rows = torch.cat([places[:, :axis], places[:, axis + 1:]], 1).unique(dim=0)
    return 10 * len(places) < 9 * len(rows) * size


def _elements(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    generator = torch.Generator().manual_seed(0)
    return [tuple(int(torch.randint(size, (), generator=generator)) for size in shape) for _ in range(TRIES)]


def _rows(places: Tensor, element: tuple[int, ...]) -> tuple[int, int]:
    """How many rows the changed places lie in, and how many of these are not the element's own.

    A row runs along the axis of features, which is the one along which the changed places lie in the fewest rows.
    """
    fewest = None
    for axis in range(len(element)):
        rest = torch.cat([places[:, :axis], places[:, axis + 1:]], 1)
        rows = rest.unique(dim=0)
        own = torch.tensor(element[:axis] + element[axis + 1:], device=places.device)
        found = len(rows), len(rows) - int((rows == own).all(1).any())
        if fewest is None or found < fewest:
            fewest = found
    assert fewest is not None
    return fewest


def _by_row(branch: Branch, fixed: set[int], shifts: bool = True) -> bool:
    """Whether nothing on the way of a change mixes rows by design. `shifts`: whether tokens may be moved by padding."""
    g = branch.real.graph
    path = branch.path(fixed)
    on_path = {branch.start, *path}
    return all(_keeps_rows(branch, g.nodes[n], on_path) and (shifts or g.nodes[n].op not in SHIFTS) for n in path)


def _keeps_rows(branch: Branch, node: Node, on_path: set[int]) -> bool:
    g, op = branch.real.graph, node.op
    varies = [i for i in node.ins if i in on_path]
    if op in ops.MATMULS:
        return len(varies) == 1
    if op in ops.CONVOLUTIONS:
        weight = g.nodes[node.ins[1]].shape
        return max(weight[2:], default=1) == 1 and node.ins[1] not in on_path
    if op in ops.ATTENTIONS:
        return len(varies) == 1
    if op in ops.SOFTMAXES:
        return node.id in g.scores or _last(node)
    if op in ops.NORMS:
        return ops.NORMS[op] in ("LayerNorm", "RMSNorm", "BatchNorm")
    if node.id in g.statistic or node.id in g.square:
        return op not in ops.POOLS | ops.STATISTICS or _one_axis(node, g.nodes[node.ins[0]])
    if op in MIXES or op in ops.POOLS:
        return False
    if op in ops.PARTS or op in ops.SCATTERS:
        return all(i in varies[:1] or not g.depends[i] or op in ("slice_scatter", "select_scatter") for i in node.ins)
    return op in ops.IDENTITY or op in ops.ACTS or op in ELEMENTWISE


def _last(node: Node) -> bool:
    """Whether a softmax runs along the last axis, as one over keys or features does."""
    axis = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", -1)
    return isinstance(axis, int) and axis % len(node.shape) == len(node.shape) - 1


def _one_axis(node: Node, source: Node) -> bool:
    """Whether a statistic is taken over one axis: the last, or that of the channels of an image."""
    place = 2 if "norm" in node.op else 1                   # a norm takes its order first
    axes = node.args[place] if len(node.args) > place else node.kwargs.get("dim")
    axes = [axes] if isinstance(axes, int) and not isinstance(axes, bool) else axes
    rank = len(source.shape)
    return isinstance(axes, (list, tuple)) and len(axes) == 1 and axes[0] % rank in ((rank - 1,) if rank < 4 else (1, rank - 1))


def _hit(real: Real, spot: Spot, reach: Reach) -> Hit:
    attention = next((t for t in spot.place.terms if t.kind in ("self_attention", "cross_attention")), None)
    where = real.sublayer(spot.place, attention)
    rows, others = reach.stray or (1, 1)
    if attention is None and not reach.moved:
        text = (f"`{where}` adds parts of each token to {others} other rows of the stream: its rows are cut up by a view where a transpose was "
                "meant; use transpose(1, 2) on both sides")
    elif reach.moved:
        text = (f"what `{where}` makes of a token is added to another token's row of the stream; undo the move of the tokens (roll, flip, transpose) "
                "before the add")
    else:
        text = (f"through `{where}` a token alone, without its keys and values, reaches {others} other rows of the stream: heads and tokens are "
                "mixed up when the heads are merged; permute them back first, y.transpose(1, 2).reshape(b, t, h * d)")
    return Hit(where, text, None, real.line(spot.place.join.node), {"rows_reached": rows, "other_rows": others, "want": 0})


class _Block(nn.Module):
    def __init__(self, dim: int = 16, heads: int = 4) -> None:
        super().__init__()
        self.heads, self.norm1, self.norm2 = heads, nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.ffn = nn.Sequential(nn.Linear(dim, 32), nn.GELU(), nn.Linear(32, dim))

    def merge(self, y: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(-1)
        x = x + self.out(self.merge(weights @ v))
        return x + self.ffn(self.norm2(x))


def _example(block: type[nn.Module]) -> Example:
    torch.manual_seed(0)
    net = OrderedDict(stem=nn.Linear(4, 16), blocks=nn.Sequential(block(), block()), norm=nn.LayerNorm(16), head=nn.Linear(16, 3))
    return Example(nn.Sequential(net).eval(), (torch.randn(2, 6, 4),), where="blocks.0", options={"stage": "values"})


def bad() -> Example:
    """(batch, head, token, channel) is read as (batch, token, head and channel)."""

    class Block(_Block):
        def merge(self, y: Tensor) -> Tensor:
            b, h, t, d = y.shape
            return y.reshape(b, t, h * d)

    return _example(Block)


def good() -> Example:
    """The heads are put behind the tokens before they are merged."""

    class Block(_Block):
        def merge(self, y: Tensor) -> Tensor:
            return y.transpose(1, 2).flatten(2)

    return _example(Block)

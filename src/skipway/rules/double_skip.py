"""double-skip: the identity gain around one sublayer is not the declared one.

What it does
    Sums, over all identity paths around one sublayer, the product of their constant factors, and reports a gain that is
    not the declared one. Where nothing is declared the gain must be 1.
Why it matters
    A stream that is added twice doubles at every sublayer: 2 to the power of the number of sublayers by the end, which
    a later norm hides from the loss and not from the gradient. It comes from a refactoring after which both a module
    and its caller own the skip (llm-random/llm-random#345, yakhyo/darknet-pytorch#2), or from adding the stream on
    every shard before the shards are summed.
Fires on
    `x = x + block(x)` where block already returns `x + F(x)` and computes no more than that; `x + 0.5 * (x + F(x))`,
    gain 1.5; `sum(x + shard(x) for shard in shards)`, gain the number of shards.
Quiet on
    A residual block nested in a longer residual (residual in residual, a global skip around a body of blocks): each
    bypasses something else. A declared gain: alpha of DeepNorm, `x * skip_scale`, both with `expect`. `(x + F(x)) *
    sqrt(0.5)` and other scalings of the whole sum. A factor that the norm of each sum takes out again (KEEL). Gates that
    depend on the input (highway, GRU): their gain is no constant.
What to do
    Let one place own the skip: return F(x) from the module, or drop the caller's add. With shards, add the stream once,
    after the sum. Where another gain is meant, declare it: `expect=Expect(skip_scale=...)`.
"""

from collections import OrderedDict
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from skipway.rules._base import Example, Facts, Hit, Spot
from skipway.wiring.states import State

CODE = "SKW103"
STAGE = "graph"
SEVERITY = "error"


def check(facts: Facts) -> Iterator[Hit]:
    if facts.expect.scheme is not None and facts.expect.skip_scale is None:
        return
    want = 1.0 if facts.expect.skip_scale is None else float(facts.expect.skip_scale)
    for spot in facts.spots:
        join, gain = spot.place.join, spot.site.gain
        if gain is None or abs(gain - want) < 1e-6:
            continue
        where = facts.sublayer(spot.place)
        several = len(join.folded) > 0
        if several and _averaged(facts, join.node, gain):
            continue
        values = {"gain": gain, "want": want}
        if several:
            text = (f"the stream goes around `{where}` on several paths whose gains add up to {gain:g}, want {want:g}; add the "
                    "stream once, in the sublayer or in its caller")
            yield Hit(where, text, None, facts.line(join.node), values)
        elif facts.expect.skip_scale is not None:
            yield Hit(where, f"the shortcut around `{where}` is multiplied by {gain:g}, declared is {want:g}", None, facts.line(join.node), values)
        elif gain >= 1.5 and spot.site.placement != "post" and not _stated(facts, gain) and not _normed(facts, spot):
            text = (f"the shortcut around `{where}` is multiplied by {gain:g}, so the stream grows at every sublayer; declare it "
                    f"(skip_scale={gain:g}) or take the factor out")
            yield Hit(where, text, None, facts.line(join.node), values)


def _normed(facts: Facts, spot: Spot) -> bool:
    """Whether the stream goes on through a norm of each such sum, which takes the factor out again: alpha of KEEL."""
    places = spot.flow.places
    scaled = [k for k, p in enumerate(places) if p.join.gain == spot.place.join.gain]
    later = [(places[k].join.after, places[k + 1].join.before) for k in scaled if k + 1 < len(places)]
    return bool(later) and all(after is not before and before.has(after) and _only_normed(before, after) for after, before in later)


def _only_normed(state: State | None, since: State) -> bool:
    """Whether a state comes of an earlier one through norms, and through activations at most beside them."""
    seen = set()
    while state is not None and state is not since:
        seen.add(state.via)
        state = state.prev
    return seen <= {"norm", "centred", "act"} and bool(seen & {"norm", "centred"})


def _averaged(facts: Facts, node: int, gain: float) -> bool:
    """Whether the sum goes on only through a constant that takes the gain back: a mean of residual paths."""
    g = facts.graph
    users = g.users[node]
    factor = g.gain[users[0]] if len(users) == 1 and g.nodes[users[0]].op in ("mul", "div") else None
    return factor is not None and abs(factor * gain - 1) < 1e-6


def _stated(facts: Facts, gain: float) -> bool:
    """Whether the model's configuration has this number in a field about residuals or skips."""
    config = getattr(facts.record.model, "config", None)
    fields = list(vars(config).items()) if hasattr(config, "__dict__") else []
    fields += [item for _, part in fields if hasattr(part, "to_dict") for item in vars(part).items()]       # encoder and decoder have their own
    for name, value in fields:
        numbers = value if isinstance(value, (list, tuple)) else [value]
        if ("resid" in name or "skip" in name) and any(isinstance(v, float) and abs(v - gain) < 1e-6 for v in numbers):
            return True
    return False


class _Residual(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inner(x)


class _Mlp(nn.Module):
    def __init__(self, dim: int = 16) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.up, self.down = nn.Linear(dim, 32), nn.Linear(32, dim)

    def branch(self, x: Tensor) -> Tensor:
        return self.down(torch.relu(self.up(self.norm(x))))


def _example(mlp: type[nn.Module]) -> Example:
    torch.manual_seed(0)
    body = nn.Sequential(*[_Residual(mlp()) for _ in range(3)])
    net = OrderedDict(stem=nn.Linear(4, 16), body=body, norm=nn.LayerNorm(16), head=nn.Linear(16, 3))
    return Example(nn.Sequential(net).eval(), (torch.randn(2, 6, 4),), where="body.0")


def bad() -> Example:
    """The module adds its input, and so does the wrapper around it: the stream is taken twice."""

    class Mlp(_Mlp):
        def forward(self, x: Tensor) -> Tensor:
            return x + self.branch(x)

    return _example(Mlp)


def good() -> Example:
    """Only the wrapper adds the stream."""

    class Mlp(_Mlp):
        def forward(self, x: Tensor) -> Tensor:
            return self.branch(x)

    return _example(Mlp)

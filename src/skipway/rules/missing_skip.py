"""missing-skip: a sublayer stands on the stream itself, with no path around it.

What it does
    Reports a sublayer that keeps the shape of the stream and through which every path from input to output runs,
    although the sublayers around it are bypassed by a shortcut.
Why it matters
    Without the shortcut the block replaces its input instead of refining it: the identity is lost at that depth and the
    gradient passes through F alone. Shapes are right and the model still trains, only worse, so nothing else will tell.
    Reported in znxlwm/UGATIT-pytorch#32, delira-dev/delira#91 and zsef123/EfficientNets-PyTorch#2: residual blocks
    whose forward returns the branch and never adds the input.
Fires on
    `x = x + attn(norm1(x))` followed by `x = ffn(norm2(x))`; a residual block class whose `+ x` was never written; an
    add behind a condition that is never true for these inputs. A plain net with no skip anywhere is a note, and an
    error only when it is deep.
Quiet on
    Sublayers that change the width or the resolution (a stem, patch merging, a strided inverted bottleneck: questions
    in lukemelas/EfficientNet-PyTorch#124 and d-li14/mobilenetv3.pytorch#20); skips by concatenation, as in a U-Net
    (milesial/Pytorch-UNet#252); skips that live in a wrapper or a caller (lucidrains/RETRO-pytorch#40); the layers
    before the first join of the model's own forward.
What to do
    Add the input of the sublayer to its output, inside the block or in its caller, not in both. Where the sublayer is
    meant to stand alone, say so with `# skipway: ignore[SKW101]` on its line.
"""

import itertools
import math
import re
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from skipway.rules._base import Example, Facts, Hit, common, shape
from skipway.rules._source import unrun_add
from skipway.wiring import operations as ops
from skipway.wiring.record import Call
from skipway.wiring.sites import Place

CODE = "SKW101"
STAGE = "graph"
SEVERITY = "error"

_NAMED = re.compile(r"Res(?=[A-Z0-9_]|Net|Block|Unit|idual|$)|[Rr]es_?[Bb]lock|[Rr]esidual|[Rr]esnet|Bottleneck|InvertedRes")
_FLAGS = re.compile(r"skip|resid|shortcut|identity|use_res", re.I)
DEEP = 16           # learned operations in a row, all of one shape, from where on a plain net is told as an error


def check(facts: Facts) -> Iterator[Hit]:
    told: set[int] = set()
    for hit, learned in (*_between_joins(facts), *_standing_modules(facts)):
        if not told.intersection(learned):
            told.update(learned)
            yield hit


def _between_joins(facts: Facts) -> Iterator[tuple[Hit, tuple[int, ...]]]:
    """Sublayers on the stretch between two joins of which one stands in the same block."""
    g, calls = facts.graph, facts.record.calls
    joined = {j.node: j for j in g.joins.found}
    for unit in facts.trunk.units():
        first = g.nodes[unit.start]
        if not unit.sublayer or (unit.end not in joined and unit.start not in joined):
            continue
        learned = [n for n in unit.learned if n < unit.end or unit.end not in joined]
        if len(learned) < 2 and not unit.attends:
            continue
        end = max(learned)
        if not _alike(first.shape, g.nodes[end].shape):
            continue
        owner = common([calls[g.nodes[n].call].path for n in learned])
        home = _home(facts, end)
        near = any(n in joined and home.first <= n < home.last for n in (unit.start, unit.end))
        if near and home.path and _keeps_shape(facts, learned):
            where = owner if owner and owner != home.path else facts.path(end)
            yield _hit(facts, where, end, None, _begins(facts, unit.start, end)), tuple(learned)


def _alike(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """Whether two shapes are those of one stream: tokens of one width, an image of one size and depth, or the one spread as the other."""
    if len(a) != len(b) or len(a) < 4:
        return a[-1] == b[-1] or math.prod(a) == math.prod(b)
    return b in (a, (a[0], *a[2:], a[1]), (a[0], a[-1], *a[1:-1]))          # channels first or last


def _keeps_shape(facts: Facts, learned: list[int]) -> bool:
    """Whether the numbered module around a sublayer, if it holds no join, keeps the shape as a whole: one that does not cannot have a skip."""
    calls, nodes = facts.record.calls, facts.graph.nodes
    call = calls[nodes[max(learned)].call]
    while call.parent >= 0 and call.parent != call.id and not (call.first <= min(learned) and call.path.rpartition(".")[2].isdigit()):
        call = calls[call.parent]
    if _joins_in(facts, call):
        return True
    ins = [nodes[n].shape for _, n in call.ins if facts.graph.signal[n]]
    outs = [nodes[n].shape for _, n in call.outs if facts.graph.signal[n]]
    return not ins or not outs or outs[0] in ins


def _home(facts: Facts, node: int) -> Call:
    """The numbered block around a node that holds a join; the model itself where no module is numbered."""
    calls = facts.record.calls
    call = calls[facts.graph.nodes[node].call]
    while call.parent >= 0 and call.parent != call.id and not (call.path.rpartition(".")[2].isdigit() and _joins_in(facts, call)):
        call = calls[call.parent]
    return call


def _joins_in(facts: Facts, call: Call) -> bool:
    return any(call.first <= j.node < call.last for j in facts.graph.joins.found)


def _standing_modules(facts: Facts) -> Iterator[tuple[Hit, tuple[int, ...]]]:
    """Modules that keep the shape and hold a whole sublayer, on the trunk, smallest first."""
    calls = facts.record.calls
    found = [(c, u) for c in calls for u in [facts.trunk.standing(c)] if u is not None and u.sublayer]
    smallest = [(c, u) for c, u in found if not any(v.learned != u.learned and set(v.learned) < set(u.learned) for _, v in found)]
    around = set().union(*[p.join.region.nodes for p in facts.places if not _resamples(facts, p)])
    bypassed = {(type(c.module), _owner(facts, c)) for c in calls if c.last > c.first and c.last - 1 in around}
    joining: dict[type, set[str]] = {}
    for place in facts.places:
        if place.call > 0 and not _resamples(facts, place):
            joining.setdefault(type(calls[place.call].module), set()).add(place.join.kind)
    told: set[int] = set()
    notes: list[tuple[Hit, tuple[int, ...]]] = []
    for call, unit in sorted(smallest, key=lambda cu: (_plain_class(cu[0]), cu[0].id)):     # of nested ones the owner's class speaks
        if not told.isdisjoint(unit.learned):
            continue
        told.update(unit.learned)
        joined = [p.join.node for p in facts.places if p.call == calls[call.parent].id and not _resamples(facts, p)]
        beside = bool(joined) and (call.parent > 0 or min(joined) < call.first)
        kind, owner = type(call.module), _owner(facts, call)
        like = any(_kin(kind, other) and (None in (owner, its) or owner is its) for other, its in bypassed)
        own = not _plain_class(call) and (like or _forgot(kind, joining))
        if beside or own or (not facts.places and _meant(facts, call)):
            yield _hit(facts, call.path, unit.end, call, _norm_before(facts, call)), unit.learned
        elif not facts.places:
            notes.append((_note(facts, call.path, unit.end, call), unit.learned))
    if not facts.places:
        yield from _plain(facts)                            # a deep one is an error, which no note about a part of it hides
    yield from notes


def _owner(facts: Facts, call: Call) -> type | None:
    """The class of the module that calls a module; None for a container of torch's and for the model itself, which hold anything."""
    outer = facts.record.calls[call.parent]
    return None if outer.id == 0 or _plain_class(outer) else type(outer.module)


def _forgot(kind: type, joining: dict[type, set[str]]) -> bool:
    """Whether modules of a kind join elsewhere, and not by an add that its own forward leaves out here: that is a choice of its maker."""
    return any(_kin(kind, other) and not (kind is other and "identity" in how) for other, how in joining.items())


def _resamples(facts: Facts, place: Place) -> bool:
    """Whether a join goes around convolutions on a smaller image than it begins and ends with: the levels of a U-Net, not a block."""
    g, join = facts.graph, place.join

    def pixels(n: int) -> int:
        shape = g.nodes[n].shape
        return shape[2] * shape[3] if len(shape) == 4 else 0

    ends = min(pixels(join.before.node), pixels(join.node))
    return any(1 < pixels(n) < ends for n in join.region.nodes if g.learned[n])


def _kin(a: type, b: type) -> bool:
    """Whether one class is the other or derives from it, torch's own apart."""
    return not b.__module__.startswith("torch.nn") and (issubclass(a, b) or issubclass(b, a))


def _plain_class(call: Call) -> bool:
    return type(call.module).__module__.startswith("torch.nn")


def _meant(facts: Facts, call: Call) -> bool:
    """Whether a module was meant to have a skip: by its class name, by a flag, or by an add in its source that never ran."""
    flags = [k for k, v in vars(call.module).items() if isinstance(v, bool)]
    named = bool(_NAMED.search(type(call.module).__name__)) or any(_FLAGS.search(k) for k in flags)
    calls = facts.record.calls
    while True:                                             # the add may be written in the block around it
        if named or (not _plain_class(call) and unrun_add(call.module, facts.record) is not None):
            return True
        if call.path.rpartition(".")[2].isdigit() or call.parent < 0 or call.parent == call.id:
            return False
        call = calls[call.parent]


def _plain(facts: Facts) -> Iterator[tuple[Hit, tuple[int, ...]]]:
    """A net with no skip anywhere: said once, as an error where it is deep."""
    g = facts.graph
    learned = [n for n in facts.trunk.cuts if g.learned[n] and g.nodes[n].op not in ops.LOOKUPS]
    longest = run = 0
    for a, b in itertools.pairwise(learned):
        run = run + 1 if g.nodes[a].shape == g.nodes[b].shape else 0
        longest = max(longest, run)
    if len(learned) < 3 or longest < DEEP:
        if facts.trunk.units() and len(learned) > 2 and not any(u.sublayer for c in facts.record.calls for u in [facts.trunk.standing(c)] if u):
            text = f"no skip anywhere: {len(learned)} learned operations in a row; bypass them in blocks if the net is to be deep"
            yield Hit("", text, "note", facts.line(learned[-1]), {"learned": len(learned)}), ()
        return
    severity = "error"
    text = (f"no skip anywhere: {len(learned)} learned operations in a row; beyond about {DEEP} of one shape such a net is hard to "
            "train, bypass them in blocks")
    yield Hit("", text, severity, facts.line(learned[-1]), {"learned": len(learned), "longest": longest}), tuple(learned)


def _hit(facts: Facts, where: str, end: int, call: Call | None, begins: str | None = None) -> Hit:
    kept = shape(facts.graph.nodes[end].shape)
    name = where.rpartition(".")[2] or type(facts.record.model).__name__
    text = (f"`{name}` keeps the shape {kept} and stands on the stream itself: no path goes around it; add its input to its "
            f"output, `x = x + {name}(...)`")
    return Hit(where, text, None, _line(facts, where, end, call), {"shape": list(facts.graph.nodes[end].shape), "begins": begins or where})


def _begins(facts: Facts, start: int, end: int) -> str | None:
    """The module that is given the stream's state first on the stretch from a node to another: the norm of a pre-norm sublayer."""
    state = facts.graph.state[start]
    found = (c for c in facts.record.calls[1:] if start <= c.first <= end and c.last > c.first and not c.first <= start < c.last)
    return next((c.path for c in found if state is not None and any(facts.graph.state[n] is state for _, n in c.ins)), None)


def _norm_before(facts: Facts, call: Call) -> str | None:
    """The norm in the same block whose output a module is given: with it begins the sublayer."""
    calls = facts.record.calls
    state = next((s for _, n in call.ins if (s := facts.graph.state[n]) is not None), None)
    if state is None or state.norm is None or state.via != "norm":
        return None
    norm = calls[state.norm.call]
    return norm.path if calls[norm.parent].id == call.parent and norm.id != call.id else None


def _note(facts: Facts, where: str, end: int, call: Call | None) -> Hit:
    text = (f"`{where or type(facts.record.model).__name__}` has no path around it, and neither has anything else in this net; add "
            "a skip if it is meant to be a residual block")
    return Hit(where, text, "note", _line(facts, where, end, call))


def _line(facts: Facts, where: str, end: int, call: Call | None) -> tuple[str, int] | None:
    """The line that calls the sublayer: the outermost call inside the block that ends with it."""
    calls = facts.record.calls
    call = call or calls[facts.graph.nodes[end].call]
    while call.where is None and call.parent >= 0 and call.parent != call.id:
        call = calls[call.parent]
    return call.where or facts.line(end)


def mend(where: str, values: Mapping[str, Any]) -> str | None:
    return f".branch({where!r}, begins={values['begins']!r}).insert_skip()" if "begins" in values and where else None


class _Block(nn.Module):
    def __init__(self, dim: int = 16) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.mix = nn.MultiheadAttention(dim, 2, batch_first=True)
        self.ffn = nn.Sequential(nn.Linear(dim, 32), nn.GELU(), nn.Linear(32, dim))

    def attend(self, x: Tensor) -> Tensor:
        n = self.norm1(x)
        return x + self.mix(n, n, n, need_weights=False)[0]


def _example(block: type[nn.Module]) -> Example:
    torch.manual_seed(0)
    blocks = nn.Sequential(*[block() for _ in range(3)])
    net = OrderedDict(stem=nn.Linear(4, 16), blocks=blocks, norm=nn.LayerNorm(16), head=nn.Linear(16, 3))
    return Example(nn.Sequential(net).eval(), (torch.randn(2, 6, 4),), where="blocks.0")


def bad() -> Example:
    """The feed-forward result replaces the stream: its `x +` is missing."""

    class Block(_Block):
        def forward(self, x: Tensor) -> Tensor:
            return self.ffn(self.norm2(self.attend(x)))

    return _example(Block)


def good() -> Example:
    """Both sublayers add to the stream."""

    class Block(_Block):
        def forward(self, x: Tensor) -> Tensor:
            x = self.attend(x)
            return x + self.ffn(self.norm2(x))

    return _example(Block)

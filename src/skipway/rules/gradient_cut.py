"""gradient-cut: the stream's gradient is cut before it reaches trainable residual blocks.

What it does
    Runs one forward and backward in training mode and follows the stream through the autograd graph: from join to join, along the
    shortcut and through the branch. Reports each place where it is cut and behind which parameters of residual blocks that
    require a gradient, and that the output depends on, get none; and a shortcut that is cut while its branch is not.
Why it matters
    The loss still falls, by what lies after the cut, and nothing raises: parameters without a gradient are skipped by the optimiser.
    A reentrant checkpoint whose inputs need no gradient (a frozen or integer-fed first block) does it, with one warning; so
    does a `detach` left from an experiment.
Fires on
    `x = block(x.detach())`; `x.detach() + f(x)`, where the gradient passes through f alone; `x + f(x).detach()`; blocks run under
    `no_grad`; `checkpoint(block, x, use_reentrant=True)` where x needs no gradient.
Quiet on
    Frozen parameters, and whatever lies before the cut has only those; stop-gradient on targets and teachers; second outputs and
    gates; parameters that get their gradient another way (auxiliary losses, shared weights). A whole stack that is called under
    `no_grad` is a note: it is mostly meant.
What to do
    Take the detach out; use `use_reentrant=False`, or let the first block's input require a gradient; freeze what is not to be trained
    (`requires_grad_(False)`).
"""

import inspect
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from skipway.rules._base import Example, Facts, Hit
from skipway.rules._gradients import Gradients
from skipway.rules._real import Real
from skipway.wiring.sites import Place
from skipway.wiring.streams import Flow

CODE = "SKW605"
STAGE = "train"
SEVERITY = "error"


def check(facts: Facts) -> Iterator[Hit]:
    real = facts.train
    if real.run.failed is not None:
        return
    grads = Gradients(real)
    told: set[tuple[str, str]] = set()
    for flow in real.flows:
        if flow.main and flow.places[-1].join.node in grads.wanted:
            for hit in _cuts(real, grads, flow):
                key = (hit.where, str(hit.values["cut"]))
                if key not in told:
                    told.add(key)
                    yield hit


def _cuts(real: Real, grads: Gradients, flow: Flow) -> Iterator[Hit]:
    yield from _dead(real, grads, flow)
    joins = {p.join.node: p for p in flow.places}
    for k, place in enumerate(flow.places):
        base = _base(place)
        if base is None or base not in joins or base not in grads.alive or place.join.node not in grads.alive:
            continue
        if not grads.reaches(place.join.node, base):
            lost = _lost(real, grads, [p for p in flow.places[:k] if p.join.node <= base])
            if lost:
                yield _hit(real, grads, "stream", _cut_on(real, grads, place.join.shortcut, base), joins[base], place, lost)
        elif not _beside(real, place, base) and not grads.reaches(place.join.shortcut, base):
            yield _hit(real, grads, "shortcut", _cut_on(real, grads, place.join.shortcut, base), place, place, [])
        elif place.join.node in grads.alive:
            lost = _lost(real, grads, [place])
            if lost and not any(grads.reaches(place.join.node, leaf) for leaf in _leaves(real, grads, place)):
                yield _hit(real, grads, "branch", _cut_on(real, grads, place.join.branch, base), place, place, lost)
    yield from _tail(real, grads, flow)


def _beside(real: Real, place: Place, base: int) -> bool:
    """Whether the shortcut is the state itself, or a value that is kept beside it to be read over depth."""
    shortcut = place.join.shortcut
    return shortcut == base or bool(place.join.folded) or real.graph.state[shortcut] in real.graph.written


def _dead(real: Real, grads: Gradients, flow: Flow) -> Iterator[Hit]:
    """Runs of sites that the autograd graph does not hold at all, although their branches have trainable parameters."""
    run: list[Place] = []
    for place in [*flow.places, None]:
        dead = place is not None and place.join.node not in grads.alive and place.join.node in grads.wanted
        if place is not None and dead and (run or _leaves(real, grads, place)):
            run.append(place)
            continue
        lost = _lost(real, grads, run)
        if lost:
            why = _why(real, run[0])
            meant = why == "no_grad" and (len(run) == len(flow.places) or _one_stack(real, run))
            other = why != "checkpoint" and len(run) == len(flow.places) and grads.others(flow)
            if not other:
                first, last = _block(real, run[0]), _block(real, run[-1])
                what = f"`{first}`" if first == last else f"`{first}` to `{last}`"
                text = (f"{what} {_HOW[why]}: {len(lost)} trainable parameters of residual blocks, such as `{lost[0]}`, get no gradient; "
                        f"{_ADVICE[why]}")
                yield Hit(first, text, "note" if meant else None, real.line(run[0].join.node),
                          {"cut": "blocks", "by": why, "parameters": len(lost), "sites": len(run)})
        run = []


def _why(real: Real, place: Place) -> str:
    """What keeps a site out of the autograd graph: how its sum, or the end of its branch, was made."""
    nodes = (place.join.node, place.join.branch, *reversed(place.join.region.nodes))
    return next((real.run.untracked[n] for n in nodes if n in real.run.untracked), "detach")


_HOW = {"no_grad": "runs with gradients turned off", "detach": "is detached",
        "checkpoint": "runs under a reentrant checkpoint whose inputs need no gradient"}
_ADVICE = {"no_grad": "run it with gradients, or freeze it (requires_grad_(False))", "detach": "take the detach out, or freeze what is before it",
           "checkpoint": "use checkpoint(..., use_reentrant=False), or let the inputs require gradients"}


def _one_stack(real: Real, run: list[Place]) -> bool:
    """Whether a run of sites is all that one module call holds, and that module holds several blocks: a stack that is used as it is."""
    calls = real.record.calls
    call = calls[run[0].call]
    while call.parent >= 0 and not (call.first <= run[0].join.node and run[-1].join.node < call.last):
        call = calls[call.parent]
    return call.id > 0 and len({_block(real, p) for p in run}) > 1


def _tail(real: Real, grads: Gradients, flow: Flow) -> Iterator[Hit]:
    """A cut after the last join: the head learns, the blocks do not."""
    last = flow.places[-1]
    if last.join.node not in grads.alive or last.join.node in grads.reached:
        return
    lost = _lost(real, grads, flow.places)
    if not lost or (grads.others(flow) and not grads.feeds(flow)):
        return
    after = [n for n in range(last.join.node + 1, len(real.graph.nodes)) if n in grads.wanted and grads.cuts(n)]
    cut = next((n for n in after if real.graph.signal[n] and grads.made_of(n, last.join.node)), None)
    yield _hit(real, grads, "stream", cut, last, last, lost)


def _base(place: Place) -> int | None:
    """The join whose sum a shortcut carries."""
    state = place.join.before
    while state is not None and state.via != "join":
        if state.prev is None:
            return None
        state = state.prev
    return state.node if state is not None else None


def _leaves(real: Real, grads: Gradients, place: Place) -> list[int]:
    """The trainable parameters that the branches of a join read."""
    nodes = real.graph.nodes
    found = {leaf for n in place.join.region.nodes for i in nodes[n].ins if not real.graph.signal[i] for leaf in real.stored(i)}
    return sorted(n for n in found if nodes[n].op == "param" and nodes[n].name in real.weights and n in grads.wanted)


def _lost(real: Real, grads: Gradients, places: list[Place]) -> list[str]:
    """Names of the trainable parameters in the branches of these joins that got no gradient."""
    names = [real.graph.nodes[n].name for p in places for n in _leaves(real, grads, p)]
    return [n for n in dict.fromkeys(names) if real.weights[n] is None]


def _cut_on(real: Real, grads: Gradients, end: int, start: int) -> int | None:
    """The first node between two that is not in the autograd graph."""
    between = (n for n in grads.behind(end, start) if n > start and grads.cuts(n) and real.graph.signal[n])
    return next((n for n in between if grads.made_of(n, start)), None)


def _block(real: Real, place: Place) -> str:
    return real.block(place)[0] or real.sublayer(place)


def _hit(real: Real, grads: Gradients, what: str, cut: int | None, before: Place, after: Place, lost: list[str]) -> Hit:
    why = "detach" if cut is None else real.run.untracked.get(cut, "detach")
    path = "" if cut is None else real.path(cut)
    inside = any(path == b or path.startswith(b + ".") for b in (_block(real, before), _block(real, after)) if b)
    where = path if path and inside else _block(real, before)
    line = None if cut is None else _source_line(real.modules.get(path)) or real.line(cut)
    if what == "shortcut":
        text = f"the shortcut of `{where}` is cut ({_BY[why]}): the gradient of the stream passes through the branch alone; add the stream itself"
    else:
        text = (f"the {what} is cut at `{where}` ({_BY[why]}): {len(lost)} trainable parameters of residual blocks, such as `{lost[0]}`, "
                f"get no gradient; {_ADVICE[why]}")
    return Hit(where, text, None, line, {"cut": what, "by": why, "parameters": len(lost)})


_BY = {"detach": "detached", "no_grad": "gradients are off", "checkpoint": "a reentrant checkpoint without gradients"}


def _source_line(module: nn.Module | None) -> tuple[str, int] | None:
    """The line of a forward that detaches, where there is exactly one."""
    if module is None:
        return None
    try:
        lines, first = inspect.getsourcelines(type(module).forward)
        file = inspect.getsourcefile(type(module).forward)
    except (OSError, TypeError):
        return None                                     # no source to read: a class made in memory
    found = [first + i for i, line in enumerate(lines) if ".detach(" in line]
    return (file, found[0]) if file is not None and len(found) == 1 else None


class _Block(nn.Module):
    def __init__(self, dim: int = 16) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(dim), nn.Linear(dim, 32), nn.Linear(32, dim)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(torch.relu(self.up(self.norm(x))))


class _Net(nn.Module):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 16)
        self.embed.requires_grad_(False)
        self.blocks = nn.ModuleList([_Block() for _ in range(3)])
        self.head = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 3))
        self.reentrant = reentrant

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=self.reentrant)
        return self.head(x)


def _example(reentrant: bool) -> Example:
    torch.manual_seed(0)
    return Example(_Net(reentrant).eval(), (torch.randint(0, 20, (2, 6)),), where="blocks.0", options={"stage": "train"})


def bad() -> Example:
    """Reentrant checkpoints behind a frozen embedding: their inputs need no gradient."""
    return _example(True)


def good() -> Example:
    """The same checkpoints, not reentrant."""
    return _example(False)

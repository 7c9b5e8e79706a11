"""drop-path-inert: a stochastic-depth module with a rate above zero is registered and never called.

What it does
    Looks for modules that drop whole branches (by their class, or by the attribute that holds them) with a rate above zero, and says
    which of them do nothing in a forward in training mode: never called although the block around them runs, called without
    drawing a number, or called for a result that nothing uses.
Why it matters
    The configuration says 0.1 and nothing is regularised. It comes from copies of a block: `drop_path1` is applied to both
    sublayers and `drop_path2` to none (LibreYOLO/libreyolo#422), or the module is made and the forward was never changed
    (facebookresearch/deit#123). A functional drop-path whose `training` argument is left at its default is the same.
Fires on
    `self.drop_path2 = DropPath(0.1)` that no forward calls; `drop_path(x, self.rate)` where `training` is False unless
    given; `self.drop_path(y)` without `y = `.
Quiet on
    A rate of zero, and `nn.Identity` in its place. Blocks that did not run, or that have no skip (those of an EfficientNet that
    change the width keep the module). Modules
    that draw from the interpreter's random numbers.
What to do
    Call it on the branch, before the add: `x = x + self.drop_path2(self.ffn(x))`; or take it out.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from skipway.rules._base import Example, Facts, Hit
from skipway.rules._drops import rate_of, stochastic_depth
from skipway.rules._random import seeded, snapshot
from skipway.rules._real import Real
from skipway.wiring import operations as ops
from skipway.wiring.forward import How, record_values
from skipway.wiring.record import Call
from skipway.wiring.values import Keeper

CODE = "SKW404"
STAGE = "train"
SEVERITY = "note"


def check(facts: Facts) -> Iterator[Hit]:
    real = facts.train
    calls: dict[int, list[Call]] = {}
    for call in real.record.calls:
        calls.setdefault(id(call.module), []).append(call)
    elsewhere = {id(c.module) for c in facts.real.record.calls}
    silent: list[tuple[str, nn.Module, float]] = []
    for path, module in real.modules.items():
        rate = rate_of(module) if _drops(module, path) else None
        if rate is None or not 0 < rate < 1:
            continue
        if id(module) not in calls:
            if id(module) not in elsewhere and _skips(real, path, calls):
                yield _hit(path, rate, "is never called in the forward", "not called")
        elif all(_unused(real, c) for c in calls[id(module)]):
            yield _hit(path, rate, "is called, and nothing uses its result", "result unused")
        elif all(_passes(real, c) for c in calls[id(module)]):
            silent.append((path, module, rate))
    if silent:
        drew = _drawing(facts, {id(m) for _, m, _ in silent})
        for path, module, rate in silent:
            if id(module) not in drew:
                yield _hit(path, rate, "is called in training and drops nothing: it draws no random number", "draws nothing")


def _drops(module: nn.Module, path: str) -> bool:
    """Whether a module without parts drops whole branches, by its class or the attribute that holds it (which may be a plain drop-out)."""
    named = isinstance(module, nn.modules.dropout._DropoutNd) and stochastic_depth(nn.Identity(), path)
    return not list(module.children()) and (named or stochastic_depth(module, path))


def _skips(real: Real, path: str, calls: dict[int, list[Call]]) -> bool:
    """Whether the nearest module around that can be called did run, and has a branch to drop: a join."""
    while path:
        path = path.rpartition(".")[0]
        module = real.modules.get(path)
        if module is not None and not isinstance(module, (nn.ModuleList, nn.ModuleDict)):
            return any(c.first <= j.node < c.last for c in calls.get(id(module), ()) for j in real.graph.joins.found)
    return False


def _unused(real: Real, call: Call) -> bool:
    outs = [n for _, n in call.outs]
    return bool(outs) and not any(n in real.live for n in outs)


def _passes(real: Real, call: Call) -> bool:
    """Whether a call hands on what it was given, and none of its operations draws a number."""
    g = real.graph
    given = {g.state[n] for _, n in call.ins if g.signal[n]}
    same = all(g.state[n] in given for _, n in call.outs if g.signal[n])
    return same and not any(g.nodes[n].op in ops.RANDOM for n in range(call.first, call.last))


class _Listener(Keeper):
    """A forward that finds out which modules move a global random state."""

    def __init__(self, model: nn.Module, dtype: torch.dtype | None, watched: set[int]) -> None:
        super().__init__(model, dtype)
        self.watched, self.drew = watched, set[int]()

    def call(self, original: Callable[..., Any], module: nn.Module, args: Any, kwargs: Any) -> Any:
        if id(module) not in self.watched:
            return super().call(original, module, args, kwargs)
        before = snapshot()
        out = super().call(original, module, args, kwargs)
        if snapshot() != before:
            self.drew.add(id(module))
        return out


def _drawing(facts: Facts, watched: set[int]) -> set[int]:
    """Of the watched modules, by identity, those that draw a random number anywhere."""
    runs = facts.runs
    assert runs is not None
    listener = _Listener(runs.model, runs.dtype, watched)
    with seeded(None):
        record_values(listener, runs.args, runs.kwargs, How(dtype=runs.dtype, training=True), lambda record, returned: None)
    return listener.drew


def _hit(path: str, rate: float, what: str, why: str) -> Hit:
    return Hit(path, f"`{path}` has a rate of {rate:g} and {what}; call it on the branch before the add, or take it out", None, None,
               {"rate": rate, "why": why})


class _DropPath(nn.Module):
    def __init__(self, drop_prob: float) -> None:
        super().__init__()
        self.drop_prob = drop_prob

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        keep = 1 - self.drop_prob
        return x * x.new_empty(x.size(0), 1, 1).bernoulli_(keep) / keep


class _Block(nn.Module):
    def __init__(self, dim: int = 16) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.mix = nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.Linear(dim, dim))
        self.ffn = nn.Sequential(nn.Linear(dim, 32), nn.GELU(), nn.Linear(32, dim))
        self.drop_path1, self.drop_path2 = _DropPath(0.1), _DropPath(0.1)


def _example(block: type[nn.Module]) -> Example:
    torch.manual_seed(0)
    return Example(nn.Sequential(block(), block()).eval(), (torch.randn(2, 6, 16),), where="0.drop_path2", options={"stage": "train"})


def bad() -> Example:
    """A copied block that applies its first drop-path twice and its second one never."""

    class Block(_Block):
        def forward(self, x: Tensor) -> Tensor:
            x = x + self.drop_path1(self.mix(self.norm1(x)))
            return x + self.drop_path1(self.ffn(self.norm2(x)))

    return _example(Block)


def good() -> Example:
    """Each drop-path on a branch of its own."""

    class Block(_Block):
        def forward(self, x: Tensor) -> Tensor:
            x = x + self.drop_path1(self.mix(self.norm1(x)))
            return x + self.drop_path2(self.ffn(self.norm2(x)))

    return _example(Block)

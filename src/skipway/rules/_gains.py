"""What multiplies the branches on the way to their adds, on average over what is drawn, and the same over many forwards."""

import gc
import itertools
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from skipway.rules._base import Facts, Spot
from skipway.rules._drops import applied, carriers, in_join, mean_of
from skipway.rules._random import seeded
from skipway.rules._real import Real
from skipway.wiring.labels.nodes import scalar
from skipway.wiring.states import NOISE, STORED
from skipway.wiring.values import run

TOLERANCE = 0.015       # relative; rounding and the grid of a mean stay below

Key = tuple[Any, ...]


@dataclass(frozen=True)
class Gain:
    """The factor on the branch of one site. `learned` are the names of the parameters that multiply it as well."""

    node: int
    call: int
    factor: float
    error: float = 0.0
    learned: frozenset[str] = frozenset()
    masked: bool = False                        # a random mask is part of it
    where: str = ""                             # the module that applies the mask
    line: tuple[str, int] | None = None
    shapes: tuple[tuple[int, ...], ...] = field(default=())

    def comparable(self, other: "Gain") -> bool:
        """Whether the two multiply values of the same shapes by the same parameters."""
        return self.learned == other.learned and self.shapes == other.shapes

    def agrees(self, other: "Gain") -> bool:
        """Whether the factors are equal, or cannot be compared."""
        off = TOLERANCE * max(abs(self.factor), abs(other.factor)) + self.error + other.error
        return not self.comparable(other) or abs(self.factor - other.factor) <= off


def key_of(real: Real, spot: Spot) -> Key:
    """What makes a site the same one in another run: the call that joins, and what computes its branches."""
    call = real.record.calls[spot.place.call]
    return (call.path, call.number, tuple(b.modules for b in spot.site.branches))


def gains(real: Real) -> dict[Key, Gain]:
    """The gain of every site of a main stream; sites that cannot be told apart, or whose gain cannot be told, are left out."""
    found: dict[Key, list[Gain | None]] = {}
    for spot in real.spots:
        found.setdefault(key_of(real, spot), []).append(_gain(real, spot))
    return {(*key, k): gain for key, many in found.items() for k, gain in enumerate(many) if gain is not None}


def _gain(real: Real, spot: Spot) -> Gain | None:
    join = spot.place.join
    if join.folded:
        return None
    ends = list(_ends(real, join.branch))
    factors = {end.factor for end in ends if end is not None}
    if None in ends or len(factors) != 1:
        return None
    parts = [end for end in ends if end is not None]
    factor, error, masked, where = parts[0].factor, parts[0].error, any(e.masked for e in parts), next((e.where for e in parts if e.where), "")
    line = next((e.line for e in parts if e.line is not None), None)
    own = in_join(real, join)
    if own is not None:
        mean = mean_of(real, own)
        if mean is None:
            return None
        factor, error, masked, where, line = factor * mean.factor, error + mean.error, True, real.path(own.node), real.line(own.node)
    if join.factor is not None:
        factor *= join.factor
    return Gain(join.node, spot.place.call, factor, error * abs(factor), frozenset().union(*[e.learned for e in parts]), masked,
                where, line or real.line(join.node), tuple(s for e in parts for s in e.shapes))


def _ends(real: Real, start: int) -> Iterator[Gain | None]:
    """Back from an operand to the values it is made of: for each its shape and all that multiplies it; None where that cannot be told."""
    g = real.graph
    n, factor, error, learned, masked, where, line = start, 1.0, 0.0, set[str](), False, "", None
    while True:
        state = g.state[n]
        if state is None:
            yield None
            return
        if state.node == n:
            break
        drop = applied(real, n)
        if drop is not None:
            mean = mean_of(real, drop)
            if mean is None:
                yield None
                return
            factor, error, masked = factor * mean.factor, error + mean.error, True
            where, line = where or real.path(n), line or real.line(n)
        elif any(not g.signal[i] and g.table[i] & NOISE for i in g.nodes[n].ins):
            yield None                                  # noise that is added, as alpha drop-out does
            return
        else:
            made = _constant(real, n)
            if made is None:
                learned |= _names(real, n)
            else:
                factor *= made
        n = next(carriers(real, n))
    parts = g.terms.get(n, ()) if state.via == "sum" else ()
    parts = tuple(i for i in parts if g.signal[i])
    if len(parts) > 1:
        for part in parts:
            for end in _ends(real, part):
                yield None if end is None else Gain(n, 0, end.factor * factor, end.error + error, end.learned | learned, end.masked or masked,
                                                    where or end.where, line or end.line, end.shapes)
        return
    yield Gain(n, 0, factor, error, frozenset(learned), masked, where, line, (g.nodes[n].shape,))


def _constant(real: Real, n: int) -> float | None:
    """The number that a node multiplies its value by: 1 where it only moves it, None for parameters and gates."""
    g = real.graph
    node = g.nodes[n]
    if node.op == "neg":
        return -1.0
    if node.op not in ("mul", "div"):
        return 1.0
    if len(node.ins) == 1:
        value = scalar(node)
        return None if value is None or (node.op == "div" and value == 0) else value if node.op == "mul" else 1 / value
    source = next(carriers(real, n))
    other = node.ins[1] if node.ins[0] == source else node.ins[0]
    if g.signal[other] or g.table[other] & NOISE:
        return None
    if g.table[other] & STORED and any(g.nodes[leaf].op == "param" for leaf in real.stored(other)):
        return None
    held = real.value(other).double()
    if not held.numel() or not bool((held == held.flatten()[0]).all()) or (node.op == "div" and not bool(held.flatten()[0])):
        return None
    number = float(held.flatten()[0])
    return number if node.op == "mul" else 1 / number


def _names(real: Real, n: int) -> set[str]:
    """What multiplies a value at a node and is no constant, by name: parameters, or "gate"."""
    g = real.graph
    node = g.nodes[n]
    sides = [i for i in node.ins if not g.signal[i]]
    return {g.nodes[leaf].name for i in sides for leaf in real.stored(i)} or {"gate"}


def more(facts: Facts, wanted: Collection[Key]) -> Iterator[dict[Key, Gain]]:
    """The gains of forwards in training mode without end, each with other random numbers; the random state is left as it was."""
    runs = facts.runs
    assert runs is not None
    for seed in itertools.count():
        with seeded(seed):
            real = Real(run(runs.model, runs.args, runs.kwargs, dtype=runs.dtype, training=True), facts.expect)
        made = gains(real)
        del real
        gc.collect(0)                                   # a run is full of cycles and of activations, and collecting is off during a check
        yield {k: made[k] for k in wanted if k in made}

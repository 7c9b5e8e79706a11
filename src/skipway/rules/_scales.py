"""Stored tensors that multiply a signal on its way: the scales and gates on a shortcut, on a branch, anywhere."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from torch import Tensor

from skipway.rules._real import Real
from skipway.wiring.record import Node
from skipway.wiring.sites import Place
from skipway.wiring.states import STORED

PRODUCTS = frozenset(["mul", "div", "addcmul", "addcdiv"])


@dataclass(frozen=True)
class Scale:
    """One product of a signal and something stored. `value` is the factor itself: after a tanh or sigmoid, where there is one."""

    node: int
    value: Tensor
    names: tuple[str, ...]              # parameters and buffers behind it
    divides: bool

    @property
    def mean(self) -> float:
        """Mean magnitude of what the signal is multiplied by."""
        size = self.value.detach().double().abs()
        return float((1 / size if self.divides else size).mean())


def scales_at(real: Real, n: int, *, signal: int | None = None) -> Iterator[Scale]:
    """The scales that a node multiplies a signal by, those of a norm left out. `signal`: the operand that must be multiplied."""
    g = real.graph
    node = g.nodes[n]
    if node.op not in PRODUCTS or own_weight(real, node):
        return
    factors = node.ins[-2:]                     # addcmul and addcdiv: behind what they add to
    if signal is not None and signal not in factors:
        return
    for i in factors:
        if g.signal[i] or not g.table[i] & STORED or not any(g.signal[j] for j in factors):
            continue
        names = tuple(g.nodes[s].name for s in real.stored(i))
        yield Scale(n, real.value(i), names, node.op in ("div", "addcdiv") and i == factors[-1])


def own_weight(real: Real, node: Node) -> bool:
    """Whether a product is the last step of a norm that is written by hand: its learned gain."""
    state = real.graph.state[node.id]
    return state is not None and state.norm is not None and state.norm.call == node.call


def between(real: Real, start: int, stops: Iterable[int], state_of: int | None = None) -> Iterator[Scale]:
    """Scales on the way back from a node to the nodes `stops`, over signals; `state_of`: only over nodes of that node's state."""
    g = real.graph
    ends = set(stops)
    first = min(ends, default=start)
    seen, stack = {start}, [start]
    while stack:
        n = stack.pop()
        if n in ends:
            continue
        yield from scales_at(real, n)
        for i in g.nodes[n].ins:
            if i not in seen and i >= first and g.signal[i] and (state_of is None or g.state[i] is g.state[state_of]):
                seen.add(i)
                stack.append(i)


def on_shortcut(real: Real, place: Place) -> list[Scale]:
    """Scales of the shortcut operand, which its branch does not read."""
    join = place.join
    g = real.graph
    if join.shortcut not in g.nodes[join.node].ins:
        return []
    found = [*scales_at(real, join.node, signal=join.shortcut), *between(real, join.shortcut, [join.before.node], join.shortcut)]
    read = set(join.region.hits)
    return [s for s in found if not _reads(real, read, s.node)]


def _reads(real: Real, hits: set[int], scaled: int) -> bool:
    """Whether one of the nodes is the scaled value or carries it on."""
    g = real.graph
    for hit in hits:
        n = hit
        while n > scaled and (before := [i for i in g.nodes[n].ins if g.state[i] is not None and g.state[i] is g.state[n]]):
            n = before[0]
        if n == scaled:
            return True
    return False


def on_branch(real: Real, place: Place) -> list[Scale]:
    """Scales between the ends of the sublayers and the join, and in the join itself."""
    join = place.join
    ends = {state.node for t in place.terms if (state := real.graph.state[t.end.node]) is not None}
    found = list(scales_at(real, join.node, signal=join.branch))
    return found + [s for s in between(real, join.branch, ends) if s.node != join.node]


def vector(node: Node) -> bool:
    """Whether a tensor has at most one axis of more than one element."""
    return math.prod(node.shape) == max(node.shape, default=1)


def untrained(real: Real) -> bool:
    """Whether every norm still holds a constant gain, as it was made with; True where no norm has one."""
    gains = [t.detach().flatten() for m in real.modules.values() if "norm" in type(m).__name__.lower()
             for n, t in m.named_parameters(recurse=False) if n in ("weight", "gamma", "scale", "g")]
    return all(bool((t == t[0]).all()) for t in gains if t.numel())

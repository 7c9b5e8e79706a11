"""One branch as a function of the state that it reads: what a change of one place of the state reaches.

The state is replaced by random numbers, so that equal rows, zeros and saturated values of the run hide nothing, and parameters that
are all zero (fresh gates, zero-initialised projections) by small random ones, on values alone: the model is not touched.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from skipway.rules._real import Real, only_first
from skipway.wiring.sites import Place
from skipway.wiring.states import MIXED

MOVES = frozenset(["view", "_unsafe_view", "reshape", "_reshape_alias", "alias", "detach", "clone", "contiguous", "permute", "transpose", "t",
                   "unsqueeze", "squeeze", "roll", "flip", "reread", "movedim"])


@dataclass(eq=False)
class Branch:
    """The branch of a join on a plain stream.

    start: the last node that carries the state before shortcut and branch part. target: the branch's operand at the join, or the
    join where it has none of its own. Places of the state are those of the shortcut, in the join's shape.
    """

    real: Real
    place: Place
    start: int = field(init=False)
    target: int = field(init=False)

    def __post_init__(self) -> None:
        self.target = self.place.join.branch
        self.start = self._start()

    def _start(self) -> int:
        before = self.place.join.before.node
        return next((n for n in self._carriers() if not self.path([n], before)), before)

    def _carriers(self) -> list[int]:
        """The nodes that carry the state to the join, from there back."""
        join, g = self.place.join, self.real.graph
        chain = [join.shortcut]
        while chain[-1] > join.before.node and (back := [i for i in g.nodes[chain[-1]].ins if g.state[i] is join.before]):
            chain.append(back[0])
        return chain

    @cached_property
    def plain(self) -> bool:
        """Whether shortcut and branch are operands of one add of one state that holds finite numbers."""
        join, g = self.place.join, self.real.graph
        held, shape = self.real.value(self.start), g.nodes[join.node].shape
        mixed = join.node in g.reads or g.marks[join.shortcut] & MIXED
        return (not join.folded and join.kind == "identity" and not mixed and held.is_floating_point() and held.numel() > 1
                and bool(held.isfinite().all()) and g.nodes[join.shortcut].shape == shape
                and _spreads(g.nodes[self.target].shape, shape) and self.index is not None)

    @cached_property
    def index(self) -> Tensor | None:
        """For each element of the shortcut the element of the state that it is, counted flat; None where it is none of them."""
        held, shortcut = self.real.value(self.start), self.place.join.shortcut
        own = torch.arange(held.numel(), device=held.device)
        if shortcut == self.start:
            return own.view(held.shape)
        if any(self.real.graph.nodes[n].op not in MOVES for n in self._carriers() if n > self.start):
            return None
        found = self.real.evaluate([shortcut], {self.start: own.double().view(held.shape)})[shortcut].detach()
        order = found.flatten().sort().values
        return found.long() if order.shape == own.shape and torch.equal(order, own.to(order.dtype)) else None

    @cached_property
    def base(self) -> dict[int, Tensor]:
        """The state at random, and what is zero in the branch woken."""
        held = self.real.value(self.start)
        spread = held.float().std()
        spread = spread if bool(spread > 0) else torch.ones_like(spread)
        noise = torch.randn(held.shape, generator=_seeded(), dtype=torch.float32).to(held.device)
        return {self.start: torch.empty_like(held).copy_(held.float().mean() + noise * spread), **self._woken()}

    def _woken(self) -> dict[int, Tensor]:
        g = self.real.graph
        leaves = {s for n in self.path() for i in g.nodes[n].ins if not g.signal[i] for s in self.real.stored(i)}
        found = {}
        for leaf in sorted(leaves):
            held = self.real.value(leaf)
            if g.nodes[leaf].op == "param" and held.is_floating_point() and not bool(held.any()):
                found[leaf] = torch.empty_like(held).copy_(torch.randn(held.shape, generator=_seeded(leaf)) * 0.5)
        return found

    def path(self, fixed: Iterable[int] = (), start: int | None = None) -> list[int]:
        """Nodes by which a change of the state reaches the target, other than through `fixed` ones; in order."""
        nodes, still = self.real.graph.nodes, set(fixed)
        first = self.start if start is None else start
        changed = {first} - still
        for n in range(first + 1, self.target + 1):
            if n not in still and any(i in changed for i in nodes[n].ins):
                changed.add(n)
        seen: set[int] = set()
        stack = [self.target] if self.target in changed else []
        while stack:
            n = stack.pop()
            if n not in seen and n != first:
                seen.add(n)
                stack += [i for i in nodes[n].ins if i in changed]
        return sorted(seen)

    @cached_property
    def choices(self) -> list[int]:
        """Nodes of the path that hold no floating numbers: what was picked, compared and sorted stays as it is."""
        return [n for n in self.path() if not self.real.graph.nodes[n].dtype.is_floating_point and not self.real.graph.nodes[n].dtype.is_complex]

    def results(self, given: Mapping[int, Tensor]) -> tuple[Tensor, Tensor]:
        """The shortcut and the branch where some nodes have other values."""
        shortcut, target = self.place.join.shortcut, self.target
        with torch.no_grad():
            made = self.real.evaluate([shortcut, target], given, self.choices)
        return made[shortcut].detach(), made[target].detach()

    def moved(self, before: tuple[Tensor, Tensor], after: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Which elements of shortcut and branch changed, as masks of the join's shape."""
        shape = self.real.graph.nodes[self.place.join.node].shape
        return tuple(_changed(a, b).broadcast_to(shape) for a, b in zip(before, after, strict=True))  # type: ignore[return-value]

    def other(self, elements: Tensor, number: int = 1) -> Tensor:
        """The random state with other numbers in some elements, given as places in the shortcut."""
        assert self.index is not None
        state = self.base[self.start]
        flat = state.flatten().clone()
        chosen = self.index[elements].flatten()
        spread = state.float().std()
        noise = torch.randn(chosen.shape, generator=_seeded(number)).to(state.device)
        flat[chosen] = (flat[chosen].float() + (noise.sign() + noise) * 2 * spread).to(state.dtype)
        return torch.empty_like(state).copy_(flat.view(state.shape))

    def behind_norm(self) -> "Branch":
        """The same branch as a function of the norm of the state that it reads, where it reads nothing else: a norm spreads what changes."""
        g = self.real.graph
        shape = g.nodes[self.place.join.shortcut].shape
        def normed(n: int) -> bool:
            state = g.state[n]
            return g.nodes[n].shape == shape and state is not None and state.norm is not None and state.node == n

        norms = [n for n in self.path() if (s := g.state[n]) is not None and s.norm is not None and s.node == n]
        last = next((n for n in reversed(norms) if g.nodes[n].shape == shape and not self.path([n])), None)
        if last is None:
            return self
        other = Branch(self.real, self.place)
        other.start = last
        other.index = torch.arange(math.prod(shape), device=self.real.value(last).device).view(shape)
        return other

    @cached_property
    def likeness(self) -> Any:
        """Equal for branches that do the same operations on the same shapes."""
        nodes = self.real.graph.nodes
        path = self.path()
        number = {n: k for k, n in enumerate((self.start, *path))}
        return tuple((nodes[n].op, nodes[n].shape, tuple(number.get(i, nodes[i].shape) for i in nodes[n].ins), _plain(nodes[n].args)) for n in path)


def _spreads(shape: tuple[int, ...], over: tuple[int, ...]) -> bool:
    return len(shape) <= len(over) and all(a in (1, b) for a, b in zip(reversed(shape), reversed(over), strict=False))


def _changed(a: Tensor, b: Tensor) -> Tensor:
    """Elements that differ by more than rounding does."""
    off = (a.double() - b.double()).abs().nan_to_num(nan=0.0, posinf=0.0)
    most = float(off.max()) if off.numel() else 0.0
    if most <= 4 * torch.finfo(a.dtype).eps * float(a.double().abs().nan_to_num(posinf=0.0).max()):
        return torch.zeros_like(off, dtype=torch.bool)
    return off > 1e-4 * most


def _plain(args: Any) -> Any:
    """The arguments of an operation without its tensors."""
    if isinstance(args, (list, tuple)):
        return tuple(_plain(a) for a in args)
    return args if isinstance(args, (int, float, str, bool, type(None))) else type(args).__name__


def _seeded(number: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(number)


def sample_axes(real: Real) -> dict[int, int]:
    """Join -> the axis of its shortcut along which the samples of the batch lie, for the sites of main streams where it can be told.

    Along it exactly the first place changes with the first sample of the inputs; behind a branch that lets samples mix it is taken
    from an earlier site of the same shape.
    """
    batch, given = real.other_sample
    if not given:
        return {}
    shortcuts = [s.place.join.shortcut for s in real.spots]
    with torch.no_grad():
        made = real.evaluate(shortcuts, given)
    found: dict[int, int] = {}
    shapes: dict[tuple[int, tuple[int, ...]], int] = {}
    for spot in real.spots:
        join = spot.place.join
        before = real.value(join.shortcut)
        key = (id(spot.flow), tuple(before.shape))
        after = made[join.shortcut].detach()
        axis = only_first(before, after, batch) if after.shape == before.shape else None
        axis = shapes.get(key) if axis is None else axis
        if axis is not None:
            found[join.node] = shapes[key] = axis
    return found

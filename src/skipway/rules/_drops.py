"""Random masks on a value: where drop-out and stochastic depth are applied, along which axes, and what they are on average."""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from skipway.rules._real import Real
from skipway.wiring import operations as ops
from skipway.wiring.record import LEAVES, Node
from skipway.wiring.sites import Place
from skipway.wiring.states import NOISE, STORED, Join

# A module that drops a whole branch says so in its class or in the attribute that holds it.
_PATH = re.compile(r"drop_?path|path_?drop|stoch\w*_?depth|depth_?drop|drop_?connect|sample_?drop|survival|shake_?drop", re.I)
_RATES = ("drop_prob", "drop_path_prob", "drop_path_rate", "drop_path", "drop_rate", "dropout_rate", "stochastic_depth_prob", "death_rate", "p_drop",
          "drop", "prob", "rate", "p")
_KEEPS = ("keep_prob", "survival_prob", "survival_rate", "survival", "survive", "keep")
_POINTWISE = frozenset([
    "mul", "div", "add", "sub", "rsub", "neg", "floor", "ceil", "round", "lt", "le", "gt", "ge", "eq", "ne", "logical_not", "bitwise_not", "where",
    "reciprocal", "true_divide", "abs", "sign", "heaviside", "_to_copy", "clone", "detach", "alias"])
_GRID = 1024            # points of a uniform number that a mean is taken over
_DRAWS = 256            # draws where it cannot be worked out


@dataclass(frozen=True)
class Drop:
    """One application of a random mask: `node` is `source` times the mask (`kind` "times"), or with zeros where the mask says so."""

    node: int
    source: int
    mask: int
    kind: str               # "times"; "keep": zero where the mask is false; "drop": zero where it is true; "dropout": the fused operation


@dataclass(frozen=True)
class Mean:
    """What a mask multiplies a value by on average, how far off that may be, and the share of zeros."""

    factor: float
    error: float
    zeros: float


def stochastic_depth(module: nn.Module | None, path: str) -> bool:
    """Whether a module drops whole branches, by its class or by the attribute that holds it; torch's own drop-outs do not."""
    if module is None or isinstance(module, nn.modules.dropout._DropoutNd):
        return False
    return bool(_PATH.search(type(module).__name__)) or bool(_PATH.search(_attribute(path)))


def rate_of(module: nn.Module) -> float | None:
    """The probability with which a module drops, read off its attributes; None where it has none."""
    for name in _RATES:
        value = getattr(module, name, None)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
    for name in _KEEPS:
        value = getattr(module, name, None)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return 1.0 - float(value)
    return None


def _attribute(path: str) -> str:
    """The last name of a path that is no number."""
    return next((p for p in reversed(path.split(".")) if not p.isdigit()), "")


def applied(real: Real, n: int) -> Drop | None:
    """The drop that node `n` is the result of, if it is one."""
    g = real.graph
    node = g.nodes[n]
    if node.op == "native_dropout":
        return Drop(n, node.ins[0], n + 1, "dropout") if node.out == 0 and node.args[2] is not False else None
    signals = [i for i in node.ins if g.signal[i]]
    masks = [i for i in node.ins if not g.signal[i] and g.table[i] & NOISE]
    if len(signals) != 1 or len(masks) != 1:
        return None
    source, mask = signals[0], masks[0]
    if node.op == "mul":
        return Drop(n, source, mask, "times")
    if node.op == "where" and len(node.ins) == 3 and node.ins[0] == mask:
        other = node.ins[2] if node.ins[1] == source else node.ins[1]
        if not bool(real.value(other).any()):
            return Drop(n, source, mask, "keep" if node.ins[1] == source else "drop")
    if node.op == "masked_fill" and real.values[mask].dtype == torch.bool:
        fill = node.args[2] if len(node.args) > 2 else node.kwargs.get("value")
        if not bool(fill.any() if isinstance(fill, Tensor) else fill):
            return Drop(n, source, mask, "drop")
    if node.op == "index_put" and real.values[mask].dtype == torch.bool and len(node.ins) == 3 and not bool(real.value(node.ins[2]).any()):
        return Drop(n, source, mask, "drop")
    return None


def in_join(real: Real, join: Join) -> Drop | None:
    """The drop that is part of the joining operation itself: addcmul with a random factor."""
    g = real.graph
    node = g.nodes[join.node]
    masks = [i for i in node.ins if not g.signal[i] and g.table[i] & NOISE]
    return Drop(join.node, join.branch, masks[0], "times") if node.op == "addcmul" and len(masks) == 1 and join.branch != join.node else None


def carriers(real: Real, n: int) -> Iterator[int]:
    """The operands whose state node `n` carries on."""
    g = real.graph
    return (i for i in g.nodes[n].ins if g.signal[i] and g.state[i] is g.state[n])


def on_branch(real: Real, place: Place) -> list[Drop]:
    """The drops between the ends of a join's branches and the join, last ones first."""
    join = place.join
    own = in_join(real, join)
    return [*([own] if own is not None else []), *(d for n in _tail(real, join.branch) for d in [applied(real, n)] if d is not None)]


def identity_path(real: Real, place: Place, stops: Collection[int]) -> list[int]:
    """Nodes from a join's shortcut back to a node in `stops` (left out) or the start of the stream, through norms and a projection."""
    g = real.graph
    found: set[int] = set()
    stack = [place.join.shortcut]
    while stack:
        n = stack.pop()
        if n in found or n in stops:
            continue
        found.add(n)
        state = g.state[n]
        if state is None:
            continue
        if state.node != n:
            stack.extend(carriers(real, n))
        elif state.prev is not None:
            before = {state.prev, state.prev.prev} if state.prev.via == "centred" else {state.prev}
            stack.extend(i for i in g.nodes[n].ins if g.signal[i] and g.state[i] in before)
        elif place.join.kind == "projection" and n > place.join.before.node:
            stack.extend(i for i in g.nodes[n].ins if g.signal[i] and i >= place.join.before.node)
    return sorted(found)


def _tail(real: Real, start: int) -> list[int]:
    """Nodes from an operand back to the births of the values it is made of."""
    g = real.graph
    found: list[int] = []
    stack = [start]
    while stack:
        n = stack.pop()
        if n in found:
            continue
        found.append(n)
        state = g.state[n]
        if state is not None and state.node == n:
            stack.extend(i for i in g.terms.get(n, ()) if state.via != "join" and g.signal[i])
        else:
            stack.extend(carriers(real, n))
    return sorted(found, reverse=True)


# along which axes

def axes_of(real: Real, drop: Drop, join: Join) -> frozenset[int] | None:
    """The axes of the joined state along which one element of a mask acts on a part only; None where it does not arrive.

    Found by changing the first element of the mask. Values and scales are replaced by others, as they may be zero.
    """
    shape = real.graph.nodes[join.node].shape
    if drop.kind == "dropout":
        return frozenset(d for d, size in enumerate(shape) if size > 1)
    given = {drop.source: _noise_like(real.value(drop.source)), **_scales(real, drop.node, join)}
    value = real.value(drop.mask)
    plain, other = (value.clone(memory_format=torch.contiguous_format) for _ in range(2))
    plain.view(-1)[0], other.view(-1)[0] = (True, False) if value.dtype == torch.bool else (1, 3)
    before = real.evaluate([join.node], {**given, drop.mask: plain})[join.node]
    after = real.evaluate([join.node], {**given, drop.mask: other})[join.node]
    moved = before != after
    if not bool(moved.any()):
        return None
    return frozenset(d for d in range(moved.dim()) if not bool(moved.movedim(d, 0).flatten(1).any(1).all()))


def own_axes(real: Real, drop: Drop) -> int:
    """How many axes of its own a mask has that are longer than one."""
    return sum(size > 1 for size in real.graph.nodes[drop.mask].shape)


def _noise_like(value: Tensor) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(value.shape, generator=generator, dtype=torch.float32).to(value.device, value.dtype)


def _scales(real: Real, start: int, join: Join) -> dict[int, Tensor]:
    """Ones for every stored scale between a node and a join, so that one that is zero at the start hides nothing."""
    g = real.graph
    leaves = {leaf for n in _tail(real, join.branch) if n > start for i in g.nodes[n].ins if not g.signal[i] and g.table[i] & STORED
              for leaf in real.stored(i)}
    return {n: torch.ones_like(real.value(n)) for n in leaves if g.nodes[n].dtype.is_floating_point}


def sample_axis(real: Real, place: Place) -> int | None:
    """The axis of a join along which the samples of the batch lie; None where it cannot be told.

    The first places of the inputs along an axis are changed: where that axis is the batch, exactly one place of the state changes,
    however deep. Tokens that are mixed anywhere do not pass, so that inputs may be given tokens first. Where several axes pass, the first
    one is the batch.
    """
    shape = real.graph.nodes[place.join.node].shape
    deep = max((p.join.node for flow in real.flows for p in flow.places if place in flow.places and real.graph.nodes[p.join.node].shape == shape),
               default=place.join.node)
    inputs = [n for n in real.record.nodes if n.op == "input" and n.shape and real.graph.depends[n.id]]
    for axis in (0, 1):
        size = max((n.shape[axis] for n in inputs if len(n.shape) > axis), default=0)
        if size < 2:
            continue
        given = {n.id: _changed(real.value(n.id), axis) for n in inputs if len(n.shape) > axis and n.shape[axis] == size}
        if not any(real.graph.signal[n] or real.graph.depends[n] for n in given):
            continue
        try:
            before, after = real.value(deep), real.evaluate([deep], given)[deep].detach()
        except (RuntimeError, IndexError):              # other inputs make other shapes: a selection by value
            continue
        moved = (before != after) & ~(before.isnan() & after.isnan())
        fits = [d for d in range(moved.dim()) if moved.shape[d] == size and not bool(moved.narrow(d, 1, size - 1).any())]
        if bool(moved.any()) and len(fits) == 1:
            return fits[0]
    return None


def _changed(value: Tensor, axis: int) -> Tensor:
    """The first place along an axis replaced by the second one; rolled, or shifted, where the two are equal."""
    other = value.clone()
    first, second = other.select(axis, 0), value.select(axis, 1)
    first.copy_(second)
    if torch.equal(other, value) and second.dim():
        first.copy_(second.flip(0))
    if torch.equal(other, value) and value.is_floating_point():
        first.copy_(second + 1)
    return other


# on average

def mean_of(real: Real, drop: Drop) -> Mean | None:
    """What a drop multiplies by on average, worked out from the mask's own operations; None where it cannot be told."""
    if drop.kind == "dropout":
        return Mean(1.0, 0.0, float(real.graph.nodes[drop.node].args[1]))
    sides = _behind(real, drop.mask)
    sources = [n for n in sides if n.op in ops.RANDOM]
    between = [n for n in sides if n not in sources and n.op not in ops.FRESH and n.op not in LEAVES]
    if len(sources) == 1 and all(n.op in _POINTWISE or n.op in ops.IDENTITY for n in between):
        points = _points(real, sources[0], all(n.op in _POINTWISE for n in between))
        if points is not None:
            return _weighed(real, drop, sources[0].id, points)
    return _drawn(real, drop, sources)


def _behind(real: Real, n: int) -> list[Node]:
    """The nodes that a mask is made of, back to the numbers that were drawn; what a probability was computed from is not part of it."""
    seen, stack = {n}, [n]
    while stack:
        node = real.graph.nodes[stack.pop()]
        for i in node.ins if node.op not in ops.RANDOM else ():
            if i not in seen:
                seen.add(i)
                stack.append(i)
    return [real.graph.nodes[i] for i in sorted(seen)]


def _points(real: Real, node: Node, stacks: bool) -> list[tuple[Tensor, float]] | None:
    """Values of the drawn numbers, with their weights; None for what is neither a coin of one probability nor uniform.

    stacks: what is made of them is pointwise, so that many values can be stacked along a new first axis.
    """
    value = real.value(node.id)
    numbers = [float(a) for a in node.args if isinstance(a, (int, float)) and not isinstance(a, bool)]
    if node.op == "bernoulli":
        given = real.value(node.ins[0]).double() if node.ins else torch.tensor(numbers[0] if numbers else float(node.kwargs.get("p", 0.5)))
        chance = float(given.mean())
        if bool((given - chance).abs().max() > 1e-6):
            return None
        return [(torch.ones_like(value), chance), (torch.zeros_like(value), 1 - chance)]
    low, high = 0.0, 1.0
    if node.op == "uniform":
        low, high = (*numbers, *(0.0, 1.0)[len(numbers):])[:2]
    elif node.op not in ("rand", "rand_like"):
        return None
    count = max(value.numel(), 1)
    turns = max(1, _GRID // count)
    grid = low + (high - low) * (torch.arange(turns * count, dtype=torch.float64) + 0.5) / (turns * count)
    filled = grid.reshape(count, turns).t().reshape(turns, *value.shape).to(value.device, value.dtype)
    return [(filled, 1.0)] if stacks else [(f, 1.0 / turns) for f in filled]


def _weighed(real: Real, drop: Drop, source: int, points: list[tuple[Tensor, float]]) -> Mean:
    total = zeros = 0.0
    for value, weight in points:
        factor = _factor(drop, real.evaluate([drop.mask], {source: value})[drop.mask])
        total += float(factor.mean()) * weight
        zeros += float((factor == 0).double().mean()) * weight
    return Mean(total, 0.0 if real.graph.nodes[source].op == "bernoulli" else 2.0 / _GRID, zeros)


def _factor(drop: Drop, mask: Tensor) -> Tensor:
    mask = mask.detach()
    if drop.kind == "times":
        return mask.double()
    return mask.bool().double() if drop.kind == "keep" else (~mask.bool()).double()


def _drawn(real: Real, drop: Drop, sources: list[Node]) -> Mean | None:
    """The mean over numbers that are drawn anew, the state of the random generators left as it was."""
    if not sources or any(n.op == "native_dropout" or n.overload is None for n in sources):
        return None
    found: list[float] = []
    zeros = 0.0
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for _ in range(_DRAWS):
            factor = _factor(drop, real.evaluate([drop.mask], {n.id: _again(real, n) for n in sources})[drop.mask])
            found.append(float(factor.mean()))
            zeros += float((factor == 0).double().mean()) / _DRAWS
    values = torch.tensor(found, dtype=torch.float64)
    return Mean(float(values.mean()), 4 * float(values.std()) / _DRAWS ** 0.5, zeros)


def _again(real: Real, node: Node) -> Tensor:
    kwargs = {k: torch.Generator(v.device).manual_seed(int(torch.randint(1 << 31, ()))) if isinstance(v, torch.Generator) else v
              for k, v in node.kwargs.items()}
    rest = iter([real.value(i) for i in node.ins])
    if node.write:
        args = [torch.empty_like(real.value(node.id)), *(next(rest) if isinstance(a, Tensor) else a for a in node.args[1:])]
    else:
        args = [next(rest) if isinstance(a, Tensor) else a for a in node.args]
    made: Tensor = node.overload(*args, **kwargs)
    return made

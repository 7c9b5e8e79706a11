"""Step 5, the proof: every state of a stream is rebuilt from the stream's start and the recorded branches, and compared to the last bit.

The rebuilt state goes from join to join along the identity path alone: what the branches gave is taken from the run, everything
else on the way (norms on the stream, projections, gates, lane mixers, casts) is worked out anew from the rebuilt state. A model
that changes its stream where the record does not see it (memory shared with other code, an operation that hides its write) cannot be
rebuilt, and is said not to be understood.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from skipway._errors import TraceError
from skipway.wiring import operations as ops
from skipway.wiring.evaluate import depends, evaluate
from skipway.wiring.record import LEAVES
from skipway.wiring.sites import Place
from skipway.wiring.states import GATED, Join
from skipway.wiring.streams import Flow
from skipway.wiring.structure import Site, Stream, Wiring
from skipway.wiring.ulp import FAR, spacing, ulp_distance
from skipway.wiring.values import Run, run

LIMIT = 2           # ulp a rebuilt state may be off where the join is more than one operation


@dataclass(frozen=True)
class SiteReplay:
    """How one site came out: `ulp` is the largest distance between the rebuilt and the recorded state, over its elements."""

    stream: str
    index: int
    module: str
    file: str | None
    line: int | None
    ulp: int
    operations: int                 # how many operations that compute lie between the state before and the one after
    linked: bool                    # whether the state before reaches the one after at all

    @property
    def ok(self) -> bool:
        """0 ulp where the join is one operation, at most 2 where it is several."""
        return self.linked and self.ulp <= (LIMIT if self.operations > 1 else 0)


@dataclass(frozen=True)
class Replay:
    """All sites of all streams, in the order of `Wiring.streams`."""

    sites: tuple[SiteReplay, ...]

    @property
    def ok(self) -> bool:
        """True where every state could be rebuilt."""
        return all(site.ok for site in self.sites)

    @property
    def worst(self) -> int:
        """The largest distance of any site in ulp; 0 where there are no sites."""
        return max((site.ulp for site in self.sites), default=0)

    def failed(self) -> tuple[str, ...]:
        """Names of the streams of which a state could not be rebuilt."""
        return tuple(dict.fromkeys(site.stream for site in self.sites if not site.ok))


def replay(wiring: Wiring, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Replay:
    """Run the model once and rebuild every stream. Raises TraceError where the model's wiring is not `wiring`."""
    return replay_run(_same(wiring, run(model, args, kwargs)))


def replay_run(found: Run) -> Replay:
    """`replay` of a run that was made already."""
    sites: list[SiteReplay] = []
    for flow in found.facts.flows:
        assert flow.stream is not None
        given = _start(found, flow)
        for place, site in zip(flow.places, flow.stream.sites, strict=True):
            join = place.join
            pins = branch_nodes(place)
            linked = any(depends(found.record, join.node, n, pins) for n in given)
            rebuilt = evaluate(found.record, found.values, [join.node], given, pins)[join.node] if linked else found.values[join.node]
            distance = ulp_distance(rebuilt.detach(), found.values[join.node].detach()) if linked else FAR
            count = _operations(found, join, set(given), pins)
            sites.append(SiteReplay(flow.stream.name, site.index, site.module, site.file, site.line, distance, count, linked))
            given[join.node] = rebuilt.detach()
    return Replay(tuple(sites))


def branch_nodes(place: Place) -> set[int]:
    """The operands that bring what the branches gave."""
    return {n for inner in (place.join.folded or (place.join,)) for n in _operands(inner)}


def _operands(join: Join) -> Iterator[int]:
    if join.branch != join.node:
        yield join.branch
    else:                                               # multiplies and adds at once: the factors of the product stand for the branch
        yield from (n for n in join.region.nodes if n != join.node)


def _start(found: Run, flow: Flow) -> dict[int, Tensor]:
    first = flow.places[0].join
    nodes = {flow.root.node, first.before.node} | ({first.shortcut} if first.kind == "identity" and not first.folded else set())
    return {n: found.values[n].detach() for n in nodes}


def _operations(found: Run, join: Join, given: set[int], pins: set[int]) -> int:
    """Operations on the identity path that compute something, the join's own among them."""
    seen, stack, count = {join.node}, [join.node], 0
    while stack:
        node = found.record.nodes[stack.pop()]
        count += node.op not in ops.IDENTITY or node.op in ("masked_fill", "nan_to_num")
        for i in node.ins:
            if i not in seen and i not in given and i not in pins and found.record.nodes[i].op not in LEAVES and found.facts.graph.signal[i]:
                seen.add(i)
                stack.append(i)
    return count


def _same(wiring: Wiring, found: Run) -> Run:
    """The run, where its wiring is the expected one. Raises TraceError."""
    here = [_signature(f.stream) for f in found.facts.flows if f.stream is not None]
    want = [_signature(s) for s in wiring.streams]
    if here != want:
        at = next((i for i, (a, b) in enumerate(zip(want, here, strict=False)) if a != b), min(len(want), len(here)))
        name = wiring.streams[at].name if at < len(want) else here[at][0]
        raise TraceError(f"replay: stream {name!r} of the wiring is not what this model does with these inputs; trace the same model in the same "
                         "mode, with inputs of the same kind, and replay that wiring")
    return found


def _signature(stream: Stream) -> tuple[Any, ...]:
    return stream.name, stream.main, tuple((s.module, s.placement, tuple(b.kind for b in s.branches)) for s in stream.sites)


@dataclass(frozen=True, eq=False)
class StreamValues:
    """One stream in numbers: `states[0]` is its start, and `states[k + 1]` what site k makes of `states[k]` and `branches[k]`.

    writes[k] is what site k adds to the stream where it adds (its branch with the constant on it), else the difference of the states.
    """

    name: str
    main: bool
    sites: tuple[Site, ...]
    states: tuple[Tensor, ...]
    branches: tuple[Tensor, ...]
    writes: tuple[Tensor, ...]
    additive: bool                      # every site adds to the plain state: no norm, gain, gate, projection or pool on the stream
    _run: Run = field(repr=False)
    _flow: Flow = field(repr=False)

    def write(self, k: int, state: Tensor, branch: Tensor) -> Tensor:
        """The state that site k makes of a state and a branch: `write(k, states[k], branches[k])` is `states[k + 1]` to the last bit."""
        place = self._flow.places[k]
        before = _before(self._run, self._flow, k)
        given = {**_start(self._run, self._flow), **{p.join.node: self.states[i + 1] for i, p in enumerate(self._flow.places[:k])}, before: state}
        pins = branch_nodes(place)
        if len(pins) == 1:
            given[next(iter(pins))] = branch
        return evaluate(self._run.record, self._run.values, [place.join.node], given, pins)[place.join.node]

    def named(self) -> dict[str, Tensor]:
        """All states and writes under names: "model.start", "model.0.write", "model.0.state", ..."""
        found = {f"{self.name}.start": self.states[0]}
        for k, (write, state) in enumerate(zip(self.writes, self.states[1:], strict=True)):
            found[f"{self.name}.{k}.write"], found[f"{self.name}.{k}.state"] = write, state
        return found

    def identity(self) -> tuple[float, float] | None:
        """How far `states[-1]` is from `states[0] + sum(writes)`, and how far rounding may take it; None where the stream is not additive.

        Both in ulp of the largest state that an element had on the way: one add rounds by at most half of one.
        """
        if not self.additive:
            return None
        total, largest = self.states[0].double().flatten(), self.states[0].abs().flatten()
        for write, state in zip(self.writes, self.states[1:], strict=True):
            total, largest = total + write.double().flatten(), largest.maximum(state.abs().flatten())
        off = (self.states[-1].double().flatten() - total).abs() / spacing(largest)
        rounds = sum(_roundings(self._flow.places[k]) for k in range(len(self.writes)))
        return float(off.max()) if off.numel() else 0.0, 0.5 * rounds


@dataclass(frozen=True, eq=False)
class Decomposition:
    """The streams of one run in numbers, in the order of `Wiring.streams`."""

    streams: tuple[StreamValues, ...]

    def named(self) -> dict[str, Tensor]:
        """States and writes of all streams under names."""
        return {name: t for stream in self.streams for name, t in stream.named().items()}


def decompose(wiring: Wiring, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Decomposition:
    """Run the model once and take its streams apart. Raises TraceError where the model's wiring is not `wiring`."""
    found = _same(wiring, run(model, args, kwargs))
    return Decomposition(tuple(_values(found, flow) for flow in found.facts.flows))


def _values(found: Run, flow: Flow) -> StreamValues:
    assert flow.stream is not None
    states = [found.values[_before(found, flow, 0)].detach()]
    branches, writes = [], []
    additive = True
    for k, (place, site) in enumerate(zip(flow.places, flow.stream.sites, strict=True)):
        after = found.values[place.join.node].detach()
        pins = sorted(branch_nodes(place))
        branch = found.values[pins[-1]].detach()
        factor = _factor(found, place)
        plain = factor is not None and _plain(found, flow, k) and site.shortcut == "identity"
        additive = additive and plain and states[-1].numel() == after.numel() and site.placement != "post"
        branches.append(branch)
        writes.append((branch * factor).reshape(after.shape) if factor is not None and branch.numel() == after.numel()
                      else after - states[-1] if after.shape == states[-1].shape else branch)
        states.append(after)
    return StreamValues(flow.stream.name, flow.stream.main, flow.stream.sites, tuple(states), tuple(branches), tuple(writes), additive, found, flow)


def _before(found: Run, flow: Flow, k: int) -> int:
    """The node of the state before site k: the start of the stream as its first join meets it, or the join before."""
    join = flow.places[k].join
    if k == 0:
        return join.shortcut if join.kind == "identity" and not join.folded else join.before.node
    return flow.places[k - 1].join.node


def _factor(found: Run, place: Place) -> float | None:
    """The constant of an add on its branch operand; None where the join is no plain add."""
    join = place.join
    node = found.record.nodes[join.node]
    if join.folded or join.branch == join.node or node.op not in ("add", "sub") or set(node.ins) - {join.shortcut, join.branch} or join.marks & GATED:
        return None
    alpha = node.kwargs.get("alpha", 1)
    sign = 1.0 if node.op == "add" else -1.0
    if not isinstance(alpha, (int, float)) or len(node.ins) != 2:
        return None
    if node.ins[1] == join.branch:
        return sign * float(alpha)
    return 1.0 if alpha == 1 and node.op == "add" else None


def _plain(found: Run, flow: Flow, k: int) -> bool:
    """Whether the shortcut of site k is the state before it, moved but not changed."""
    join, g = flow.places[k].join, found.facts.graph
    want = _before(found, flow, k)
    n = join.shortcut
    while n != want:
        node = found.record.nodes[n]
        if node.op not in ("view", "_unsafe_view", "reshape", "alias", "detach", "clone", "contiguous", "reread", "permute", "transpose", "unsqueeze",
                           "squeeze", "t", "_to_copy") or not g.signal[node.ins[0]] or node.dtype != found.record.nodes[node.ins[0]].dtype:
            return False
        n = node.ins[0]
    return True


def _roundings(place: Place) -> int:
    return 2 if len(place.terms) > 1 else 1

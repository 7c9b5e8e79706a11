"""What every rule file shares: its examples (`Example`), what it reads (`Facts`) and what it says (`Hit`)."""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from skipway.wiring import Site, Wiring
from skipway.wiring.graph import Graph
from skipway.wiring.record import Record
from skipway.wiring.sites import Place, Term, common
from skipway.wiring.streams import Flow, ancestors, block_of
from skipway.wiring.trunk import Trunk

if TYPE_CHECKING:
    from skipway.rules._real import Real, Runs


@dataclass(frozen=True)
class Example:
    """A small model that shows one rule, with the inputs and declarations to check it with.

    model is called as model(*args). where is the part of a module path that a finding must name; "" where the model itself is
    meant. options are keyword arguments of `skipway.check`; under the key "expect" stands a dictionary of Expect's fields.
    """

    model: nn.Module
    args: tuple[Any, ...]
    where: str = ""
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Hit:
    """One place where a rule fires. severity None is the rule's own; line is (file, line)."""

    where: str
    message: str
    severity: str | None = None
    line: tuple[str, int] | None = None
    values: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Spot:
    """One site of a main stream with all that is known of it."""

    flow: Flow
    place: Place
    site: Site


class Facts:
    """What was recovered of one model, and what its owner declared."""

    def __init__(self, wiring: Wiring, expect: Any, *, hooks: tuple[str, ...] = (), entries: Mapping[str, Wiring] | None = None,
                 reference: Wiring | None = None, reference_state: Mapping[str, Tensor] | None = None, other: Record | None = None,
                 runs: "Runs | None" = None) -> None:
        self.wiring = wiring
        self.expect = expect
        self.hooks = hooks
        self.entries = dict(entries or {})
        self.reference = reference
        self.reference_state = reference_state      # name -> value of the reference's parameters and buffers
        self.other = other
        self.runs = runs
        self.notes: list[str] = []                  # what a rule could not look at, for the report
        self.graph: Graph = wiring.facts.graph
        self.record: Record = wiring.facts.record
        self.places: list[Place] = wiring.facts.places
        self.flows: list[Flow] = wiring.facts.flows

    @cached_property
    def spots(self) -> list[Spot]:
        """Sites of main streams, in order."""
        return [Spot(f, p, s) for f in self.flows if f.main and f.stream for p, s in zip(f.places, f.stream.sites, strict=True)]

    @property
    def real(self) -> "Real":
        """One real forward in evaluation mode, with its numbers; for rules of the stages values and train."""
        assert self.runs is not None, "rules of stage graph have no numbers"
        return self.runs.real

    @property
    def train(self) -> "Real":
        """One real forward and backward in training mode; for rules of the stage train."""
        assert self.runs is not None, "rules of stage graph have no numbers"
        return self.runs.train

    @cached_property
    def live(self) -> set[int]:
        """Nodes that some output was computed from."""
        return ancestors(self.graph, self.record.outputs)

    @cached_property
    def trunk(self) -> Trunk:
        return Trunk(self.graph)

    @cached_property
    def modules(self) -> dict[str, nn.Module]:
        return dict(self.record.model.named_modules())

    def path(self, node: int) -> str:
        """Path of the module whose forward performs a node."""
        return self.record.calls[self.graph.nodes[node].call].path

    def block(self, place: Place) -> tuple[str, int]:
        return block_of(self.graph, place)

    def group(self, flow: Flow, place: Place) -> tuple[str, int]:
        """The numbered module around a join that holds at least two joins of its stream: a block, where each sublayer has a wrapper of its own."""
        calls, joined = self.record.calls, [p.join.node for p in flow.places]
        call = calls[place.call]
        while call.parent >= 0 and call.parent != call.id:
            inside = bisect_left(joined, call.last) - bisect_left(joined, call.first)
            if inside > 1 and call.path.rpartition(".")[2].isdigit():
                return call.path, call.number
            call = calls[call.parent]
        return self.block(place)

    def line(self, node: int) -> tuple[str, int] | None:
        """Source line of a node, or of the module call that holds it."""
        found = self.graph.nodes[node].where
        call = self.record.calls[self.graph.nodes[node].call]
        while found is None:
            if call.where is not None or call.parent == call.id or call.parent < 0:
                return call.where
            call = self.record.calls[call.parent]
        return found

    def sublayer(self, place: Place, term: Term | None = None) -> str:
        """Path of the module that computes a branch: what a finding about a sublayer names."""
        term = term or place.terms[0]
        modules = term.modules
        if not modules:
            return place.module
        return modules[0] if _below(modules[0], place.module) and len(modules) > 1 and _covers(modules) else modules[-1]

    def declared(self, path: str, *names: str) -> Any:
        """The value of the first of these attributes on the module at `path`, one around it, or their configuration; None if there is none."""
        parts = path.split(".") if path else []
        for depth in range(len(parts), -1, -1):
            module = self.modules.get(".".join(parts[:depth]))
            if module is None:
                continue
            for holder in (module, getattr(module, "config", None), getattr(module, "cfg", None)):
                for name in names:
                    value = vars(holder).get(name, getattr(type(holder), name, None)) if hasattr(holder, "__dict__") else None
                    if value is not None:
                        return value
        return None

    def placement_declared(self, path: str) -> str | None:
        """"pre" or "post" where the owner or an attribute says so."""
        if self.expect.placement is not None:
            return str(self.expect.placement)
        value = self.declared(path, "norm_first", "do_layer_norm_before", "normalize_before")
        return None if not isinstance(value, bool) else "pre" if value else "post"

    def uncalled_norms(self) -> list[str]:
        """Registered norms that the forward never called."""
        called = {id(c.module) for c in self.record.calls}
        return [p for p, m in self.modules.items() if "norm" in type(m).__name__.lower() and id(m) not in called and not list(m.children())]


def _below(path: str, home: str) -> bool:
    return path != home and (home == "" or path.startswith(home + "."))


def _covers(modules: tuple[str, ...]) -> bool:
    return all(m.startswith(modules[0] + ".") for m in modules[1:])


def shape(values: tuple[int, ...]) -> str:
    """A shape as a person writes it: (2, 6, 16)."""
    return "(" + ", ".join(str(v) for v in values) + ")"


__all__ = ["Example", "Facts", "Hit", "Spot", "common", "shape"]

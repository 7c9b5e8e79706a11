"""The public function `rewire`: sites are chosen, a plan is made, and the plan is applied. Nothing happens to the model before that."""

from collections.abc import Callable
from typing import Any

from torch import nn

from skipway._errors import RewireError, UsageError
from skipway.surgery._action import Action
from skipway.surgery._gap import Gap, gap
from skipway.surgery._select import Numbers, Selection, choose, table
from skipway.surgery._spot import Spot, spots
from skipway.surgery.edit import Edit, install
from skipway.wiring.structure import Site


class Rewiring:
    """A model whose joins are known, so that they can be changed. `sites` chooses; printing it lists all sites."""

    def __init__(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        facts, self.spots = spots(model, args, kwargs)
        self.model = model
        self.listed = [(f.stream.name, f.stream.main, s) for f in facts.flows if f.stream is not None for s in f.stream.sites]
        self.calls = facts.record.calls, facts.graph
        self.modules = {id(m): p for p, m in model.named_modules()}

    def sites(self, index: Numbers = None, *, layers: Numbers = None, module: str | None = None, kind: str | None = None, stream: str | None = None,
              placement: str | None = None, where: Callable[[Site], bool] | None = None, count: int | None = None,
              _plan: "Plan | None" = None) -> Selection:
        """The sites that meet every condition given; without one, all of the main streams.

        Args:
            index: position on the stream: a number (negative from the end), a slice, or several.
            layers: number of the repeated block, in the same ways.
            module: pattern (`*`, `?`, `[...]`) for the path of the module that joins, or of one that computes a branch.
            kind: of a branch: self_attention, cross_attention, ffn, moe, conv, ssm, other.
            stream: its name; without one, all main streams.
            placement: pre, post, sandwich, output, inner, none.
            where: called with each `Site`.
            count: how many there have to be.

        Raises RewireError where a value is none of those that are known, nothing meets the conditions, or the count is another.
        """
        chosen = choose(self.spots, self.listed, index=index, layers=layers, module=module, kind=kind, stream=stream, placement=placement,
                        where=where)
        if not chosen:
            streams = {name: sum(1 for n, _, _ in self.listed if n == name) for name, _, _ in self.listed}
            has = ", ".join(f"{count} on {name!r}" for name, count in streams.items()) or "none at all"
            raise RewireError(f"rewire: no site of {type(self.model).__name__} meets these conditions; its sites: {has}; "
                              "print the rewiring to see each")
        selection = Selection(self, _plan, chosen)
        return selection if count is None else selection.insist(count)

    def branch(self, ends: str, begins: str | None = None, *, _plan: "Plan | None" = None) -> "Missing":
        """A stretch of the model around which a skip is missing, as SKW101 tells of it: from what the module `begins` is given to what the module
        `ends` gives; without `begins`, around `ends` alone. `.insert_skip()` plans the skip.

        Raises RewireError where a module does not run, or input and output have different shapes.
        """
        return Missing(self, _plan, gap(*self.calls, type(self.model).__name__, ends, ends if begins is None else begins))

    def planned(self, plan: "Plan | None", action: type[Action], selection: Selection, args: tuple[Any, ...], options: dict[str, Any]) -> "Plan":
        """The plan with an action more for each chosen site. Raises RewireError where the action does not fit a site."""
        names = action.parameters_of()
        if len(args) > len(names):
            raise RewireError(f"rewire: {action.name()} takes {len(names)} options ({', '.join(names)}), got {len(args)}")
        options = {**dict(zip(names, args, strict=False)), **options}
        chosen = selection.spots()
        if action.whole:
            for stream in dict.fromkeys(s.stream for s in chosen):
                mine = [s for s in chosen if s.stream == stream]
                if len(mine) != mine[0].sites:
                    raise RewireError(f"rewire: {action.name()} changes whole streams, and {len(mine)} of the {mine[0].sites} sites of {stream!r} "
                                      "were chosen; choose all")
        made: list[tuple[Spot, Action]] = []
        for spot in chosen:
            act = action(spot, **options)
            at = {s.site.index: s for s in self.spots if isinstance(s, Spot) and s.stream == spot.stream}
            for index, other in act.beside().items():
                if index not in at:
                    raise RewireError(f"rewire: {spot}: {act.name()} needs site {index} of {spot.stream!r}, which no edit can reach")
                other.spot = at[index]
                made.append((at[index], other))
            made.append((spot, act))
        done = dict(plan.done) if plan is not None else {}
        for spot, act in made:
            before = done.get(spot.number, (spot, ()))[1]
            twice = next((a for a in before if a.does("join") and act.does("join")), None)
            if twice is not None:
                raise RewireError(f"rewire: {spot} has {twice.name()} already, and {act.name()} would take its place; leave one out")
            done[spot.number] = (spot, (*before, act))
        return Plan(self, done, plan.gaps if plan is not None else ())

    def __str__(self) -> str:
        return table([(s, "") for s in self.spots], "site")


class Missing:
    """A stretch of the model that nothing bypasses."""

    def __init__(self, rewiring: Rewiring, plan: "Plan | None", gap: Gap) -> None:
        self.rewiring, self.plan, self.gap = rewiring, plan, gap

    def insert_skip(self) -> "Plan":
        """The plan with a skip around this stretch: `y = x + F(x)`."""
        done, gaps = (self.plan.done, self.plan.gaps) if self.plan is not None else ({}, ())
        return Plan(self.rewiring, done, (*gaps, self.gap))

    def __str__(self) -> str:
        return str(self.gap)


class Plan:
    """Edits that are listed and have not happened. `apply` carries them out; `sites` and `branch` choose more."""

    def __init__(self, rewiring: Rewiring, done: dict[int, tuple[Spot, tuple[Action, ...]]], gaps: tuple[Gap, ...] = ()) -> None:
        self.rewiring, self.done, self.gaps = rewiring, done, gaps

    def sites(self, *args: Any, **kwargs: Any) -> Selection:
        """Further sites, as `Rewiring.sites` chooses them; what is done to them is added to this plan."""
        return self.rewiring.sites(*args, **kwargs, _plan=self)

    def branch(self, ends: str, begins: str | None = None) -> Missing:
        """A further stretch without a skip, as `Rewiring.branch` takes it."""
        return self.rewiring.branch(ends, begins, _plan=self)

    def apply(self) -> Edit:
        """Change the model in place. Raises RewireError, and leaves it as it was, where a module is no longer the one that was looked at."""
        model = self.rewiring.model
        now = dict(model.named_modules())
        needed = [(str(s), (s.module, *(r.module for r in s.reads or ()))) for s, _ in self.done.values()]
        for said, paths in (*needed, *((str(g), (g.begins, g.ends)) for g in self.gaps)):
            for path in paths:
                if path not in now:
                    raise RewireError(f"rewire: {said}: the model has no module {path!r} that is registered; register it, or join in one that is")
                if self.rewiring.modules.get(id(now[path])) is None:
                    raise RewireError(f"rewire: {said}: {path!r} is another module than when the plan was made; rewire the model as it is now")
        return install(model, [self.done[number] for number in sorted(self.done)], self.gaps)

    def __str__(self) -> str:
        rows = [(spot, ", ".join(_said(a) for a in acts)) for spot, acts in (self.done[n] for n in sorted(self.done))]
        return "".join(f"{g}: insert_skip\n" for g in self.gaps) + table(rows, "edit")


def _said(action: Action) -> str:
    options = ", ".join(f"{k}={v!r}" if isinstance(v, (int, float, str, bool)) or v is None else k for k, v in action.options.items())
    return f"{action.name()}({options})" if options else action.name()


def rewire(model: nn.Module, *args: Any, **kwargs: Any) -> Rewiring:
    """Look at the joins of `model(*args, **kwargs)` in order to change them. The model's source and classes stay as they are.

    The inputs are an example: batch and length may be others later, rank and width may not. The model is looked at in the mode it is in.

    Returns:
        A `Rewiring`: `.sites(...)` chooses, an action on that makes a `Plan`, `.apply()` an `Edit`, which has `undo`, `verify` and `save`.

    Raises:
        TraceError: the forward fails.
        UsageError: `model` is no module, or has been rewired: undo that first.

    Examples:
        >>> edit = skipway.rewire(model, ids).sites(kind="ffn", layers=slice(4, 12)).to("rezero").apply()
        >>> print(edit.verify(ids))
        >>> edit.undo()
    """
    if isinstance(model, nn.Module) and Edit.of(model) is not None:
        raise UsageError(f"rewire: {type(model).__name__} has been rewired; undo that edit first, or choose all sites in one plan")
    return Rewiring(model, args, kwargs)

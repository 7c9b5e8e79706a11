"""A carried-out plan: what was put into the model, and how it is taken out again."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch import nn

from skipway._errors import RewireError
from skipway.surgery._action import Action, Rule
from skipway.surgery._checkpoints import carry_frames
from skipway.surgery._gap import Gap, InsertedSkip
from skipway.surgery._joining import Joining, Layout
from skipway.surgery._reading import Entering, Leaving, Reading
from skipway.surgery._select import table
from skipway.surgery._spot import Spot, dtype_of
from skipway.surgery._stand import Planned, Stand, Watched

if TYPE_CHECKING:
    from skipway.surgery.verify import Verification

Done = tuple[Spot, tuple[Action, ...]]


class Edit:
    """The rewired state of a model. It travels with the model through deepcopy and pickle: `Edit.of(model)` finds it."""

    def __init__(self, model: nn.Module, rules: list[Rule], holders: list[tuple[nn.Module, str]], stands: list[Stand]) -> None:
        self.model = model
        self.rules = rules
        self.skips: list[InsertedSkip] = []
        self.holders = holders              # where each rule is registered
        self.stands = stands                # in the order in which they were put in

    @classmethod
    def of(cls, model: nn.Module) -> "Edit | None":
        """The edit that a model carries."""
        stand = model.__dict__.get("forward")
        while stand is not None:
            if isinstance(stand, Watched):
                edit: Edit = stand.edit
                return edit
            stand = getattr(stand, "hidden", None)
        return None

    def parameters(self) -> Iterator[nn.Parameter]:
        """The parameters that the edit added."""
        for rule in self.rules:
            yield from rule.parameters()

    def undo(self) -> None:
        """Take everything out again. Raises RewireError, and changes nothing, where another tool has wrapped a forward since."""
        self._lift()
        for holder, name in self.holders:
            delattr(holder, name)
        self.stands, self.holders, self.rules, self.skips = [], [], [], []

    @contextmanager
    def off(self) -> Iterator[None]:
        """The model as it was, for a while; the parameters stay registered."""
        self._lift()
        try:
            yield
        finally:
            for stand in self.stands:
                stand.module.forward = stand    # type: ignore[assignment]

    def _lift(self) -> None:
        top: dict[int, Any] = {}
        for stand in self.stands:
            top[id(stand.module)] = stand
        for stand in top.values():
            if stand.module.__dict__.get("forward") is not stand:
                raise RewireError(f"rewire: the forward of {stand.path or 'the model'!r} was wrapped by something else after the edit; take that "
                                  "off first")
        for stand in reversed(self.stands):
            if stand.hidden is None:
                del stand.module.forward
            else:
                stand.module.forward = stand.hidden

    def verify(self, *args: Any, loss: Any = None, **kwargs: Any) -> "Verification":
        """Run the model before and after the edit on these inputs and compare outputs and gradients; see `Verification`."""
        from skipway.surgery.verify import verify
        return verify(self, args, kwargs, loss)

    def save(self, path: Any) -> None:
        """Write the plan and its parameters to one safetensors file; `skipway.reapply(model, path)` reads it."""
        from skipway.surgery.store import save
        save(self, path)

    def __str__(self) -> str:
        rows = [(r.spot, ", ".join(a.name() for a in r.actions)) for r in self.rules]
        return "".join(f"{s.gap}: insert_skip\n" for s in self.skips) + table(rows, "edit")


def install(model: nn.Module, done: list[Done], gaps: tuple[Gap, ...] = ()) -> Edit:
    """Put the rules in. On an error the model is left as it was."""
    carry_frames()
    edit = Edit(model, [], [], [])
    try:
        for spot, actions in done:
            _register(edit, spot, Rule(spot, list(actions)))
        _adopt(edit)
        joining: dict[str, list[Rule]] = {}
        reading: dict[str, list[Rule]] = {}
        for rule in edit.rules:
            joining.setdefault(rule.spot.module, []).append(rule)
            if rule.readers:
                for read in _reads(rule.spot):
                    reading.setdefault(read.module, []).append(rule)
        planned = [_joins(edit, path, rules) for path, rules in joining.items()] + [_readers(edit, path, rules) for path, rules in reading.items()]
        for gap in gaps:
            planned += _skip(edit, gap)
        _put(edit, Watched(model, edit, planned))
    except BaseException:
        edit.undo()
        raise
    return edit


def _reads(spot: Spot) -> tuple[Any, ...]:
    if spot.reads is None:
        raise RewireError(f"rewire: {spot}: its branch reads the stream other than through a module that is given it, so what it reads cannot be "
                          "changed; use an action on the join alone")
    return spot.reads


def _register(edit: Edit, spot: Spot, rule: Rule) -> None:
    """Put a rule beside the parts of the module that joins."""
    holder = _beside(edit, spot.module, f"skip_{spot.number}", rule, str(spot))
    dtype, device = dtype_of(holder if any(p.is_floating_point() for p in holder.parameters()) else edit.model)
    rule.to(device=device, dtype=dtype)
    edit.rules.append(rule)


def _skip(edit: Edit, gap: Gap) -> list[Planned]:
    """Put a skip around a stretch."""
    skip = InsertedSkip(gap)
    _beside(edit, gap.ends, f"skip_{gap.ends.replace('.', '_')}", skip, str(gap))
    edit.skips.append(skip)
    found = []
    for kind, path, calls in ((Leaving, gap.ends, gap.calls), (Entering, gap.begins, gap.calls)):
        stand = kind(edit.model.get_submodule(path), path, skip)
        _put(edit, stand)
        found.append(Planned(stand, calls, str(gap), str(gap)))
    return found


def _beside(edit: Edit, path: str, name: str, made: nn.Module, said: str) -> nn.Module:
    """Register a module in that of a path, or in the nearest one around it that does not run its parts in a row. Gives its holder."""
    while isinstance(edit.model.get_submodule(path), (nn.Sequential, nn.ModuleList, nn.ModuleDict)):
        if not path:
            raise RewireError(f"rewire: {said}: the model runs its parts in a row, so nothing can be put beside them; wrap it in a module")
        path = path.rpartition(".")[0]
    holder = edit.model.get_submodule(path)
    if hasattr(holder, name):
        raise RewireError(f"rewire: {said}: {path or 'the model'!r} has an attribute {name!r} already; rename it")
    holder.add_module(name, made.train(holder.training))
    edit.holders.append((holder, name))
    return holder


def _adopt(edit: Edit) -> None:
    """Actions that norm in place of a branch's own norm take over what that holds."""
    for rule in edit.rules:
        for action in (a for a in rule.actions if a.normed):
            norms = [r for r in _reads(rule.spot) if r.norm]
            if len(norms) != 1:
                raise RewireError(f"rewire: {rule.spot}: {action.name()} stands in for the one norm that a branch reads through, and this site has "
                                  f"{len(norms)}")
            action.adopt(edit.model.get_submodule(norms[0].module))


def _put(edit: Edit, stand: Stand) -> None:
    stand.module.forward = stand            # type: ignore[assignment]
    edit.stands.append(stand)


def _joins(edit: Edit, path: str, rules: list[Rule]) -> Planned:
    module = edit.model.get_submodule(path)
    calls = rules[0].spot.calls
    layouts = [Layout() for _ in range(calls)]
    for rule in rules:
        layouts[rule.spot.call].add(rule)
    stand = Joining(module, path, layouts)
    _put(edit, stand)
    return Planned(stand, calls, rules[0].spot.stream, str(rules[0].spot))


def _readers(edit: Edit, path: str, rules: list[Rule]) -> Planned:
    module = edit.model.get_submodule(path)
    mine = [(r, read) for r in rules for read in r.spot.reads or () if read.module == path]
    calls = mine[0][1].calls
    by_call: list[Rule | None] = [None] * calls
    replaced = False
    for rule, read in mine:
        if by_call[read.call] is not None and by_call[read.call] is not rule:
            raise RewireError(f"rewire: {path!r} reads the stream for {by_call[read.call].spot} and for {rule.spot} in one call; "  # type: ignore[union-attr]
                              "choose one of them")
        by_call[read.call] = rule
        replaced = replaced or (read.norm and any(a.normed for a in rule.actions))
    stand = Reading(module, path, by_call, replaced)
    _put(edit, stand)
    return Planned(stand, calls, rules[0].spot.stream, str(rules[0].spot))

"""An edit as one safetensors file: its parameters under their names in the model, and its plan as the file's metadata."""

import json
import os
import pathlib
from dataclasses import asdict
from typing import Any

from torch import nn

from skipway._errors import RewireError, UsageError
from skipway.surgery import actions
from skipway.surgery._gap import Gap
from skipway.surgery._reads import Read
from skipway.surgery._spot import Spot
from skipway.surgery.edit import Edit, install
from skipway.wiring.functions import Kind
from skipway.wiring.structure import Branch, Site

SCHEMA = "skipway.edit/1"


def save(edit: Edit, path: Any) -> None:
    """Write an edit. Raises RewireError where an action cannot be written, or there is nothing to write."""
    from safetensors.torch import save_file
    if not edit.stands:
        raise RewireError("rewire: this edit was undone, so there is nothing to save")
    plan = []
    for rule in edit.rules:
        for action in rule.actions:
            if not action.kept:
                raise RewireError(f"rewire: {rule.spot} has {action.name()}, which holds a function and cannot be written to a file; leave it out "
                                  "and save the rest")
        plan.append({"spot": asdict(rule.spot), "actions": [{"name": a.name(), "options": a.options} for a in rule.actions]})
    data = {"schema": SCHEMA, "model": type(edit.model).__name__, "plan": plan, "skips": [asdict(s.gap) for s in edit.skips]}
    try:
        text = json.dumps(data)
    except TypeError as error:
        raise RewireError(f"rewire: an option of this edit cannot be written to a file ({error}); use numbers, text and truth values") from error
    target = pathlib.Path(path)
    if not target.parent.is_dir():
        raise RewireError(f"rewire: {target.parent} is no folder; make it first")
    part = target.with_name(target.name + ".part")
    save_file({n: t.contiguous() for n, t in _tensors(edit).items()}, str(part), {"skipway": text})
    os.replace(part, target)


def _tensors(edit: Edit) -> dict[str, Any]:
    paths = {id(m): p for p, m in edit.model.named_modules()}
    return {f"{paths[id(rule)]}.{name}": t for rule in edit.rules for name, t in rule.state_dict().items()}


def reapply(model: nn.Module, path: Any) -> Edit:
    """Put the edit that `Edit.save` wrote to a file into another instance of the same model, with its parameters.

    The model is not run: that its joins are where the plan has them is checked when it runs. Raises RewireError, and leaves the model as it was,
    where the file holds no edit, a module of the plan is not there, or a tensor is missing, left over or of another shape.

    Examples:
        >>> edit.save("edit.safetensors")
        >>> edit = skipway.reapply(Model.from_pretrained(folder), "edit.safetensors")
    """
    from safetensors import SafetensorError, safe_open
    if Edit.of(model) is not None:
        raise UsageError(f"reapply: {type(model).__name__} has been rewired; undo that edit first")
    try:
        with safe_open(str(path), "pt") as file:
            text = (file.metadata() or {}).get("skipway")
            tensors = {name: file.get_tensor(name) for name in file.keys()}        # noqa: SIM118 (no mapping)
    except (OSError, SafetensorError) as error:
        raise RewireError(f"reapply: {path} cannot be read as a safetensors file: {error}") from error
    data = json.loads(text) if text else {}
    if data.get("schema") != SCHEMA:
        raise RewireError(f"reapply: {path} holds no edit of schema {SCHEMA!r} (found {data.get('schema')!r}); write it with Edit.save")
    done = []
    there = {name for name, _ in model.named_modules()}
    for gap in data["skips"]:
        _there(model, there, (gap["ends"], gap["begins"]), data["model"])
    for entry in data["plan"]:
        spot = _spot(entry["spot"])
        _there(model, there, (spot.module, *(r.module for r in spot.reads or ())), data["model"])
        done.append((spot, tuple(actions.load(a["name"])(spot, **a["options"]) for a in entry["actions"])))
    edit = install(model, done, tuple(Gap(**g) for g in data["skips"]))
    try:
        _fill(edit, tensors, str(path))
    except BaseException:
        edit.undo()
        raise
    return edit


def _there(model: nn.Module, there: set[str], modules: tuple[str, ...], made_in: str) -> None:
    for module in modules:
        if module not in there:
            raise RewireError(f"reapply: the edit was made in {made_in}, and {type(model).__name__} has no module {module!r}; give the model that "
                              "it was made in")


def _fill(edit: Edit, tensors: dict[str, Any], path: str) -> None:
    own = _tensors(edit)
    missing, extra = sorted(own.keys() - tensors.keys()), sorted(tensors.keys() - own.keys())
    if missing or extra:
        told = (f"{what} {', '.join(names[:3])}{' and more' if len(names) > 3 else ''}"
                for what, names in (("missing", missing), ("left over", extra)) if names)
        raise RewireError(f"reapply: {path}: {'; '.join(told)}; give the file of an edit of this very model")
    for name, t in own.items():
        if t.shape != tensors[name].shape:
            raise RewireError(f"reapply: {path}: {name} has shape {tuple(tensors[name].shape)}, the model wants {tuple(t.shape)}")
    for name, t in own.items():
        t.copy_(tensors[name])


def _spot(data: dict[str, Any]) -> Spot:
    site = _tuples(data["site"])
    site["branches"] = tuple(Branch(**_tuples(b)) for b in site["branches"])
    reads = None if data["reads"] is None else tuple(Read(**r) for r in data["reads"])
    return Spot(**{**data, "site": Site(**site), "kind": Kind(*data["kind"]), "reads": reads})


def _tuples(data: dict[str, Any]) -> dict[str, Any]:
    """A record read from JSON, lists as tuples."""
    return {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}

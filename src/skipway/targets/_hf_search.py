"""Finds a class, a configuration and inputs with which a transformers model runs.

Tried in a fixed order, each by one forward without numbers: the classes of the model type, best first; for each the inputs that it needs,
improved by what its errors say. Then all again with defaults that are mended. Where the forward asks for numbers, on a small real copy.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from skipway._errors import SkipwayError, TraceError
from skipway.targets._given import Given
from skipway.targets._hf_blame import lacks_field, needs_values
from skipway.targets._hf_config import make, model_classes
from skipway.targets._hf_inputs import Guess
from skipway.targets._hf_mend import mend
from skipway.targets._hf_shrink import smaller
from skipway.targets._seed import reseed
from skipway.targets._target import MOST_PARAMETERS, Target
from skipway.wiring.forward import How, record

MOST_TRIALS, MOST_CHANGES = 16, 6


def search(config: Any, name: str, given: Given | None, kept: frozenset[str] | None, told: Sequence[str] = ()) -> Target:
    """The first that runs.

    kept: fields of a default configuration that are not to be mended; None where it is not a default. told: what differs from the defaults.

    Raises TargetError or TraceError, of the first class, where none runs.
    """
    failures: list[Exception] = []
    for filling in (False, True):
        if filling and (kept is None or not any(lacks_field(error) for error in failures)):
            break
        for cls in model_classes(config, name):
            try:
                return _with_class(cls, copy.deepcopy(config), name, given, kept, filling, told)
            except (SkipwayError, RuntimeError) as error:
                failures.append(error)
    raise next((error for error in failures if not lacks_field(error)), failures[0])


def _with_class(
    cls: Any, config: Any, name: str, given: Given | None, kept: frozenset[str] | None, filling: bool, told: Sequence[str],
) -> Target:
    """The model of one class with inputs that run. filling: also fields that this kind of configuration does not have are mended."""
    changes: list[str] = list(told)

    def mended(settings: Any, error: BaseException) -> str | None:
        if kept is None or len(changes) == MOST_CHANGES or (not filling and lacks_field(error)):
            return None
        return mend(settings, error, kept)

    while True:
        try:
            model, notes = make(cls, config, "meta", name)
            found = _with_inputs(model, config, name, given, lambda error: mended(copy.deepcopy(config), error) is not None)
            note = (f"the default configuration does not run; changed: {', '.join(changes)}",) if changes else ()
            return replace(found, notes=(*notes, *note, *found.notes))
        except (SkipwayError, RuntimeError) as error:
            change = mended(config, error)
            if change is None:
                raise
            changes.append(change)


def _with_inputs(model: nn.Module, config: Any, name: str, given: Given | None, mendable: Callable[[BaseException], bool]) -> Target:
    """The given inputs, or the first guess that runs. Raises the error that the best guess came to."""
    cls = type(model)
    if given is not None:
        return Target(model, given.args, given.kwargs, name, (), lambda: _shrunken(cls, config, name, given, None)[0])
    try:
        return _guessed(Guess(model, config, name), model, config, mendable)
    except SkipwayError as error:
        if mendable(error):
            raise
        first = error
    try:
        return _guessed(Guess(model, config, name, words_alone=True), model, config, mendable)
    except SkipwayError as error:
        raise first from first.__cause__ or error


def _guessed(guess: Guess, model: nn.Module, config: Any, mendable: Callable[[BaseException], bool]) -> Target:
    """The model with the first inputs that run, or a small real copy where its forward asks for numbers."""
    cls, name = type(model), guess.name
    try:
        made = _fitting(guess, partial(_recorded, model), mendable)
    except SkipwayError as error:
        if not needs_values(error):
            raise
        small, failure = _shrunken(cls, config, name, None, guess)
        if small is None and failure is not None:
            raise TraceError(f"{error}; and no small real copy of it runs: {_one_line(failure)}") from failure
        if small is None:
            raise
        return replace(small, notes=(f"{error}: {small.notes[-1]}",))
    return Target(model, made.args, made.kwargs, name, (), lambda: _shrunken(cls, config, name, None, guess)[0])


def _one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def _fitting(guess: Guess, run: Callable[[Given], None], stop: Callable[[BaseException], bool]) -> Given:
    """The first guess with which `run` raises nothing. Raises the error that the best guess came to; at once where `stop` is true of it."""
    for _ in range(MOST_TRIALS):
        made = guess.given()
        with _Counted() as counted:
            try:
                run(made)
                return made
            except Exception as error:
                if needs_values(error):
                    raise
                problem = error
        if not guess.learn(problem, counted.calls, stop):
            break
    assert guess.best is not None
    raise guess.best[1]


class _Counted(TorchFunctionMode):
    """Counts calls of torch, as a measure of how far a forward came."""

    calls = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls += 1
        return func(*args, **(kwargs or {}))


def _at_once(error: BaseException) -> bool:
    return True


def _never(error: BaseException) -> bool:
    return False


def _shrunken(cls: Any, config: Any, name: str, given: Given | None, like: Guess | None) -> tuple[Target | None, Exception | None]:
    """The first of the smaller configurations that can be built, is small enough and whose forward runs; else the error of the first.

    All of them with the inputs that the full size takes before any with others: a width may be tied to another one.
    """
    first: Exception | None = None
    for changing in (False, True):
        for small, changes in smaller(config):
            try:
                if sum(p.numel() for p in make(cls, small, "meta", name)[0].parameters()) > MOST_PARAMETERS:
                    continue
                reseed()
                model, _ = make(cls, small, "cpu", name)
                if given is None:
                    guess = Guess(model, small, name)
                    found = _fitting(guess.like(like) if like is not None else guess, partial(_run, model), _never if changing else _at_once)
                else:
                    found = given
                    _run(model, given)
            except Exception as error:
                first = first or error
                continue
            note = f"a small real copy with random weights was run instead ({', '.join(changes) or 'its own size'})"
            return Target(model, found.args, found.kwargs, name, (note,)), None
    return None, first


def real_inputs(model: nn.Module, config: Any, name: str) -> Given:
    """The first guess with which a forward of this real model runs. Raises the error of the first that gave all that is needed."""
    return _fitting(Guess(model, config, name), partial(_run, model), lambda error: False)


def _recorded(model: nn.Module, given: Given) -> None:
    record(model, given.args, given.kwargs, How())


def _run(model: nn.Module, given: Given) -> None:
    with torch.no_grad():
        model(*given.args, **given.kwargs)

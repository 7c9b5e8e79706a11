"""`path/file.py:attr` and `package.module:attr`: a model class, a factory function or an instance of the user's own code."""

import inspect
from types import ModuleType
from typing import Any

from torch import nn

from skipway._errors import TargetError
from skipway._load import attribute, call, load_module, split
from skipway.targets._given import Given, as_given
from skipway.targets._guess import guess
from skipway.targets._target import RANDOM, Target

FORM = "path/file.py:attr, package.module:attr"


def build(text: str, given: Given | None, config: tuple[str, ...]) -> Target:
    """The model that the class, factory or instance gives, with the given or guessed inputs."""
    if config:
        raise TargetError(f"{text}: --config {config[0]!r} is for hf: targets; make the change in the file, or name a factory function")
    path, name = split(text)
    module = load_module(path)
    if name is None:
        name, value = only_model(module, path)
    else:
        value = attribute(module, name, text)
    made = instance(value, f"{path}:{name}")
    model, own = made if isinstance(made, tuple) else (made, None)
    if given is not None:
        return Target(model, given.args, given.kwargs, text)
    if own is not None:
        return Target(model, own.args, own.kwargs, text, inputs="as the factory gives them")
    found, note = guess(model, module, text)
    where = note.removeprefix("inputs: ") if "guessed" not in note else RANDOM
    return Target(model, found.args, found.kwargs, text, (note,), inputs=where)


def only_model(module: ModuleType, path: str) -> tuple[str, Any]:
    """The one model that the file defines: an instance before a class, since an instance is ready to run."""
    own = {n: v for n, v in vars(module).items() if not n.startswith("_")}
    instances = {n: v for n, v in own.items() if isinstance(v, nn.Module)}
    classes = {n: v for n, v in own.items() if inspect.isclass(v) and issubclass(v, nn.Module) and v.__module__ == module.__name__}
    found = instances or classes
    if len(found) == 1:
        return next(iter(found.items()))
    if not found:
        functions = [n for n, v in own.items() if inspect.isfunction(v) and v.__module__ == module.__name__]
        hint = f"name the factory function, for example {path}:{functions[0]}" if functions else "name one as file.py:attr"
        raise TargetError(f"{path}: it defines no torch.nn.Module class or instance; {hint}")
    raise TargetError(f"{path}: it has {len(found)} models ({', '.join(sorted(found))}); name one, for example {path}:{sorted(found)[0]}")


def instance(value: Any, target: str) -> "nn.Module | tuple[nn.Module, Given]":
    """The module itself, or what the class or factory gives when called without arguments; a factory may give (model, inputs)."""
    if isinstance(value, nn.Module):
        return value
    if not callable(value):
        raise TargetError(f"{target}: got {type(value).__name__}, want a torch.nn.Module class, a factory function or an instance")
    needs = _needed(value)
    if needs:
        made_by = f"def make(): return {target.rpartition(':')[2]}({', '.join(f'{n}=...' for n in needs)})"
        raise TargetError(f"{target}: it needs the arguments {', '.join(needs)}; add a factory without arguments, such as {made_by}, and name that")
    made = call(value, target)
    if isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], nn.Module):
        return made[0], as_given(made[1], f"{target}: the inputs it returns")
    if not isinstance(made, nn.Module):
        raise TargetError(f"{target}: calling it gave {type(made).__name__}, want a torch.nn.Module or (module, inputs)")
    return made


def _needed(value: Any) -> list[str]:
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):             # a callable of C has no signature; calling it says what it lacks
        return []
    return [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]

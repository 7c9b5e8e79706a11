"""Loads Python code that is not ours, a target or a task of a file, and names the place where it fails."""

import importlib
import importlib.util
import pathlib
import sys
import sysconfig
import traceback
from collections.abc import Callable
from difflib import get_close_matches
from types import ModuleType
from typing import Any

from skipway._errors import SkipwayError, TargetError


def split(text: str) -> tuple[str, str | None]:
    """"path/file.py:attr" or "package.module:attr" as (path or module name, attr or None)."""
    path, colon, attr = text.rpartition(":")
    if colon and all(part.isidentifier() for part in attr.split(".")):
        return path, attr
    return text, None


def is_file(path: str) -> bool:
    """True where `path` names a file rather than a module."""
    return path.endswith(".py") or "/" in path or "\\" in path


def load_module(path: str) -> ModuleType:
    """The module of the file or the dotted name. A file's folder is importable, as when Python runs it.

    Raises TargetError where there is none or where its own code raises.
    """
    if not is_file(path):
        return _load_dotted(path)
    file = pathlib.Path(path)
    if not file.is_file():
        raise TargetError(f"{path}: {'it is a folder' if file.is_dir() else 'no such file'}; give the path of a Python file{_similar(file)}")
    name = f"_skipway_target_{file.stem}"
    loaded = sys.modules.get(name)
    if loaded is not None and getattr(loaded, "__file__", None) == str(file.resolve()):
        return loaded
    spec = importlib.util.spec_from_file_location(name, file.resolve())
    if spec is None or spec.loader is None:
        raise TargetError(f"{path}: not a Python file; give a file whose name ends in .py")
    module = importlib.util.module_from_spec(spec)
    folder = str(file.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    sys.modules[name] = module                  # dataclasses and pickling look the module up by its name while it runs
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise failure(error, f"{path} cannot be imported", fallback=path) from error
    return module


def _load_dotted(path: str) -> ModuleType:
    if "" not in sys.path and "." not in sys.path:
        sys.path.insert(0, "")                  # a module beside the user, as with `python -m`
    if not path or not all(part.isidentifier() for part in path.split(".")):
        raise TargetError(f"{path!r}: neither a file nor a module name; write path/file.py:attr, package.module:attr, hf:, timm: or torchvision:")
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError as error:
        if error.name and (path == error.name or path.startswith(error.name + ".")):
            here = f"; did you mean {path}.py" if pathlib.Path(f"{path}.py").is_file() else "; want path/file.py:attr or an importable module"
            raise TargetError(f"{path}: no module named {error.name!r}{here}") from error
        raise failure(error, f"{path} cannot be imported", fallback=path) from error
    except (Exception, SystemExit) as error:
        raise failure(error, f"{path} cannot be imported", fallback=path) from error


def attribute(module: ModuleType, name: str, target: str) -> Any:
    """The (dotted) attribute of the module. Raises TargetError with near names."""
    value: Any = module
    for part in name.split("."):
        if not hasattr(value, part):
            public = [n for n in vars(value) if not n.startswith("_")] if hasattr(value, "__dict__") else []
            near = get_close_matches(part, public, n=3) or sorted(public)[:8]
            hint = f"; it has {', '.join(near)}" if near else ""
            raise TargetError(f"{target}: {getattr(module, '__file__', None) or module.__name__} has no {name!r}{hint}")
        value = getattr(value, part)
    return value


def call(function: Callable[..., Any], target: str) -> Any:
    """The function's result. Raises TargetError that names the line at which the target's own code fails."""
    try:
        return function()
    except SkipwayError:
        raise
    except (Exception, SystemExit) as error:
        raise failure(error, f"{target} failed", fallback=target) from error


def failure(error: BaseException, what: str, fallback: str) -> TargetError:
    """One line: the place in the user's code, what failed, the error's own first line."""
    if isinstance(error, SyntaxError) and error.filename:
        return TargetError(f"{_short(error.filename)}:{error.lineno}: {what}: {type(error).__name__}: {error.msg}; correct it, or see --debug")
    frames = [f for f in traceback.extract_tb(error.__traceback__) if _users(f.filename)]
    place = f"{_short(frames[-1].filename)}:{frames[-1].lineno}" if frames else fallback
    said = (str(error).strip().splitlines() or [""])[0]
    return TargetError(f"{place}: {what}: {type(error).__name__}{': ' + said if said else ''}; correct it, or see --debug for the traceback")


def _users(filename: str) -> bool:
    """True for code that is neither ours, the import system's, nor an installed package's."""
    ours = str(pathlib.Path(__file__).parent)
    return not (filename.startswith(("<frozen", ours, sysconfig.get_paths()["stdlib"])) or "site-packages" in filename)


def _short(filename: str) -> str:
    path = pathlib.Path(filename)
    return str(path.relative_to(pathlib.Path.cwd())) if path.is_relative_to(pathlib.Path.cwd()) else filename


def _similar(file: pathlib.Path) -> str:
    if not file.parent.is_dir():
        return ""
    near = get_close_matches(file.name, [p.name for p in file.parent.iterdir() if p.suffix == ".py"], n=3)
    return f" (near it: {', '.join(near)})" if near else ""

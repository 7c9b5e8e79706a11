"""Data of the user's own for one forward: a text, named arrays, a folder of images, or what a function gives."""

import inspect
import pathlib
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from skipway._errors import TargetError
from skipway._load import attribute, call, load_module, split
from skipway.targets._given import Given, as_given
from skipway.targets._target import Target

LABELS = "labels"                       # of the data, for a loss; never given to the model, which would work a loss out of its own
PICKLED = (".pt", ".pth", ".bin", ".pkl", ".pickle", ".ckpt", ".npy")
KINDS = "a text file, a .safetensors or .npz file of named inputs, a folder of images, or file.py:function"


@dataclass(frozen=True)
class Wanted:
    """How much of the data is taken, and how a text becomes numbers. tokenizer: a tokenizer.json or its folder; None for the target's own."""

    batch: int = 4
    tokens: int = 128
    tokenizer: str | None = None


@dataclass(frozen=True)
class Data:
    """The arguments of one forward. said: what they are. labels: one a row. mask: the token that hides one; special: tokens that are never hidden."""

    given: Given
    said: str
    labels: Tensor | None = None
    mask: int | None = None
    special: frozenset[int] = frozenset()
    notes: tuple[str, ...] = ()


def load(text: str, target: Target, wanted: Wanted) -> Data:
    """The data that `text` names, held against the target's forward. Raises TargetError, one line, where it does not fit."""
    for option, value in (("--batch", wanted.batch), ("--tokens", wanted.tokens)):
        if value < 1:
            raise TargetError(f"{option}: got {value}, want at least 1")
    path, name = split(text)
    file = pathlib.Path(text)
    if name is not None and path.endswith(".py"):
        data = _from_function(text)
    elif file.is_dir():
        from skipway.targets._pictures import pictures
        data = pictures(file, target, wanted.batch)
    elif not file.is_file():
        raise TargetError(f"--data {text}: no such file; give {KINDS}")
    elif file.suffix in PICKLED:
        raise TargetError(f"--data {text}: {file.suffix} files may hold code or arrays without names; save the inputs by name: "
                          "numpy.savez('inputs.npz', x=...), or safetensors.torch.save_file({'x': ...}, 'inputs.safetensors')")
    elif file.suffix in (".npz", ".safetensors"):
        data = named(_arrays(file, text), text, f"{file.name}")
    else:
        from skipway.targets._text import text_data
        data = text_data(file, target, wanted)
    _fits(data.given, target.model, text)
    return data


def _from_function(text: str) -> Data:
    path, name = split(text)
    assert name is not None
    value = attribute(load_module(path), name, text)
    given = as_given(call(value, f"--data {text}") if callable(value) else value, f"--data {text}")
    return named(given.kwargs, text, f"from {text}", given.args)


def named(values: Mapping[str, Any], text: str, said: str, args: tuple[Any, ...] = ()) -> Data:
    """Named inputs, of which `labels` is kept apart."""
    kwargs = dict(values)
    labels = kwargs.pop(LABELS, None)
    if not args and not kwargs:
        raise TargetError(f"--data {text}: it holds {'labels and ' if labels is not None else ''}no input; give the tensors that the model's forward "
                          "takes")
    return Data(Given(args, kwargs), said, labels)


def _arrays(file: pathlib.Path, text: str) -> dict[str, Tensor]:
    try:
        if file.suffix == ".npz":
            import numpy
            with numpy.load(file, allow_pickle=False) as found:
                return {key: torch.from_numpy(numpy.array(found[key])) for key in found.files}
        from safetensors.torch import load_file
        return load_file(file)
    except ImportError as error:
        raise TargetError(f"--data {text}: reading it needs the package safetensors; pip install 'skipway[hf]'") from error
    except (ValueError, TypeError, OSError, EOFError, zipfile.BadZipFile) as error:
        said = " ".join(str(error).split())[:200]
        raise TargetError(f"--data {text}: cannot be read: {said}; write it with numpy.savez and numbers only") from error
    except Exception as error:          # safetensors raises a class of its own
        raise TargetError(f"--data {text}: not a safetensors file: {' '.join(str(error).split())[:200]}; write it with save_file") from error


def _fits(given: Given, model: nn.Module, text: str) -> None:
    """Raises TargetError where a name is none of the forward's, one that it needs is missing, or a token is outside the vocabulary."""
    try:
        parameters = dict(inspect.signature(model.forward).parameters)
    except (TypeError, ValueError):
        parameters = {}
    taken = [n for n, p in parameters.items() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    anything = not parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    odd = [n for n in given.kwargs if n not in taken]
    if odd and not anything:
        raise TargetError(f"--data {text}: {type(model).__name__}.forward takes no {', '.join(map(repr, odd))}; it takes {', '.join(taken)}")
    needed = [n for n in taken if parameters[n].default is inspect.Parameter.empty][len(given.args):]
    missing = [n for n in needed if n not in given.kwargs]
    if missing:
        got = ", ".join(given.kwargs) or f"{len(given.args)} without names"
        raise TargetError(f"--data {text}: {type(model).__name__}.forward needs {', '.join(map(repr, missing))}, got {got}; add it by that name")
    limit = vocabulary(model)
    first = dict(zip(taken, given.args, strict=False)) | given.kwargs
    named_ids = {n: v for n, v in first.items() if n.endswith("input_ids") or n in taken[:1]}
    for name, ids in named_ids.items():
        if limit is None or not isinstance(ids, Tensor) or ids.is_floating_point() or not ids.numel():
            continue
        low, high = int(ids.min()), int(ids.max())
        if low < 0 or high >= limit:
            raise TargetError(f"--data {text}: {name!r} holds {low if low < 0 else high}, and the model's vocabulary has {limit} tokens, 0 to "
                              f"{limit - 1}; tokenise the text with the model's own tokenizer")


def vocabulary(model: nn.Module) -> int | None:
    """How many tokens the model knows: the rows of its input embedding, or of its first embedding; None where it has none."""
    try:
        table: Any = model.get_input_embeddings()       # type: ignore[operator]
    except (AttributeError, NotImplementedError, TypeError):
        table = next((m for m in model.modules() if isinstance(m, nn.Embedding)), None)
    rows = getattr(table, "num_embeddings", None)
    return rows if isinstance(rows, int) else None

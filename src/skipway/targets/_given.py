"""Inputs that the user gives: `--input "x=float32[2,3,224,224]"` and `--inputs file.py:function`."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from skipway._errors import TargetError
from skipway._load import attribute, call, load_module, split
from skipway.targets._seed import generator as seeded_generator

FORM = re.compile(r"\s*(?:(?P<name>[A-Za-z_]\w*)\s*=)?\s*(?P<dtype>\w+)\s*\[(?P<shape>[\d\s,]*)\]\s*(?:<\s*(?P<limit>\d+))?\s*")
DTYPES = {name: getattr(torch, name) for name in (
    "float64", "float32", "float16", "bfloat16", "complex64", "int64", "int32", "int16", "int8", "uint8", "bool")}
HOW = 'write NAME=DTYPE[SIZES], for example "x=float32[2,3,224,224]" or "ids=int64[1,16]<1000"'


@dataclass(frozen=True)
class Given:
    """The arguments of the forward as the user gave them."""

    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)


def given_inputs(inputs: Sequence[str], inputs_from: str | None) -> Given | None:
    """The inputs given by either way, or None where none are. Raises TargetError where both are, or one is not valid."""
    if inputs and inputs_from:
        raise TargetError(f"got both --input {inputs[0]!r} and --inputs {inputs_from!r}, want one of them; leave one out")
    if inputs_from:
        return _from_function(inputs_from)
    if not inputs:
        return None
    args: list[torch.Tensor] = []
    kwargs: dict[str, torch.Tensor] = {}
    for number, text in enumerate(inputs):
        name, tensor = parse(text, seed=number)
        if name is None:
            args.append(tensor)
        elif name in kwargs:
            raise TargetError(f"--input {text!r}: {name!r} is given twice; leave one out")
        else:
            kwargs[name] = tensor
    return Given(tuple(args), kwargs)


def parse(text: str, seed: int = 0) -> tuple[str | None, torch.Tensor]:
    """The name (None for a positional input) and the tensor that `text` describes, filled from a fixed seed."""
    match = FORM.fullmatch(text)
    if match is None:
        raise TargetError(f"--input {text!r}: not understood; {HOW}")
    dtype = DTYPES.get(match["dtype"])
    if dtype is None:
        raise TargetError(f"--input {text!r}: got dtype {match['dtype']!r}, want one of {', '.join(DTYPES)}")
    shape = [int(size) for size in match["shape"].split(",") if size.strip()]
    limit = int(match["limit"]) if match["limit"] else None
    generator = seeded_generator(seed)
    if dtype is torch.bool:
        return match["name"], torch.randint(0, 2, shape, generator=generator).bool()
    if dtype.is_floating_point or dtype.is_complex:
        if limit is not None:
            raise TargetError(f"--input {text!r}: a limit (<{limit}) is for integers; leave it out")
        return match["name"], torch.randn(shape, generator=generator).to(dtype)
    if not limit:
        raise TargetError(f"--input {text!r}: integers need the number of values they may take; write {text.strip()}<1000 for 0 to 999")
    return match["name"], torch.randint(0, limit, shape, generator=generator).to(dtype)


def _from_function(text: str) -> Given:
    path, name = split(text)
    if name is None:
        raise TargetError(f"--inputs {text!r}: no function is named; write --inputs {text}:FUNCTION")
    value = attribute(load_module(path), name, text)
    return as_given(call(value, text) if callable(value) else value, f"--inputs {text!r}")


def as_given(value: Any, where: str) -> Given:
    """A tensor, a tuple, a dict, or (tuple, dict) as arguments. Raises TargetError where no tensor is among them."""
    if isinstance(value, torch.Tensor):
        value = (value,)
    if isinstance(value, list):
        value = tuple(value)
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], (tuple, list)) and isinstance(value[1], Mapping):
        given = Given(tuple(value[0]), dict(value[1]))
    elif isinstance(value, Mapping):
        given = Given((), dict(value))
    elif isinstance(value, tuple):
        given = Given(value)
    else:
        raise TargetError(f"{where}: got {type(value).__name__}, want a tensor, a tuple, a dict or (tuple, dict) of tensors")
    if not any(_holds_tensor(v) for v in (*given.args, *given.kwargs.values())):
        kinds = ", ".join(type(v).__name__ for v in (*given.args, *given.kwargs.values())) or "nothing"
        raise TargetError(f"{where}: got {kinds} and no tensor among them; return the tensors that the model's forward takes")
    return given


def _holds_tensor(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(_holds_tensor(v) for v in value.values())
    if isinstance(value, (tuple, list)):
        return any(_holds_tensor(v) for v in value)
    return isinstance(value, torch.Tensor)

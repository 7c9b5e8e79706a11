"""Losses by name, and of the user's own: what a probe takes the gradient of."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from skipway._errors import SkipwayError, TargetError
from skipway._load import attribute, failure, load_module, split
from skipway.targets._data import LABELS, Data
from skipway.targets._given import Given
from skipway.targets._seed import generator

NAMES = ("next-token", "masked-token", "classification")
HIDDEN = 0.15           # of the tokens, as in Devlin et al. 2019
IGNORED = -100


@dataclass(frozen=True)
class Objective:
    """A loss: `call(output)` is one number. given: the model's inputs, changed where the loss hides some. notes: what a reader must know."""

    name: str
    call: Callable[[Any], Tensor]
    given: Given
    notes: tuple[str, ...] = ()


def objective(text: str, data: Data) -> Objective:
    """The loss that `text` names for this data. Raises TargetError, one line, where there is none such or the data does not fit it."""
    path, function = split(text)
    if text == "next-token":
        return _next_token(data)
    if text == "masked-token":
        return _masked_token(data)
    if text == "classification":
        return _classification(data)
    if function is None or not path.endswith(".py"):
        raise TargetError(f"--loss: got {text!r}, want one of {', '.join(NAMES)} or file.py:function")
    return _own(text, attribute(load_module(path), function, text), data)


def _next_token(data: Data) -> Objective:
    name, ids = _ids(data, "next-token")
    seen = data.given.kwargs.get("decoder_attention_mask" if name == "decoder_input_ids" else "attention_mask")
    targets = ids[:, 1:].clone()
    if isinstance(seen, Tensor) and seen.shape == ids.shape:
        targets[seen[:, 1:] == 0] = IGNORED

    def loss(out: Any) -> Tensor:
        logits = logits_of(out, "next-token")
        if logits.shape[:-1] != ids.shape:
            raise TargetError(f"--loss next-token: the logits have the shape {tuple(logits.shape)}, want {(*ids.shape, 'vocabulary')}; "
                              "the model predicts something else: give --loss file.py:function")
        return F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), targets.flatten(), ignore_index=IGNORED)
    return Objective("next-token", loss, data.given)


def _masked_token(data: Data) -> Objective:
    """15 % of the tokens that are not special are replaced by the mask token; the loss is over these."""
    name, ids = _ids(data, "masked-token", "input_ids")
    if data.mask is None:
        raise TargetError("--loss masked-token: no mask token is known for this data; give a text with --data and a tokenizer that has one, or "
                          "--loss file.py:function")
    free = ~torch.isin(ids, torch.tensor(sorted(data.special), dtype=ids.dtype))
    chosen = (torch.rand(ids.shape, generator=generator(1)) < HIDDEN) & free
    if not chosen.any():
        chosen = free & (free.long().cumsum(1) == 1)
    if not chosen.any():
        raise TargetError("--loss masked-token: the data has no token that may be hidden; give a longer text")
    hidden = torch.where(chosen, torch.full_like(ids, data.mask), ids)
    targets = torch.where(chosen, ids, torch.full_like(ids, IGNORED))

    def loss(out: Any) -> Tensor:
        logits = logits_of(out, "masked-token")
        if logits.shape[:-1] != ids.shape:
            raise TargetError(f"--loss masked-token: the logits have the shape {tuple(logits.shape)}, want {(*ids.shape, 'vocabulary')}; "
                              "give --loss file.py:function")
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), ignore_index=IGNORED)

    given = replace(data.given, kwargs={**data.given.kwargs, name: hidden}) if name in data.given.kwargs else replace(
        data.given, args=(hidden, *data.given.args[1:]))
    return Objective("masked-token", loss, given, (f"masked-token: {int(chosen.sum())} of {ids.numel()} tokens hidden",))


def _classification(data: Data) -> Objective:
    labels = torch.as_tensor(data.labels).long() if data.labels is not None else None
    if labels is None:
        raise TargetError(f"--loss classification: the data has no labels; add {LABELS!r} to the .npz or .safetensors file, or give a folder of "
                          "images with a sub-folder a class")

    def loss(out: Any) -> Tensor:
        logits = logits_of(out, "classification")
        if logits.dim() != 2 or len(logits) != len(labels) or labels.dim() != 1:
            raise TargetError(f"--loss classification: the logits have the shape {tuple(logits.shape)} and the labels {tuple(labels.shape)}, want "
                              "(rows, classes) and (rows,); give --loss file.py:function")
        if int(labels.max()) >= logits.shape[1] or int(labels.min()) < 0:
            raise TargetError(f"--loss classification: the labels go from {int(labels.min())} to {int(labels.max())}, and the model has "
                              f"{logits.shape[1]} classes; number them from 0")
        return F.cross_entropy(logits.float(), labels)
    return Objective("classification", loss, data.given)


def _own(text: str, function: Any, data: Data) -> Objective:
    """A function of the output, or of the output and the inputs by name with the labels among them."""
    if not callable(function):
        raise TargetError(f"--loss {text}: got {type(function).__name__}, want a function of the model's output")
    try:
        count = len([p for p in inspect.signature(function).parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)])
    except (TypeError, ValueError):
        count = 1
    batch = {**{str(i): a for i, a in enumerate(data.given.args)}, **data.given.kwargs}
    if data.labels is not None:
        batch[LABELS] = data.labels

    def loss(out: Any) -> Tensor:
        try:
            made: Tensor = function(out, batch) if count > 1 else function(out)
            return made
        except SkipwayError:
            raise
        except Exception as error:
            raise failure(error, f"--loss {text} failed", fallback=text) from error
    return Objective(text, loss, data.given)


def _ids(data: Data, loss: str, *names: str) -> tuple[str, Tensor]:
    """The tokens that the model predicts: of its decoder, else its only ones."""
    given = data.given
    for name in names or ("decoder_input_ids", "input_ids"):
        value = given.kwargs.get(name)
        if isinstance(value, Tensor) and value.dim() == 2 and not value.is_floating_point():
            return name, value
    found = [v for v in given.args[:1] if isinstance(v, Tensor) and v.dim() == 2 and not v.is_floating_point()]
    if not found:
        got = ", ".join(f"{n} {str(v.dtype).removeprefix('torch.')}{list(v.shape)}" for n, v in
                        (*((f"input {i}", a) for i, a in enumerate(given.args)), *given.kwargs.items()) if isinstance(v, Tensor))
        raise TargetError(f"--loss {loss}: the inputs hold no tokens of shape (rows, tokens), got {got}; give a text with --data, or another loss")
    return "0", found[0]


def logits_of(out: Any, loss: str) -> Tensor:
    """The output's `logits`, or the output itself where it is a tensor, or its first tensor. Raises TargetError where there are none."""
    fields = {k: v for k, v in out.items() if isinstance(v, Tensor)} if isinstance(out, Mapping) else {}
    found = getattr(out, "logits", None) if not fields else fields.get("logits")
    if isinstance(found, Tensor):
        return found
    if isinstance(out, Tensor):
        return out
    if isinstance(out, (tuple, list)) and out and isinstance(out[0], Tensor):
        return out[0]
    got = f"{type(out).__name__} with {', '.join(fields) or 'no tensors'}"
    raise TargetError(f"--loss {loss}: the model's output is {got} and has no logits; take a model with a head, or --loss file.py:function")

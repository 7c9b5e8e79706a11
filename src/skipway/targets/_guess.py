"""Guesses inputs for a Python model from what it says itself and from its first layer."""

import inspect
from types import ModuleType
from typing import Any

import torch
from torch import nn

from skipway._errors import TargetError
from skipway._load import call
from skipway.targets._given import Given, as_given
from skipway.targets._seed import generator

BATCH, TOKENS, SIDE, LENGTH = 2, 16, 64, 64     # small, and no two axes that a forward could confuse are equal by chance
FIRST_LAYERS = (nn.Embedding, nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.MultiheadAttention, nn.RNNBase, nn.TransformerEncoderLayer,
                nn.TransformerDecoderLayer, nn.Transformer, nn.LayerNorm, nn.BatchNorm1d, nn.BatchNorm2d, nn.GroupNorm)


def guess(model: nn.Module, file: ModuleType | None, target: str) -> tuple[Given, str]:
    """Inputs and how they were found: `example_inputs` of the model, then of its file, then the first layer's size."""
    for owner, where in ((model, "of the model"), (file, "of the file")):
        value = getattr(owner, "example_inputs", None)
        if value is not None:
            value = call(value, f"{target}: example_inputs") if callable(value) else value
            return as_given(value, f"{target}: example_inputs {where}"), f"inputs: example_inputs {where}"
    required = [name for name, p in _parameters(model).items() if p.default is p.empty]
    found = _first_layer(model)
    if found is None:
        raise TargetError(f"{target}: its inputs cannot be guessed{_signature(model)}; {_how(required)}")
    path, layer = found
    tensors = _for_layer(layer, _side(model))[:max(1, len(required))]
    if len(required) > len(tensors):
        raise TargetError(f"{target}: its forward needs {', '.join(required)} and only {len(tensors)} of them can be guessed; {_how(required)}")
    shapes = ", ".join(f"{str(t.dtype).removeprefix('torch.')}{list(t.shape)}".replace(" ", "") for t in tensors)
    return Given(tensors), f"inputs: {shapes}, guessed from {path or 'the model'} ({type(layer).__name__}); --input says otherwise"


def _parameters(model: nn.Module) -> dict[str, inspect.Parameter]:
    try:
        signature = inspect.signature(model.forward)
    except (TypeError, ValueError):             # scripted and C-level forwards have none
        return {}
    return {name: p for name, p in signature.parameters.items() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)}


def _first_layer(model: nn.Module) -> tuple[str, nn.Module] | None:
    """The first module, in the order of registration, whose input size is known."""
    return next(((path, m) for path, m in model.named_modules() if isinstance(m, FIRST_LAYERS)), None)


def _side(model: nn.Module) -> int:
    """Height and width of an image: what the model declares, else SIDE."""
    declared = next((size for name in ("img_size", "image_size") if isinstance(size := getattr(model, name, None), int)), SIDE)
    return declared if declared > 0 else SIDE


def _for_layer(layer: nn.Module, side: int) -> tuple[torch.Tensor, ...]:
    def normal(*shape: int) -> tuple[torch.Tensor, ...]:
        return (torch.randn(shape, generator=generator(), dtype=dtype),)

    dtype = next((p.dtype for p in layer.parameters() if p.dtype.is_floating_point), torch.float32)
    value: Any = layer
    if isinstance(layer, nn.Embedding):
        count = min(TOKENS, max(1, layer.num_embeddings))
        return (torch.randint(0, layer.num_embeddings, (BATCH, count), generator=generator()),)
    if isinstance(layer, nn.Linear):
        return normal(BATCH, 8, value.in_features)
    if isinstance(layer, nn.Conv1d):
        return normal(BATCH, value.in_channels, LENGTH)
    if isinstance(layer, nn.Conv2d):
        return normal(BATCH, value.in_channels, side, side)
    if isinstance(layer, nn.Conv3d):
        return normal(BATCH, value.in_channels, 8, side, side)
    if isinstance(layer, nn.BatchNorm1d):
        return normal(BATCH, value.num_features, LENGTH)
    if isinstance(layer, (nn.BatchNorm2d, nn.GroupNorm)):
        return normal(BATCH, getattr(layer, "num_features", getattr(layer, "num_channels", 1)), side, side)
    if isinstance(layer, nn.LayerNorm):
        return normal(BATCH, *((TOKENS,) if len(value.normalized_shape) == 1 else ()), *value.normalized_shape)
    if isinstance(layer, nn.RNNBase):
        return normal(BATCH, TOKENS, value.input_size)
    return _for_attention(layer, normal)


def _for_attention(layer: nn.Module, normal: Any) -> tuple[torch.Tensor, ...]:
    if isinstance(layer, nn.MultiheadAttention):
        return normal(BATCH, TOKENS, layer.embed_dim)
    if isinstance(layer, nn.Transformer):
        return (*normal(BATCH, TOKENS, layer.d_model), *normal(BATCH, TOKENS, layer.d_model))
    attention: Any = layer.self_attn
    return normal(BATCH, TOKENS, attention.embed_dim) * (2 if isinstance(layer, nn.TransformerDecoderLayer) else 1)


def _signature(model: nn.Module) -> str:
    names = list(_parameters(model))
    return f" (forward takes {', '.join(names)})" if names else ""


def _how(required: list[str]) -> str:
    names = required or ["x"]
    given = " ".join(f'--input "{name}=float32[2,16,64]"' for name in names)
    return f"give them: {given} (integers: int64[2,16]<1000), or --inputs FILE.py:FUNCTION"

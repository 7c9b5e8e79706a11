"""What operations give on meta tensors, worked out once a process for equal operations on equal shapes.

Most meta kernels are written in Python and cost far more than the operation itself; a model repeats its blocks.
"""

from typing import Any

import torch
from torch import Tensor

_KNOWN: dict[Any, Any] = {}
_MOST_KNOWN = 100_000


def made(func: Any, args: Any, kwargs: Any) -> Any:
    """What an operation gives on meta tensors. Equal operations on equal shapes are worked out once a process."""
    try:
        key = (func, _described(args), _described(kwargs.items()) if kwargs else None)
        known = _KNOWN.get(key)
    except TypeError:                                               # an argument that has no hash: a generator
        return func(*args, **kwargs)
    if known is None:
        out = func(*args, **kwargs)
        whole = all(isinstance(t, Tensor) and t.is_meta for t in out) if isinstance(out, tuple) else isinstance(out, Tensor) and out.is_meta
        if whole and len(_KNOWN) < _MOST_KNOWN:
            _KNOWN[key] = tuple([_form(t) for t in out]) if isinstance(out, tuple) else [_form(out)]
        return out
    fresh = [torch.empty_strided(shape, stride, dtype=dtype, device="meta") for shape, stride, dtype in known]
    return fresh[0] if isinstance(known, list) else tuple(fresh)


def _form(t: Tensor) -> tuple[Any, ...]:
    return t.shape, t.stride(), t.dtype


def _described(values: Any) -> tuple[Any, ...]:
    """Arguments as something with a hash: tensors by shape, stride and type; 1, 1.0 and True apart."""
    return tuple([
        (v.shape, v.stride(), v.dtype, v.is_meta) if isinstance(v, Tensor) else _described(v) if isinstance(v, (list, tuple)) else (type(v), v)
        for v in values])

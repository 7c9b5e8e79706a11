"""Names of what a run meets: the path of a module that is held without being registered, and the source line of an operation."""

import os
import sys

import torch
from torch import nn

TORCH_HOME = torch.__path__[0] + os.sep            # not torchvision's
_HERE = tuple(os.path.join(os.path.dirname(os.path.dirname(__file__)), part) + os.sep for part in ("wiring", "surgery"))


def attribute_path(owner: nn.Module, module: nn.Module, prefix: str) -> str | None:
    """The path of a module in a plain list, tuple, dictionary or attribute of `owner`."""
    def join(name: str) -> str:
        return f"{prefix}.{name}" if prefix else name
    for name, value in vars(owner).items():
        if name in ("_modules", "_parameters", "_buffers"):
            continue
        if value is module:
            return join(name)
        items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (list, tuple)) else ()
        for key, item in items:
            if item is module:
                return join(f"{name}.{key}")
            if isinstance(item, (list, tuple)) and any(x is module for x in item):
                return join(f"{name}.{key}.{[x is module for x in item].index(True)}")
    return None


def source_line(outside: int) -> tuple[str, int] | None:
    """File and line of the innermost frame outside torch and this package; None where the forward has none."""
    frame = sys._getframe(2)
    while frame is not None and id(frame) != outside:
        name = frame.f_code.co_filename
        if not name.startswith(TORCH_HOME) and not name.startswith(_HERE):
            return name, frame.f_lineno
        frame = frame.f_back                                        # type: ignore[assignment]
    return None

"""The path of a module inside the model that is running: read off the Python frames, and only when an error is told."""

import sys

from torch import nn


def path(module: nn.Module) -> str:
    """The dotted path of a module below the outermost running module that holds it; its class name where none does."""
    best = ""
    frame = sys._getframe(1)
    while frame is not None:
        owner = frame.f_locals.get("self")
        if isinstance(owner, nn.Module) and owner is not module:
            best = next((name for name, m in owner.named_modules() if m is module), best)
        frame = frame.f_back                                # type: ignore[assignment]
    return best or type(module).__name__

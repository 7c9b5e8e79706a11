"""Activation checkpoints inside an intercepted forward: what they run again in backward runs with the same rules.

A checkpoint around a whole intercepted module runs its stand-in again, and needs nothing. One inside (transformers checkpoints within `forward`, and
any model may) hands a function to torch.utils.checkpoint that is run again in backward, where no stand-in is on the way. So the first edit of
a process lets torch.utils.checkpoint hand on the running frame with the function; where no frame runs, nothing is different (docs/decisions/0012).
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.utils.checkpoint as checkpoints

from skipway._errors import RewireError
from skipway.surgery._joining import Frame
from skipway.surgery._stand import here

GENERATORS = ("_checkpoint_without_reentrant_generator_impl", "_checkpoint_without_reentrant_generator")


class Again:
    """A checkpointed function that remembers the frame it first ran in, and how far that had counted."""

    def __init__(self, function: Callable[..., Any], frame: Frame) -> None:
        self.function, self.frame, self.counts = function, frame, dict(frame.counts)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if here.frame is self.frame:
            return self.function(*args, **kwargs)           # the first run
        frame = Frame(self.frame.layout, None)
        frame.counts = dict(self.counts)
        return frame.around(self.function, *args, **kwargs)


def _with_frame(function: Any) -> Any:
    frame = here.frame
    return function if frame is None or isinstance(function, Again) or torch.compiler.is_compiling() else Again(function, frame)


@functools.cache
def carry_frames() -> None:
    """Let checkpoints hand on frames from now on. Raises RewireError where this version of torch is built in another way."""
    found = [n for n in GENERATORS if hasattr(checkpoints, n)][:1]
    if not found or not hasattr(checkpoints, "CheckpointFunction"):
        raise RewireError(f"rewire: torch {torch.__version__} runs checkpoints in a way that is not known here; use a version that the README names")
    generator = getattr(checkpoints, found[0])

    @functools.wraps(generator)
    def carried(fn: Any, *args: Any, **kwargs: Any) -> Any:
        return generator(_with_frame(fn), *args, **kwargs)

    class Reentrant(checkpoints.CheckpointFunction):
        """torch's own, given the frame with the function."""

        @classmethod
        def apply(cls, function: Any, *args: Any) -> Any:
            return super().apply(_with_frame(function), *args)

    setattr(checkpoints, found[0], carried)
    checkpoints.CheckpointFunction = Reentrant              # type: ignore[misc]

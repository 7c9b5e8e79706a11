"""Builds a library's model on the meta device, so that it takes no memory and no time for its weights."""

import warnings
from collections.abc import Callable

import torch
from torch import nn

from skipway._load import failure

ON_CPU = "built with random weights: its constructor computes with numbers"


def build_on(device: str, make: Callable[[], nn.Module], what: str, name: str) -> tuple[nn.Module, tuple[str, ...]]:
    """The model in evaluation mode, and a note where it had to be built on the CPU instead of the meta device.

    Raises TargetError "name: what: ..." where its constructor fails on both.
    """
    try:
        with torch.device(device), warnings.catch_warnings():
            warnings.simplefilter("ignore")     # a library's advice to people who call it; the user named a model, not a call
            return make().eval(), ()
    except (NotImplementedError, RuntimeError) as error:    # what torch raises where a value is asked of a tensor that has none
        if device != "meta":
            raise failure(error, what, fallback=name) from error
    except Exception as error:
        raise failure(error, what, fallback=name) from error
    model, _ = build_on("cpu", make, what, name)
    return model, (ON_CPU,)

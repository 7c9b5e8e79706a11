"""The step that keeps a model's matrices on the unit sphere (nGPT)."""

import torch
from torch import Tensor, nn

from skipway.nn._initial import Exposes

READING = ("query", "key", "value", "input", "gate")


@torch.no_grad()
def normalise_weights(model: nn.Module) -> int:
    """Brings every vector of a branch's matrices that lives in the space of the stream to length 1, in place; gives the number of matrices.

    That is each row of a matrix that reads the stream (query, key, value, input, gate) and each column of one that writes to it (output), and
    each row of an embedding. Biases are left alone. Call it once at the start and after each step of the optimizer.
    """
    done: set[int] = set()
    for module in model.modules():
        found: list[tuple[Tensor, int]] = []
        if isinstance(module, nn.Embedding):
            found = [(module.weight, 1)]
        elif isinstance(module, Exposes):
            found = [(w, 1) for kind in READING for w in module.weights(kind)] + [(w, 0) for w in module.weights("output")]
        for weight, axis in found:
            if weight.data_ptr() not in done:
                done.add(weight.data_ptr())
                weight.copy_(nn.functional.normalize(weight, dim=axis))
    return len(done)

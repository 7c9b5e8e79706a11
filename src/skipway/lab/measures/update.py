"""update: how far training has moved the outputs, RMS of f(x; now) - f(x; start) over a held-out batch.

After one step it is the size of the model update that DeepNet bounds.
Source: Wang et al., DeepNet: Scaling Transformers to 1,000 Layers, 2022, arXiv 2203.00555, section 3.
"""

import torch

from skipway.lab._measure import evaluating
from skipway.lab.measures._base import Look
from skipway.lab.records import finite


def value(look: Look) -> float | None:
    """0 before the first step."""
    start = look.start()
    with torch.no_grad(), evaluating(look.model), evaluating(start):
        moved = look.model(look.batch.inputs).double() - start(look.batch.inputs).double()
    return finite(float(moved.square().mean().sqrt()))

"""branch_update: how far training has moved the outputs by the matrices of the branches alone, RMS of f(x; those now, all else at the start) -
f(x; start) over a held-out batch.

After one step of SGD it is the update that DeepNet's analysis bounds: its parameters are those of the sublayers, without norms and embeddings.
Source: Wang et al., DeepNet: Scaling Transformers to 1,000 Layers, 2022, arXiv 2203.00555, section 3.2.
"""

import torch

from skipway.lab._measure import evaluating
from skipway.lab.measures._base import Look
from skipway.lab.records import finite


def value(look: Look) -> float | None:
    """0 before the first step; None for a model without branches of `skipway.nn`."""
    start, mixed = look.start(), look.start()
    now = {name: p for name, p in look.model.named_parameters() if ".branch." in name and p.ndim > 1}
    if not now:
        return None
    with torch.no_grad(), evaluating(start), evaluating(mixed):
        for name, p in mixed.named_parameters():
            if name in now:
                p.copy_(now[name])
        moved = mixed(look.batch.inputs).double() - start(look.batch.inputs).double()
    return finite(float(moved.square().mean().sqrt()))

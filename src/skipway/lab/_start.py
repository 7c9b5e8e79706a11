"""Where the parameters of a trial's model start.

Every number that two arms share starts equal: a parameter's values depend on the seed and its name alone, not on what else a model holds. Only then
a scheme brings its branches to the start that it asks for.
"""

import torch
from torch import nn

from skipway.lab._blocks import spread
from skipway.lab.tasks._base import seed_of
from skipway.nn._initial import start as wishes
from skipway.nn._join import Join
from skipway.nn.resnet import ConvBlock

TABLE = 0.5 ** 0.5          # spread of an embedding: token and place together have size 1


def begin(model: nn.Module, init: str, seed: int) -> None:
    """Fills the model and then does what its schemes ask for."""
    _fill(model, init, seed)
    done: set[int] = set()
    joins = [(name, m) for name, m in model.named_modules() if isinstance(m, (Join, ConvBlock))]
    for k, (name, join) in enumerate(joins):
        if id(join.branch) not in done:                     # one that stands at several depths is brought to its start once
            done.add(id(join.branch))
            torch.manual_seed(seed_of("wishes", seed, k))
            wishes(join.scheme, join.branch, f"{name}.branch")


@torch.no_grad()
def _fill(model: nn.Module, kind: str, seed: int) -> None:
    """Draws every matrix that is not a scheme's own, by its name; biases of those are zero. Norms stay as they were built."""
    maps = {id(m.weight) for m in model.modules() if isinstance(m, nn.Linear)}
    tables = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)} - maps          # one that is also the head starts as a head does
    for name, p in model.named_parameters():
        if ".scheme." in name:
            continue
        if name.endswith("bias"):
            p.zero_()
        elif p.ndim > 1:
            generator = torch.Generator().manual_seed(seed_of("parameter", name, seed))
            inside, out = (p.shape[-1], p.shape[-2]) if p.ndim == 3 else (p[0].numel(), p.shape[0])     # of three axes, the first counts experts
            p.copy_(torch.randn(p.shape, generator=generator) * (TABLE if id(p) in tables else spread(kind, inside, out)))

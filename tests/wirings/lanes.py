"""Streams of several lanes: read a weighted sum of them, write the branch to each, mix them by a matrix.

Legend: b batch, t token, d width, n and m lanes. The lane axis is 1, (b, n, t, d), or 2, (b, t, n, d).
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .norms import token_norm, token_norm_class
from .spellings import PLAIN
from .sublayers import Side, make_branch
from .truth import SiteTruth

SPELLINGS = ("einsum", "matmul", "broadcast sum")
BIRTHS = ("expand", "repeat", "stack")
MIXERS = ("static", "softmax", "sinkhorn", "dynamic", "identity")
PLAIN_ON_LANES = ("x + y", "y + x", "torch.add(x, y)", "x.add(y)", "x - (-y)")


@dataclass(frozen=True)
class LanePlan:
    """A model whose stream has several lanes; every sublayer is pre-norm."""

    lanes: int
    branches: tuple[tuple[tuple[str, str], ...], ...]       # blocks of (kind, variant)
    axis: int = 2
    spelling: str = "einsum"
    add: str = "x + y"
    mixer: str = "static"
    birth: str = "expand"
    leave: str = "sum"
    norm: str = "layer_norm"
    final_norm: bool = True
    head: bool = False
    unmixed: bool = False               # fault: the mixing matrix is computed and not used

    def features(self) -> list[str]:
        """What a table of misses is grouped by."""
        kinds = [f"branch {k}/{v}" for block in self.branches for k, v in block]
        return [f"lanes {self.lanes}", f"lane axis {self.axis}", f"lanes by {self.spelling}", f"mixer {self.mixer}", f"lanes born by {self.birth}",
                f"lanes left by {self.leave}", f"norm {self.norm}", *kinds]

    def sites(self) -> list[SiteTruth]:
        """One mixed join a sublayer."""
        norm, shortcut = token_norm_class(self.norm), "identity" if self.mixer == "identity" else "mixed"
        paths = [(f"blocks.{i}.{j}", kind) for i, block in enumerate(self.branches) for j, (kind, _) in enumerate(block)]
        return [SiteTruth(path, (kind,), "pre", norm, shortcut, gain="any", scale="any") for path, kind in paths]


def sinkhorn(logits: Tensor) -> Tensor:
    """A doubly stochastic matrix."""
    m = logits.exp()
    for _ in range(5):
        m = m / m.sum(-1, keepdim=True)
        m = m / m.sum(-2, keepdim=True)
    return m


class LaneSite(nn.Module):
    """stream <- mix(stream) + write * branch(norm(read . stream))."""

    def __init__(self, plan: LanePlan, kind: str, variant: str, dim: int) -> None:
        super().__init__()
        n = plan.lanes
        self.plan, self.norm, self.branch = plan, token_norm(plan.norm, dim), make_branch(kind, variant, dim)
        self.read_weight, self.write_weight = nn.Parameter(torch.full((n,), 1.0 / n)), nn.Parameter(torch.ones(n))
        self.mix_weight = nn.Parameter(torch.eye(n) + 0.1 * torch.randn(n, n)) if plan.mixer != "identity" or plan.unmixed else None
        self.to_mix = nn.Linear(dim, n * n) if plan.mixer == "dynamic" else None

    def forward(self, stream: Tensor, side: Side | None = None) -> Tensor:
        y = self.branch(self.norm(self.read(stream)), side)
        kept = self.mixed(stream)
        kept = stream if self.plan.unmixed else kept
        return PLAIN[self.plan.add](kept, self.spread(y))

    def read(self, stream: Tensor) -> Tensor:
        """Weighted sum of the lanes, (b, t, d)."""
        axis, weight = self.plan.axis, self.read_weight
        if self.plan.spelling == "einsum":
            return torch.einsum("n,bntd->btd" if axis == 1 else "n,btnd->btd", weight, stream)
        if self.plan.spelling == "matmul":
            return stream.permute(0, 2, 3, 1) @ weight if axis == 1 else torch.matmul(weight, stream)
        return (stream * self.over_lanes(weight)).sum(axis)

    def over_lanes(self, weight: Tensor) -> Tensor:
        return weight[:, None, None] if self.plan.axis == 1 else weight[:, None]

    def matrix(self, stream: Tensor) -> Tensor:
        """The mixing matrix: (n, n), or (b, t, n, n) where it depends on the input."""
        assert self.mix_weight is not None
        if self.to_mix is not None:
            n = self.plan.lanes
            logits: Tensor = self.to_mix(stream.mean(self.plan.axis))
            return (logits.unflatten(-1, (n, n)) + self.mix_weight).softmax(-1)
        if self.plan.mixer == "softmax":
            return self.mix_weight.softmax(-1)
        return sinkhorn(self.mix_weight) if self.plan.mixer == "sinkhorn" else self.mix_weight

    def mixed(self, stream: Tensor) -> Tensor:
        """The lanes mixed by the matrix."""
        if self.mix_weight is None:
            return stream
        m, axis = self.matrix(stream), self.plan.axis
        lanes_last_but_one = stream.transpose(1, 2) if axis == 1 else stream          # (b, t, n, d)
        if self.plan.spelling == "einsum":
            if m.dim() == 2:
                return torch.einsum("mn,bntd->bmtd" if axis == 1 else "mn,btnd->btmd", m, stream)
            return torch.einsum("btmn,bntd->bmtd" if axis == 1 else "btmn,btnd->btmd", m, stream)
        if self.plan.spelling == "matmul":
            out = m @ lanes_last_but_one
        else:
            out = (m.unsqueeze(-1) * lanes_last_but_one.unsqueeze(2)).sum(3)
        return out.transpose(1, 2) if axis == 1 else out

    def spread(self, y: Tensor) -> Tensor:
        """The branch times one weight a lane."""
        return self.over_lanes(self.write_weight) * y.unsqueeze(self.plan.axis)


class LaneModel(nn.Module):
    """Embedding, lanes, sublayers, one lane again, norm, head."""

    def __init__(self, plan: LanePlan, dim: int) -> None:
        super().__init__()
        self.plan, self.stem = plan, nn.Embedding(20, dim)
        self.blocks = nn.ModuleList([nn.ModuleList([LaneSite(plan, k, v, dim) for k, v in block]) for block in plan.branches])
        self.final_norm = token_norm(plan.norm, dim) if plan.final_norm else None
        self.head = nn.Linear(dim, 20) if plan.head else None

    def forward(self, ids: Tensor, side: Side | None = None) -> Tensor:
        stream = self.born(self.stem(ids))
        for block in self.blocks:
            assert isinstance(block, nn.ModuleList)
            for site in block:
                stream = site(stream, side)
        x = stream.sum(self.plan.axis) if self.plan.leave == "sum" else stream.mean(self.plan.axis)
        x = x if self.final_norm is None else self.final_norm(x)
        return x if self.head is None else self.head(x)

    def born(self, x: Tensor) -> Tensor:
        """n equal lanes."""
        n, axis = self.plan.lanes, self.plan.axis
        if self.plan.birth == "stack":
            return torch.stack([x] * n, axis)
        one = x.unsqueeze(axis)
        if self.plan.birth == "repeat":
            return one.repeat(*[n if i == axis else 1 for i in range(4)])
        return one.expand(*[n if i == axis else -1 for i in range(4)])

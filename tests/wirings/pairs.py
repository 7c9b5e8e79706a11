"""Stacks that carry (hidden, residual): the add of a sublayer happens in the next norm."""

from dataclasses import dataclass

from torch import Tensor, nn

from .norms import token_norm, token_norm_class
from .spellings import PLAIN
from .sublayers import Side, make_branch
from .truth import SiteTruth


@dataclass(frozen=True)
class PairPlan:
    """Blocks of (kind, variant); all pre-norm, with a final norm."""

    blocks: tuple[tuple[tuple[str, str], ...], ...]
    norm: str = "rms_norm"
    spelling: str = "x + y"
    head: bool = False

    def features(self) -> list[str]:
        """What a table of misses is grouped by."""
        kinds = [f"branch {k}/{v}" for block in self.blocks for k, v in block]
        return ["spelling fused pair add and norm", f"spelling {self.spelling}", f"norm {self.norm}", *kinds]

    def sites(self) -> list[SiteTruth]:
        """Each join belongs to the fused norm that comes after its sublayer."""
        norms = [f"blocks.{i}.norms.{j}" for i, block in enumerate(self.blocks) for j in range(len(block))]
        kinds = [kind for block in self.blocks for kind, _ in block]
        return [SiteTruth(path, (kind,), "pre", token_norm_class(self.norm), parallel=False)
                for path, kind in zip([*norms[1:], "final_norm"], kinds, strict=True)]


class AddNorm(nn.Module):
    """(norm(residual + hidden), residual + hidden)."""

    def __init__(self, plan: PairPlan, dim: int) -> None:
        super().__init__()
        self.norm, self.spelling = token_norm(plan.norm, dim), plan.spelling

    def forward(self, hidden: Tensor, residual: Tensor | None) -> tuple[Tensor, Tensor]:
        residual = hidden if residual is None else PLAIN[self.spelling](residual, hidden)
        return self.norm(residual), residual


class PairBlock(nn.Module):
    """Sublayers that return their value un-added."""

    def __init__(self, plan: PairPlan, block: tuple[tuple[str, str], ...], dim: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([AddNorm(plan, dim) for _ in block])
        self.branches = nn.ModuleList([make_branch(kind, variant, dim) for kind, variant in block])

    def forward(self, hidden: Tensor, residual: Tensor | None, side: Side | None) -> tuple[Tensor, Tensor | None]:
        for norm, branch in zip(self.norms, self.branches, strict=True):
            hidden, residual = norm(hidden, residual)
            hidden = branch(hidden, side)
        return hidden, residual


class PairModel(nn.Module):
    """Embedding, pair blocks, fused final norm, head."""

    def __init__(self, plan: PairPlan, dim: int) -> None:
        super().__init__()
        self.stem = nn.Embedding(20, dim)
        self.blocks = nn.ModuleList([PairBlock(plan, block, dim) for block in plan.blocks])
        self.final_norm, self.head = AddNorm(plan, dim), nn.Linear(dim, 20) if plan.head else None

    def forward(self, ids: Tensor, side: Side | None = None) -> Tensor:
        hidden, residual = self.stem(ids), None
        for block in self.blocks:
            hidden, residual = block(hidden, residual, side)
        out: Tensor = self.final_norm(hidden, residual)[0]
        return out if self.head is None else self.head(out)

"""One sublayer and its join: a plan of it, the parts that run it, and what is true of it."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .norms import token_norm, token_norm_class
from .spellings import MORE, PLAIN, join_fused, join_scaled
from .sublayers import Branch, Side, make_branch
from .truth import Gain, SiteTruth

ALPHA = 1.75                            # DeepNorm's constant on the shortcut
HALF = 0.5                              # a constant on the branch
SCALES = {"none": "none", "constant": "constant", "rezero": "scalar", "zero_tanh": "scalar", "layer_scale": "vector",
          "gate": "input_dependent", "deepnorm": "none", "highway": "input_dependent"}
HIGHWAYS = ("t * y + (1 - t) * x", "x + t * (y - x)", "torch.lerp(x, y, t)")


@dataclass(frozen=True)
class SitePlan:
    """What a sublayer is made of; two branches are summed first and joined once."""

    branches: tuple[tuple[str, str], ...]       # (kind, variant)
    placement: str = "pre"
    norm: str = "layer_norm"
    spelling: str = "x + y"
    scale: str = "none"
    two_norms: bool = False                     # each of two branches has its own pre-norm
    dropout: bool = False
    wrapper: str = "block"                      # "block": the block's forward joins; "residual", "nested": a wrapper's does

    def features(self) -> list[str]:
        """What a table of misses is grouped by."""
        own = [f"placement {self.placement}", f"spelling {self.spelling}", f"scale {self.scale}", f"wrapper {self.wrapper}"]
        own += [f"norm {self.norm}"] if self.placement != "none" else []
        own += [f"branch {kind}/{variant}" for kind, variant in self.branches]
        return own + (["block parallel, one add"] if len(self.branches) == 2 else [])

    def gain(self) -> Gain:
        """Constant factor of the shortcut, None where it depends on the input."""
        if self.scale == "highway":
            return None
        if self.scale == "deepnorm":
            return ALPHA
        return MORE[self.spelling].gain if self.spelling in MORE else 1.0

    def truth(self, module: str) -> SiteTruth:
        """What must be recovered when `module` runs the join."""
        scale, constant = SCALES[self.scale], HALF if self.scale == "constant" else None
        if self.spelling in MORE and MORE[self.spelling].scale != "none":
            scale, constant = MORE[self.spelling].scale, MORE[self.spelling].branch_scale
        norm = None if self.placement == "none" else token_norm_class(self.norm)
        kinds = tuple(sorted(kind for kind, _ in self.branches))
        return SiteTruth(module, kinds, self.placement, norm, "identity", self.gain(), scale, constant, parallel=len(kinds) > 1)


class PreNorm(nn.Module):
    """fn(norm(x)), as wrappers have it."""

    def __init__(self, norm: nn.Module, fn: Branch) -> None:
        super().__init__()
        self.norm, self.fn = norm, fn

    def forward(self, x: Tensor, side: Side | None = None) -> Tensor:
        y: Tensor = self.fn(self.norm(x), side)
        return y


class SiteParts(nn.Module):
    """The parts of a sublayer. `run` is called by the module that owns the join, so that one's forward runs the add."""

    def __init__(self, plan: SitePlan, dim: int, norm: nn.Module | None = None) -> None:
        super().__init__()
        self.plan = plan
        reads, ends = plan.placement in ("pre", "sandwich"), plan.placement in ("sandwich", "output")
        self.branch = make_branch(*plan.branches[0], dim)
        self.norm = (norm or token_norm(plan.norm, dim)) if reads else None
        self.second = make_branch(*plan.branches[1], dim) if len(plan.branches) == 2 else None
        self.second_norm = token_norm(plan.norm, dim) if reads and plan.two_norms else None
        self.out_norm = token_norm(plan.norm, dim) if ends else None
        self.post_norm = (norm or token_norm(plan.norm, dim)) if plan.placement == "post" else None
        self.fn = PreNorm(self.norm, self.branch) if self.norm is not None and plan.wrapper != "block" and self.second is None else None
        self.gate = nn.Linear(dim, dim) if plan.scale in ("gate", "highway") else None
        self.gamma = self._gamma(dim)
        self.drop = nn.Dropout(0.1) if plan.dropout else None

    def _gamma(self, dim: int) -> nn.Parameter | None:
        if self.plan.scale in ("rezero", "zero_tanh"):
            return nn.Parameter(torch.zeros(()) if self.plan.scale == "rezero" else torch.zeros(1))
        wanted = self.plan.scale == "layer_scale" or self.plan.spelling == "torch.addcmul(x, gamma, y)"
        return nn.Parameter(torch.full((dim,), 0.1)) if wanted else None

    def run(self, x: Tensor, side: Side | None, read: Tensor | None = None) -> Tensor:
        """The new state of stream `x`; the branch reads `read` where that is another state."""
        plan = self.plan
        seen = x if read is None else read
        if plan.spelling in MORE and MORE[plan.spelling].fused:
            n = seen if self.norm is None else self.norm(seen)
            shortcut = ALPHA * x if plan.scale == "deepnorm" else x
            return self.after(join_fused(plan.spelling, shortcut, self.branch.core(n, side), self.branch.out))
        n, y = self.compute(seen, side)
        if plan.scale == "highway":
            return self.highway(x, y, n)
        y = self.scaled(y, n)
        shortcut = x * ALPHA if plan.scale == "deepnorm" else x
        if plan.spelling in MORE:
            return self.after(join_scaled(plan.spelling, shortcut, y, self.gamma))
        return self.after(PLAIN[plan.spelling](shortcut, y))

    def compute(self, x: Tensor, side: Side | None) -> tuple[Tensor, Tensor]:
        """What the branch reads, and its value before scales."""
        if self.fn is not None and self.gate is None:
            n, y = x, self.fn(x, side)
        else:
            n = x if self.norm is None else self.norm(x)
            y = self.branch(n, side)
        if self.second is not None:
            y = y + self.second(n if self.second_norm is None else self.second_norm(x), side)
        if self.out_norm is not None:
            y = self.out_norm(y)
        return n, y if self.drop is None else self.drop(y)

    def scaled(self, y: Tensor, n: Tensor) -> Tensor:
        """The branch times its scale."""
        scale = self.plan.scale
        if scale == "constant":
            return y * HALF
        if scale == "gate" and self.gate is not None:
            return y * torch.sigmoid(self.gate(n))
        if self.gamma is None or scale == "none":
            return y
        return torch.tanh(self.gamma) * y if scale == "zero_tanh" else self.gamma * y

    def highway(self, x: Tensor, y: Tensor, n: Tensor) -> Tensor:
        """t * y + (1 - t) * x."""
        assert self.gate is not None
        t = torch.sigmoid(self.gate(n))
        if self.plan.spelling == HIGHWAYS[1]:
            return x + t * (y - x)
        return torch.lerp(x, y, t) if self.plan.spelling == HIGHWAYS[2] else t * y + (1 - t) * x

    def after(self, x: Tensor) -> Tensor:
        """The norm that follows the join in post-norm."""
        out: Tensor = x if self.post_norm is None else self.post_norm(x)
        return out

    @property
    def inner(self) -> int:
        """Joins of streams that live inside the branches."""
        return self.branch.inner + (self.second.inner if self.second is not None else 0)

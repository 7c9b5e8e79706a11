"""Nets over images: ResNet, pre-activation, inverted bottleneck and ConvNeXt blocks, with projection and pooled shortcuts.

Legend: b batch, c channel, h and w height and width.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .norms import IMAGE_NORMS, image_norm
from .spellings import PLAIN
from .truth import SiteTruth

FORMS = {"resnet": "output", "bottleneck": "output", "inverted": "output", "preact": "pre", "convnext": "inner", "bare": "none"}


@dataclass(frozen=True)
class ImageBlock:
    """One block; `down` halves the image, and doubles the channels unless the shortcut is pooled."""

    form: str = "resnet"
    spelling: str = "x + y"
    down: str = "no"                    # "no", "projection", "projection with norm", "pooled projection", "pooled"
    mutated: bool = False               # fault: an in-place activation at the head of the branch


@dataclass(frozen=True)
class ImagePlan:
    """A net of blocks of one norm."""

    blocks: tuple[ImageBlock, ...]
    norm: str = "batch"
    final_norm: bool = False
    head: bool = True

    def features(self) -> list[str]:
        """What a table of misses is grouped by."""
        own = [f"image {b.form}" for b in self.blocks] + [f"spelling {b.spelling}" for b in self.blocks]
        return [*own, *[f"shortcut {b.down}" for b in self.blocks if b.down != "no"], f"norm {self.norm}"]

    def sites(self) -> list[SiteTruth]:
        """One join a block."""
        return [self._site(f"blocks.{i}", b) for i, b in enumerate(self.blocks)]

    def _site(self, path: str, block: ImageBlock) -> SiteTruth:
        placement = FORMS[block.form]
        norm = None if placement == "none" else "LayerNorm" if block.form == "convnext" else IMAGE_NORMS[self.norm]
        shortcut = "identity" if block.down == "no" else "pooled" if block.down == "pooled" else "projection"
        scale = "vector" if block.form == "convnext" else "none"
        return SiteTruth(path, ("conv",), placement, norm, shortcut, 1.0 if block.down == "no" else "any", scale, parallel=False)


def conv(a: int, b: int, size: int = 3, stride: int = 1, groups: int = 1) -> nn.Conv2d:
    """A convolution that keeps the image, or halves it with stride 2."""
    return nn.Conv2d(a, b, size, stride, size // 2, groups=groups, bias=False)


class ConvNextBranch(nn.Module):
    """Depthwise convolution, LayerNorm over channels, two linear maps, LayerScale."""

    def __init__(self, a: int, b: int, stride: int) -> None:
        super().__init__()
        self.depthwise, self.norm = conv(a, a, 7, stride, a), nn.LayerNorm(a)
        self.up, self.out, self.gamma = nn.Linear(a, 2 * a), nn.Linear(2 * a, b), nn.Parameter(torch.full((b,), 0.1))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        return (self.gamma * self.out(F.gelu(self.up(y)))).permute(0, 3, 1, 2)


def make_branch(form: str, norm: str, a: int, b: int, stride: int) -> nn.Module:
    """The branch of a block from `a` to `b` channels."""
    def n(c: int) -> nn.Module:
        return image_norm(norm, c)

    relu = nn.ReLU(inplace=True)
    if form == "convnext":
        return ConvNextBranch(a, b, stride)
    if form == "bottleneck":
        return nn.Sequential(conv(a, 4, 1), n(4), relu, conv(4, 4, 3, stride), n(4), relu, conv(4, b, 1), n(b))
    if form == "inverted":
        wide = 2 * a
        return nn.Sequential(conv(a, wide, 1), n(wide), nn.ReLU6(), conv(wide, wide, 3, stride, wide), n(wide), nn.ReLU6(), conv(wide, b, 1), n(b))
    if form == "preact":
        return nn.Sequential(n(a), nn.ReLU(), conv(a, b, 3, stride), n(b), nn.ReLU(), conv(b, b))
    if form == "bare":
        return nn.Sequential(nn.ReLU(), conv(a, b, 3, stride), nn.ReLU(inplace=True), conv(b, b))
    return nn.Sequential(conv(a, b, 3, stride), n(b), relu, conv(b, b), n(b))


def make_shortcut(down: str, norm: str, a: int, b: int) -> nn.Module:
    """What stands on the shortcut."""
    if down == "no":
        return nn.Identity()
    if down == "pooled":
        return nn.AvgPool2d(2)
    if down == "pooled projection":
        return nn.Sequential(nn.AvgPool2d(2), conv(a, b, 1), image_norm(norm, b))
    one = conv(a, b, 1, 2)
    return one if down == "projection" else nn.Sequential(one, image_norm(norm, b))


class ImageBlockModule(nn.Module):
    """shortcut(x) + branch(x), followed by ReLU in the forms that have it."""

    def __init__(self, block: ImageBlock, norm: str, a: int, b: int) -> None:
        super().__init__()
        self.block, stride = block, 1 if block.down == "no" else 2
        self.branch, self.shortcut = make_branch(block.form, norm, a, b, stride), make_shortcut(block.down, norm, a, b)
        if block.mutated:
            self.branch = nn.Sequential(nn.ReLU(inplace=True), *list(self.branch.children())[1:])

    def forward(self, x: Tensor) -> Tensor:
        y = self.branch(x)
        out = PLAIN[self.block.spelling](self.shortcut(x), y)
        return F.relu(out, inplace=True) if self.block.form in ("resnet", "bottleneck") else out


class ImageModel(nn.Module):
    """Stem, blocks, norm at the end, pooled head."""

    def __init__(self, plan: ImagePlan) -> None:
        super().__init__()
        width, blocks = 6, []
        self.stem = conv(3, width)
        for block in plan.blocks:
            wider = 2 * width if block.down not in ("no", "pooled") else width
            blocks.append(ImageBlockModule(block, plan.norm, width, wider))
            width = wider
        self.blocks = nn.Sequential(*blocks)
        self.final_norm = image_norm(plan.norm, width) if plan.final_norm else None
        self.head = nn.Linear(width, 7) if plan.head else None

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(self.stem(x))
        if self.final_norm is not None:
            x = torch.relu(self.final_norm(x))
        return x if self.head is None else self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))

"""Residual networks of convolutions."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from skipway import schemes
from skipway._errors import SchemeError, ShapeMismatch, UsageError
from skipway.nn._initial import start
from skipway.nn._paths import path
from skipway.nn.drop_path import DropPath
from skipway.nn.stack import Stack
from skipway.schemes import Scheme

BLOCKS = ("basic", "bottleneck", "pre_activation", "pre_bottleneck")
Norm = Callable[[int], nn.Module]


class Convolutions(nn.Module):
    """The branch of a block, (batch, in, h, w) -> (batch, out, h / stride, w / stride).

    basic: conv 3x3, norm, relu, conv 3x3, norm. bottleneck: 1x1 to width, 3x3 with the stride, 1x1 to out. Pre-activation: norm and relu stand before
    each convolution and none behind the last.
    """

    role = "conv"

    def __init__(self, kind: str, inside: int, width: int, out: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.before = kind.startswith("pre")
        sizes = [(inside, width, 1, 1), (width, width, 3, stride), (width, out, 1, 1)] if kind.endswith("bottleneck") else [
            (inside, width, 3, stride), (width, out, 3, 1)]
        self.convolutions = nn.ModuleList(nn.Conv2d(a, b, size, step, size // 2, bias=False) for a, b, size, step in sizes)
        self.norms = nn.ModuleList(norm(a if self.before else b) for a, b, _, _ in sizes)

    def weights(self, kind: str) -> Iterable[Tensor]:
        """Its kernels by kind: input the first, output the last, inner those between."""
        kernels = [c.weight for c in self.convolutions]
        return {"input": kernels[:1], "inner": kernels[1:-1], "output": kernels[-1:]}.get(kind, [])     # type: ignore[return-value]

    def forward(self, x: Tensor) -> Tensor:
        """The result, not yet added."""
        last = len(self.norms) - 1
        for k, (convolution, norm) in enumerate(zip(self.convolutions, self.norms)):
            if self.before:
                x = convolution(F.relu(norm(x)))
            else:
                x = norm(convolution(x))
                x = x if k == last else F.relu(x)
        return x


class ConvBlock(nn.Module):
    """write(S(x), F(x)): one residual of a `ResNet`, and a relu behind it where the block is not a pre-activation.

    S is the shortcut: identity, or where channels or size change (shortcut "B"), or always ("C"), a 1x1 convolution and a norm; "A" takes every
    second pixel and fills the new channels with zeros. In a pre-activation block a projection has no norm and reads x behind the first norm and relu.
    """

    def __init__(self, kind: str, inside: int, width: int, out: int, stride: int, shortcut: str, scheme: Scheme, norm: Norm,
                 drop_path: float) -> None:
        super().__init__()
        self.branch = Convolutions(kind, inside, width, out, stride, norm)
        self.scheme, self.stride, self.grows = scheme, stride, out - inside
        changes = stride != 1 or inside != out
        project = nn.Conv2d(inside, out, 1, stride, bias=False) if shortcut == "C" or (shortcut == "B" and changes) else None
        self.shortcut = project if project is None or self.branch.before else nn.Sequential(project, norm(out))
        self.drop_path = DropPath(drop_path) if drop_path else None

    def forward(self, x: Tensor) -> Tensor:
        """(batch, in, h, w) -> (batch, out, h / stride, w / stride)."""
        short = self._short(x)
        y, back = self.drop_path(self.branch, (x,), (), {}) if self.drop_path is not None and self.training else (self.branch(x), None)
        y = y if back is None else back(y)
        if y.shape != short.shape:
            raise ShapeMismatch(f"{path(self.branch)} returned the shape {tuple(y.shape)} beside a shortcut of {tuple(short.shape)}; wanted the same")
        # A scheme works on the last axis; moving the channels there and back moves no data.
        stream = self.scheme.write(short.movedim(1, -1), y.movedim(1, -1), None).movedim(-1, 1)
        return stream if self.branch.before else F.relu(stream)

    def _short(self, x: Tensor) -> Tensor:
        if self.shortcut is not None:
            return self.shortcut(F.relu(self.branch.norms[0](x)) if self.branch.before else x)
        x = x[..., ::self.stride, ::self.stride] if self.stride != 1 else x
        return F.pad(x, (0, 0, 0, 0, self.grows // 2, self.grows - self.grows // 2)) if self.grows else x


class ChannelsFirst(nn.Module):
    """Convolutions as a branch of a stream whose channels stand last, (batch, h, w, channels)."""

    role = "conv"

    def __init__(self, convolutions: Convolutions) -> None:
        super().__init__()
        self.convolutions = convolutions

    def weights(self, kind: str) -> Iterable[Tensor]:
        """Its kernels by kind."""
        return self.convolutions.weights(kind)

    def forward(self, x: Tensor) -> Tensor:
        """The result, not yet added."""
        y: Tensor = self.convolutions(x.movedim(-1, 1))
        return y.movedim(1, -1)


class Stage(nn.Module):
    """Blocks of one width on one `Stack`, for schemes that norm what a block reads or keep more than one tensor; behind them a relu."""

    def __init__(self, branches: Sequence[Convolutions], dim: int, scheme: str, drop_path: Sequence[float], last: bool, **options: Any) -> None:
        super().__init__()
        self.before = branches[0].before
        self.stack = Stack([ChannelsFirst(b) for b in branches], dim, scheme, per_block=1, drop_path=drop_path, init=False,
                           final_norm=None if last and not self.before else False, **options)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, channels, h, w) -> the same shape."""
        y: Tensor = self.stack(x.movedim(1, -1)).movedim(-1, 1)
        return y if self.before else F.relu(y)


class ResNet(nn.Module):
    """Stages of residual blocks; each stage but the first halves the size of the image and doubles the channels.

    blocks          number of blocks of each stage: (2, 2, 2, 2) is ResNet-18, (3, 4, 6, 3) with bottlenecks ResNet-50
    kind            "basic", "bottleneck" (four times as wide outside as inside; the stride on the 3x3), "pre_activation", "pre_bottleneck"
    width           channels of the first stage
    shortcut        "A" zeros for new channels, "B" a projection where the shape changes, "C" a projection everywhere
    stem            "image": 7x7 with stride 2 and a pooling with stride 2; "small": 3x3, for images of 32 pixels
    classes         outputs of the head; 0: the pooled features
    scheme, options any scheme. One that reads the stream as it is and keeps one tensor (plain, rezero, layer_scale, ...) stands at every block. With
                    any other, each stage is a stack: blocks that change the shape are joined plainly, the stream begins behind them, and in blocks of
                    the first papers the relu stands behind the stage in place of every add; norms of the scheme are over the channels.
    drop_path       stochastic depth, growing over the blocks to this
    zero_init       the gain of each branch's last norm starts at 0, so that a block starts as its shortcut (not in pre-activation)

    x is (batch, channels, h, w). Sources: He, Zhang, Ren, Sun, 2015, arXiv 1512.03385, and 2016, arXiv 1603.05027 (pre-activation).
    Raises UsageError when built, and SchemeError where the scheme is unknown, or wants what convolutions or shortcuts
    have not.
    """

    def __init__(self, blocks: Sequence[int] = (2, 2, 2, 2), kind: str = "basic", *, width: int = 64, shortcut: str = "B", stem: str = "image",
                 channels: int = 3, classes: int = 1000, scheme: str = "plain", drop_path: float = 0.0, norm: Norm = nn.BatchNorm2d,
                 zero_init: bool = False, **options: Any) -> None:
        super().__init__()
        if kind not in BLOCKS or shortcut not in ("A", "B", "C") or stem not in ("image", "small"):
            raise UsageError(f"a residual network with kind={kind!r}, shortcut={shortcut!r}, stem={stem!r}; wanted one of {', '.join(BLOCKS)}; "
                             "A, B or C; image or small")
        self.before = kind.startswith("pre")
        large = stem == "image"
        self.stem = nn.Conv2d(channels, width, 7 if large else 3, 2 if large else 1, 3 if large else 1, bias=False)
        self.stem_norm = None if self.before else norm(width)
        self.pool = nn.MaxPool2d(3, 2, 1) if large else None
        total, inside = sum(blocks), width
        whole = _reads_as_it_is(scheme, width, total, options)
        if shortcut == "C" and not whole:
            raise SchemeError(f"scheme {scheme} norms what a block reads or keeps several tensors, which projections at every block cannot carry; "
                              'choose shortcut="B", or a scheme that reads the stream as it is, such as plain or rezero')
        made: list[ConvBlock | Stage] = []
        count = 0
        for stage, number in enumerate(blocks):
            inner = width * 2 ** stage
            out = inner * 4 if kind.endswith("bottleneck") else inner
            alone = number if whole else int(inside != out or stage > 0)
            for k in range(alone):
                rule = schemes.build(scheme if whole else "plain", out, depth=total, index=count, role="conv", per_block=1,
                                     **(options if whole else {}))
                made.append(ConvBlock(kind, inside, inner, out, 2 if stage and k == 0 else 1, shortcut, rule, norm, drop_path * (count + 1) / total))
                inside, count = out, count + 1
            if alone < number:
                branches = [Convolutions(kind, out, inner, out, 1, norm) for _ in range(alone, number)]
                rates = [drop_path * (count + k + 1) / total for k in range(len(branches))]
                made.append(Stage(branches, out, scheme, rates, stage == len(blocks) - 1, **options))
                count += len(branches)
        self.blocks = nn.ModuleList(made)
        self.final_norm = norm(inside) if self.before else None
        self.head = nn.Linear(inside, classes) if classes else None
        self._start(zero_init, made)

    @torch.no_grad()
    def _start(self, zero_init: bool, made: Sequence[ConvBlock | Stage]) -> None:
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        for block in made:
            joins: Iterable[Any] = block.stack.layers if isinstance(block, Stage) else [block]
            for join in joins:
                start(join.scheme, join.branch, "")
        for module in self.modules():
            if zero_init and not self.before and isinstance(module, Convolutions):
                nn.init.zeros_(module.norms[-1].get_parameter("weight"))

    def forward(self, x: Tensor) -> Tensor:
        """(batch, classes), or (batch, features)."""
        x = self.stem(x)
        x = x if self.stem_norm is None else F.relu(self.stem_norm(x))
        x = x if self.pool is None else self.pool(x)
        for block in self.blocks:
            x = block(x)
        x = (x if self.final_norm is None else F.relu(self.final_norm(x))).mean((-2, -1))
        return x if self.head is None else self.head(x)


def _reads_as_it_is(name: str, dim: int, depth: int, options: dict[str, Any]) -> bool:
    """Whether a scheme reads the stream as it is and keeps nothing else, so that it can stand at a block that changes the width."""
    with torch.device("cpu"):
        first, last = (schemes.build(name, dim, depth=depth, index=k, role="conv", per_block=1, **options) for k in (0, depth - 1))
        probe = torch.linspace(-1, 1, 2 * dim).view(2, dim)
        stream = first.enter(probe)
        for scheme in (first, last):
            read, memo = scheme.read(stream) if isinstance(stream, Tensor) else (None, None)
            if scheme.lanes > 1 or not isinstance(read, Tensor) or memo is not None or read.shape != probe.shape or not torch.equal(read, probe):
                return False
    return True

"""Look-alikes made of convolutions: nested skips, concatenation, gates on channels, pooled branches."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .parts import LookAlike, image

C = 8


def conv_bn(a: int, b: int, size: int = 3, stride: int = 1, groups: int = 1) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(a, b, size, stride, size // 2, groups=groups, bias=False), nn.BatchNorm2d(b))


class Classifier(nn.Module):
    """stem -> body -> pooling -> head."""

    def __init__(self, *body: nn.Module, width: int = C) -> None:
        super().__init__()
        self.stem, self.body, self.head = nn.Conv2d(3, C, 3, padding=1), nn.Sequential(*body), nn.Linear(width, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(self.stem(x)).mean((2, 3)))


def residual_in_residual() -> LookAlike:
    """Skips within skips, one around each unit, each group and the whole body: three nested gains of 1 (super-resolution)."""

    class Unit(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.conv2 = nn.Conv2d(C, C, 3, padding=1), nn.Conv2d(C, C, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            return x + 0.1 * self.conv2(torch.relu(self.conv1(x)))

    class Around(nn.Module):
        def __init__(self, *inner: nn.Module) -> None:
            super().__init__()
            self.inner, self.conv = nn.Sequential(*inner), nn.Conv2d(C, C, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            return x + self.conv(self.inner(x))

    class Upscaler(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(3, C, 3, padding=1)
            self.body = Around(Around(Unit(), Unit()), Around(Unit(), Unit()))
            self.tail = nn.Sequential(nn.Conv2d(C, 12, 3, padding=1), nn.PixelShuffle(2), nn.Conv2d(3, 3, 3, padding=1))

        def forward(self, x: Tensor) -> Tensor:
            return self.tail(self.body(self.stem(x)))

    return LookAlike(Upscaler(), (image(),))


def conv_mixer() -> LookAlike:
    """Only the depthwise half has a skip; the pointwise half keeps the shape and stands on the stream by design (ConvMixer)."""

    class Mixer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.depthwise, self.pointwise = nn.Conv2d(C, C, 5, padding=2, groups=C), nn.Conv2d(C, C, 1)
            self.bn1, self.bn2 = nn.BatchNorm2d(C), nn.BatchNorm2d(C)

        def forward(self, x: Tensor) -> Tensor:
            x = x + self.bn1(F.gelu(self.depthwise(x)))
            return self.bn2(F.gelu(self.pointwise(x)))

    return LookAlike(Classifier(Mixer(), Mixer(), Mixer()), (image(),), ["conv output"] * 3)


def squeeze_and_excitation() -> LookAlike:
    """Pooled sigmoid gates multiply the branch before the add (SE-ResNet)."""

    class SeBlock(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.conv2 = conv_bn(C, C), conv_bn(C, C)
            self.squeeze, self.excite = nn.Linear(C, 4), nn.Linear(4, C)

        def forward(self, x: Tensor) -> Tensor:
            y = self.conv2(torch.relu(self.conv1(x)))
            gate = torch.sigmoid(self.excite(torch.relu(self.squeeze(y.mean((2, 3))))))
            return torch.relu(x + y * gate[:, :, None, None])

    return LookAlike(Classifier(SeBlock(), SeBlock()), (image(),), ["conv ?"] * 2)


def broadcast_context() -> LookAlike:
    """One context vector for all pixels is added with its axes kept: the broadcast is meant (GCNet)."""

    class Context(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mask, self.down, self.up, self.norm = nn.Conv2d(C, 1, 1), nn.Conv2d(C, 4, 1), nn.Conv2d(4, C, 1), nn.LayerNorm([4, 1, 1])

        def forward(self, x: Tensor) -> Tensor:
            weights = self.mask(x).flatten(2).softmax(-1)
            context = (x.flatten(2) * weights).sum(-1)[:, :, None, None]
            return x + self.up(torch.relu(self.norm(self.down(context))))

    return LookAlike(Classifier(Context(), Context()), (image(),), ["? ?"] * 2)


def time_embedding() -> LookAlike:
    """A time embedding is added in the middle of the branch, and broadcasts over pixels (diffusion U-Net unit)."""

    class Unit(nn.Module):
        def __init__(self, a: int, b: int) -> None:
            super().__init__()
            self.norm1, self.conv1, self.time = nn.GroupNorm(2, a), nn.Conv2d(a, b, 3, padding=1), nn.Linear(4, b)
            self.norm2, self.conv2 = nn.GroupNorm(2, b), nn.Conv2d(b, b, 3, padding=1)
            self.shortcut = nn.Conv2d(a, b, 1) if a != b else nn.Identity()

        def forward(self, x: Tensor, t: Tensor) -> Tensor:
            h = self.conv1(F.silu(self.norm1(x)))
            h = h + self.time(F.silu(t))[:, :, None, None]
            return self.shortcut(x) + self.conv2(F.silu(self.norm2(h)))

    class Denoiser(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.unit1, self.unit2, self.unit3 = nn.Conv2d(3, C, 3, padding=1), Unit(C, C), Unit(C, 16), Unit(16, 16)
            self.norm, self.out = nn.GroupNorm(2, 16), nn.Conv2d(16, 3, 3, padding=1)

        def forward(self, x: Tensor, t: Tensor) -> Tensor:
            x = self.unit3(self.unit2(self.unit1(self.stem(x), t), t), t)
            return self.out(F.silu(self.norm(x)))

    return LookAlike(Denoiser(), (image(), torch.rand(2, 4)), ["conv pre"] * 3)


def pre_activation() -> LookAlike:
    """Norm and activation come first, the projection reads the activated tensor, the last norm stands before pooling (ResNet v2)."""

    class PreAct(nn.Module):
        def __init__(self, a: int, b: int, stride: int) -> None:
            super().__init__()
            self.bn1, self.conv1 = nn.BatchNorm2d(a), nn.Conv2d(a, b, 3, stride, 1, bias=False)
            self.bn2, self.conv2 = nn.BatchNorm2d(b), nn.Conv2d(b, b, 3, 1, 1, bias=False)
            self.project = nn.Conv2d(a, b, 1, stride, bias=False) if a != b else None

        def forward(self, x: Tensor) -> Tensor:
            y = torch.relu(self.bn1(x))
            shortcut = x if self.project is None else self.project(y)
            return shortcut + self.conv2(torch.relu(self.bn2(self.conv1(y))))

    tail = nn.Sequential(nn.BatchNorm2d(16), nn.ReLU(inplace=True))
    return LookAlike(Classifier(PreAct(C, C, 1), PreAct(C, 16, 2), PreAct(16, 16, 1), tail, width=16), (image(),), ["conv pre", "conv ?", "conv pre"])


def dense_concatenation() -> LookAlike:
    """Every layer reads the concatenation of all earlier ones; nothing is added (DenseNet)."""

    class DenseBlock(nn.Module):
        def __init__(self, width: int, growth: int = 4, depth: int = 4) -> None:
            super().__init__()
            sizes = [width + i * growth for i in range(depth)]
            self.layers = nn.ModuleList([nn.Sequential(nn.BatchNorm2d(s), nn.ReLU(), nn.Conv2d(s, growth, 3, padding=1)) for s in sizes])

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                x = torch.cat([x, layer(x)], 1)
            return x

    transition = nn.Sequential(nn.BatchNorm2d(24), nn.ReLU(), nn.Conv2d(24, 12, 1), nn.AvgPool2d(2))
    tail = nn.Sequential(nn.BatchNorm2d(28), nn.ReLU())
    return LookAlike(Classifier(DenseBlock(C), transition, DenseBlock(12), tail, width=28), (image(),), [])


def scaled_inception() -> LookAlike:
    """Several convolutions are concatenated, projected and added with the constant 0.17 (Inception-ResNet)."""

    class Inception(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.three = nn.Conv2d(C, 4, 1), nn.Sequential(nn.Conv2d(C, 4, 1), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1))
            self.project, self.scale = nn.Conv2d(8, C, 1), 0.17

        def forward(self, x: Tensor) -> Tensor:
            y = self.project(torch.relu(torch.cat([self.one(x), self.three(x)], 1)))
            return torch.relu(x + self.scale * y)

    return LookAlike(Classifier(Inception(), Inception()), (image(),), ["conv none"] * 2)


def inverted_bottlenecks() -> LookAlike:
    """Expansion, depthwise convolution, excitation and projection; strided and widening blocks have no skip (MBConv)."""

    class MbConv(nn.Module):
        def __init__(self, a: int, b: int, stride: int) -> None:
            super().__init__()
            self.expand, self.depthwise, self.project = conv_bn(a, 2 * a, 1), conv_bn(2 * a, 2 * a, 3, stride, 2 * a), conv_bn(2 * a, b, 1)
            self.reduce, self.restore, self.skips = nn.Conv2d(2 * a, 4, 1), nn.Conv2d(4, 2 * a, 1), a == b and stride == 1

        def forward(self, x: Tensor) -> Tensor:
            y = F.silu(self.depthwise(F.silu(self.expand(x))))
            y = y * torch.sigmoid(self.restore(F.silu(self.reduce(y.mean((2, 3), keepdim=True)))))
            y = self.project(y)
            return x + y if self.skips else y

    body = [MbConv(C, C, 1), MbConv(C, 16, 2), MbConv(16, 16, 1), MbConv(16, 16, 1)]
    return LookAlike(Classifier(*body, width=16), (image(),), ["conv output"] * 3)


def large_kernel_attention() -> LookAlike:
    """`u * attn(u)` with no bound on either, and a skip inside the branch that carries the normed tensor (VAN)."""

    class Spatial(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.enter, self.leave = nn.Conv2d(C, C, 1), nn.Conv2d(C, C, 1)
            self.near = nn.Conv2d(C, C, 5, padding=2, groups=C)
            self.far, self.point = nn.Conv2d(C, C, 7, padding=9, dilation=3, groups=C), nn.Conv2d(C, C, 1)

        def forward(self, n: Tensor) -> Tensor:
            u = F.gelu(self.enter(n))
            return n + self.leave(u * self.point(self.far(self.near(u))))

    class Van(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bn1, self.bn2, self.spatial = nn.BatchNorm2d(C), nn.BatchNorm2d(C), Spatial()
            self.channels = nn.Sequential(nn.Conv2d(C, 16, 1), nn.Conv2d(16, 16, 3, padding=1, groups=16), nn.GELU(), nn.Conv2d(16, C, 1))
            self.scale1, self.scale2 = (nn.Parameter(torch.full((C, 1, 1), 1e-2)) for _ in range(2))

        def forward(self, x: Tensor) -> Tensor:
            x = x + self.scale1 * self.spatial(self.bn1(x))
            return x + self.scale2 * self.channels(self.bn2(x))

    return LookAlike(Classifier(Van(), Van(), nn.BatchNorm2d(C)), (image(),), ["? pre"] * 4)


def pooled_difference() -> LookAlike:
    """The mixer is `pool(n) - n`, with nothing learned in it, and the subtraction is no join (PoolFormer)."""

    class PoolBlock(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2, self.pool = nn.GroupNorm(1, C), nn.GroupNorm(1, C), nn.AvgPool2d(3, 1, 1, count_include_pad=False)
            self.channels = nn.Sequential(nn.Conv2d(C, 16, 1), nn.GELU(), nn.Conv2d(16, C, 1))

        def forward(self, x: Tensor) -> Tensor:
            n = self.norm1(x)
            x = x + (self.pool(n) - n)
            return x + self.channels(self.norm2(x))

    return LookAlike(Classifier(PoolBlock(), PoolBlock(), nn.GroupNorm(1, C)), (image(),))


def strided_projections() -> LookAlike:
    """Average pooling and a 1x1 convolution on the shortcut where resolution and width change (ResNet-D)."""

    class Basic(nn.Module):
        def __init__(self, a: int, b: int, stride: int) -> None:
            super().__init__()
            self.conv1, self.conv2 = conv_bn(a, b, 3, stride), conv_bn(b, b)
            self.down = nn.Sequential(nn.AvgPool2d(2), *conv_bn(a, b, 1)) if stride > 1 else nn.Identity()
            self.act = nn.ReLU(inplace=True)

        def forward(self, x: Tensor) -> Tensor:
            y = self.conv2(self.act(self.conv1(x)))
            y += self.down(x)
            return self.act(y)

    return LookAlike(Classifier(Basic(C, C, 1), Basic(C, 16, 2), Basic(16, 16, 1), width=16), (image(),), ["conv output"] * 3)


def feature_pyramid() -> LookAlike:
    """Lateral and top-down features are added: two branches of one image, and no join between them (FPN)."""

    class Pyramid(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.c1, self.c2, self.c3 = conv_bn(3, C, 3, 2), conv_bn(C, 16, 3, 2), conv_bn(16, 32, 3, 2)
            self.l1, self.l2, self.l3 = nn.Conv2d(C, C, 1), nn.Conv2d(16, C, 1), nn.Conv2d(32, C, 1)
            self.smooth = nn.Conv2d(C, C, 3, padding=1)

        def forward(self, x: Tensor) -> list[Tensor]:
            a = torch.relu(self.c1(x))
            b = torch.relu(self.c2(a))
            top = self.l3(torch.relu(self.c3(b)))
            middle = self.l2(b) + F.interpolate(top, scale_factor=2)
            return [self.smooth(self.l1(a) + F.interpolate(middle, scale_factor=2)), middle, top]

    return LookAlike(Pyramid(), (image(),))

"""Look-alikes made of other residual rules: scales, gates, half steps, norms on both sides, two streams."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .parts import DIM, Attention, Block, FeedForward, LookAlike, Trunk, tokens


def zero_gates() -> LookAlike:
    """`x + alpha F(x)` with alpha zero at the start and no norm at all (ReZero): the branch is invisible to numbers."""

    class ReZero(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attn, self.ffn, self.alpha = Attention(), FeedForward(), nn.Parameter(torch.zeros(2))

        def forward(self, x: Tensor) -> Tensor:
            x = x + self.alpha[0] * self.attn(x)
            return x + self.alpha[1] * self.ffn(x)

    net = nn.Sequential(nn.Linear(DIM, DIM), ReZero(), ReZero(), nn.Linear(DIM, 4))
    return LookAlike(net, (tokens(),), ["self_attention none", "ffn none"] * 2)


def layer_scale() -> LookAlike:
    """A learned vector of 1e-5 on every branch (LayerScale)."""

    class Scaled(Block):
        def __init__(self) -> None:
            super().__init__()
            self.gamma1, self.gamma2 = (nn.Parameter(torch.full((DIM,), 1e-5)) for _ in range(2))

        def forward(self, x: Tensor) -> Tensor:
            x = x + self.gamma1 * self.attn(self.norm1(x))
            return torch.addcmul(x, self.gamma2, self.ffn(self.norm2(x)))

    return LookAlike(Trunk(Scaled(), Scaled()), (tokens(),), ["self_attention pre", "ffn pre"] * 2)


def deepnorm() -> LookAlike:
    """`norm(alpha x + F(x))`, declared: the gain is not 1 and must not be."""
    alpha = 6**0.25

    class Layer(Block):
        def forward(self, x: Tensor) -> Tensor:
            x = self.norm1(torch.add(self.attn(x), x, alpha=alpha))
            return self.norm2(x * alpha + self.ffn(x))

    net = nn.Sequential(nn.Linear(DIM, DIM), *[Layer() for _ in range(3)], nn.Linear(DIM, 4))
    return LookAlike(net, (tokens(),), ["self_attention post", "ffn post"] * 3, {"expect": {"scheme": "deepnorm"}})


def sandwich() -> LookAlike:
    """Norms at both ends of the branch."""

    class Sandwich(Block):
        def __init__(self) -> None:
            super().__init__()
            self.post1, self.post2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)

        def forward(self, x: Tensor) -> Tensor:
            x = x + self.post1(self.attn(self.norm1(x)))
            return x + self.post2(self.ffn(self.norm2(x)))

    return LookAlike(Trunk(Sandwich(), Sandwich()), (tokens(),), ["self_attention sandwich", "ffn sandwich"] * 2)


def scaled_sums() -> LookAlike:
    """The whole sum is scaled, `(x + F(x)) * sqrt(0.5)`, as in convolutional sequence models: the gain is below 1 by design."""

    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv1d(DIM, 2 * DIM, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            y = F.glu(self.conv(x.transpose(1, 2)), 1).transpose(1, 2)
            return (x + y) * 0.5**0.5

    net = nn.Sequential(nn.Linear(DIM, DIM), Scaled(), Scaled(), nn.Linear(DIM, 4))
    return LookAlike(net, (tokens(),), ["conv none"] * 2)


def macaron_half_steps() -> LookAlike:
    """Two half-step FFNs around attention and convolution, and a norm that ends each block (Conformer)."""

    class Conv(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.expand, self.depthwise = nn.Conv1d(DIM, 2 * DIM, 1), nn.Conv1d(DIM, DIM, 3, padding=1, groups=DIM)
            self.bn, self.project = nn.BatchNorm1d(DIM), nn.Conv1d(DIM, DIM, 1)

        def forward(self, x: Tensor) -> Tensor:
            y = self.depthwise(F.glu(self.expand(x.transpose(1, 2)), 1))
            return self.project(F.silu(self.bn(y))).transpose(1, 2)

    class Conformer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.ffn1, self.attn, self.conv, self.ffn2 = FeedForward(), Attention(), Conv(), FeedForward()
            self.norms = nn.ModuleList([nn.LayerNorm(DIM) for _ in range(5)])

        def forward(self, x: Tensor) -> Tensor:
            x = x + 0.5 * self.ffn1(self.norms[0](x))
            x = x + self.attn(self.norms[1](x))
            x = x + self.conv(self.norms[2](x))
            x = x + 0.5 * self.ffn2(self.norms[3](x))
            return self.norms[4](x)

    net = nn.Sequential(nn.Linear(DIM, DIM), Conformer(), Conformer(), nn.Linear(DIM, 4))
    return LookAlike(net, (tokens(),), ["ffn pre", "self_attention pre", "conv pre", "ffn ?"] * 2)


def gru_gates() -> LookAlike:
    """A GRU cell joins branch and stream, `(1 - z) x + z h`; its inner sums and products are no joins (GTrXL)."""

    class Gate(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wr, self.ur, self.wz, self.uz, self.wg, self.ug = (nn.Linear(DIM, DIM, bias=False) for _ in range(6))
            self.bias = nn.Parameter(torch.full((DIM,), 2.0))

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            r = torch.sigmoid(self.wr(y) + self.ur(x))
            z = torch.sigmoid(self.wz(y) + self.uz(x) - self.bias)
            h = torch.tanh(self.wg(y) + self.ug(r * x))
            return (1 - z) * x + z * h

    class Gated(Block):
        def __init__(self) -> None:
            super().__init__()
            self.gate1, self.gate2 = Gate(), Gate()

        def forward(self, x: Tensor) -> Tensor:
            x = self.gate1(x, torch.relu(self.attn(self.norm1(x))))
            return self.gate2(x, torch.relu(self.ffn(self.norm2(x))))

    return LookAlike(Trunk(Gated(), Gated()), (tokens(),), ["? ?"] * 4)


def highway() -> LookAlike:
    """`t H(x) + (1 - t) x`: the stream is multiplied by a bounded gate."""

    class Highway(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.transform, self.gate = nn.Linear(DIM, DIM), nn.Linear(DIM, DIM)
            nn.init.constant_(self.gate.bias, -1.0)

        def forward(self, x: Tensor) -> Tensor:
            t = torch.sigmoid(self.gate(x))
            return torch.lerp(x, torch.relu(self.transform(x)), t)

    net = nn.Sequential(nn.Linear(DIM, DIM), *[Highway() for _ in range(3)], nn.Linear(DIM, 4))
    return LookAlike(net, (tokens(),), ["? none"] * 3)


def reversible() -> LookAlike:
    """Two streams, each written by a branch of the other: no branch reads the stream that it is added to (RevNet)."""

    class Reversible(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2, self.f, self.g = nn.LayerNorm(DIM), nn.LayerNorm(DIM), Attention(), FeedForward()

        def forward(self, x: Tensor) -> Tensor:
            a, b = x.chunk(2, -1)
            a = a + self.f(self.norm1(b))
            b = b + self.g(self.norm2(a))
            return torch.cat([a, b], -1)

    net = nn.Sequential(nn.Linear(DIM, 2 * DIM), Reversible(), Reversible(), nn.LayerNorm(2 * DIM), nn.Linear(2 * DIM, 4))
    return LookAlike(net, (tokens(),))


def first_state_mixed_in() -> LookAlike:
    """The first state is mixed into the stream before each block with learned scalars (x0 lambdas)."""

    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.blocks = nn.Linear(DIM, DIM), nn.ModuleList([Block(), Block(), Block()])
            self.keep, self.first = nn.Parameter(torch.ones(3)), nn.Parameter(torch.zeros(3))
            self.norm, self.head = nn.LayerNorm(DIM), nn.Linear(DIM, 4)

        def forward(self, x: Tensor) -> Tensor:
            x0 = x = self.stem(x)
            for i, block in enumerate(self.blocks):
                x = block(self.keep[i] * x + self.first[i] * x0)
            return self.head(self.norm(x))

    return LookAlike(Mixed(), (tokens(),))

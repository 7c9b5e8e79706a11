"""Look-alikes that run one module again and again: looped stacks, fixed points, recurrent cells, refined positions."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .parts import DIM, Attention, Block, FeedForward, LookAlike, image, tokens


def injected_input() -> LookAlike:
    """A looped block that gets the embedding anew in each turn (recurrent depth with input injection)."""

    class Net(nn.Module):
        def __init__(self, turns: int = 4) -> None:
            super().__init__()
            self.turns, self.stem, self.block, self.norm, self.head = turns, nn.Linear(DIM, DIM), Block(), nn.LayerNorm(DIM), nn.Linear(DIM, 4)

        def forward(self, x: Tensor) -> Tensor:
            x = first = self.stem(x)
            for _ in range(self.turns):
                x = self.block(x + first)
            return self.head(self.norm(x))

    return LookAlike(Net(), (tokens(),), ["self_attention pre", "ffn pre"] * 4)


def fixed_point() -> LookAlike:
    """One cell is iterated on its own output and the input (deep equilibrium)."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.a, self.b, self.head = nn.Linear(4, DIM), nn.Linear(DIM, DIM), nn.Linear(DIM, DIM), nn.Linear(DIM, 2)
            self.norm1, self.norm2, self.norm3 = nn.LayerNorm(DIM), nn.LayerNorm(DIM), nn.LayerNorm(DIM)

        def cell(self, z: Tensor, x: Tensor) -> Tensor:
            y = self.norm1(F.relu(self.a(z)))
            return self.norm3(F.relu(z + self.norm2(x + self.b(y))))

        def forward(self, x: Tensor) -> Tensor:
            x = self.stem(x)
            z = torch.zeros_like(x)
            for _ in range(5):
                z = self.cell(z, x)
            return self.head(z)

    return LookAlike(Net(), (torch.randn(3, 4),))


def convolutional_gru() -> LookAlike:
    """A hidden state that is a tanh is blended with a candidate that is one, too, by a sigmoid (RAFT's update block)."""

    class Net(nn.Module):
        def __init__(self, width: int = 8) -> None:
            super().__init__()
            self.stem, self.head = nn.Conv2d(3, 2 * width, 3, padding=1), nn.Conv2d(width, 2, 3, padding=1)
            self.z, self.r, self.q = (nn.Conv2d(2 * width, width, 3, padding=1) for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            hidden, context = self.stem(x).chunk(2, 1)
            hidden, context = torch.tanh(hidden), F.relu(context)
            for _ in range(3):
                z = torch.sigmoid(self.z(torch.cat([hidden, context], 1)))
                r = torch.sigmoid(self.r(torch.cat([hidden, context], 1)))
                q = torch.tanh(self.q(torch.cat([r * hidden, context], 1)))
                hidden = (1 - z) * hidden + z * q
            return self.head(hidden)

    return LookAlike(Net(), (image(),), ["conv none"] * 3)


def refined_positions() -> LookAlike:
    """Query positions are computed from boxes that the memory gave, once a layer, and added inside the attention (RT-DETR)."""

    class SelfAttention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.core = Attention()

        def forward(self, x: Tensor, positions: Tensor) -> Tensor:
            asked = x + positions
            return self.core.attend(asked, asked, x)

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2, self.norm3 = nn.LayerNorm(DIM), nn.LayerNorm(DIM), nn.LayerNorm(DIM)
            self.own, self.cross, self.ffn = SelfAttention(), Attention(), FeedForward()

        def forward(self, x: Tensor, positions: Tensor, memory: Tensor) -> Tensor:
            x = self.norm1(x + self.own(x, positions))
            x = self.norm2(x + self.cross(x + positions, memory))
            return self.norm3(x + self.ffn(x))

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.box, self.query, self.head = nn.Linear(DIM, DIM), FeedForward(), FeedForward(), nn.Linear(DIM, 4)
            self.pick, self.layers = nn.Linear(DIM, DIM), nn.ModuleList([Layer(), Layer()])

        def forward(self, x: Tensor) -> Tensor:
            memory = self.stem(x)
            x = self.pick(memory)[:, :3]
            boxes = self.box(x).sigmoid()
            for layer in self.layers:
                x = layer(x, self.query(boxes), memory)
            return self.head(x)

    return LookAlike(Net(), (tokens(),), ["self_attention post", "cross_attention post", "ffn post"] * 2)


def shared_block_beside_each_mixer() -> LookAlike:
    """The result of a block that all layers share goes into the mixer's branch alone, by way of the layer's arguments (Zamba)."""

    class Mixer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.mix = nn.LayerNorm(DIM), nn.LSTM(DIM, DIM, batch_first=True)

        def forward(self, x: Tensor, extra: Tensor | None = None) -> Tensor:
            residual = x
            x = x if extra is None else x + extra
            return residual + self.mix(self.norm(x))[0]

    class Hybrid(nn.Module):
        def __init__(self, shared: nn.Module) -> None:
            super().__init__()
            self.shared, self.linear, self.mixer = shared, nn.Linear(DIM, DIM), Mixer()

        def forward(self, x: Tensor, first: Tensor) -> Tensor:
            return self.mixer(x, self.linear(self.shared(torch.cat([x, first], -1))))

    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.attn, self.ffn, self.enter = nn.LayerNorm(2 * DIM), Attention(), FeedForward(), nn.Linear(2 * DIM, DIM)

        def forward(self, x: Tensor) -> Tensor:
            return self.ffn(self.attn(self.enter(self.norm(x))))

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            shared = Shared()
            self.stem, self.norm, self.head = nn.Linear(DIM, DIM), nn.LayerNorm(DIM), nn.Linear(DIM, 4)
            self.layers = nn.ModuleList([Mixer(), Hybrid(shared), Mixer(), Hybrid(shared)])

        def forward(self, x: Tensor) -> Tensor:
            x = first = self.stem(x)
            for layer in self.layers:
                x = layer(x, first) if isinstance(layer, Hybrid) else layer(x)
            return self.head(self.norm(x))

    return LookAlike(Net(), (tokens(),), ["ssm pre", "? pre", "ssm pre", "? pre"])


def relative_positions_of_values() -> LookAlike:
    """Attention weights meet the values and a table of relative positions, and the two results are summed (VITS, Shaw et al. 2018)."""

    class Relative(nn.Module):
        def __init__(self, length: int = 6) -> None:
            super().__init__()
            self.q, self.k, self.v, self.o = (nn.Linear(DIM, DIM) for _ in range(4))
            self.keys, self.values = nn.Parameter(torch.zeros(length, DIM)), nn.Parameter(torch.zeros(length, DIM))

        def forward(self, x: Tensor) -> Tensor:
            q = self.q(x) * DIM**-0.5
            scores = torch.bmm(q, self.k(x).transpose(1, 2))
            scores += torch.matmul(q, self.keys.t())
            weights = scores.softmax(-1)
            y = torch.bmm(weights, self.v(x))
            y += torch.matmul(weights, self.values)
            return self.o(y)

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attn, self.ffn, self.norm1, self.norm2 = Relative(), FeedForward(), nn.LayerNorm(DIM), nn.LayerNorm(DIM)

        def forward(self, x: Tensor) -> Tensor:
            x = self.norm1(x + self.attn(x))
            return self.norm2(x + self.ffn(x))

    net = nn.Sequential(nn.Linear(DIM, DIM), Layer(), Layer(), nn.Linear(DIM, 4))
    return LookAlike(net, (tokens(),), ["self_attention post", "ffn post"] * 2)

"""Look-alikes that mix tokens without attention: scans, shifts, Fourier and pending residuals."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .parts import DIM, FeedForward, LookAlike, RMSNorm, Trunk, tokens


def pending_residual() -> LookAlike:
    """Layers pass (hidden, residual) on, and each add happens one layer later, in the norm (Mamba's fused add+norm)."""

    class Mixer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.enter, self.leave, self.step = nn.Linear(DIM, 2 * DIM), nn.Linear(DIM, DIM), nn.Linear(DIM, DIM)
            self.conv, self.decay = nn.Conv1d(DIM, DIM, 4, padding=3, groups=DIM), nn.Parameter(torch.zeros(DIM))

        def forward(self, x: Tensor) -> Tensor:
            u, gate = self.enter(x).chunk(2, -1)
            u = F.silu(self.conv(u.transpose(1, 2))[..., : x.size(1)].transpose(1, 2))
            delta = F.softplus(self.step(u))
            state, out = torch.zeros_like(u[:, 0]), []
            for t in range(u.size(1)):
                state = torch.exp(-delta[:, t] * self.decay.exp()) * state + delta[:, t] * u[:, t]
                out.append(state)
            return self.leave(torch.stack(out, 1) * F.silu(gate))

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.mixer = RMSNorm(), Mixer()

        def forward(self, hidden: Tensor, residual: Tensor | None) -> tuple[Tensor, Tensor]:
            residual = hidden if residual is None else hidden + residual
            return self.mixer(self.norm(residual)), residual

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.layers = nn.Linear(DIM, DIM), nn.ModuleList([Layer(), Layer()])
            self.norm_f, self.head = RMSNorm(), nn.Linear(DIM, 4)

        def forward(self, x: Tensor) -> Tensor:
            hidden, residual = self.stem(x), None
            for layer in self.layers:
                hidden, residual = layer(hidden, residual)
            return self.head(self.norm_f(hidden + residual))

    return LookAlike(Net(), (tokens(),), ["ssm pre"] * 2)


def fourier_mixing() -> LookAlike:
    """The token mixer is the real part of a Fourier transform, with nothing learned in it (FNet)."""

    class FourierLayer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2, self.ffn = nn.LayerNorm(DIM), nn.LayerNorm(DIM), FeedForward()

        def forward(self, x: Tensor) -> Tensor:
            x = self.norm1(x + torch.fft.fftn(x, dim=(1, 2)).real)
            return self.norm2(x + self.ffn(x))

    net = nn.Sequential(nn.Linear(DIM, DIM), FourierLayer(), FourierLayer(), nn.Linear(DIM, 4))
    return LookAlike(net, (tokens(),))


def token_shift() -> LookAlike:
    """Each branch blends a token with its predecessor by learned vectors: adds of stream and shifted stream are no joins (RWKV)."""

    class Shift(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mix = nn.Parameter(torch.rand(3, DIM))

        def blend(self, x: Tensor, i: int) -> Tensor:
            before = F.pad(x, (0, 0, 1, -1))
            return x * self.mix[i] + before * (1 - self.mix[i])

    class TimeMix(Shift):
        def __init__(self) -> None:
            super().__init__()
            self.k, self.v, self.r, self.out = (nn.Linear(DIM, DIM, bias=False) for _ in range(4))
            self.decay = nn.Parameter(torch.zeros(DIM))

        def forward(self, x: Tensor) -> Tensor:
            k, v, r = self.k(self.blend(x, 0)), self.v(self.blend(x, 1)), torch.sigmoid(self.r(self.blend(x, 2)))
            top = bottom = torch.zeros_like(k[:, 0])
            out = []
            for t in range(x.size(1)):
                fade = torch.exp(-self.decay.exp())
                top, bottom = fade * top + k[:, t].exp() * v[:, t], fade * bottom + k[:, t].exp()
                out.append(top / bottom)
            return self.out(r * torch.stack(out, 1))

    class ChannelMix(Shift):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.down, self.r = nn.Linear(DIM, 32, bias=False), nn.Linear(32, DIM, bias=False), nn.Linear(DIM, DIM, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            return torch.sigmoid(self.r(self.blend(x, 0))) * self.down(torch.relu(self.up(self.blend(x, 1))).square())

    class Rwkv(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.ln1, self.ln2, self.time, self.channel = nn.LayerNorm(DIM), nn.LayerNorm(DIM), TimeMix(), ChannelMix()

        def forward(self, x: Tensor) -> Tensor:
            x = x + self.time(self.ln1(x))
            return x + self.channel(self.ln2(x))

    return LookAlike(Trunk(Rwkv(), Rwkv()), (tokens(),), ["? pre", "ffn pre"] * 2)


def recurrent_cells() -> LookAlike:
    """A cell loops over time inside each branch: its `W x + U h` is no join, and one cell at many steps is no shared depth."""

    class Cell(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w, self.u = nn.Linear(DIM, DIM), nn.Linear(DIM, DIM, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            h, out = torch.zeros_like(x[:, 0]), []
            for t in range(x.size(1)):
                h = torch.tanh(self.w(x[:, t]) + self.u(h))
                out.append(h)
            return torch.stack(out, 1)

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.cell, self.out = nn.LayerNorm(DIM), Cell(), nn.Linear(DIM, DIM)

        def forward(self, x: Tensor) -> Tensor:
            return x + self.out(self.cell(self.norm(x)))

    return LookAlike(Trunk(Layer(), Layer()), (tokens(),), ["? pre"] * 2)

"""Models for tests of `skipway probe`: one that is right, and some whose forward or loss goes wrong."""

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.mix = nn.Sequential(nn.Linear(dim, dim), nn.Tanh(), nn.Linear(dim, dim))
        self.ffn = nn.Sequential(nn.Linear(dim, 16), nn.GELU(), nn.Dropout(0.1), nn.Linear(16, dim))

    def forward(self, x):
        x = x + self.mix(self.norm1(x))
        return x + self.ffn(self.norm2(x))


class Net(nn.Module):
    limit = None                        # rows that fit into memory
    message = None

    def __init__(self, depth=2):
        super().__init__()
        self.embed = nn.Embedding(30, 8)
        self.layers = nn.ModuleList(Block() for _ in range(depth))
        self.head = nn.Linear(8, 30)

    def forward(self, ids):
        if self.limit is not None and len(ids) > self.limit and not ids.is_meta:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
        if self.message is not None and not ids.is_meta:
            raise RuntimeError(self.message)
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def net():
    torch.manual_seed(7)
    return Net()


def unseeded():
    return Net()


def two_rows():
    made = net()
    made.limit = 2
    return made


def no_rows():
    made = net()
    made.limit = 0
    return made


def no_half():
    made = net()
    made.message = '"addmm_impl_cpu_" not implemented for \'Half\''
    return made


class Broken(Net):
    def forward(self, ids):
        x = self.embed(ids)
        x = self.layers[0](x)
        x = x + torch.log(x - 100)      # the line of the fault
        return self.head(self.layers[1](x))


class Taking(nn.Module):
    def __init__(self):
        super().__init__()
        self.line = nn.Linear(8, 8)
        self.norm = nn.LayerNorm(8)

    def forward(self, x):
        return x + self.line(self.norm(x))


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.line = nn.Linear(8, 8)

    def forward(self, x):
        return self.line(x)


def ids():
    return torch.arange(12).view(2, 6)


def square(out):
    return out.square().mean()


def rows(out):
    return out.square().mean((1, 2))


def nothing(out):
    return None

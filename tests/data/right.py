"""A pre-norm block, wired right."""
import torch
import torch.nn as nn


class Net(nn.Module):
    def __init__(self, dim=32, depth=4):
        super().__init__()
        self.embed = nn.Embedding(100, dim)
        self.blocks = nn.ModuleList(Block(dim) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, 100)

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.ffn = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        return x + self.ffn(self.norm(x))


net = Net().eval()


def make():
    return Net(depth=2)


def make_with_inputs():
    return Net(depth=2), torch.zeros(1, 5, dtype=torch.int64)


def inputs():
    return (torch.ones(3, 7, dtype=torch.int64),)


def keyword_inputs():
    return {"ids": torch.ones(3, 7, dtype=torch.int64)}


def both_inputs():
    return (torch.ones(3, 7),), {"flag": True}


def no_tensors():
    return ("text", 3)


number = 3


def gives_number():
    return 3


def fails():
    raise ValueError("the factory's own failure")

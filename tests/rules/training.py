"""What the tests of the rules of stage train share. Sequences are (batch, token, channel)."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import skipway
from skipway import Finding

DIM = 16


def ffn(dim: int = DIM) -> nn.Module:
    return nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))


class Attention(nn.Module):
    def __init__(self, batch_first: bool = True) -> None:
        super().__init__()
        self.heads = nn.MultiheadAttention(DIM, 2, batch_first=batch_first)

    def forward(self, x: Tensor) -> Tensor:
        mixed: Tensor = self.heads(x, x, x, need_weights=False)[0]
        return mixed


class Block(nn.Module):
    """`run(self, x)` on a stream, with two norms, an attention, a feed-forward and `parts` as attributes."""

    def __init__(self, run: Callable[[Any, Tensor], Tensor], batch_first: bool = True, **parts: Any) -> None:
        super().__init__()
        self.run = run
        self.norm1, self.norm2, self.attn, self.ffn = nn.LayerNorm(DIM), nn.LayerNorm(DIM), Attention(batch_first), ffn()
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x: Tensor) -> Tensor:
        return self.run(self, x)


class Net(nn.Module):
    """stem -> blocks -> norm -> head; `through(self, x)` runs what is between stem and head where the blocks do not just follow one another."""

    def __init__(self, blocks: Callable[[], nn.Module], count: int = 3, through: Callable[[Any, Tensor], Tensor] | None = None, stem: bool = True,
                 tokens_first: bool = False) -> None:
        super().__init__()
        self.stem = nn.Linear(4, DIM) if stem else nn.Identity()
        self.blocks = nn.ModuleList([blocks() for _ in range(count)])
        self.norm, self.head = nn.LayerNorm(DIM), nn.Linear(DIM, 3)
        self.through, self.tokens_first = through, tokens_first

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        if self.tokens_first:
            x = x.transpose(0, 1)
        if self.through is None:
            for block in self.blocks:
                x = block(x)
        else:
            x = self.through(self, x)
        if self.tokens_first:
            x = x.transpose(0, 1)
        return self.head(self.norm(x))


def plain(m: Any, x: Tensor) -> Tensor:
    """A pre-norm block without anything else."""
    x = x + m.attn(m.norm1(x))
    return x + m.ffn(m.norm2(x))


def data(batch: int = 3, tokens: int = 5, width: int = 4) -> Tensor:
    return torch.randn(batch, tokens, width, generator=torch.Generator().manual_seed(0))


def found(code: str, model: nn.Module, *args: Any) -> tuple[Finding, ...]:
    """Findings of one rule, with the model found as it was left."""
    torch.manual_seed(1)
    model.eval()
    before = state(model)
    report = skipway.check(model, *args, stage="train", select=[code])
    assert state(model) == before
    return report.findings


def places(code: str, model: nn.Module, *args: Any) -> list[str]:
    return [f.where for f in found(code, model, *args)]


def state(model: nn.Module) -> dict[str, Any]:
    """Parameters, buffers, gradients, modes, hooks and random states, to compare."""
    def content(t: torch.Tensor) -> bytes:
        return (t.float() if t.dtype == torch.bfloat16 else t).detach().numpy().tobytes()

    held: dict[str, Any] = {name: (content(t), t.requires_grad, t.data_ptr(), id(t.grad), len(t._backward_hooks or ()))
                            for name, t in (*model.named_parameters(), *model.named_buffers())}
    held["modes"] = [m.training for m in model.modules()]
    held["hooks"] = [len(m._forward_hooks) + len(m._forward_pre_hooks) + len(m._backward_hooks) for m in model.modules()]
    held["random"] = (torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist())      # type: ignore[index]
    return held

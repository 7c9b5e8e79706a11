"""What several architectures need besides branches and rules."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from skipway._errors import ShapeMismatch
from skipway.models._checkpoint import tie
from skipway.nn import Stack
from skipway.nn._join import Join


def initial_normal(model: nn.Module, std: float | Callable[[str, nn.Module], float]) -> None:
    """Matrices and embeddings start as N(0, std^2), biases as zero, and tied parameters become one. What a scheme owns or sets stays.

    std     one number, or a function of the module's path and the module
    """
    joins = [m for m in model.modules() if isinstance(m, Join)]
    owned = {id(m) for join in joins for m in join.scheme.modules()}
    wished = {id(m) for join in joins if join.scheme.initial() for m in join.branch.modules()}
    with torch.no_grad():
        for path, module in model.named_modules():
            if not isinstance(module, (nn.Embedding, nn.Linear, nn.Conv2d)) or id(module) in owned:
                continue
            if id(module) not in wished:
                module.weight.normal_(0.0, std(path, module) if callable(std) else std)
            if isinstance(module, nn.Embedding):
                if module.padding_idx is not None:
                    module.weight[module.padding_idx].zero_()
            elif module.bias is not None:
                module.bias.zero_()
    tie(model)


def padded(attention_mask: Tensor | None) -> Tensor | None:
    """A padding mask, (batch, tokens) with 1 for a real token, as attentions take it."""
    return None if attention_mask is None else attention_mask.bool()


def causal(attention_mask: Tensor | None, position_ids: Tensor | None) -> dict[str, Any]:
    """Arguments of causal attentions for a padding mask, (batch, tokens) with 1 for a real token, and positions."""
    made: dict[str, Any] = {}
    if attention_mask is not None:
        made["key_mask"] = attention_mask.bool()
    if position_ids is not None:
        made["positions"] = position_ids
    return made


class RMSNorm(nn.RMSNorm):
    """g x / rms(x), with the root mean square in float32 for every dtype, as the published models compute it.

    In float64 it is written out in the order of the published code, so that a comparison in float64 is one of models and not of roundings; so it
    is for a gain in float32 on a stream of 16 bits, as some checkpoints have it.
    """

    def forward(self, x: Tensor) -> Tensor:
        """(..., dim) -> (..., dim)."""
        if x.dtype != torch.float64 and x.dtype == self.weight.dtype:
            return super().forward(x)
        wide = x.float()
        if x.dtype != torch.float64:
            return (self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + (self.eps or 0.0)))).to(x.dtype)
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + (self.eps or 0.0))).to(x.dtype)


class OffsetRMSNorm(nn.Module):
    """(1 + w) x / rms(x), all in float32 for every dtype, as Gemma computes it; w starts at 0."""

    offset = 1.0

    def __init__(self, dim: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(dim))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """(..., dim) -> (..., dim)."""
        wide = x.float()
        if x.dtype != torch.float64:
            return nn.functional.rms_norm(wide, self.weight.shape, 1.0 + self.weight.float(), self.eps).type_as(x)
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps) * (1.0 + self.weight.float())).type_as(x)

    def extra_repr(self) -> str:
        """Width and eps."""
        return f"{self.weight.numel()}, eps={self.eps:g}"


class WideRMSNorm(RMSNorm):
    """g x / rms(x) as T5 computes it: the root mean square in float32, the quotient in the dtype that x and it promote to."""

    def forward(self, x: Tensor) -> Tensor:
        """(..., dim) -> (..., dim)."""
        if x.dtype != torch.float64:
            return nn.RMSNorm.forward(self, x)
        return self.weight * (x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + (self.eps or 0.0)))


class ScaledEmbedding(nn.Embedding):
    """sqrt(dim) E[ids], with the root in the dtype of the embedding."""

    def forward(self, ids: Tensor) -> Tensor:
        """(batch, tokens) -> (batch, tokens, dim)."""
        return super().forward(ids) * torch.tensor(self.embedding_dim ** 0.5, dtype=torch.float32, device=self.weight.device).to(self.weight.dtype)


class Positions(nn.Embedding):
    """One learned vector a position."""

    def forward(self, ids: Tensor, positions: Tensor | None = None) -> Tensor:
        """The vectors of positions, by default 0, 1, 2, ... for ids, (batch, tokens). Raises ShapeMismatch where there are more tokens."""
        tokens = ids.shape[1]
        if positions is None and tokens > self.num_embeddings:
            raise ShapeMismatch(f"{tokens} tokens, and the model has {self.num_embeddings} positions; cut the input, or build with a longer context")
        return super().forward(torch.arange(tokens, device=ids.device) if positions is None else positions)


class Waves(nn.Module):
    """P[p, i] = sin(p / 10000^(2 i / dim)) in the first half of the channels, the cosines in the second; interleaved: P[p, 2 i] the sine,
    P[p, 2 i + 1] the cosine. Computed in float64, kept in float32."""

    table: Tensor

    def __init__(self, context: int, dim: int, interleaved: bool = False) -> None:
        super().__init__()
        self.context, self.dim, self.interleaved = context, dim, interleaved
        self.register_buffer("table", self.made(), persistent=False)

    def made(self) -> Tensor:
        """The table, (context, dim)."""
        place = torch.arange(self.context, dtype=torch.float64)[:, None]
        angles = place / 10000.0 ** (torch.arange(0, self.dim, 2, dtype=torch.float64) / self.dim)
        table = torch.stack((angles.sin(), angles.cos()), -1).flatten(1) if self.interleaved else torch.cat((angles.sin(), angles.cos()), -1)
        return table[:, :self.dim].float()

    def reset(self) -> None:
        """Computes the table anew, as is needed where the module was built on the meta device."""
        with torch.device("cpu"):
            self.table = self.made()

    def forward(self, ids: Tensor) -> Tensor:
        """ids (batch, tokens) -> (tokens, dim). Raises ShapeMismatch beyond the context."""
        if ids.shape[1] > self.context:
            raise ShapeMismatch(f"{ids.shape[1]} tokens, and the model has {self.context} positions; cut the input, or build with a longer context")
        return self.table[:ids.shape[1]]

    def extra_repr(self) -> str:
        """Size and order."""
        return f"{self.context}, {self.dim}" + (", interleaved" if self.interleaved else "")


def one_set_of_norms(stack: Stack, owners: Sequence[int]) -> None:
    """Gives sublayer k the norms of sublayer owners[k]; what else the schemes learn stays each sublayer's own."""
    for k, owner in enumerate(owners):
        mine, theirs = (stack.layers[i].get_submodule("scheme") for i in (k, owner))
        for path in mine.norms():                           # type: ignore[operator]
            home, _, name = path.rpartition(".")
            setattr(mine.get_submodule(home), name, theirs.get_submodule(path))

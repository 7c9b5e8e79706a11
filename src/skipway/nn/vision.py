"""The vision transformer."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from skipway._errors import ShapeMismatch, UsageError
from skipway.nn.blocks import Encoder, Options

POOLS = ("class", "mean", "none")


def _norm(dim: int) -> nn.Module:
    return nn.LayerNorm(dim, eps=1e-6)


class VisionTransformer(nn.Module):
    """Patches of an image as tokens, an `Encoder` over them, and a linear head.

    dim, heads, blocks, hidden, scheme, kind, dropout, attention, feed_forward, options     as in `Encoder`; among the options drop_path, norm
    image, patch, channels      side of the (square) image and of a patch in pixels; channels of the image
    classes                     outputs of the head; 0: no head
    pool                        "class": the head reads a learned token put in front; "mean": the mean of the patches; "none": all tokens are returned
    registers                   learned tokens beside the class token that nothing reads (Darcet et al., 2023, arXiv 2309.16588)

    x is (batch, channels, image, image); the result (batch, classes), or (batch, tokens, dim) with pool="none". Raises UsageError where the patches
    do not fill the image. Source: Dosovitskiy et al., An Image is Worth 16x16 Words, 2020, arXiv 2010.11929.
    """

    def __init__(self, dim: int = 192, heads: int = 3, blocks: int = 12, hidden: int | None = None, scheme: str = "pre_norm", *, image: int = 224,
                 patch: int = 16, channels: int = 3, classes: int = 1000, pool: str = "class", registers: int = 0, kind: str = "gelu",
                 dropout: float = 0.0, norm: Callable[[int], nn.Module] = _norm, attention: Options = None,
                 feed_forward: Options = None, **options: Any) -> None:
        super().__init__()
        if image % patch or pool not in POOLS:
            raise UsageError(f"images of {image} pixels in patches of {patch}, pool={pool!r}; wanted patches that fill the image, and a pool of "
                             f"{', '.join(POOLS)}")
        self.image, self.pool = image, pool
        self.patches = nn.Conv2d(channels, dim, patch, patch)
        self.front = nn.Parameter(torch.randn(registers + (pool == "class"), dim) * 0.02)
        self.positions = nn.Parameter(torch.randn(len(self.front) + (image // patch) ** 2, dim) * 0.02)
        self.dropout = nn.Dropout(dropout) if dropout else None
        self.encoder = Encoder(dim, heads, blocks, hidden, scheme, kind=kind, dropout=dropout, norm=norm, attention=attention,
                               feed_forward=feed_forward, **options)
        self.head = nn.Linear(dim, classes) if classes else None

    def tokens(self, x: Tensor, **kwargs: Any) -> Tensor:
        """All tokens behind the encoder, (batch, tokens, dim): the class token, the registers, the patches."""
        if x.shape[-1] != self.image or x.shape[-2] != self.image:
            raise ShapeMismatch(f"an image of shape {tuple(x.shape)}; wanted (batch, channels, {self.image}, {self.image})")
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        tokens = torch.cat((self.front.expand(len(tokens), -1, -1), tokens), 1) + self.positions
        y: Tensor = self.encoder(tokens if self.dropout is None else self.dropout(tokens), **kwargs)
        return y

    def forward(self, x: Tensor, **kwargs: Any) -> Tensor:
        """The head's outputs."""
        tokens = self.tokens(x, **kwargs)
        if self.pool == "class":
            tokens = tokens[:, 0]
        elif self.pool == "mean":
            tokens = tokens[:, len(self.front):].mean(1)
        return tokens if self.head is None else self.head(tokens)

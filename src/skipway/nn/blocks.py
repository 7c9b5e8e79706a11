"""Transformer blocks and rows of them: attention and feed-forward branches on one stream."""

from collections.abc import Mapping
from typing import Any

from torch import nn

from skipway.nn.attention import Attention
from skipway.nn.feed_forward import FeedForward
from skipway.nn.stack import Stack

Options = Mapping[str, Any] | None


def _branches(blocks: int, dim: int, heads: int, hidden: int | None, kind: str, dropout: float, causal: bool, cross: bool, attention: Options,
              feed_forward: Options) -> list[nn.Module]:
    """Self-attention, cross-attention where wanted, and feed-forward, block after block."""
    own = {"dropout": dropout, **(attention or {})}
    fed = {"kind": kind, "dropout": dropout, **(feed_forward or {})}
    residual = own.pop("value_residual", False)
    made: list[nn.Module] = []
    for k in range(blocks):
        first = {"value_residual": "later" if k else "first"} if residual else {}
        made.append(Attention(dim, heads, causal, **{**own, **first}))
        if cross:
            other = {name: v for name, v in own.items() if name not in ("rotary", "window", "score_residual")}
            made.append(Attention(dim, heads, cross=True, **other))
        made.append(FeedForward(dim, hidden, **fed))
    return made


class Encoder(Stack):
    """Blocks of self-attention and feed-forward: a `Stack` of 2 blocks branches, so that its scheme knows the depth.

    dim, heads, blocks      width, heads of each attention, number of blocks
    hidden, kind            width inside the feed-forward (default 4 dim) and its kind
    dropout                 of attention weights, inside the feed-forward, and of what each branch adds
    causal                  with it, this is the row of blocks of a decoder-only model
    attention, feed_forward further options of `Attention` and `FeedForward`; value_residual=True: the first attention gives its value to the others
    scheme, options         as in `Stack`

    Call: (x, mask=, key_mask=, positions=); x is (batch, tokens, dim).
    """

    def __init__(self, dim: int, heads: int, blocks: int, hidden: int | None = None, scheme: str = "pre_norm", *, kind: str = "gelu",
                 dropout: float = 0.0, causal: bool = False, attention: Options = None, feed_forward: Options = None, **options: Any) -> None:
        made = _branches(blocks, dim, heads, hidden, kind, dropout, causal, False, attention, feed_forward)
        super().__init__(made, dim, scheme, dropout=dropout, per_block=2, **options)


class Decoder(Stack):
    """Blocks of causal self-attention, cross-attention to a context, and feed-forward: a `Stack` of 3 blocks branches.

    Arguments as in `Encoder`. cross=False leaves the cross-attention out. Call: (x, context=, context_mask=, mask=, key_mask=, positions=).
    """

    def __init__(self, dim: int, heads: int, blocks: int, hidden: int | None = None, scheme: str = "pre_norm", *, kind: str = "gelu",
                 dropout: float = 0.0, cross: bool = True, attention: Options = None, feed_forward: Options = None, **options: Any) -> None:
        made = _branches(blocks, dim, heads, hidden, kind, dropout, True, cross, attention, feed_forward)
        super().__init__(made, dim, scheme, dropout=dropout, per_block=3 if cross else 2, **options)


class EncoderBlock(Encoder):
    """One block: self-attention and feed-forward, two residuals, no final norm. With the scheme pre_norm or post_norm it is
    torch's TransformerEncoderLayer with norm_first=True or False."""

    def __init__(self, dim: int, heads: int, hidden: int | None = None, scheme: str = "pre_norm", **options: Any) -> None:
        super().__init__(dim, heads, 1, hidden, scheme, **{"final_norm": False, **options})


class DecoderBlock(Decoder):
    """One block: causal self-attention, cross-attention and feed-forward, three residuals, no final norm. With the scheme pre_norm or
    post_norm it is torch's TransformerDecoderLayer with norm_first=True or False and a causal mask."""

    def __init__(self, dim: int, heads: int, hidden: int | None = None, scheme: str = "pre_norm", **options: Any) -> None:
        super().__init__(dim, heads, 1, hidden, scheme, **{"final_norm": False, **options})

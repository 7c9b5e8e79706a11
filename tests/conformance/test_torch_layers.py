"""The blocks of `skipway.nn` are torch's own encoder and decoder layers: output and gradients, float64, weights copied across."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import skipway.nn as blocks
from skipway._errors import ShapeMismatch

DIM, HEADS, HIDDEN, BATCH, TOKENS, SOURCE = 16, 4, 24, 3, 7, 5
TIGHT = 1e-12
KINDS = {"gelu": "gelu", "relu": "relu"}


def copy_attention(mine: blocks.Attention, theirs: nn.MultiheadAttention) -> None:
    for part, weight, bias in zip((mine.query, mine.key, mine.value), theirs.in_proj_weight.chunk(3), theirs.in_proj_bias.chunk(3)):
        part.weight.copy_(weight)
        part.bias.copy_(bias)
    mine.output.load_state_dict(theirs.out_proj.state_dict())


def copy_feed_forward(mine: blocks.FeedForward, theirs: nn.Module) -> None:
    mine.input.load_state_dict(theirs.linear1.state_dict())
    mine.output.load_state_dict(theirs.linear2.state_dict())


def branches(block: blocks.Stack) -> list[Any]:
    return [layer.branch for layer in block.layers]


@torch.no_grad()
def pair(kind: str, norm_first: bool, activation: str) -> tuple[blocks.Stack, nn.Module]:
    """Ours and torch's, with one set of weights."""
    torch.manual_seed(0)
    scheme = "pre_norm" if norm_first else "post_norm"
    make, torchs = (blocks.EncoderBlock, nn.TransformerEncoderLayer) if kind == "encoder" else (blocks.DecoderBlock, nn.TransformerDecoderLayer)
    theirs = torchs(DIM, HEADS, HIDDEN, dropout=0.0, activation=activation, batch_first=True, norm_first=norm_first).double()
    for p in theirs.parameters():                           # norms and biases off their start
        p.add_(0.1 * torch.randn_like(p))
    mine = make(DIM, HEADS, HIDDEN, scheme, kind=KINDS[activation]).double()
    own = branches(mine)
    copy_attention(own[0], theirs.self_attn)
    if kind == "decoder":
        copy_attention(own[1], theirs.multihead_attn)
    copy_feed_forward(own[-1], theirs)
    for k, layer in enumerate(mine.layers):
        layer.scheme.norm.load_state_dict(getattr(theirs, f"norm{k + 1}").state_dict())
    return mine, theirs


def gradients(run: Callable[..., Tensor], inputs: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
    leaves = [i.clone().requires_grad_() for i in inputs]
    y = run(*leaves)
    weights = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).reshape(y.shape).cos()
    (y * weights).sum().backward()
    return y.detach(), [leaf.grad for leaf in leaves]


def apart(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max() / b.abs().max())


def compare(mine: blocks.Stack, theirs: nn.Module, ours: Callable[..., Tensor], others: Callable[..., Tensor], inputs: list[Tensor]) -> float:
    """The worst relative difference over output, input gradients and the gradients of all weights."""
    y, grads = gradients(ours, inputs)
    z, wanted = gradients(others, inputs)
    worst = [apart(y, z), *(apart(a, b) for a, b in zip(grads, wanted))]
    own = branches(mine)
    attentions = [(own[0], theirs.self_attn)] + ([(own[1], theirs.multihead_attn)] if len(own) == 3 else [])
    for a, b in attentions:
        for name in ("weight", "bias"):
            got = torch.cat([getattr(part, name).grad for part in (a.query, a.key, a.value)])
            worst.append(apart(got, getattr(b, f"in_proj_{name}").grad))
            worst.append(apart(getattr(a.output, name).grad, getattr(b.out_proj, name).grad))
    for name in ("weight", "bias"):
        worst += [apart(getattr(own[-1].input, name).grad, getattr(theirs.linear1, name).grad),
                  apart(getattr(own[-1].output, name).grad, getattr(theirs.linear2, name).grad)]
        worst += [apart(getattr(layer.scheme.norm, name).grad, getattr(getattr(theirs, f"norm{k + 1}"), name).grad)
                  for k, layer in enumerate(mine.layers)]
    return max(worst)


def padding(tokens: int) -> Tensor:
    """True for a real token; the second and third sample are shorter."""
    real = torch.ones(BATCH, tokens, dtype=torch.bool)
    real[1, tokens - 2:] = False
    real[2, tokens - 1:] = False
    return real


def causal() -> Tensor:
    return torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril()


@pytest.mark.parametrize("activation", ["gelu", "relu"])
@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("masked", ["none", "padding", "causal", "both", "added"])
def test_encoder_layer(masked: str, norm_first: bool, activation: str) -> None:
    mine, theirs = pair("encoder", norm_first, activation)
    x = torch.randn(BATCH, TOKENS, DIM, dtype=torch.float64)
    ours: dict[str, Any] = {}
    others: dict[str, Any] = {}
    if masked in ("padding", "both"):
        ours["key_mask"], others["src_key_padding_mask"] = padding(TOKENS), ~padding(TOKENS)
    if masked in ("causal", "both"):
        ours["mask"], others["src_mask"] = causal(), ~causal()
    if masked == "added":
        ours["mask"] = others["src_mask"] = torch.randn(TOKENS, TOKENS, dtype=torch.float64)
    assert compare(mine, theirs, lambda v: mine(v, **ours), lambda v: theirs(v, **others), [x]) <= TIGHT


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("masked", ["none", "padding"])
def test_decoder_layer(masked: str, norm_first: bool) -> None:
    mine, theirs = pair("decoder", norm_first, "relu")
    x, memory = torch.randn(BATCH, TOKENS, DIM, dtype=torch.float64), torch.randn(BATCH, SOURCE, DIM, dtype=torch.float64)
    ours: dict[str, Any] = {}
    others: dict[str, Any] = {"tgt_mask": ~causal()}
    if masked == "padding":
        ours = {"context_mask": padding(SOURCE), "key_mask": padding(TOKENS)}
        others |= {"memory_key_padding_mask": ~padding(SOURCE), "tgt_key_padding_mask": ~padding(TOKENS)}
    assert compare(mine, theirs, lambda v, m: mine(v, context=m, **ours), lambda v, m: theirs(v, m, **others), [x, memory]) <= TIGHT


def test_the_two_wrappers_of_every_course_are_one_line_each() -> None:
    """Pre-norm around any sublayer, post-norm around attention, by their formulas."""
    torch.manual_seed(0)
    attention, feed_forward = blocks.Attention(DIM, HEADS).double(), nn.Sequential(nn.Linear(DIM, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, DIM)).double()
    x = torch.randn(BATCH, TOKENS, DIM, dtype=torch.float64)
    pre = blocks.Residual(feed_forward, DIM).double()
    post = blocks.Residual(attention, DIM, "post_norm").double()
    assert torch.equal(pre(x), x + feed_forward(pre.scheme.norm(x)))
    assert torch.equal(post(x), post.scheme.norm(x + attention(x)))


def test_a_planted_fault_is_seen() -> None:
    """The norms of the two residuals exchanged, and a mask that is not the same."""
    mine, theirs = pair("encoder", True, "gelu")
    x = torch.randn(BATCH, TOKENS, DIM, dtype=torch.float64)
    assert compare(mine, theirs, lambda v: mine(v, mask=causal()), theirs, [x]) > 1e-3
    one, two = (layer.scheme for layer in mine.layers)
    one.norm, two.norm = two.norm, one.norm
    assert compare(mine, theirs, mine, theirs, [x]) > 1e-3


def test_masks_of_the_wrong_shape_are_refused() -> None:
    block = blocks.EncoderBlock(DIM, HEADS)
    x = torch.randn(BATCH, TOKENS, DIM)
    with pytest.raises(ShapeMismatch, match=r"mask of shape \(3, 7, 7\); wanted \(queries, keys\)"):
        block(x, mask=torch.ones(BATCH, TOKENS, TOKENS, dtype=torch.bool))
    with pytest.raises(ShapeMismatch, match=r"key_mask of shape \(7, 7\) and torch.float32"):
        block(x, key_mask=torch.ones(TOKENS, TOKENS))

"""The same numbers as timm's layers and blocks, weights copied across, float64."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import skipway.nn as blocks
from skipway import schemes

timm = pytest.importorskip("timm")
from timm.layers import DropPath, LayerScale  # noqa: E402
from timm.models.vision_transformer import ParallelScalingBlock, ResPostBlock  # noqa: E402

DIM, HEADS, TOKENS, BATCH = 16, 4, 6, 8
TIGHT = 1e-12


def apart(a: Tensor, b: Tensor) -> float:
    return float((a - b).detach().abs().max() / b.detach().abs().max())


def shaken(module: nn.Module) -> nn.Module:
    torch.manual_seed(3)
    with torch.no_grad():
        for p in module.parameters():
            p.add_(0.2 * torch.randn_like(p))
    return module


@torch.no_grad()
def split_heads(attention: blocks.Attention, weight: Tensor, bias: Tensor | None) -> None:
    """A fused projection of queries, keys and values, taken apart."""
    for k, part in enumerate((attention.query, attention.key, attention.value)):
        part.weight.copy_(weight.chunk(3)[k])
        if part.bias is not None and bias is not None:
            part.bias.copy_(bias.chunk(3)[k])


def outputs(mine: nn.Module, theirs: nn.Module) -> tuple[float, float]:
    """Relative differences of output and of the input's gradient."""
    x, z = (torch.randn(BATCH, TOKENS, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(5)).requires_grad_() for _ in range(2))
    y, w = mine(x), theirs(z)
    y.sin().sum().backward()
    w.sin().sum().backward()
    return apart(y, w), apart(x.grad, z.grad)


def test_layer_scale() -> None:
    scheme = schemes.build("layer_scale", DIM, depth=4, start=0.3).double()
    theirs = LayerScale(DIM, init_values=0.3).double()
    h, y = torch.randn(2, TOKENS, DIM, dtype=torch.float64), torch.randn(2, TOKENS, DIM, dtype=torch.float64)
    assert torch.equal(scheme.write(h, y, None), h + theirs(y))


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_drop_path_draws_and_scales_alike(p: float, dtype: torch.dtype) -> None:
    """With one seed the same samples are dropped and the others scaled the same."""
    branch = nn.Linear(DIM, DIM).to(dtype)
    mine = blocks.Residual(branch, DIM, "plain", drop_path=p).to(dtype)
    theirs = DropPath(p)
    x = torch.randn(64, TOKENS, DIM, dtype=dtype)
    for seed in range(5):
        torch.manual_seed(seed)
        got = mine(x)
        torch.manual_seed(seed)
        torch.testing.assert_close(got, x + theirs(branch(x)))
    mine.eval()
    assert torch.equal(mine(x), x + branch(x))


def test_res_post_block() -> None:
    """Swin V2's order: the norm on the branch's result."""
    theirs = shaken(ResPostBlock(DIM, HEADS, qkv_bias=True, norm_layer=nn.LayerNorm).double())
    mine = blocks.EncoderBlock(DIM, HEADS, scheme="output_norm").double()
    attention, feed_forward = (layer.branch for layer in mine.layers)
    split_heads(attention, theirs.attn.qkv.weight, theirs.attn.qkv.bias)
    attention.output.load_state_dict(theirs.attn.proj.state_dict())
    feed_forward.input.load_state_dict(theirs.mlp.fc1.state_dict())
    feed_forward.output.load_state_dict(theirs.mlp.fc2.state_dict())
    for layer, norm in zip(mine.layers, (theirs.norm1, theirs.norm2)):
        next(m for m in layer.scheme.modules() if isinstance(m, nn.LayerNorm)).load_state_dict(norm.state_dict())
    assert max(outputs(mine, theirs)) <= TIGHT


@pytest.mark.parametrize("qk_norm", [False, True])
def test_parallel_scaling_block(qk_norm: bool) -> None:
    """ViT-22B: attention and feed-forward beside each other behind one norm."""
    theirs = shaken(ParallelScalingBlock(DIM, HEADS, qkv_bias=True, qk_norm=qk_norm, init_values=0.1, norm_layer=nn.LayerNorm).double())
    attention = blocks.Attention(DIM, HEADS, qk_norm="head" if qk_norm else None, norm=nn.LayerNorm)
    mine = blocks.Residual(blocks.Parallel([attention, blocks.FeedForward(DIM)]), DIM, "layer_scale", depth=1, per_block=1).double()
    feed_forward = mine.branch.branches[1]
    hidden = 4 * DIM
    with torch.no_grad():
        split_heads(attention, theirs.in_proj.weight[hidden:], theirs.in_proj.bias[hidden:])
        feed_forward.input.weight.copy_(theirs.in_proj.weight[:hidden])
        feed_forward.input.bias.copy_(theirs.in_proj.bias[:hidden])
        mine.scheme.scale.copy_(theirs.ls.gamma)
    attention.output.load_state_dict(theirs.attn_out_proj.state_dict())
    feed_forward.output.load_state_dict(theirs.mlp_out_proj.state_dict())
    mine.scheme.norm.load_state_dict(theirs.in_norm.state_dict())
    if qk_norm:
        attention.query_norm.load_state_dict(theirs.q_norm.state_dict())
        attention.key_norm.load_state_dict(theirs.k_norm.state_dict())
    assert max(outputs(mine, theirs)) <= TIGHT


@torch.no_grad()
def copy_vit(mine: blocks.VisionTransformer, theirs: Any) -> None:
    mine.patches.load_state_dict(theirs.patch_embed.proj.state_dict())
    if theirs.cls_token is not None:
        mine.front.copy_(theirs.cls_token[0])
    mine.positions.copy_(theirs.pos_embed[0])
    for k, block in enumerate(theirs.blocks):
        attend, feed = mine.encoder.layers[2 * k], mine.encoder.layers[2 * k + 1]
        attend.scheme.norm.load_state_dict(block.norm1.state_dict())
        feed.scheme.norm.load_state_dict(block.norm2.state_dict())
        split_heads(attend.branch, block.attn.qkv.weight, block.attn.qkv.bias)
        attend.branch.output.load_state_dict(block.attn.proj.state_dict())
        feed.branch.input.load_state_dict(block.mlp.fc1.state_dict())
        feed.branch.output.load_state_dict(block.mlp.fc2.state_dict())
    mine.encoder.final_norm.load_state_dict((theirs.norm if mine.pool == "class" else theirs.fc_norm).state_dict())
    mine.head.load_state_dict(theirs.head.state_dict())


def test_vision_transformer() -> None:
    options: dict[str, Any] = {"img_size": 32, "patch_size": 8, "embed_dim": DIM, "depth": 3, "num_heads": HEADS, "num_classes": 5}
    theirs = shaken(timm.models.VisionTransformer(**options).double())
    mine = blocks.VisionTransformer(DIM, HEADS, 3, image=32, patch=8, classes=5).double()
    copy_vit(mine, theirs)
    x = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    assert apart(mine(x), theirs(x)) <= TIGHT

"""Inputs of pictures and videos: pixels, patches that are flattened already with their grid, points and boxes."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from skipway.targets._hf_context import BATCH, Context

Maker = Callable[[str, Context], Sequence[Any]]
GRID = ((1, 12, 24), (1, 12, 12))               # (time, height, width) in patches of two pictures; whole after merges by 2, 3 and 4
FRAMES = 8


def grid_named(c: Context) -> str | None:
    """The argument that holds the grid of flattened patches, where the forward needs one."""
    return next((n for n, p in c.parameters.items() if n.endswith(("grid_thw", "grid_hw", "spatial_shapes", "pixel_position_ids"))
                 and (p.default is p.empty or n in c.wanted)), None)


def pixels(name: str, c: Context) -> list[torch.Tensor]:
    """Pictures (batch, channel, height, width), several of one example, frames, or flattened patches with their grid."""
    grid = grid_named(c)
    made = patches(name, c) if grid is not None else []
    channels, height, width = _size(c)
    frames = c.first("num_frames", "frames")
    videos = "video" in name or "frame" in name
    sides = [(height, width)] + [(s, s) for s in c.sizes if 16 <= s <= 2048]
    biggest = max(height, width)
    patch = c.number(16, "patch_size")
    sides += [(side, side) for side in (32 * patch, 40 * patch, 2 * biggest, 4 * biggest, 224, 256, 384, 512, 640) if side <= 2048]
    for number, (h, w) in enumerate(dict.fromkeys(sides)):
        plain, few = c.normal(BATCH, channels, h, w), c.normal(BATCH, 2, channels, h, w)
        clip = c.normal(BATCH, int(frames or FRAMES), channels, h, w) if frames or videos or number == 0 else None
        order = [clip, plain] if frames or videos else [plain, few, c.normal(BATCH, 1, channels, h, w), clip]
        made += [t for t in order if t is not None]
        if videos and clip is not None:
            made.append(clip.transpose(1, 2).contiguous())
    return made


def patches(name: str, c: Context) -> list[torch.Tensor]:
    """Flattened patches of GRID: (patch, pixels of a patch), one row an example, or one square a patch."""
    count = sum(math.prod(g) for g in GRID)
    side, depth = c.number(16, "patch_size", "spatial_patch_size"), c.number(1, "temporal_patch_size")
    merge = c.number(1, "spatial_merge_size")
    channels = c.number(3, "in_channels", "num_channels", "in_chans")
    flat = channels * depth * side * side
    rows = GRID[0][1] * GRID[0][2]
    one = channels * side * side
    named = [c.normal(count, size) for size in c.sizes if size not in (count, flat)]
    made = [c.normal(count, flat), c.normal(BATCH, rows, one)]
    if grid_named(c) in ("spatial_shapes", "pixel_position_ids"):
        made.reverse()
    return [*made, *named[:2], c.normal(count, channels, side, side), c.normal(count, one),
            c.normal(count, side * merge, side * merge, channels), c.normal(1, channels, side, rows * side)]


def grid(name: str, c: Context) -> list[torch.Tensor]:
    """Time, height and width in patches, one row a picture."""
    if name.endswith(("_hw", "shapes", "sizes")):
        return [torch.tensor([GRID[0][1:], GRID[0][1:]]), torch.tensor([GRID[0][1:]])]
    return [torch.tensor(GRID), torch.tensor([GRID[0], GRID[0]])]


def places(name: str, c: Context) -> list[torch.Tensor]:
    """Row and column of every patch of GRID's first picture, (batch, patch, 2)."""
    _, height, width = GRID[0]
    one = torch.stack(torch.meshgrid(torch.arange(width), torch.arange(height), indexing="xy"), dim=-1).reshape(1, -1, 2)
    return [one.repeat(BATCH, 1, 1)]


def seen(name: str, c: Context) -> list[torch.Tensor]:
    """Ones: every pixel, patch or picture is there."""
    made: list[torch.Tensor] = []
    for value in (v for n, v in c.values.items() if "pixel" in n and isinstance(v, torch.Tensor)):
        whole = tuple(value.shape)
        made += [torch.ones(whole)] if "prompt" in name else []         # painted like the picture
        pictures = ((whole[0], *whole[-2:]), (*whole[:2], *whole[-2:])) if len(whole) > 3 else ()
        for shape in (*pictures, whole[:2], whole[:-1]):
            made += [torch.ones(shape, dtype=torch.long), torch.ones(shape, dtype=torch.bool)]
    return made


def masked(name: str, c: Context) -> list[torch.Tensor]:
    """Which patches are hidden: every other one."""
    value = next((v for n, v in c.values.items() if "pixel" in n and isinstance(v, torch.Tensor)), None)
    side = c.number(16, "patch_size")
    count = 196 if value is None else (value.shape[-1] // side) * (value.shape[-2] // side)
    return [(torch.arange(n) % 2 == 0).repeat(BATCH, 1) for n in dict.fromkeys([count, 2 * count, *reversed(c.sizes)])]


def picture_sizes(name: str, c: Context) -> list[torch.Tensor]:
    """Height and width of every picture."""
    _, height, width = _size(c)
    return [torch.tensor([[height, width]] * BATCH)]


def features(name: str, c: Context) -> list[torch.Tensor]:
    """Features of regions (batch, region, width) and their places (batch, region, 4)."""
    width = c.number(4, "visual_pos_dim") if "pos" in name else c.number(2048, "visual_feat_dim", "visual_embedding_dim")
    return [c.normal(BATCH, 10, width)]


def _size(c: Context) -> tuple[int, int, int]:
    channels = c.number(3, "num_channels", "in_channels", "in_chans")
    size = c.first("image_size", "img_size", "input_size") or 224
    if isinstance(size, dict):
        size = (size.get("height", 224), size.get("width", 224))
    height, width = (size, size) if isinstance(size, (int, float)) else (size[-2], size[-1])
    if "prompt_pixel_values" in c.parameters:           # it stands above the picture, and both together have the size
        height //= 2
    return channels, int(height), int(width)


MAKERS: dict[str, Maker] = {
    r"pixel_values\w*|\w+_pixel_values|image|frame": pixels,
    r"\w*grid_thw|\w*grid_hw|spatial_shapes|target_sizes": grid,
    r"pixel_position_ids|image_position_ids": places,
    r"pixel_mask|pixel_attention_mask|patch_attention_mask|image_attention_mask|prompt_masks": seen,
    r"bool_masked_pos": masked,
    r"image_sizes": picture_sizes,
    r"visual_feats|visual_pos|visual_embeds": features,
}

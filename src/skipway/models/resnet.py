"""resnet: stages of convolutions whose blocks add to what they read; and the pre-activation form.

    h <- relu(S(h) + N(C(relu(N(C h)))))   C = convolution, N = batch norm; bottleneck: 1x1, 3x3 and 1x1 with 1/4 of the channels between
    h <- S(h) + C(relu(N(C(relu(N(h))))))  v2, pre-activation: norm and relu stand before each convolution
    logits = W mean(h)                     v2: of relu(N(h))

One site a block, around all its convolutions; no final norm (v2: one). Year 2015, v2 2016. Special: S is the identity but at the first block of a
stage, where a 1x1 convolution brings h to half the size and twice the channels; a relu stands on the stream behind every add, and v2 takes it off, so
that the identity reaches from stem to head. A scheme that norms what a block reads or keeps lanes stands on each stage for itself.
Source: He, Zhang, Ren, Sun, Deep Residual Learning for Image Recognition, 2015, arXiv 1512.03385; Identity Mappings in Deep Residual Networks, 2016,
arXiv 1603.05027.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from skipway._errors import CheckpointError
from skipway.models._base import Config, Model, Output, Row, named
from skipway.models._fields import Fields, classes, classes_written
from skipway.nn import ResNet as Body


@dataclass(frozen=True, kw_only=True)
class ResNetConfig(Config):
    """Numbers of a residual network: dim channels in the first stage (four times as many on the stream of bottlenecks), twice that in each later."""

    depths: tuple[int, ...]             # blocks of each stage
    heads: int = 0                      # no attention
    kind: str = "basic"                 # basic, bottleneck, pre_activation, pre_bottleneck
    stem: str = "image"                 # 7x7 and pooling; small: 3x3
    channels: int = 3
    classes: int = 1000
    zero_init: bool = False             # the gain of each branch's last norm starts at 0


def _size(kind: str, *depths: int, dim: int = 64, **other: Any) -> ResNetConfig:
    return ResNetConfig(dim=dim, blocks=sum(depths), depths=depths, kind=kind, **other)


SIZES: dict[str, Config] = {
    "tiny": _size("basic", 2, 2, dim=16, stem="small", classes=10),
    "18": _size("basic", 2, 2, 2, 2), "34": _size("basic", 3, 4, 6, 3), "50": _size("bottleneck", 3, 4, 6, 3),
    "101": _size("bottleneck", 3, 4, 23, 3), "152": _size("bottleneck", 3, 8, 36, 3),
    "v2-18": _size("pre_activation", 2, 2, 2, 2), "v2-34": _size("pre_activation", 3, 4, 6, 3), "v2-50": _size("pre_bottleneck", 3, 4, 6, 3),
    "v2-101": _size("pre_bottleneck", 3, 4, 23, 3), "v2-152": _size("pre_bottleneck", 3, 8, 36, 3), "v2-200": _size("pre_bottleneck", 3, 24, 36, 3),
    # For images of 32 pixels: 6 n + 2 and 9 n + 2 layers.
    "20": _size("basic", 3, 3, 3, dim=16, stem="small", classes=10), "56": _size("basic", 9, 9, 9, dim=16, stem="small", classes=10),
    "110": _size("basic", 18, 18, 18, dim=16, stem="small", classes=10),
    "v2-164": _size("pre_bottleneck", 18, 18, 18, dim=16, stem="small", classes=10),
    "v2-1001": _size("pre_bottleneck", 111, 111, 111, dim=16, stem="small", classes=10),
}


class ResNet(Model):
    """Images (batch, channels, height, width) to logits (batch, classes)."""

    RULE = "plain"
    MODEL_TYPES = ("resnet",)
    PREFIX = "resnet."

    def make(self, c: ResNetConfig, rule: dict[str, Any]) -> None:
        self.body = Body(c.depths, c.kind, width=c.dim, stem=c.stem, channels=c.channels, classes=0, zero_init=c.zero_init, **rule)
        wide = c.dim * 2 ** (len(c.depths) - 1) * (4 if c.kind.endswith("bottleneck") else 1)
        self.head = nn.Linear(wide, c.classes) if c.head else None

    def forward(self, pixel_values: Tensor, *, states: bool = False) -> Output:
        """pixel_values (batch, channels, height, width). hidden (batch, channels of the last stage)."""
        with self.watching(states) as seen:
            y = self.body(pixel_values)
        return Output(None if self.head is None else self.head(y), y, tuple(seen))

    @classmethod
    def read(cls, f: Fields) -> ResNetConfig:
        f.same("hidden_act", "relu")
        f.same("downsample_in_first_stage", False)
        f.same("downsample_in_bottleneck", False)
        f.skip("out_features", "out_indices", "stage_names")
        kind, dim, depths, wide = f.take("layer_type", "bottleneck"), f.take("embedding_size", 64), f.take("depths"), f.take("hidden_sizes")
        f.same("layer_type", "basic", "bottleneck")
        want = [dim * 2 ** k * (4 if kind == "bottleneck" else 1) for k in range(len(depths))]
        f.same("hidden_sizes", want)
        return ResNetConfig(dim=dim, blocks=sum(depths), depths=tuple(depths), kind=kind, channels=f.take("num_channels", 3), classes=classes(f),
                            head=f.architecture("ResNetForImageClassification", "ResNetModel") == "ResNetForImageClassification" and bool(wide))

    def written(self) -> dict[str, Any]:
        c: Any = self.config
        if c.kind.startswith("pre") or c.stem != "image":
            raise CheckpointError(f"resnet: transformers' ResNet has no {c.kind} blocks behind a stem of kind {c.stem}; save its state_dict() with "
                                  "safetensors instead")
        wide = [c.dim * 2 ** k * (4 if c.kind == "bottleneck" else 1) for k in range(len(c.depths))]
        return {"model_type": "resnet", "architectures": ["ResNetForImageClassification" if c.head else "ResNetModel"], "embedding_size": c.dim,
                "hidden_sizes": wide, "depths": list(c.depths), "layer_type": c.kind, "num_channels": c.channels, "hidden_act": "relu",
                "downsample_in_first_stage": False, "downsample_in_bottleneck": False, **classes_written(c.classes)}

    def rows(self) -> Iterator[Row]:
        c: Any = self.config
        yield from _convolution("body.stem", "body.stem_norm", "embedder.embedder")
        places = [(stage, k) for stage, count in enumerate(c.depths) for k in range(count)]
        for n, (stage, k) in enumerate(places):
            theirs = f"encoder.stages.{stage}.layers.{k}"
            for j in range(3 if c.kind == "bottleneck" else 2):
                yield from _convolution(f"body.blocks.{n}.branch.convolutions.{j}", f"body.blocks.{n}.branch.norms.{j}", f"{theirs}.layer.{j}")
            if self.body.blocks[n].shortcut is not None:
                yield from _convolution(f"body.blocks.{n}.shortcut.0", f"body.blocks.{n}.shortcut.1", f"{theirs}.shortcut")
        if c.head:
            yield from named("head", "/classifier.1", True)


def _convolution(ours: str, norm: str, theirs: str) -> Iterator[Row]:
    yield from named(ours, f"{theirs}.convolution")
    for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked"):
        yield Row(f"{norm}.{name}", f"{theirs}.normalization.{name}")

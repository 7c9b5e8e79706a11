"""`torchvision:<name>`: a model of the torchvision package, without weights."""

from difflib import get_close_matches

import torch
from torch import nn

from skipway._errors import TargetError
from skipway.targets._build import build_on
from skipway.targets._given import Given
from skipway.targets._seed import generator, reseed
from skipway.targets._target import RANDOM, Target

FORM = "torchvision:<name>"
COPY = "a real copy of full size with random weights was run instead"
# Sizes that the registry does not state: these models take no other, or were published at another than 224.
SIDES = {"inception_v3": 299, "vit_h_14": 224}
CLIPS = {"mvit_v1_b": 16, "mvit_v2_s": 16, "swin3d_t": 16, "swin3d_s": 16, "swin3d_b": 16, "s3d": 16, "r3d_18": 16, "mc3_18": 16, "r2plus1d_18": 16}


def build(rest: str, given: Given | None, config: tuple[str, ...]) -> Target:
    """The model on the meta device in evaluation mode, with one batch of images, or of clips for the video models."""
    try:
        from torchvision import models
    except ImportError as error:
        raise TargetError("torchvision: targets need the torchvision package; pip install 'skipway[vision]'") from error
    name = f"torchvision:{rest}"
    if config:
        raise TargetError(f"{name}: --config {config[0]!r} is for hf: targets; name another model, or write a factory function in a file")
    known = models.list_models()
    if rest not in known:
        near = get_close_matches(rest, known, n=4) or ["resnet50", "vit_b_16"]
        raise TargetError(f"{name}: torchvision has no model {rest!r}; near it: {', '.join(near)}")

    def on(device: str) -> Target:
        part = models.get_model_builder(rest).__module__.split(".")[2]
        options = {"weights_backbone": None} if part in ("detection", "segmentation") else {}
        model, notes = build_on(device, lambda: models.get_model(rest, weights=None, **options), "torchvision cannot build it", name)
        found = given or inputs_of(rest, model)
        return Target(model, found.args, found.kwargs, name, notes)

    def shrink() -> Target:
        reseed()
        real = on("cpu")
        return Target(real.model, real.args, real.kwargs, name, (COPY,), weights=RANDOM)

    target = on("meta")
    return Target(target.model, target.args, target.kwargs, name, target.notes, shrink, shrink, RANDOM)


def inputs_of(rest: str, model: nn.Module) -> Given:
    """One batch of two; detectors take a list of images, optical flow two batches."""
    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator())

    kind = type(model).__module__.split(".")[2]
    if kind == "detection":
        return Given(([normal(3, 320, 320), normal(3, 320, 320)],))
    if kind == "optical_flow":
        return Given((normal(2, 3, 128, 128), normal(2, 3, 128, 128)))
    if rest.removeprefix("quantized_") in CLIPS:
        return Given((normal(2, 3, CLIPS[rest], 224, 224),))
    side = SIDES.get(rest, 224)
    return Given((normal(2, 3, side, side),))

"""`timm:<name>`: a model of the timm package, without weights."""

from difflib import get_close_matches
from typing import Any

import torch

from skipway._errors import TargetError
from skipway.targets._build import build_on
from skipway.targets._given import Given
from skipway.targets._seed import generator, reseed
from skipway.targets._target import RANDOM, Target

FORM = "timm:<name>"
COPY = "a real copy of full size with random weights was run instead"


def build(rest: str, given: Given | None, config: tuple[str, ...]) -> Target:
    """The model on the meta device in evaluation mode, with one batch of images of its default size."""
    try:
        import timm
    except ImportError as error:
        raise TargetError("timm: targets need the timm package; pip install 'skipway[vision]'") from error
    name = f"timm:{rest}"
    if config:
        raise TargetError(f"{name}: --config {config[0]!r} is for hf: targets; name another timm model, or write a factory function in a file")
    if not timm.is_model(rest):
        near = get_close_matches(rest, timm.list_models(), n=4) or ["vit_base_patch16_224", "resnet50"]
        raise TargetError(f"{name}: timm has no model {rest!r}; near it: {', '.join(near)}")

    def on(device: str) -> Target:
        model, notes = build_on(device, lambda: timm.create_model(rest, pretrained=False), "timm cannot build it", name)
        found = given or _inputs(model)
        return Target(model, found.args, found.kwargs, name, notes)

    def shrink() -> Target:
        reseed()
        real = on("cpu")
        return Target(real.model, real.args, real.kwargs, name, (COPY,), weights=RANDOM)

    target = on("meta")
    return Target(target.model, target.args, target.kwargs, name, target.notes, shrink, shrink, RANDOM)


def _inputs(model: Any) -> Given:
    size = (model.default_cfg or {}).get("input_size", (3, 224, 224))
    return Given((torch.randn((2, *size), generator=generator()),))

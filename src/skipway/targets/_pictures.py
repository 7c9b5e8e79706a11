"""A folder of images as one batch, resized and normalised as the model states."""

import pathlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from skipway._errors import TargetError
from skipway.targets._data import Data
from skipway.targets._given import Given
from skipway.targets._target import Target

ENDINGS = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff")
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)          # of ImageNet
Prepare = Callable[[Any], Tensor]       # an RGB image as (3, height, width)


def pictures(folder: pathlib.Path, target: Target, batch: int) -> Data:
    """The first `batch` images by name. Where sub-folders hold the images, each is a class, and the classes take turns.

    Raises TargetError where there is no image, or one cannot be read.
    """
    where = f"--data {folder}"
    classes = [(f, _files(f)) for f in sorted(folder.iterdir()) if f.is_dir()]
    classes = [(f, files) for f, files in classes if files]
    flat = _files(folder)
    if not flat and not classes:
        raise TargetError(f"{where}: it holds no image ({', '.join(ENDINGS[:4])}, ...), nor do its sub-folders; give a folder that does")
    known = _classes(target, [f.name for f, _ in classes])
    turns = [(file, known[f.name]) for number in range(batch) for f, files in classes for file in files[number:number + 1]]
    chosen = turns[:batch] if classes and not flat else [(file, None) for file in flat[:batch]]
    prepare, how = _preparation(target)
    rows = torch.stack([_open(file, prepare, where) for file, _ in chosen])
    labels = torch.tensor([c for _, c in chosen]) if classes and not flat else None
    notes = [how] if how else []
    if labels is not None:
        notes.append("labels: " + ", ".join(f"{name} is {number}" for name, number in list(known.items())[:6]) + (", ..." if len(known) > 6 else ""))
    name = "pixel_values" if "pixel_values" in target.kwargs else None
    given = Given((), {name: rows}) if name else Given((rows,))
    said = f"{len(chosen)} images of {folder.name or folder}, {rows.shape[-2]} x {rows.shape[-1]}"
    return Data(given, said, labels, notes=tuple(notes))


def _files(folder: pathlib.Path) -> list[pathlib.Path]:
    return sorted(f for f in folder.iterdir() if f.suffix.lower() in ENDINGS and f.is_file())


def _classes(target: Target, names: list[str]) -> dict[str, int]:
    """Class numbers by folder name: those of the model's configuration where it has these names, else in the order of the names."""
    known = getattr(getattr(target.model, "config", None), "label2id", None) or {}
    if names and all(name in known for name in names):
        return {name: int(known[name]) for name in names}
    return {name: number for number, name in enumerate(names)}


def _open(file: pathlib.Path, prepare: Prepare, where: str) -> Tensor:
    try:
        from PIL import Image
    except ImportError as error:
        raise TargetError(f"{where}: reading images needs the Pillow package; pip install 'skipway[vision]'") from error
    try:
        with Image.open(file) as opened:
            return prepare(opened.convert("RGB"))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise TargetError(f"{where}: {file.name} cannot be read: {error}; mend it or take it out") from error


def _preparation(target: Target) -> tuple[Prepare, str]:
    """How the model wants its images, and a note where it does not say so."""
    if getattr(target.model, "default_cfg", None) or getattr(target.model, "pretrained_cfg", None):
        try:
            from timm.data import create_transform, resolve_data_config
        except ImportError:
            return _imagenet(target)
        prepare: Prepare = create_transform(**resolve_data_config({}, model=target.model), is_training=False)
        return prepare, ""
    if target.folder is not None and (pathlib.Path(target.folder) / "preprocessor_config.json").is_file():
        return _processor(target.folder, target.name), ""
    if target.name.startswith("torchvision:"):
        from torchvision import models
        try:
            weights: Any = models.get_model_weights(target.name.partition(":")[2])
            preset = next(iter(weights)).transforms()
            return preset, ""
        except (ValueError, StopIteration):
            return _imagenet(target)
    return _imagenet(target)


def _processor(folder: str, name: str) -> Prepare:
    from transformers import AutoImageProcessor
    try:
        processor = AutoImageProcessor.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:
        raise TargetError(f"{name}: preprocessor_config.json cannot be used: {' '.join(str(error).split())[:200]}; give the images as arrays "
                          "in a .npz file") from error

    def prepare(image: Any) -> Tensor:
        made: Tensor = processor(images=image, return_tensors="pt")["pixel_values"][0]
        return made
    return prepare


def _imagenet(target: Target) -> tuple[Prepare, str]:
    """Resized to the size of the target's own input and normalised as ImageNet's images are."""
    shapes = [tuple(v.shape) for v in (*target.args, *target.kwargs.values()) if isinstance(v, Tensor) and v.dim() == 4 and v.shape[1] == 3]
    if not shapes:
        raise TargetError(f"{target.name}: its inputs are no images of 3 channels; give them by name in a .npz or .safetensors file")
    height, width = shapes[0][2:]

    def prepare(image: Any) -> Tensor:
        import numpy
        from PIL import Image
        pixels = torch.from_numpy(numpy.asarray(image.resize((width, height), Image.Resampling.BICUBIC)).copy()).permute(2, 0, 1) / 255
        return (pixels - torch.tensor(MEAN)[:, None, None]) / torch.tensor(DEVIATION)[:, None, None]
    return prepare, f"images: resized to {height} x {width} and normalised as ImageNet's are; the model does not say how it wants them"

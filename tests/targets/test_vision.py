"""timm: and torchvision: targets."""

import pytest
import torch

pytest.importorskip("torchvision")
pytest.importorskip("timm")

from skipway._errors import TargetError
from skipway.targets import kinds, resolve


@pytest.mark.parametrize(("text", "cls", "shape"), [
    ("timm:vit_base_patch16_224", "VisionTransformer", (2, 3, 224, 224)),
    ("timm:efficientnet_b3", "EfficientNet", (2, 3, 288, 288)),
    ("torchvision:resnet50", "ResNet", (2, 3, 224, 224)),
    ("torchvision:inception_v3", "Inception3", (2, 3, 299, 299)),
    ("torchvision:r3d_18", "VideoResNet", (2, 3, 16, 224, 224)),
])
def test_built_on_meta(text: str, cls: str, shape: tuple[int, ...]) -> None:
    target = resolve(text)
    assert type(target.model).__name__ == cls and target.abstract and not target.model.training
    assert tuple(target.args[0].shape) == shape and target.notes == ()
    with torch.no_grad():
        target.model(*(a.to("meta") for a in target.args))


def test_a_constructor_that_computes_is_built_on_the_cpu() -> None:
    target = resolve("torchvision:regnet_y_400mf")
    assert not target.abstract and target.notes == ("built with random weights: its constructor computes with numbers",)


def test_a_real_copy() -> None:
    small = resolve("torchvision:resnet18").shrunken()
    assert small is not None and not small.abstract
    assert small.notes == ("a real copy of full size with random weights was run instead",)


@pytest.mark.parametrize(("text", "part"), [
    ("timm:resnt50", "near it: resnet50"), ("torchvision:resnet51", "near it: resnet5"), ("torchvision:", "near it: resnet50"),
    ("timm:", "near it: "),
])
def test_unknown_names(text: str, part: str) -> None:
    with pytest.raises(TargetError, match=part):
        resolve(text)


@pytest.mark.parametrize("text", ["timm:resnet50", "torchvision:resnet50"])
def test_config_is_refused(text: str) -> None:
    with pytest.raises(TargetError, match="is for hf: targets"):
        resolve(text, config=["a=1"])


def test_kinds_are_the_files() -> None:
    assert kinds() == ("hf", "python-object", "timm", "torchvision")


@pytest.mark.parametrize(("text", "package", "extra"), [("hf:llama", "transformers", "hf"), ("timm:resnet50", "timm", "vision"),
                                                        ("torchvision:resnet50", "torchvision", "vision")])
def test_a_missing_package_is_named(text: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, package, None)
    with pytest.raises(TargetError) as caught:
        resolve(text)
    assert f"pip install 'skipway[{extra}]'" in str(caught.value)

"""The same numbers as torchvision's residual networks, weights copied across in the order in which both hold them."""

from typing import Any

import pytest
import torch
from torch import nn

import skipway.nn as blocks

torchvision = pytest.importorskip("torchvision")


def copy(mine: blocks.ResNet, theirs: Any) -> None:
    mine.stem.load_state_dict(theirs.conv1.state_dict())
    mine.stem_norm.load_state_dict(theirs.bn1.state_dict())
    others = [block for stage in (theirs.layer1, theirs.layer2, theirs.layer3, theirs.layer4) for block in stage]
    for own, block in zip(mine.blocks, others, strict=True):
        for k, (convolution, norm) in enumerate(zip(own.branch.convolutions, own.branch.norms)):
            convolution.load_state_dict(getattr(block, f"conv{k + 1}").state_dict())
            norm.load_state_dict(getattr(block, f"bn{k + 1}").state_dict())
        assert (own.shortcut is None) == (block.downsample is None)
        if own.shortcut is not None:
            own.shortcut.load_state_dict(block.downsample.state_dict())
    mine.head.load_state_dict(theirs.fc.state_dict())


@pytest.mark.parametrize(("name", "kind", "counts"), [("resnet18", "basic", (2, 2, 2, 2)), ("resnet50", "bottleneck", (3, 4, 6, 3))])
def test_resnet(name: str, kind: str, counts: tuple[int, ...]) -> None:
    """Training mode, so that the batch's statistics take part; output and the gradient of the first kernel."""
    torch.manual_seed(0)
    theirs = torchvision.models.get_model(name, num_classes=7).double()
    mine = blocks.ResNet(counts, kind, classes=7).double()
    copy(mine, theirs)
    x = torch.randn(2, 3, 48, 48, dtype=torch.float64)
    y, z = mine(x), theirs(x)
    y.sin().sum().backward()
    z.sin().sum().backward()
    torch.testing.assert_close(y, z, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(mine.stem.weight.grad, theirs.conv1.weight.grad, rtol=1e-9, atol=1e-10)


def test_a_planted_fault_is_seen() -> None:
    torch.manual_seed(0)
    theirs = torchvision.models.resnet18(num_classes=7)
    mine = blocks.ResNet((2, 2, 2, 2), classes=7)
    copy(mine, theirs)
    mine.blocks[3].shortcut = None
    mine.blocks[3].scheme = nn.Identity()
    mine.blocks[3].scheme.write = lambda stream, y, memo: stream + 1.001 * y
    x = torch.randn(2, 3, 48, 48)
    assert (mine(x) - theirs(x)).abs().max() > 1e-5

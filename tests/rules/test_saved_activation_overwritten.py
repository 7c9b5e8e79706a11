"""saved-activation-overwritten: in-place writes to what the backward needs, each named at its place; those that hurt nothing are not."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from .training import DIM, Block, Net, data, ffn, found, places

CODE = "SKW603"
Run = Callable[[Any, Tensor], Tensor]


def written_stream(m: Any, x: Tensor) -> Tensor:
    x += m.ffn(m.norm1(x))
    return x


def written_slice(m: Any, x: Tensor) -> Tensor:
    x[:, 1:] += m.ffn(m.norm1(x[:, 1:]))
    return x


def post_norm(m: Any, x: Tensor) -> Tensor:
    x = m.norm1(x + m.attn(x))
    x += m.ffn(x)
    return m.norm2(x)


def activated(m: Any, x: Tensor) -> Tensor:
    x = torch.sigmoid(x)
    x += m.ffn(torch.ones_like(x))
    return x + m.ffn(x.clone())


def written_branch(m: Any, x: Tensor) -> Tensor:
    y = m.ffn(m.norm1(x))
    gate = torch.tanh(y)
    gate *= y
    return x + gate


FAULTS: dict[str, tuple[Run, str, str]] = {
    "the stream, kept by a norm": (written_stream, "blocks.0.norm1", "add"),
    "method": (lambda m, x: x.add_(m.ffn(m.norm1(x))), "blocks.0.norm1", "add"),
    "a part of the stream": (written_slice, "blocks.0.norm1", "add"),
    "the stream, kept by a linear map": (post_norm, "blocks.0.ffn.0", "add"),
    "the result of an activation on the branch": (written_branch, "blocks.0", "mul"),
}


def added_to_branch(m: Any, x: Tensor) -> Tensor:
    y = m.ffn(m.norm1(x))
    y += x
    return y


def copied(m: Any, x: Tensor) -> Tensor:
    y = x.clone()
    y += m.ffn(m.norm1(x))
    return y


QUIET: dict[str, Run] = {
    "a new tensor": lambda m, x: x + m.ffn(m.norm1(x)),
    "the branch": added_to_branch,
    "a copy": copied,
    "an activation in place": lambda m, x: x + m.ffn(m.norm1(x)).relu_(),
}


@pytest.mark.parametrize("name", FAULTS)
def test_fires_on(name: str) -> None:
    run, reader, operation = FAULTS[name]
    hits = found(CODE, Net(lambda: Block(run), 2), data())
    assert [h.where for h in hits] == ["blocks.0", "blocks.1"]
    assert hits[0].severity == "error"
    assert hits[0].values["needed_by"] == reader and hits[0].values["operation"] == operation
    assert hits[0].file is not None and hits[0].file.endswith("test_saved_activation_overwritten.py")


@pytest.mark.parametrize("name", QUIET)
def test_quiet_on(name: str) -> None:
    assert places(CODE, Net(lambda: Block(QUIET[name]), 2), data()) == []


def test_images_with_a_kept_convolution_input() -> None:
    class Residual(nn.Module):
        def __init__(self, on_stream: bool) -> None:
            super().__init__()
            self.conv, self.norm, self.on_stream = nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), on_stream

        def forward(self, x: Tensor) -> Tensor:
            y = self.norm(self.conv(x))
            if self.on_stream:
                x += y
                return x
            y += x
            return torch.relu_(y)

    def images(on_stream: bool) -> nn.Module:
        return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), Residual(on_stream), Residual(on_stream), nn.Flatten(), nn.Linear(8 * 36, 3))

    hits = found(CODE, images(True), torch.randn(2, 3, 6, 6))
    assert [(h.where, h.values["shape"]) for h in hits] == [("1", [2, 8, 6, 6]), ("2", [2, 8, 6, 6])]
    assert places(CODE, images(False), torch.randn(2, 3, 6, 6)) == []


def test_a_loop_in_the_models_own_forward_names_the_sublayers() -> None:
    class Loop(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Linear(4, DIM)
            self.norms, self.ffns = nn.ModuleList([nn.LayerNorm(DIM) for _ in range(3)]), nn.ModuleList([ffn() for _ in range(3)])

        def forward(self, x: Tensor) -> Tensor:
            x = self.stem(x)
            for norm, branch in zip(self.norms, self.ffns):
                x += branch(norm(x))
            return x

    assert places(CODE, Loop(), data()) == ["ffns.0", "ffns.1", "ffns.2"]


def test_writes_that_autograd_refuses_in_the_forward() -> None:
    class Leaf(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mix = Block(written_stream)

        def forward(self, x: Tensor) -> Tensor:
            return self.mix(x)

    class Split(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.map = nn.Linear(4, DIM), nn.Linear(DIM // 2, DIM // 2)

        def forward(self, x: Tensor) -> Tensor:
            a, b = self.stem(x).chunk(2, -1)
            a += self.map(b)
            return torch.cat([a, b], -1)

    hits = found(CODE, Leaf(), data(width=DIM).requires_grad_())
    assert [(h.where, h.values) for h in hits] == [("mix", {"refused": True})]
    hits = found(CODE, Split(), data())
    assert [(h.where, h.values) for h in hits] == [("Split", {"refused": True})]
    assert hits[0].line is not None and hits[0].file == __file__

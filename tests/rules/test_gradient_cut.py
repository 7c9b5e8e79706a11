"""gradient-cut: where the gradient of a stream stops, and what it misses; what is meant to be cut is quiet."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from .training import DIM, Block, Net, data, found, places, plain

CODE = "SKW605"
Run = Callable[[Any, Tensor], Tensor]


def each(step: Callable[[nn.Module, Tensor], Tensor]) -> Run:
    """Runs the blocks one after the other by `step(block, x)`."""
    def through(m: Any, x: Tensor) -> Tensor:
        for block in m.blocks:
            x = step(block, x)
        return x
    return through


def first_off(m: Any, x: Tensor) -> Tensor:
    with torch.no_grad():
        x = m.blocks[0](x)
    for block in m.blocks[1:]:
        x = block(x)
    return x


THROUGH: dict[str, tuple[Run, list[str], str, str]] = {
    "detached before every block": (each(lambda b, x: b(x.detach())), ["blocks.0", "blocks.1"], "stream", "detach"),
    "detached after every block": (each(lambda b, x: b(x).detach()), ["blocks.0", "blocks.1", "blocks.2"], "stream", "detach"),
    "detached before the head": (lambda m, x: each(lambda b, y: b(y))(m, x).detach(), ["blocks.2"], "stream", "detach"),
    "the first block under no_grad": (first_off, ["blocks.0"], "blocks", "no_grad"),
}


@pytest.mark.parametrize("name", THROUGH)
def test_cuts_between_blocks(name: str) -> None:
    through, where, cut, why = THROUGH[name]
    hits = found(CODE, Net(lambda: Block(plain), through=through), data())
    assert [h.where for h in hits] == where
    assert {(h.severity, h.values["cut"], h.values["by"]) for h in hits} == {("error", cut, why)}
    assert hits[0].values["parameters"] > 0


@pytest.mark.parametrize("count", [1, 3])
def test_reentrant_checkpoints_whose_inputs_need_no_gradient(count: int) -> None:
    def through(m: Any, x: Tensor) -> Tensor:
        for i, block in enumerate(m.blocks):
            x = checkpoint(block, x, use_reentrant=True) if i < count else block(x)
        return x

    hits = found(CODE, Net(lambda: Block(plain), through=through, stem=False), data(width=DIM))
    assert [h.where for h in hits] == ["blocks.0"]
    assert hits[0].severity == "error"
    assert hits[0].values == {"cut": "blocks", "by": "checkpoint", "parameters": 12 * count, "sites": 2 * count}


def test_a_checkpoint_behind_frozen_blocks() -> None:
    def through(m: Any, x: Tensor) -> Tensor:
        x = m.blocks[0](x)
        for block in m.blocks[1:]:
            x = checkpoint(block, x, use_reentrant=True)
        return x

    model = Net(lambda: Block(plain), through=through)
    model.stem.requires_grad_(False)
    model.blocks[0].requires_grad_(False)
    assert places(CODE, model, data()) == ["blocks.1"]
    model.stem.requires_grad_(True)
    assert places(CODE, model, data()) == []


def test_checkpoints_that_pass_the_gradient_are_quiet() -> None:
    reentrant, other = each(lambda b, x: checkpoint(b, x, use_reentrant=True)), each(lambda b, x: checkpoint(b, x, use_reentrant=False))
    assert places(CODE, Net(lambda: Block(plain), through=reentrant), data()) == []
    assert places(CODE, Net(lambda: Block(plain), through=other, stem=False), data(width=DIM)) == []
    assert places(CODE, Net(lambda: Block(plain), through=lambda m, x: reentrant(m, x.requires_grad_()), stem=False), data(width=DIM)) == []


BLOCKS: dict[str, tuple[Run, str]] = {
    "the shortcut": (lambda m, x: x.detach() + m.ffn(m.norm1(x)), "shortcut"),
    "the branch": (lambda m, x: plain(m, x) + m.extra(x).detach(), "branch"),
    "what shortcut and branch read": (lambda m, x: plain(m, x.detach()), "stream"),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_cuts_inside_a_block(name: str) -> None:
    run, cut = BLOCKS[name]
    extra = lambda: nn.Sequential(nn.Linear(DIM, DIM), nn.GELU(), nn.Linear(DIM, DIM))       # noqa: E731
    hits = found(CODE, Net(lambda: Block(run, extra=extra())), data())
    assert hits and {h.values["cut"] for h in hits} == {cut}
    assert all(h.where.startswith("blocks.") and h.severity == "error" for h in hits)


def test_the_line_of_the_detach_is_told() -> None:
    class Detaching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.ffn = nn.LayerNorm(DIM), nn.Linear(DIM, DIM)

        def forward(self, x: Tensor) -> Tensor:
            skip = x.detach()
            return skip + self.ffn(torch.relu(self.norm(x)))

    hit = found(CODE, Net(Detaching), data())[0]
    assert hit.where == "blocks.1" and hit.file == __file__ and hit.line is not None
    with open(__file__, encoding="utf-8") as source:
        assert "skip = x.detach()" in source.readlines()[hit.line - 1]


# what is meant

class Teacher(nn.Module):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.student, self.teacher, self.how = Net(lambda: Block(plain), 2), Net(lambda: Block(plain), 2), how

    def forward(self, x: Tensor) -> Any:
        y = self.student(x)
        if self.how == "no_grad":
            with torch.no_grad():
                want = self.teacher(x)
        else:
            want = self.teacher(x).detach()
        return F.mse_loss(y, want) if self.how == "loss" else (y, want)


@pytest.mark.parametrize("how", ["no_grad", "detach", "loss"])
def test_teachers_are_quiet(how: str) -> None:
    assert places(CODE, Teacher(how), data()) == []


def test_stop_gradient_on_targets_is_quiet() -> None:
    class Siamese(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.predictor = Net(lambda: Block(plain), 2), nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            a, b = self.net(x), self.net(x.flip(1))
            return -F.cosine_similarity(self.predictor(a), b.detach(), -1).mean() - F.cosine_similarity(self.predictor(b), a.detach(), -1).mean()

    assert places(CODE, Siamese(), data()) == []


def test_frozen_blocks_are_quiet_and_a_trainable_stack_under_no_grad_is_a_note() -> None:
    def off(m: Any, x: Tensor) -> Tensor:
        with torch.no_grad():
            return each(lambda b, y: b(y))(m, x)

    model = Net(lambda: Block(plain), through=off)
    hits = found(CODE, model, data())
    assert [(h.where, h.severity) for h in hits] == [("blocks.0", "note")]
    model.blocks.requires_grad_(False)
    assert found(CODE, model, data()) == ()


def test_second_outputs_and_auxiliary_losses_are_quiet() -> None:
    class Greedy(Net):
        def __init__(self, aside: bool) -> None:
            super().__init__(lambda: Block(plain))
            self.heads, self.aside = nn.ModuleList([nn.Linear(DIM, 2) for _ in range(3)]), aside

        def forward(self, x: Tensor) -> Any:
            x = self.stem(x)
            out = []
            for block, head in zip(self.blocks, self.heads):
                x = block(x if self.aside else x.detach())
                out.append(head(x.detach() if self.aside else x))
            return self.head(self.norm(x)), *out

    assert places(CODE, Greedy(True), data()) == []
    assert places(CODE, Greedy(False), data()) == []


def scaled_down(m: Any, x: Tensor) -> Tensor:
    x = plain(m, x)
    return x - 0.1 * x.detach()


QUIET: dict[str, Run] = {
    "scaled activations, unscaled gradient": scaled_down,
    "an older state, detached": lambda m, x: plain(m, x) - 0.1 * x.detach(),
    "a gradient that is shrunk": lambda m, x: plain(m, 0.1 * x + 0.9 * x.detach()),
    "detached statistics": lambda m, x: x + m.ffn(m.norm1(x)) / (x.detach().norm(dim=-1, keepdim=True) + 1),
}


@pytest.mark.parametrize("name", QUIET)
def test_quiet_on(name: str) -> None:
    assert places(CODE, Net(lambda: Block(QUIET[name])), data()) == []


def test_shared_blocks_with_a_truncated_gradient_are_quiet() -> None:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.block = nn.Linear(4, DIM), Block(plain)

        def forward(self, x: Tensor) -> Tensor:
            x = self.block(self.stem(x)).detach()
            return self.block(x)

    assert places(CODE, Recurrent(), data()) == []

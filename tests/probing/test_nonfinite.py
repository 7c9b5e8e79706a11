"""The producer of the first NaN or infinity, planted at random places."""

import random

import pytest
import torch
from torch import Tensor, nn

from skipway.probing.nonfinite import find_nonfinite

from .nets import net


class ConvNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.blocks = nn.ModuleList([
            nn.ModuleDict({"norm": nn.BatchNorm2d(8), "conv1": nn.Conv2d(8, 8, 3, padding=1), "act": nn.ReLU(),
                           "conv2": nn.Conv2d(8, 8, 3, padding=1)})
            for _ in range(3)])
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for b in self.blocks:
            x = x + b["conv2"](b["act"](b["conv1"](b["norm"](x))))
        return self.head(x.mean((2, 3)))


def recurrent() -> tuple[nn.Module, Tensor]:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norms = nn.ModuleList([nn.LayerNorm(8) for _ in range(2)])
            self.cells = nn.ModuleList([nn.GRU(8, 8, batch_first=True) for _ in range(2)])
            self.mix = nn.ModuleList([nn.Linear(8, 8) for _ in range(2)])
            self.head = nn.Linear(8, 4)

        def forward(self, x: Tensor) -> Tensor:
            for norm, cell, mix in zip(self.norms, self.cells, self.mix, strict=True):
                x = x + mix(cell(norm(x))[0])
            return self.head(x)

    torch.manual_seed(0)
    return Net().eval(), torch.randn(2, 5, 8)


def models() -> list[tuple[nn.Module, Tensor]]:
    torch.manual_seed(0)
    return [*(net(p) for p in ("pre", "post", "parallel")), (ConvNet().eval(), torch.randn(2, 3, 6, 6)), recurrent()]


PLANTS = [(m, seed) for m in range(5) for seed in range(10)]


@pytest.mark.parametrize(("number", "seed"), PLANTS)
def test_planted_places(number: int, seed: int) -> None:
    model, x = models()[number]
    rng = random.Random(100 * number + seed)
    leaves = [(n, m) for n, m in model.named_modules() if not list(m.children())]
    path, module = rng.choice(leaves)
    bad = rng.choice([float("nan"), float("inf"), float("-inf")])
    way = rng.choice(["write", "multiply", "weight"])
    if way == "weight" and list(module.parameters()):
        name, p = rng.choice(list(module.named_parameters()))
        with torch.no_grad():
            p.view(-1)[rng.randrange(p.numel())] = bad
        if isinstance(module, nn.Embedding):
            with torch.no_grad():
                p.copy_(torch.full_like(p, bad))
        want, part = f"{path}.{name}", "weight"
    else:
        def plant(m: nn.Module, args: object, out: Tensor | tuple[Tensor, ...]) -> Tensor | tuple[Tensor, ...]:
            first = out if isinstance(out, Tensor) else out[0]
            if way == "multiply":
                first = first * 1e38 * 1e38 if bad != bad or bad > 0 else first / torch.zeros(())
            else:
                first = first.clone()
                first.view(-1)[rng.randrange(first.numel())] = bad
            return first if isinstance(out, Tensor) else (first, *out[1:])

        module.register_forward_hook(plant)
        want, part = path, ""
    found = find_nonfinite(model, x)
    assert found.first is not None
    assert found.first.module == want
    assert part in found.first.part
    assert want not in found.passed_on


def test_a_sum_that_overflows_is_the_site() -> None:
    model, ids = net("pre")
    model.half()
    with torch.no_grad():
        model.embed.weight.fill_(60000)
        model.blocks[1].ffn.down.weight.zero_()
        model.blocks[1].ffn.down.bias.fill_(30000)
    first = find_nonfinite(model, ids).first
    assert first is not None
    assert (first.module, first.what, first.part) == ("blocks.1", "infinity", "site 3 of stream blocks")
    assert first.line is not None


def test_a_mask_is_no_finding() -> None:
    model, ids = net("pre")
    assert find_nonfinite(model, ids).origins == ()


def test_a_row_that_is_masked_out_whole_makes_a_nan() -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.f = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            scores = self.f(x).masked_fill(torch.ones(4, dtype=torch.bool), float("-inf"))
            return x + scores.softmax(-1)

    first = find_nonfinite(Masked().eval(), torch.randn(2, 4)).first
    assert first is not None
    assert (first.operation, first.what) == ("_softmax", "NaN")

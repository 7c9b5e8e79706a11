"""Edits of what a branch reads, and skips that were missing."""

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import skipway
from skipway._errors import RewireError

from .conftest import Small, gradients


def test_read_from_an_earlier_site(small: Small, ids: Tensor) -> None:
    edit = skipway.rewire(small, ids).sites(4).read_from(1).apply()
    got = gradients(small, ids)
    edit.undo()
    small.zero_grad()
    states = [small.embed(ids)]
    for k, b in enumerate(small.blocks):
        x = states[-1]
        x = x + b.mix(b.norm1(states[2] if k == 2 else x))
        states += [x, b.down(torch.relu(b.up(b.norm2(x)))) + x]
    out = small.head(small.norm(states[-1]))
    (out * torch.linspace(-1, 1, out.numel()).view(out.shape)).sum().backward()
    assert torch.equal(got[0], out)
    for name, g in got[1].items():
        torch.testing.assert_close(g, small.get_parameter(name).grad)


def test_read_from_wants_an_earlier_site(small: Small, ids: Tensor) -> None:
    rewiring = skipway.rewire(small, ids)
    with pytest.raises(RewireError, match=r"site 2 of 'blocks'.*read_from wants an earlier site of the stream, 0 to 1, got 2"):
        rewiring.sites(2).read_from(2)
    same = rewiring.sites(2).read_from(1).apply()
    assert same.verify(ids).stated == "exact" and same.verify(ids).ok


def test_read_from_under_checkpointing_is_told(small: Small, ids: Tensor) -> None:
    skipway.rewire(small, ids).sites(4).read_from(1).apply()
    x = small.embed(ids)
    for block in small.blocks:
        x = checkpoint(block, x, use_reentrant=False)
    with pytest.raises(RewireError, match=r"site 4 of 'blocks'.*activation checkpointing runs it again without that site"):
        x.sum().backward()


def test_the_stream_in_float32(small: Small, ids: Tensor) -> None:
    small.to(torch.bfloat16)
    seen: list[Tensor] = []
    edit = skipway.rewire(small, ids).sites().stream_dtype("float32").sites().observe(lambda s, x, y, state: seen.append(state)).apply()
    got = small(ids)
    assert [t.dtype for t in seen] == [torch.float32] * 5 + [torch.bfloat16] and got.dtype == torch.bfloat16
    edit.undo()
    x = small.embed(ids).float()
    for b in small.blocks:
        x = x + b.mix(b.norm1(x.bfloat16())).float()
        x = b.down(torch.relu(b.up(b.norm2(x.bfloat16())))).float() + x
    assert torch.equal(got, small.head(small.norm(x.bfloat16())))


class Forgetful(nn.Module):
    """A stack one of whose blocks has lost a skip."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.ModuleDict({
            "norm1": nn.LayerNorm(8), "mix": nn.Linear(8, 8), "norm2": nn.LayerNorm(8),
            "mlp": nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))}) for _ in range(3))
        self.lost = 1

    def forward(self, x: Tensor) -> Tensor:
        for k, b in enumerate(self.blocks):
            x = x + b["mix"](b["norm1"](x))
            y = b["mlp"](b["norm2"](x))
            x = y if k == self.lost else x + y
        return x


def test_insert_a_missing_skip() -> None:
    torch.manual_seed(0)
    model, x = Forgetful(), torch.randn(2, 5, 8)
    model.lost = -1
    want = gradients(model, x)
    model.lost = 1
    report = skipway.check(model, x)
    assert [f.code for f in report.findings] == ["SKW101"]
    plan = skipway.rewire(model, x).branch("blocks.1.mlp", begins="blocks.1.norm2").insert_skip()
    assert "the stretch from 'blocks.1.norm2' to 'blocks.1.mlp': insert_skip" in str(plan)
    edit = plan.apply()
    torch.testing.assert_close(gradients(model, x)[0], want[0])
    for name, g in gradients(model, x)[1].items():
        torch.testing.assert_close(g, want[1][name])
    assert skipway.check(model, x).ok
    edit.undo()
    assert not skipway.check(model, x).ok


def test_a_skip_that_does_not_fit_is_told() -> None:
    model = nn.ModuleDict({"a": nn.Linear(8, 16), "b": nn.Linear(16, 8)})

    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = model

        def forward(self, x: Tensor) -> Tensor:
            return self.parts["b"](torch.relu(self.parts["a"](x)))
    rewiring = skipway.rewire(Whole(), torch.randn(2, 8))
    with pytest.raises(RewireError, match=r"'parts.a' is given \(2, 8\) and 'parts.a' gives \(2, 16\)"):
        rewiring.branch("parts.a")
    with pytest.raises(RewireError, match=r"Whole runs no module 'parts\.c'"):
        rewiring.branch("parts.c")
    rewiring.branch("parts.b", begins="parts.a").insert_skip().apply()


def test_a_branch_that_reads_by_a_function_is_told() -> None:
    class Functional(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(8, 8))

        def forward(self, x: Tensor) -> Tensor:
            return x + nn.functional.layer_norm(x, (8,)) @ self.weight
    model, x = Functional(), torch.randn(2, 8)
    rewiring = skipway.rewire(model, x)
    rewiring.sites().to("rezero").apply().undo()            # an action on the join alone fits
    with pytest.raises(RewireError, match="its branch reads the stream other than through a module that is given it"):
        rewiring.sites().to("pre_norm").apply()
    assert not list(model.children())

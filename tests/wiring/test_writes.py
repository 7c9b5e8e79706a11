"""In-place writes that reach a tensor somebody else still holds, and those that are nobody's business."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from skipway.wiring import writes
from skipway.wiring.graph import Graph
from skipway.wiring.writes import overwritten_inputs, overwritten_shortcut, overwritten_states

from .small import DIM, Calls, recorded, tokens


def f() -> nn.Module:
    return nn.Sequential(nn.LayerNorm(DIM), nn.Linear(DIM, DIM), nn.GELU(), nn.Linear(DIM, DIM))


INPUTS: dict[str, tuple[Callable[[nn.Module, Tensor], Any], bool]] = {
    "x += y": (lambda m, x: x.add_(m.f(x)), True), "through a view": (lambda m, x: x.view(-1).mul_(2).view_as(x), True),
    "a slice": (lambda m, x: x[:, 0].zero_() + m.f(x)[:, 0], True), "a cast that does nothing": (lambda m, x: x.float().add_(m.f(x)), True),
    "relu_": (lambda m, x: m.f(F.relu_(x)), True), "copy_": (lambda m, x: x.copy_(m.f(x)), True), "out=": (lambda m, x: torch.add(x, 1, out=x), True),
    "detach": (lambda m, x: x.detach().mul_(2), True), "foreach": (lambda m, x: torch._foreach_add_([x], 1.0), True),
    "x + y": (lambda m, x: x + m.f(x), False), "a clone": (lambda m, x: x.clone().add_(m.f(x)), False),
    "y += x": (lambda m, x: m.f(x).add_(x), False),
    "a cast that does something": (lambda m, x: x.double().add_(1), False), "contiguous of a transposed": (lambda m,
        x: x.transpose(1, 2).contiguous().add_(1), False),
    "its own buffer": (lambda m, x: torch.zeros_like(x).add_(x), False),
}


@pytest.mark.parametrize("name", sorted(INPUTS))
def test_writes_into_the_model_s_input(name: str) -> None:
    run, wanted = INPUTS[name]
    told = list(overwritten_inputs(recorded(Calls(run, f=f()), tokens())))
    x = tokens()
    with torch.no_grad():
        run(Calls(run, f=f()), x)
    assert (not torch.equal(x, tokens())) is wanted, "the numbers say so too"
    assert bool(told) is wanted
    assert all("the model's own input '0'" in text for _, text in told)


@pytest.mark.parametrize(("name", "wanted"), [("past_key_values", False), ("cache", False), ("hidden", True)])
def test_caches_may_be_written_to(name: str, wanted: bool) -> None:
    found = recorded(Calls(lambda m, x, **kept: x + next(iter(kept.values())).add_(1), f=f()), tokens(), **{name: tokens()})
    assert bool(list(overwritten_inputs(found))) is wanted


class Writes(nn.Module):
    """A block that writes into its argument and returns that or something else."""

    def __init__(self, returns: str) -> None:
        super().__init__()
        self.f, self.returns = f(), returns

    def forward(self, x: Tensor) -> Any:
        y = self.f(x)
        x += y
        return {"it": x, "another": x + 1, "branch": y, "both": (x, y), "a view": x.view_as(x)}[self.returns]


def keeps(m: nn.Module, x: Tensor) -> Tensor:
    first = m.stem(x)
    out = m.block(first)
    out = out[0] if isinstance(out, tuple) else out
    return m.head(torch.cat([first, out], -1))


def drops(m: nn.Module, x: Tensor) -> Tensor:
    out = m.block(m.stem(x))
    return m.head(torch.cat([out, out], -1)) if isinstance(out, Tensor) else m.head(torch.cat(list(out), -1))


@pytest.mark.parametrize(("around", "returns", "wanted"), [
    (keeps, "another", True), (keeps, "branch", True), (keeps, "it", False), (keeps, "both", False), (keeps, "a view", False),
    (drops, "another", False), (drops, "it", False), (drops, "branch", False)])
def test_writes_into_what_a_caller_holds(around: Callable[..., Tensor], returns: str, wanted: bool) -> None:
    found = recorded(Calls(around, stem=nn.Linear(DIM, DIM), block=Writes(returns), head=nn.Linear(2 * DIM, 3)), tokens())
    told = list(overwritten_states(found))
    assert [found.nodes[n].op for n, _ in told] == (["add"] if wanted else [])
    assert all("`block`" in text and found.calls[found.nodes[n].call].path == "block" for n, text in told)


def test_a_tensor_that_the_caller_returns() -> None:
    def run(m: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
        first = m.stem(x)
        return m.block(first), first
    told = list(overwritten_states(recorded(Calls(run, stem=nn.Linear(DIM, DIM), block=Writes("another")), tokens())))
    assert len(told) == 1 and "holds and returns" in told[0][1]


def test_running_statistics_are_no_write_of_a_state() -> None:
    model = nn.Sequential(nn.BatchNorm1d(DIM), nn.BatchNorm1d(DIM)).train()
    assert list(overwritten_states(recorded(model, torch.randn(4, DIM)))) == []


SHORTCUTS: dict[str, tuple[Callable[[nn.Module, Tensor], Tensor], bool]] = {
    "relu_ first in the branch": (lambda m, x: x + m.f(m.act(x)), True),
    "relu_ behind a linear map": (lambda m, x: x + m.f(m.act(m.a(x))), False),
    "relu_ behind a norm": (lambda m, x: x + m.f(m.act(m.norm(x))), False),
    "relu_ on the sum": (lambda m, x: m.act(x + m.f(x)), False),
    "relu_ before both": (lambda m, x: (y := torch.relu_(x.clone())) + m.f(y), False),
    "a clone is kept": (lambda m, x: x.clone() + m.f(m.act(x)), False),
}


class Whole(nn.Module):
    """Its forward joins; the branch lies in modules of its own."""

    def __init__(self, join: Callable[[nn.Module, Tensor], Tensor]) -> None:
        super().__init__()
        self.join, self.f, self.act, self.a, self.norm = join, f(), nn.ReLU(inplace=True), nn.Linear(DIM, DIM), nn.LayerNorm(DIM)

    def forward(self, x: Tensor) -> Tensor:
        return self.join(self, x)


@pytest.mark.parametrize("name", sorted(SHORTCUTS))
def test_writes_into_the_shortcut(name: str) -> None:
    join, wanted = SHORTCUTS[name]
    found = recorded(nn.Sequential(nn.Linear(DIM, DIM), Whole(join), nn.Linear(DIM, 3)), tokens())
    g = Graph(found)
    told = [overwritten_shortcut(g, j.shortcut, g.nodes[j.node].call) for j in g.joins.found]
    assert len(told) == 1
    assert (told[0] is not None) is wanted
    if wanted:
        assert found.nodes[told[0]].op == "relu" and found.calls[found.nodes[told[0]].call].path == "1.act"


def test_writes_through_one_of_two_views_reach_the_caller() -> None:
    """Two views of one argument, both written to: the caller sees both."""
    def block(m: nn.Module, x: Tensor) -> Tensor:
        left, right = x.chunk(2, -1)
        left.mul_(2)
        right.mul_(3)
        return m.f(x)
    model = Calls(keeps, stem=nn.Linear(DIM, DIM), block=Calls(block, f=f()), head=nn.Linear(2 * DIM, 3))
    assert len(list(overwritten_states(recorded(model, tokens())))) == 2


def test_a_rule_blind_to_groups_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writes, "_careless", lambda record, write: None)
    with pytest.raises(AssertionError):
        test_writes_into_what_a_caller_holds(keeps, "another", True)

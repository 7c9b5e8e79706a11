"""Measures: values known by hand, and nothing of the trial is touched."""

from collections.abc import Callable

import pytest
import torch
from small import arm
from torch import nn

from skipway._errors import StudyError
from skipway.lab import measures, tasks
from skipway.lab._model import build
from skipway.lab.measures import Look
from skipway.lab.tasks import Batch

TASK = tasks.build("copy:symbols=4,length=3")


def look(scheme: str, change: "Callable[[nn.Module], None]", **options: object) -> Look:
    """A model that training has changed."""
    def start() -> nn.Module:
        return build(arm(scheme=scheme, options=options, depth=2), TASK, 0)
    model = start()
    with torch.no_grad():
        change(model)
    return Look(model, start, TASK, Batch(*TASK.batch("held_out", 0, 0, 4)))


def taken(name: str, at: Look) -> float | None:
    found: float | None = measures.load(name).value(at)
    return found


def test_update_is_the_size_of_what_moved() -> None:
    same, moved = look("pre_norm", lambda m: None), look("pre_norm", lambda m: m.head.bias.add_(0.25))
    assert taken("update", same) == 0 and taken("update", moved) == pytest.approx(0.25, rel=1e-5)
    assert taken("branch_update", moved) == 0, "the head is no branch"


def test_branch_update_takes_the_matrices_of_the_branches_alone() -> None:
    def matrix(m: nn.Module) -> None:
        m.stack.layers[1].branch.output.weight.mul_(1.5)

    def all_else(m: nn.Module) -> None:
        matrix(m)
        m.stack.layers[1].scheme.norm.weight.mul_(3)
        m.stack.layers[1].branch.output.bias.add_(1)
    one, more = look("pre_norm", matrix), look("pre_norm", all_else)
    alone = taken("update", one)
    assert alone is not None and alone > 0 and taken("branch_update", one) == alone == taken("branch_update", more) != taken("update", more)


def test_composite_gain_is_that_of_the_product_of_all_mixers() -> None:
    mixers = [torch.tensor([[1.0, 0.5], [0.0, 1.0]]) * (1 + k / 10) for k in range(4)]

    def mix(m: nn.Module) -> None:
        for layer, mixer in zip(m.stack.layers, mixers, strict=True):
            layer.scheme.mixer.copy_(mixer)
    product = torch.eye(2)
    for mixer in mixers:
        product = mixer.T @ product                         # the parameter leads from lane i to lane j
    want = float(product.abs().sum(1).max())
    assert taken("composite_gain", look("hyper", mix, lanes=2)) == pytest.approx(want, rel=1e-5) and want > 4
    assert taken("composite_gain", look("hyper", lambda m: None, lanes=2)) == pytest.approx(1)
    assert taken("composite_gain", look("mhc", lambda m: None, lanes=2)) == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("scheme", ["pre_norm", "none"])
def test_one_lane_or_no_join_has_no_composite_gain(scheme: str) -> None:
    assert taken("composite_gain", look(scheme, lambda m: None)) is None


@pytest.mark.parametrize("name", measures.names())
def test_a_measure_changes_nothing(name: str) -> None:
    at = look("hyper", lambda m: m.stack.layers[0].branch.output.weight.mul_(2), lanes=2)
    at.model.train()
    before, state = {n: p.clone() for n, p in at.model.named_parameters()}, torch.get_rng_state()
    assert taken(name, at) is not None
    assert all(torch.equal(p, before[n]) and p.grad is None for n, p in at.model.named_parameters())
    assert torch.equal(torch.get_rng_state(), state) and at.model.training and all(m.training for m in at.model.modules())


def test_an_unknown_measure() -> None:
    with pytest.raises(StudyError, match="unknown measure 'updat'; did you mean update"):
        measures.load("updat")

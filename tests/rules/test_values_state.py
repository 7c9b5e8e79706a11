"""Rules of stage values look at numbers and leave the model as it was: also where they wake zeros and change states."""

from types import ModuleType
from typing import Any

import pytest
import torch

import skipway
from skipway import _registry

RULES = [r for n in _registry.names("skipway.rules") if (r := _registry.load("skipway.rules", n)).STAGE == "values"]


def held(model: torch.nn.Module) -> dict[str, Any]:
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return {name: (t.detach().clone(), t.data_ptr(), t.grad, t.requires_grad) for name, t in tensors.items()}


def test_there_are_ten() -> None:
    assert len(RULES) == 10


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.__name__.rpartition(".")[2])
@pytest.mark.parametrize("kind", ["bad", "good"])
def test_nothing_changes(rule: ModuleType, kind: str) -> None:
    example = getattr(rule, kind)()
    options = dict(example.options)
    if "expect" in options:
        options["expect"] = skipway.Expect(**options["expect"])
    model, inputs = example.model.train(), [a.clone() for a in example.args]
    before, random = held(model), torch.get_rng_state()
    skipway.check(model, *example.args, select=[rule.CODE], **options)
    assert torch.equal(random, torch.get_rng_state())
    assert all(module.training for module in model.modules())
    assert all(torch.equal(a, b) for a, b in zip(inputs, example.args))
    for name, (value, place, grad, wanted) in held(model).items():
        was = before[name]
        assert torch.equal(value.nan_to_num(), was[0].nan_to_num()) and (place, grad, wanted) == was[1:], name


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.__name__.rpartition(".")[2])
def test_a_finding_says_one_line_with_what_it_measured(rule: ModuleType) -> None:
    example = rule.bad()
    options = dict(example.options)
    if "expect" in options:
        options["expect"] = skipway.Expect(**options["expect"])
    for finding in skipway.check(example.model, *example.args, select=[rule.CODE], **options).findings:
        assert "\n" not in finding.message and f"`{finding.where}`" in finding.message
        assert finding.values

"""Variants start from the same numbers wherever they share a parameter, and depth or scheme changes nothing of that."""

import pathlib
from dataclasses import replace

import pytest
import torch
from small import arm

from skipway import schemes
from skipway._errors import SkipwayError
from skipway.lab import tasks
from skipway.lab._model import build, check, pairing

TASK = tasks.build("copy:symbols=4,length=3")


def start(scheme: str, seed: int = 0, **fields: object) -> torch.nn.Module:
    return build(arm(scheme=scheme, name=scheme, depth=2, **fields), TASK, seed)


@pytest.mark.parametrize("scheme", schemes.names())
def test_every_scheme_starts_from_the_same_numbers(scheme: str) -> None:
    """All that both hold but what the scheme itself asks to start otherwise, and never the ends of the model."""
    base, own = start("pre_norm"), start(scheme)
    theirs = dict(base.named_parameters())
    asked = any(layer.scheme.initial() for layer in own.stack.layers)
    for name, p in own.named_parameters():
        if name in theirs and theirs[name].shape == p.shape and (".branch." not in name or not asked) and "norm" not in name:
            assert torch.equal(p, theirs[name]), name
    shared, paired = pairing(own, base)
    assert shared > 0 and (asked or paired == shared)


def test_seeds_differ_and_repeat() -> None:
    first, again, other = start("pre_norm"), start("pre_norm"), start("pre_norm", 1)
    assert pairing(first, again)[0] == pairing(first, again)[1]
    shared, paired = pairing(first, other)
    assert paired < shared and not torch.equal(first.embed.token.weight, other.embed.token.weight)


def test_depth_changes_nothing_of_the_layers_that_both_have() -> None:
    shallow = build(arm(depth=2), TASK, 0)
    deep = build(arm(depth=5), TASK, 0)
    shared, paired = pairing(shallow, deep)
    assert shared == paired > 1000


def test_a_scheme_that_draws_starts_alike_at_every_depth() -> None:
    first, deep = (build(arm(scheme="highway", depth=d), TASK, 0) for d in (1, 3))
    gates = [(n, p) for n, p in first.named_parameters() if ".scheme." in n and p.ndim > 1]
    assert gates and all(torch.equal(p, dict(deep.named_parameters())[n]) for n, p in gates)


def test_a_start_by_order_would_be_seen() -> None:
    """The planted fault: one stream of random numbers for the whole model, so that one parameter more moves all behind it."""
    def by_order(scheme: str) -> torch.nn.Module:
        model = start(scheme)
        torch.manual_seed(0)
        with torch.no_grad():
            for p in model.parameters():
                if p.ndim > 1:
                    p.normal_()
        return model
    shared, paired = pairing(by_order("highway"), by_order("pre_norm"))
    assert paired < 0.6 * shared


def test_the_global_random_state_is_left_alone() -> None:
    before = torch.get_rng_state()
    start("mudd")
    assert torch.equal(before, torch.get_rng_state())


def test_the_spread_of_a_start() -> None:
    for kind, want in (("lecun", 64 ** -0.5), ("xavier", (2 / 320) ** 0.5), ("he", (2 / 64) ** 0.5), ("small", 0.02)):
        model = build(arm(width=64, init=kind), TASK, 0)
        assert float(model.stack.layers[1].branch.input.weight.detach().std()) == pytest.approx(want, rel=0.03)
        assert float(model.stack.layers[1].branch.input.bias.detach().abs().max()) == 0
    fixed = build(arm(width=64, scheme="deepnorm", depth=2), TASK, 0)
    assert float(fixed.stack.layers[1].branch.input.weight.detach().std()) == pytest.approx((8 * 2) ** -0.25 * (2 / 320) ** 0.5, rel=0.03)


FACTORY = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, vocabulary, width, classes, **rest):
        super().__init__()
        self.table, self.head = nn.Embedding(vocabulary, width), nn.Linear(width, classes)

    def forward(self, x):
        return self.head(self.table(x))


def wrong_shape(vocabulary, classes):
    return nn.Embedding(vocabulary, classes + 1)


def raises(classes):
    raise ValueError("no way")


def fails(classes):
    return nn.Linear(3, classes)


def wants(colour):
    return None


def number(width):
    return 3


def plain(vocabulary, classes, width=1):
    return nn.Embedding(vocabulary, classes)
"""


def test_a_factory(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "nets.py"
    file.write_text(FACTORY)
    made = arm(scheme=None, factory=f"{file}:Net", name="own", width=6)
    first, again = check(made, TASK), build(made, TASK, 0)
    assert first.table.weight.shape == (5, 6) and pairing(first, again) == (sum(p.numel() for p in first.parameters()),) * 2
    for name, part in (("wrong_shape", "gives (2, 6, 5), and task copy wants a tensor of shape (2, 6, 4)"), ("raises", "ValueError: no way"),
                       ("fails", "its model fails on inputs of shape (2, 6)"), ("wants", "it wants colour; a factory is given task, depth, width"),
                       ("number", "it returned int, want a torch.nn.Module"), ("nothing", "has no 'nothing'")):
        with pytest.raises(SkipwayError) as error:
            check(replace(made, factory=f"{file}:{name}"), TASK)
        assert part in str(error.value)
    with pytest.raises(SkipwayError, match="takes no colour"):
        check(replace(made, factory=f"{file}:plain", options={"colour": 1}), TASK)


def test_a_width_that_the_heads_do_not_divide() -> None:
    with pytest.raises(SkipwayError, match="an attention of width 9 with 2 heads"):
        build(arm(width=9), TASK, 0)

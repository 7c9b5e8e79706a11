"""Each action against the same change written by hand into the block's forward, values and gradients."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import skipway
from skipway import surgery
from skipway._errors import RewireError

from .conftest import Block, Small, assert_same, gradients


def by_hand(model: Small, join: Callable[[Tensor, Tensor], Tensor], layer: int = 1) -> tuple[Tensor, dict[str, Tensor]]:
    """The model with the second join of one block written as `join(x, F(x))`."""
    def forward(self: Block, x: Tensor) -> Tensor:
        x = x + self.mix(self.norm1(x))
        return join(x, self.down(torch.relu(self.up(self.norm2(x)))))

    class Hand(Block):
        pass
    Hand.forward = forward                                  # type: ignore[method-assign]
    kept, block = model.blocks[layer].__class__, model.blocks[layer]
    block.__class__ = Hand
    try:
        return gradients(model, torch.arange(12).view(2, 6) % 11)
    finally:
        block.__class__ = kept


CASES: dict[str, tuple[dict[str, Any], Callable[[Tensor, Tensor], Tensor]]] = {
    "plain": ({}, lambda x, y: x + y),
    "ablate": ({}, lambda x, y: y),
    "drop": ({}, lambda x, y: x),
    "scale": ({"branch": 0.5, "skip": 2.0}, lambda x, y: x * 2.0 + y * 0.5),
    "layer_scale": ({"init": 0.25}, lambda x, y: x + y * torch.full((16,), 0.25)),
    "gate": ({}, lambda x, y: x + y),
    "drop_path": ({"p": 0.0}, lambda x, y: x + y),
    "dropout": ({"p": 0.0}, lambda x, y: x + y),
    "observe": ({"fn": print}, lambda x, y: x + y),
    "to": ({"scheme": "scaled"}, lambda x, y: 2 ** -0.5 * x + 2 ** -0.5 * y),
}


@pytest.mark.parametrize("name", CASES)
def test_equals_the_change_by_hand(name: str, small: Small, ids: Tensor) -> None:
    options, join = CASES[name]
    want = by_hand(small, join)
    before = gradients(small, ids)
    edit = getattr(skipway.rewire(small, ids).sites(kind="ffn", layers=1, count=1), name)(**options).apply()
    got = gradients(small, ids)
    if name == "drop":                                      # the branch is computed and gets no gradient, or a gradient of zero
        got = got[0], {n: g for n, g in got[1].items() if n in want[1]}
    assert_same(got, want)
    edit.undo()
    assert_same(gradients(small, ids), before)
    assert not any(name.startswith("skip_") or ".skip_" in name for name, _ in small.named_modules())


def test_every_action_is_held_by_hand() -> None:
    elsewhere = {"lanes", "read_from", "stream_dtype"}      # test_lanes.py, test_reads.py
    assert set(surgery.actions.names()) == CASES.keys() | elsewhere


@pytest.mark.parametrize("fault", ["drop", "ablate"])
def test_a_swapped_operand_is_seen(fault: str, small: Small, ids: Tensor) -> None:
    want = by_hand(small, CASES[fault][1])
    other = {"drop": "ablate", "ablate": "drop"}[fault]
    getattr(skipway.rewire(small, ids).sites(kind="ffn", layers=1), other)().apply()
    assert not torch.equal(gradients(small, ids)[0], want[0])


def test_gate_learns_from_a_factor_of_one(small: Small, ids: Tensor) -> None:
    edit = skipway.rewire(small, ids).sites(0).gate().apply()
    assert edit.verify(ids).ok and edit.verify(ids).stated == "exact"
    gradients(small, ids)
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in edit.parameters())
    weight, bias = (p for p in edit.parameters())
    weight.data.normal_(), bias.data.fill_(0.3)
    x = small.embed(ids)
    want = x + 2 * (x @ weight.unsqueeze(1) + bias).sigmoid() * small.blocks[0].mix(small.blocks[0].norm1(x))
    seen: list[Tensor] = []
    edit.undo()
    skipway.rewire(small, ids).sites(0).observe(lambda site, h, y, state: seen.append(h + 2 * (h @ weight.unsqueeze(1) + bias).sigmoid() * y)).apply()
    small(ids)
    torch.testing.assert_close(seen[0], want)


def test_drop_path_leaves_out_samples(small: Small) -> None:
    many = torch.zeros(4000, 1, dtype=torch.long)
    plain = small(many)
    small.train()
    torch.manual_seed(0)
    seen: list[tuple[Tensor, Tensor]] = []
    plan = skipway.rewire(small, many).sites(5).drop_path(0.25).sites(5).observe(lambda site, x, y, state: seen.append((y, state - x)))
    plan.apply()
    small(many)
    branch = seen[0][0][:, 0]
    left = (branch == 0).all(-1)
    assert 0.22 < left.float().mean() < 0.28
    small.eval()
    torch.testing.assert_close(small(many), plain)
    kept = branch[~left]
    seen.clear()
    small(many)
    torch.testing.assert_close(kept, (seen[0][0][:, 0] / 0.75)[~left])


def test_dropout_in_training_alone(small: Small, ids: Tensor) -> None:
    want = by_hand(small, lambda x, y: x + F.dropout(y, 0.0))
    skipway.rewire(small, ids).sites(kind="ffn", layers=1).dropout(0.5).apply()
    small.eval()
    assert torch.equal(small(ids), want[0])
    small.train()
    assert not torch.equal(small(ids), want[0])


def test_actions_of_one_site_follow_one_another(small: Small, ids: Tensor) -> None:
    want = by_hand(small, lambda x, y: 2 ** -0.5 * x + 2 ** -0.5 * ((y * 0.5) * torch.full((16,), 0.25)))
    plan = skipway.rewire(small, ids).sites(3).scale(0.5).sites(3).layer_scale(0.25).sites(3).to("scaled")
    assert "scale(branch=0.5), layer_scale(init=0.25), to(scheme='scaled')" in str(plan)
    plan.apply()
    assert_same(gradients(small, ids), want)
    with pytest.raises(RewireError, match=r"site 3 of 'blocks'.*has to already, and ablate would take its place"):
        skipway.surgery.Edit.of(small).undo()               # type: ignore[union-attr]
        skipway.rewire(small, ids).sites(3).to("scaled").sites(3).ablate()


@pytest.mark.parametrize("scheme", list(skipway.schemes.names()))
def test_a_scheme_at_a_site_is_its_read_and_write(scheme: str, small: Small, ids: Tensor) -> None:
    rewiring = skipway.rewire(small, ids)
    try:
        plan = rewiring.sites(3).to(scheme)
    except RewireError as error:
        kind = skipway.schemes.load(scheme)
        base = skipway.schemes.Scheme
        assert kind.enter is not base.enter or kind.leave is not base.leave
        assert f"scheme {scheme} is more than a read and a write" in str(error)
        return
    edit = plan.apply()
    rule = edit.rules[0].actions[0]
    torch.manual_seed(1)
    for p in edit.parameters():
        p.data.normal_()
    got = gradients(small, ids)
    made = rule.scheme                                      # type: ignore[attr-defined]

    def join(x: Tensor, _: Tensor) -> Tensor:
        block = small.blocks[1]
        inputs, memo = made.read(x)
        return made.write(x, block.down(torch.relu(block.up(block.norm2(inputs)))), memo)       # type: ignore[operator, union-attr]
    edit.undo()
    assert_same(got, by_hand(small, join))


class Negative(nn.Module):
    """x - F(x), F(x) - x, a sum with a factor, and one of images."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(8) for _ in range(3))
        self.maps = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        x = x - self.maps[0](self.norms[0](x))
        x = torch.add(x, self.maps[1](self.norms[1](x)), alpha=0.5)
        return torch.add(self.maps[2](self.norms[2](x)), x, alpha=0.5)


def state_after(model: nn.Module, x: Tensor, site: int, action: str) -> Tensor:
    """What an action makes of one join."""
    seen: list[Tensor] = []
    plan = getattr(skipway.rewire(model, x).sites(site), action)()
    edit = plan.sites(site).observe(lambda s, a, b, out: seen.append(out)).apply()
    model(x)
    edit.undo()
    return seen[0]


def test_signs_and_factors_belong_to_the_operands() -> None:
    torch.manual_seed(0)
    model, x = Negative(), torch.randn(2, 3, 8)
    y = model.maps[0](model.norms[0](x))
    assert torch.equal(state_after(model, x, 0, "ablate"), -y)
    assert torch.equal(state_after(model, x, 0, "drop"), x)
    state = x - y
    branch = 0.5 * model.maps[1](model.norms[1](state))
    assert torch.equal(state_after(model, x, 1, "ablate"), branch)
    torch.testing.assert_close(state_after(model, x, 2, "drop"), 0.5 * (state + branch))    # here the factor is the shortcut's


def test_channels_of_images() -> None:
    class Images(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(3, 8, 1)
            self.convs = nn.ModuleList(nn.Conv2d(8, 8, 3, padding=1) for _ in range(2))

        def forward(self, x: Tensor) -> Tensor:
            x = self.stem(x)
            for conv in self.convs:
                x = x + conv(torch.relu(x))
            return x
    torch.manual_seed(0)
    model, x = Images(), torch.randn(2, 3, 5, 4)
    h = model.stem(x)
    h = h + model.convs[0](torch.relu(h))
    gain = torch.randn(8)
    edit = skipway.rewire(model, x).sites(1).layer_scale(1.0).apply()
    assert edit.verify(x).ok and edit.verify(x).ulp == 0
    next(edit.parameters()).data.copy_(gain)
    torch.testing.assert_close(model(x), h + gain.view(8, 1, 1) * model.convs[1](torch.relu(h)))
    edit.undo()
    edit = skipway.rewire(model, x).sites(1).to("post_norm").apply()
    want = F.layer_norm((h + model.convs[1](torch.relu(h))).movedim(1, -1), (8,)).movedim(-1, 1)
    torch.testing.assert_close(model(x), want)

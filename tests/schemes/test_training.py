"""What schemes do around a training run: counters of steps, parameter groups, measured starts, norms inside of branches, known laws at the start."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import skipway
from skipway._errors import SchemeError
from skipway.schemes import admin


def feed_forward(dim: int = 8, bias: bool = True) -> nn.Sequential:
    return nn.Sequential(nn.Linear(dim, 2 * dim, bias=bias), nn.ReLU(), nn.Linear(2 * dim, dim, bias=bias))


def stack(scheme: str, depth: int = 4, dim: int = 8, bias: bool = True, **options: Any) -> skipway.nn.Stack:
    torch.manual_seed(0)
    return skipway.nn.Stack([feed_forward(dim, bias) for _ in range(depth)], dim, scheme, **options)


# counters

@pytest.mark.parametrize(("scheme", "at_half"), [("branch_norm", [0.5] * 4), ("pro_res", [0.5, 0.5, 0.25, 0.25])])
def test_a_branch_is_let_in(scheme: str, at_half: list[float]) -> None:
    net = stack(scheme, period=20)
    y = torch.ones(())
    shares = lambda: [float(layer.scheme.counter.share(y)) for layer in net.layers]            # noqa: E731
    assert shares() == [0.0] * 4
    net.advance()
    assert [int(layer.scheme.counter.step) for layer in net.layers] == [1] * 4
    net.advance(9)
    assert shares() == at_half
    net.advance(1000)
    assert shares() == [1.0] * 4


@pytest.mark.parametrize("scheme", ["branch_norm", "pro_res"])
def test_a_resumed_run_goes_on_where_it_was(scheme: str) -> None:
    one, other = stack(scheme), stack(scheme)
    one.advance(123)
    other.load_state_dict(one.state_dict())
    assert [int(layer.scheme.counter.step) for layer in other.layers] == [123] * 4
    x = torch.randn(2, 3, 8)
    assert torch.equal(one(x), other(x))
    assert not torch.equal(one(x), stack(scheme)(x))


def test_a_counter_stays_exact_in_half_precision() -> None:
    net = stack("pro_res").to(torch.bfloat16)
    net.advance(257)                                        # no number of bfloat16
    assert float(net.layers[0].scheme.counter.share(torch.ones((), dtype=torch.bfloat16))) == pytest.approx(0.257, rel=1e-6)
    assert net(torch.randn(2, 3, 8, dtype=torch.bfloat16)).dtype == torch.bfloat16


def test_a_compiled_stack_sees_the_steps() -> None:
    net = stack("pro_res", period=10)
    fast = torch.compile(net, backend="eager", fullgraph=True)
    x = torch.randn(2, 3, 8)
    before = fast(x)
    net.advance(7)
    assert not torch.equal(fast(x), before)
    assert torch.equal(fast(x), net(x))


# parameter groups

def test_groups_of_complete_p_with_base_values() -> None:
    net = stack("complete_p", depth=16, base_dim=2)         # both depth and width four times the base
    groups = net.param_groups(lr=1e-2, eps=1e-8, weight_decay=0.1)
    held = {id(p): group for group in groups for p in group["params"]}
    assert len(held) == sum(len(g["params"]) for g in groups) == len(list(net.parameters()))
    layer = net.layers[3]
    matrix, bias, gain = (held[id(p)] for p in (layer.branch[0].weight, layer.branch[0].bias, layer.scheme.norm.weight))
    assert (matrix["lr"], matrix["eps"], matrix["weight_decay"]) == pytest.approx((2.5e-3, 1e-8 / 16, 0.4))
    assert "lr" not in bias and "weight_decay" not in bias and bias["eps"] == pytest.approx(1e-8 / 16)
    assert gain["weight_decay"] == 0.0 and gain["eps"] == pytest.approx(1e-8 / 16)
    assert set(held[id(net.final_norm.weight)]) == {"params"}
    torch.optim.AdamW(groups, lr=1e-2)


def test_groups_without_base_values_hold_factors() -> None:
    groups = stack("depth_mup", depth=16).param_groups()
    assert [{k: v for k, v in g.items() if k != "params"} for g in groups[1:3]] == [{"lr_scale": 0.25}, {"lr_scale": 0.25}]
    lambdas = [g for g in stack("x0_lambdas").param_groups(lr=1.0) if g.get("lr") == 0.01]
    assert [p.shape for g in lambdas for p in g["params"]] == [(1,), (1,)]


def test_a_branch_that_stands_twice_is_in_one_group() -> None:
    branch = feed_forward()
    net = skipway.nn.Stack([branch] * 4, 8, "complete_p", base_blocks=1)
    ids = [id(p) for g in net.param_groups(1e-3) for p in g["params"]]
    assert len(ids) == len(set(ids))


# admin

def test_profile_sets_omega_from_the_variances() -> None:
    net = stack("admin", depth=6)
    x = torch.randn(4, 5, 8)
    got = admin.profile(net, x)
    held, h, want = 1.0, x.double(), []
    for layer in net.layers:
        y = layer.branch(h.float()).double().detach()
        omega = math.sqrt(held)
        want.append(omega)
        held = omega ** 2 * float(h.var(correction=0)) + float(y.var(correction=0))
        h = nn.functional.layer_norm(omega * h + y, (8,))
    assert got == pytest.approx(want, rel=1e-5)
    assert want[0] == 1.0 and want[1:] == sorted(want[1:])
    for layer, omega in zip(net.layers, got):
        torch.testing.assert_close(layer.scheme.omega, torch.full((8,), omega))
        assert "write" not in vars(layer.scheme)
    assert net.layers[0].scheme.omega.requires_grad


def test_profile_of_a_model_that_holds_the_stack() -> None:
    model = nn.Sequential(nn.Linear(3, 8), stack("admin"))
    assert len(admin.profile(model, torch.randn(2, 5, 3))) == 4


def test_profile_refuses() -> None:
    with pytest.raises(SchemeError, match="has no sublayer of the scheme admin"):
        admin.profile(stack("post_norm"), torch.randn(2, 3, 8))
    net = stack("admin")
    with pytest.raises(SchemeError, match="runs twice in one call"):
        admin.profile(nn.Sequential(net, net), torch.randn(2, 3, 8))
    assert all("write" not in vars(layer.scheme) for layer in net.layers)


# sub_norm

class Branch(nn.Module):
    """W_out N(relu(W_in x)), the norm being put in by the scheme."""

    def __init__(self, dim: int = 8) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(dim, 24), nn.Linear(24, dim)
        self.before_down: nn.Module = nn.Identity()

    def inner_norm(self, make: Any) -> None:
        self.before_down = make(24)

    def weights(self, kind: str) -> list[Tensor]:
        return {"input": [self.up.weight], "output": [self.down.weight]}.get(kind, [])

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.before_down(torch.relu(self.up(x))))


def normed(x: Tensor) -> Tensor:
    return (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, correction=0, keepdim=True) + 1e-5)


@pytest.mark.parametrize("kind", [Branch, feed_forward])
def test_the_inner_norm_stands_before_the_output_projection(kind: Any) -> None:
    torch.manual_seed(0)
    branch = kind()
    net = skipway.nn.Stack([branch], 8, "sub_norm", final_norm=False)
    x = torch.randn(2, 3, 8)
    up, down = [m for m in branch.modules() if isinstance(m, nn.Linear)]
    torch.testing.assert_close(net(x), x + down(normed(torch.relu(up(normed(x))))))
    assert float(up.weight.detach().std()) == pytest.approx(math.sqrt(math.log(2) * 2 / sum(up.weight.shape)), rel=0.2)


def test_a_branch_that_takes_no_norm_is_refused() -> None:
    with pytest.raises(SchemeError, match=r"before the output projection of the branch Linear, .* a method inner_norm"):
        skipway.nn.Residual(nn.Linear(8, 8), 8, "sub_norm", depth=4)
    with pytest.raises(SchemeError, match="Sequential"):
        skipway.nn.Residual(nn.Sequential(nn.Linear(8, 8)), 8, "sub_norm", depth=4)


# starts

def test_fixup_starts_as_the_identity() -> None:
    x = torch.randn(2, 3, 8)
    assert torch.equal(stack("fixup", bias=False)(x), x)
    assert float(stack("fixup", depth=16, dim=64).layers[5].branch[0].weight.detach().std()) == pytest.approx(0.25 * math.sqrt(2 / 64), rel=0.05)


def test_output_norm_from_zero_starts_as_the_identity() -> None:
    x = torch.randn(2, 3, 8)
    assert torch.equal(stack("output_norm", start=0.0, final_norm=False)(x), x)


def test_gpt2_weights_shrink_with_the_number_of_adds() -> None:
    net = stack("gpt2_init", depth=16, dim=64)
    up, down = net.layers[3].branch[0].weight.detach(), net.layers[3].branch[2].weight.detach()
    assert float(up.std()) == pytest.approx(0.02, rel=0.05) and float(down.std()) == pytest.approx(0.005, rel=0.05)


def test_the_scale_of_the_dual_stream_is_taken_out() -> None:
    x = torch.randn(2, 3, 8, dtype=torch.float64)
    one, small = stack("residual_dual").double(), stack("residual_dual", scale=0.5).double()
    torch.testing.assert_close(small(x), one(x), rtol=1e-3, atol=1e-4)             # up to eps of the norm
    assert not torch.equal(small(x), one(x))


class Noise(nn.Module):
    """A branch of independent values of variance 1."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.randn_like(x)


@pytest.mark.parametrize(("scheme", "law"), [
    ("plain", lambda s: math.sqrt(s + 1)), ("pre_norm", lambda s: math.sqrt(s + 1)), ("sandwich", lambda s: math.sqrt(s + 1)),
    ("output_norm", lambda s: math.sqrt(s + 1)), ("scaled", lambda s: 1.0), ("running_mean", lambda s: 1.0), ("post_norm", lambda s: 1.0),
    ("depth_mup", lambda s: math.sqrt(2)), ("layer_scale", lambda s: math.sqrt(1 + 0.01 * s)),
])
@pytest.mark.parametrize("depth", [6, 24])
def test_size_of_the_stream_with_independent_branches(scheme: str, law: Any, depth: int) -> None:
    torch.manual_seed(0)
    net = skipway.nn.Stack([Noise() for _ in range(depth)], 64, scheme, final_norm=False)
    with torch.no_grad():
        y = net(torch.randn(256, 64))
    assert float(y.square().mean().sqrt()) == pytest.approx(law(depth), rel=0.02)

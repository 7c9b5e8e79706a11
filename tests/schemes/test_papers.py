"""What schemes say of their papers' variants: options, starts, and what a user does to have the variant to the letter."""

import copy

import pytest
import torch
from torch import Tensor, nn

import skipway
from skipway._errors import SchemeError

DIM, DEPTH = 8, 6


def stack(scheme: str, norm: type[nn.Module] = nn.RMSNorm, **options: object) -> skipway.nn.Stack:
    torch.manual_seed(0)
    branches = [nn.Sequential(nn.Linear(DIM, DIM), nn.Tanh()) for _ in range(DEPTH)]
    return skipway.nn.Stack(branches, DIM, scheme, norm=norm, **options)


@pytest.mark.parametrize("norm", [nn.RMSNorm, nn.LayerNorm])
def test_mudd_with_norms_around_its_sums_starts_as_pre_norm_and_learns(norm: type[nn.Module]) -> None:
    net, plain = stack("mudd", norm, prepost=True), stack("pre_norm", norm)
    for mine, other in zip(net.layers, plain.layers, strict=True):
        other.branch.load_state_dict(mine.branch.state_dict())
    x = torch.randn(2, 3, DIM)
    assert torch.equal(net(x), plain(x))
    after = net.layers[2].scheme.reader.norm
    assert all(torch.equal(n.weight, torch.full((DIM,), 1e-3)) for n in after) and len(after) == 2
    net(x).square().sum().backward()
    assert float(net.layers[2].scheme.reader.static.grad.abs().max()) > 0


def test_the_states_of_mudd_are_normed_once() -> None:
    """The stream is raw, what is kept of it for later blocks is not."""
    net = stack("mudd", prepost=True)
    stream = net.layers[0].enter(torch.randn(2, 3, DIM) * 9)
    for layer in net.layers[:2]:
        given, memo = layer.scheme.read(stream)
        stream = layer.scheme.write(stream, layer.branch(given), memo)
    raw, *kept = stream
    assert len(kept) == 2 and float(raw.square().mean()) > 9
    for state in kept:
        torch.testing.assert_close(state.square().mean(-1), torch.ones(2, 3), rtol=1e-3, atol=1e-3)


def test_mudd_wants_norms_with_gains() -> None:
    class Bare(nn.RMSNorm):
        def __init__(self, dim: int) -> None:
            super().__init__(dim, elementwise_affine=False)
    with pytest.raises(SchemeError, match=r"prepost starts the gains of its norms at 0\.001, and Bare has none; give norm= a norm with gains"):
        stack("mudd", Bare, prepost=True)


def tied() -> skipway.nn.Stack:
    """As the docstring of rezero says."""
    net = stack("rezero")
    layers = net.layers
    for k in range(0, DEPTH, 2):
        layers[k + 1].scheme.scale = layers[k].scheme.scale
    return net


def test_rezero_can_share_one_scalar_a_block() -> None:
    net = tied()
    with torch.no_grad():
        for k in range(0, DEPTH, 2):
            net.layers[k].scheme.scale.fill_(0.5 + k)
    x = torch.randn(2, 3, DIM)
    want = x
    for k, layer in enumerate(net.layers):
        want = want + (0.5 + k - k % 2) * layer.branch(want)
    torch.testing.assert_close(net(x), want)
    told = [p for g in net.param_groups(lr=1.0) for p in g["params"]]
    assert len(told) == len({id(p) for p in told}) == len(list(net.parameters())) == 2 * DEPTH + DEPTH // 2


def test_the_gradient_of_a_shared_scalar_is_the_sum_of_both() -> None:
    x = torch.randn(2, 3, DIM)
    one, apart = tied(), stack("rezero")
    one(x).sum().backward()
    apart(x).sum().backward()
    mine: Tensor = one.layers[2].scheme.scale.grad
    torch.testing.assert_close(mine, apart.layers[2].scheme.scale.grad + apart.layers[3].scheme.scale.grad)
    held = copy.deepcopy(one)                                   # a copy shares them, too
    assert held.layers[2].scheme.scale is held.layers[3].scheme.scale

"""Stochastic depth: what is computed, how it is scaled, how arguments are cut, and what is refused."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import skipway
from skipway._errors import SchemeError, ShapeMismatch
from skipway.nn import Attention, DropPath, FeedForward, Residual, Stack

DIM = 8


class Watched(nn.Module):
    """A linear branch that remembers how many samples it got."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.sizes = nn.Linear(DIM, DIM), []

    def forward(self, x: Tensor) -> Tensor:
        self.sizes.append(len(x))
        return self.linear(x)


def drawn(seed: int, batch: int, p: float) -> Tensor:
    torch.manual_seed(seed)
    return torch.empty(batch).bernoulli_(1 - p).bool()


def test_only_kept_samples_are_computed_and_scaled() -> None:
    branch = Watched()
    block = Residual(branch, DIM, "plain", drop_path=0.5)
    x = torch.randn(16, 3, DIM)
    kept = drawn(1, 16, 0.5)
    torch.manual_seed(1)
    y = block(x)
    assert branch.sizes == [int(kept.sum())] and 0 < kept.sum() < 16
    assert torch.equal(y[~kept], x[~kept])
    torch.testing.assert_close(y[kept], x[kept] + 2 * branch.linear(x[kept]))


def test_gradients_are_those_of_the_masked_sum() -> None:
    torch.manual_seed(0)
    block = Residual(FeedForward(DIM), DIM, drop_path=0.4).double()
    x = torch.randn(9, 3, DIM, dtype=torch.float64, requires_grad=True)
    kept = drawn(7, 9, 0.4).double()[:, None, None]
    torch.manual_seed(7)
    got = torch.autograd.grad(block(x).sin().sum(), [x, *block.parameters()])
    want = torch.autograd.grad((x + kept / 0.6 * block.branch(block.scheme.norm(x))).sin().sum(), [x, *block.parameters()])
    for a, b in zip(got, want):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_the_mean_over_draws_is_the_branch() -> None:
    torch.manual_seed(0)
    branch = nn.Linear(DIM, DIM)
    block = Residual(branch, DIM, "plain", drop_path=0.3)
    x = torch.randn(1, 2, DIM).expand(20000, 2, DIM)
    with torch.no_grad():
        mean = (block(x) - x).mean(0)
        torch.testing.assert_close(mean, branch(x[0]), rtol=0.05, atol=0.02)


def test_eval_is_the_identity_on_the_branch() -> None:
    block = Residual(FeedForward(DIM), DIM, drop_path=0.5).eval()
    x = torch.randn(4, 3, DIM)
    assert torch.equal(block(x), x + block.branch(block.scheme.norm(x)))


def test_where_all_are_dropped_every_parameter_still_gets_a_gradient() -> None:
    """Replicas wait for each other's gradients; a branch that did not run would give none."""
    branch = Watched()
    block = Residual(branch, DIM, "plain", drop_path=0.999)
    x = torch.randn(3, 2, DIM)
    torch.manual_seed(0)
    y = block(x)
    assert branch.sizes == [1] and torch.equal(y, x)
    y.sum().backward()
    assert branch.linear.weight.grad is not None and branch.linear.weight.grad.abs().max() == 0


@pytest.mark.parametrize("scheme", ["pre_norm", "post_norm", "sandwich", "hyper", "reversible", "dense_former"])
def test_it_drops_the_branch_not_the_stream(scheme: str) -> None:
    """With every branch dropped, a stack is what it is with branches that give zero, whatever the scheme keeps beside the stream."""
    class Zero(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.zeros_like(x)

    torch.manual_seed(0)
    stack = Stack([Watched() for _ in range(4)], DIM, scheme, drop_path=[0.999] * 4, activations="stored")
    still = Stack([Zero() for _ in range(4)], DIM, scheme, init=False, activations="stored")
    still.load_state_dict(stack.state_dict(), strict=False)
    x = torch.randn(3, 2, DIM)
    torch.manual_seed(1)
    torch.testing.assert_close(stack(x), still(x))


def test_arguments_of_the_kept_samples_go_with_them() -> None:
    """An attention with masks and a context gives for each kept sample what it gives with the whole batch."""
    torch.manual_seed(0)
    batch, tokens = 6, 5
    block = Residual(Attention(DIM, 2, cross=True), DIM, "plain", drop_path=0.5).double()
    x, context = torch.randn(batch, tokens, DIM, dtype=torch.float64), torch.randn(batch, 4, DIM, dtype=torch.float64)
    mask = torch.rand(batch, 4) > 0.3
    mask[:, 0] = True
    kept = drawn(4, batch, 0.5)
    torch.manual_seed(4)
    y = block(x, context=context, context_mask=mask)
    whole = x + 2 * block.branch(x, context=context, context_mask=mask)
    torch.testing.assert_close(y[kept], whole[kept])
    assert torch.equal(y[~kept], x[~kept])


def test_a_mask_of_two_dimensions_is_shared_even_where_it_is_as_long_as_the_batch() -> None:
    torch.manual_seed(0)
    block = Residual(Attention(DIM, 2), DIM, "plain", drop_path=0.5).double()
    x, mask = torch.randn(5, 5, DIM, dtype=torch.float64), torch.ones(5, 5, dtype=torch.bool).tril()
    kept = drawn(2, 5, 0.5)
    torch.manual_seed(2)
    y = block(x, mask=mask)
    torch.testing.assert_close(y[kept], (x + 2 * block.branch(x, mask=mask))[kept])


def test_an_argument_as_long_as_the_batch_must_be_declared() -> None:
    class Conditioned(nn.Module):
        def forward(self, x: Tensor, condition: Tensor) -> Tensor:
            return x * condition[:, None]

    block = Residual(Conditioned(), DIM, "plain", drop_path=0.5)
    x, condition = torch.randn(6, 3, DIM), torch.randn(6, DIM)
    torch.manual_seed(1)
    with pytest.raises(ShapeMismatch, match=r"argument condition of shape \(6, 8\) is as long as the batch of 6; .*per_sample = {'condition': 2}"):
        block(x, condition=condition)
    block.branch.per_sample = {"condition": 2}
    kept = drawn(1, 6, 0.5)
    torch.manual_seed(1)
    y = block(x, condition=condition)
    torch.testing.assert_close(y[kept], (x + 2 * x * condition[:, None])[kept])
    block.branch.per_sample = {"condition": 0}
    torch.manual_seed(1)
    with pytest.raises(RuntimeError, match="size"):         # declared as shared: it is not cut, and does not fit
        block(x, condition=condition)


def test_linear_schedule_over_blocks() -> None:
    """p_l = p l / N for block l of N, both sublayers of a block alike."""
    stack = Stack([FeedForward(DIM) for _ in range(8)], DIM, drop_path=0.4)
    assert [layer.drop_path.p for layer in stack.layers] == pytest.approx([0.1, 0.1, 0.2, 0.2, 0.3, 0.3, 0.4, 0.4])
    assert "DropPath(p=0.1)" in repr(stack)
    single = Stack([FeedForward(DIM) for _ in range(4)], DIM, drop_path=0.4, per_block=1)
    assert [layer.drop_path.p for layer in single.layers] == pytest.approx([0.1, 0.2, 0.3, 0.4])
    told = Stack([FeedForward(DIM) for _ in range(2)], DIM, drop_path=[0.0, 0.3])
    assert told.layers[0].drop_path is None and told.layers[1].drop_path.p == 0.3


def test_wrong_use_is_refused() -> None:
    with pytest.raises(SchemeError, match=r"drop_path is 1\.0; wanted a probability of at least 0 and below 1"):
        DropPath(1.0)
    with pytest.raises(SchemeError, match="3 values of drop_path for 2 branches"):
        Stack([FeedForward(DIM) for _ in range(2)], DIM, drop_path=[0.1, 0.2, 0.3])
    with pytest.raises(ShapeMismatch, match=r"got the shape \(8,\); wanted \(batch, \.\.\., dim\)"):
        Residual(nn.Linear(DIM, DIM), DIM, drop_path=0.5)(torch.randn(DIM))


def test_compiled_it_is_one_graph_and_the_same_draw() -> None:
    torch.manual_seed(0)
    block = Residual(FeedForward(DIM), DIM, drop_path=0.5)
    x = torch.randn(8, 3, DIM)
    torch._dynamo.reset()
    run = torch.compile(block, fullgraph=True, backend="aot_eager")
    torch.manual_seed(3)
    got = run(x)
    kept = drawn(3, 8, 0.5)
    torch.testing.assert_close(got[kept], (x + 2 * block.branch(block.scheme.norm(x)))[kept])
    torch.testing.assert_close(got[~kept], x[~kept])


def test_check_sees_nothing_wrong_with_it() -> None:
    torch.manual_seed(0)
    stack = Stack([FeedForward(16) for _ in range(8)], 16, drop_path=0.3)
    model: Any = nn.Sequential(nn.Linear(5, 16), stack, nn.Linear(16, 3))
    report = skipway.check(model, torch.randn(4, 7, 5), stage="train")
    assert [f for f in report.findings if f.severity != "note"] == []
    assert [len(s.sites) for s in report.wiring.streams if s.main] == [8]

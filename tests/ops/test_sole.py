"""A gradient is written over only where nobody else holds it, and then it gives what it gave."""

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import Function
from torch.testing import assert_close

import skipway
from skipway.ops import _sole
from skipway.ops.lane_read import lane_read, plain
from skipway.ops.write_lanes import write_lanes

ANSWERS: list[bool] = []
KEPT: list[Any] = []


class Ask(Function):
    """The identity; its backward asks whether the gradient is its own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        ANSWERS.append(_sole.sole(gradient))
        return gradient


class Pass(Function):
    """Twice x, to autograd; its backward hands the gradient on as it is."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return 2 * x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient


def backward(watch: Callable[[Tensor], Any] = lambda t: None) -> bool:
    x = torch.randn(3, 4, requires_grad=True)
    asked = Ask.apply(x * 1)
    watch(asked)
    ANSWERS.clear()
    KEPT.clear()
    Pass.apply(asked).square().sum().backward()
    return ANSWERS[0]


needs_counts = pytest.mark.skipif(not _sole.COUNTED, reason="this torch does not count who holds a tensor")


@needs_counts
def test_a_fresh_gradient_is_sole() -> None:
    assert backward()
    assert backward(lambda t: t.retain_grad())                          # autograd keeps a copy
    assert backward(lambda t: t.register_hook(lambda g: None))
    assert backward(lambda t: t.register_hook(lambda g: g * 2))


@pytest.mark.parametrize("keep", [
    KEPT.append, lambda g: KEPT.append(g.view(-1)), lambda g: KEPT.append(g.detach()), lambda g: KEPT.append(g.numpy()),
    lambda g: KEPT.append(g[1:])])
def test_a_gradient_that_a_hook_keeps_is_not(keep: Callable[[Tensor], None]) -> None:
    assert not backward(lambda t: t.register_hook(keep))


def test_a_gradient_that_a_node_hook_keeps_is_not() -> None:
    assert not backward(lambda t: t.grad_fn.register_prehook(KEPT.append))      # type: ignore[union-attr,arg-type]


def test_a_gradient_that_a_caller_gave_or_will_get_is_not() -> None:
    x, given = torch.randn(3, 4, requires_grad=True), torch.randn(3, 4)
    ANSWERS.clear()
    torch.autograd.grad(Ask.apply(x), x, given)
    asked = Ask.apply(x)
    torch.autograd.grad(Pass.apply(asked).square().sum(), [asked, x])
    torch.autograd.grad(Ask.apply(x).square().sum(), x, create_graph=True)
    assert ANSWERS == [False, False, False]


def test_under_a_debugger_nothing_is_sole() -> None:
    """What traces Python holds the variables of every frame."""
    before = sys.gettrace()
    sys.settrace(lambda *_: None)
    try:
        assert not backward()
    finally:
        sys.settrace(before)


@pytest.mark.parametrize("mixing", [None, (3, 0.0, False)])
@pytest.mark.parametrize("faulty", [False, pytest.param(True, marks=needs_counts)])
def test_gradients_that_are_kept_stay_as_they_were(mixing: Any, faulty: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two sublayers on lanes; the gradient of the lanes between and after them is kept by hooks and asked for by `torch.autograd.grad`. With an
    answer that is always yes the kept one is written over, and this test sees it."""
    if faulty:
        monkeypatch.setattr("skipway.ops.lane_read.sole", lambda gradient: True)
    n, dim, rows = 3, 5, 6 if mixing is None else 15
    torch.manual_seed(0)
    weights = [[torch.randn(*s, dtype=torch.float64) for s in ((rows, n * dim), (rows // 6 + 1,), (rows,))] for _ in range(2)]
    start = torch.randn(2, 4, n, dim, dtype=torch.float64).movedim(-2, 0).requires_grad_()

    def found(read: Callable[..., Any], keep: list[Tensor]) -> list[Tensor]:
        lanes, between = start * 1, []
        for w in weights:
            y, q, on = read(lanes, *w, 1e-3, (0.0, 0.0), mixing)
            lanes = write_lanes(on * 1 if mixing else on, y.tanh(), q)
            lanes.register_hook(keep.append)
            between.append(lanes)
        wanted = torch.randn(lanes.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        return [*torch.autograd.grad((lanes * wanted).sin().sum(), [start, between[0]])]
    ours: list[Tensor] = []
    theirs: list[Tensor] = []
    same = True
    for a, b in [*zip(found(lane_read, ours), found(plain, theirs)), *zip(ours, theirs)]:
        same = same and torch.allclose(a, b, rtol=1e-10, atol=1e-10)
    assert same != (faulty and mixing is None)


@needs_counts
def test_the_gradient_of_lanes_is_sole_from_sublayer_to_sublayer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four, the last gets its own from the end of the stack, as a view. Gradients of the parameters are those of fresh tensors."""
    seen: list[tuple[int, ...]] = []
    holders = _sole._holders

    def watched(t: Tensor) -> tuple[int, ...]:
        seen.append(holders(t))
        return seen[-1]
    stack = skipway.nn.Stack([torch.nn.Linear(8, 8) for _ in range(4)], 8, "identity_hyper")
    x = torch.randn(2, 3, 8)
    _sole._usual.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(_sole, "_holders", watched)
        stack(x).square().sum().backward()
        usual = _sole._usual()
    _sole._usual.cache_clear()
    assert sum(held == usual for held in seen) == 3 + 1         # one is the measure itself
    over = [p.grad.clone() for p in stack.parameters() if p.grad is not None]
    stack.zero_grad()
    monkeypatch.setattr("skipway.ops.lane_read.sole", lambda gradient: False)
    stack(x).square().sum().backward()
    for a, b in zip((p.grad for p in stack.parameters()), over):
        assert_close(a, b)


@pytest.mark.parametrize("faulty", [False, pytest.param(True, marks=needs_counts)])
@pytest.mark.parametrize("kind", ["register_full_backward_hook", "register_full_backward_pre_hook"])
def test_what_hooks_of_modules_keep_stays_as_it_came(kind: str, faulty: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each hook keeps the gradients it is shown. With an answer that is always yes some are written over, and this test sees it."""
    def kept() -> list[Tensor]:
        torch.manual_seed(0)
        stack = skipway.nn.Stack([torch.nn.Linear(8, 8) for _ in range(4)], 8, "identity_hyper")
        found: list[Tensor] = []
        for module in stack.modules():
            getattr(module, kind)(lambda _, *grads: found.extend(t for g in grads for t in g if t is not None))
        stack(torch.randn(2, 3, 8, requires_grad=True)).square().sum().backward()
        return found
    monkeypatch.setattr("skipway.ops.lane_read.sole", lambda gradient: False)
    want = kept()
    monkeypatch.undo()
    if faulty:
        monkeypatch.setattr("skipway.ops.lane_read.sole", lambda gradient: True)
    got = kept()
    assert len(got) == len(want) > 10
    assert all(torch.allclose(a, b) for a, b in zip(got, want)) != faulty

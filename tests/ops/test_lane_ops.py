"""Operations with a backward of their own give what their plain formula gives: values, first and second gradients, vmap, half precision."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.testing import assert_close

from skipway.ops import depth_attention, gated_read, lane_read, mix, read_lanes, read_mix, rms_linear, sinkhorn, write_lanes, write_over

N, D, TOKENS = 3, 4, (2, 4)


def made(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def cases() -> dict[str, tuple[Callable[..., Any], Callable[..., Any], list[Tensor]]]:
    """Name -> the operation, its plain formula, and arguments."""
    torch.manual_seed(0)
    lanes, y = made(N, *TOKENS, D), made(*TOKENS, D)
    sources = [made(*TOKENS, D) for _ in range(4)]
    found: dict[str, tuple[Callable[..., Any], Callable[..., Any], list[Tensor]]] = {}
    for kind, token in (("shared", ()), ("by token", TOKENS)):
        w, m = made(*token, N), made(*token, N, N)
        found[f"mix {kind}"] = mix.mix, mix.plain, [lanes, made(*token, 2, N)]
        found[f"read_lanes {kind}"] = read_lanes.read_lanes, read_lanes.plain, [lanes, w]
        found[f"read_mix {kind}"] = read_mix.read_mix, read_mix.plain, [lanes, w, m]
        found[f"write_lanes {kind}"] = write_lanes.write_lanes, write_lanes.plain, [lanes, y, w]
        found[f"write_over {kind}"] = (lambda v, y, w: write_over.write_over(v * 1, y, w)), write_lanes.plain, [lanes, y, w]
    found["rms_linear"] = (lambda x, w: rms_linear.rms_linear(x, w, 1e-3)), (lambda x, w: rms_linear.plain(x, w, 1e-3)), [y, made(6, D)]
    found["rms_linear of an odd width"] = found["rms_linear"][0], found["rms_linear"][1], [made(*TOKENS, 5), made(6, 5)]
    for width in (D, N * D):
        found[f"lane_gates {width}"] = (
            (lambda x, w: (lambda z, same: (z, same * 1))(*rms_linear.lane_gates(x, w, 1e-3))),
            (lambda x, w, k=width: (rms_linear.plain(x.movedim(0, -2) if k == D else x.movedim(0, -2).flatten(-2), w, 1e-3), x)),
            [lanes, made(6, width)])
    for mixing in (None, (3, 0.0, False), (3, 0.01, True)):
        rows, scales = (2 * N, 2) if mixing is None else (2 * N + N * N, 3)

        def read(kind: Callable[..., Any], mixing: Any = mixing) -> Callable[..., Any]:
            return lambda x, *a: (lambda y, q, on: (y, q, on * 1))(*kind(x, *a, 1e-3, (0.1, 0.2), mixing))
        found[f"lane_read {mixing}"] = read(lane_read.lane_read), read(lane_read.plain), [lanes, made(rows, N * D), made(scales), made(rows)]
    found["sinkhorn"] = (lambda z: sinkhorn.sinkhorn(z, 4)), (lambda z: sinkhorn.plain(z, 4)), [made(*TOKENS, N, N)]
    found["sinkhorn floored"] = (lambda z: sinkhorn.sinkhorn(z, 4, 0.01)), (lambda z: sinkhorn.plain(z, 4, 0.01)), [made(*TOKENS, N, N)]
    gated = [lanes, made(N, D), made(2, N * D), made(N * D, 2), made(4, N * D)]
    found["gated_read"] = (lambda *a: gated_read.gated_read(*a, 1e-3)), (lambda *a: gated_read.plain(*a, 1e-3)), gated
    found["gated_read alone"] = (
        (lambda *a: gated_read.gated_read(*a, None, 1e-3)[0]), (lambda *a: gated_read.plain(*a, None, 1e-3)[0]), gated[:4])
    for normed in (False, True):
        found[f"depth_attention normed={normed}"] = (
            (lambda q, *s, k=normed: depth_attention.depth_attention(s, q, 1e-3, 0.7, k)),
            (lambda q, *s, k=normed: depth_attention.plain(s, q, 1e-3, 0.7, k)), [made(D), *sources])
    return found


def tensors(result: Any) -> tuple[Tensor, ...]:
    return result if isinstance(result, tuple) else (result,)


@pytest.mark.parametrize("name", list(cases()))
def test_values_and_gradients(name: str) -> None:
    ours, plain, args = cases()[name]
    for a, b in zip(tensors(ours(*args)), tensors(plain(*args))):
        assert_close(a, b, rtol=1e-12, atol=1e-12)
    assert gradcheck(ours, args)
    assert gradgradcheck(ours, args)


@pytest.mark.parametrize("name", list(cases()))
def test_vmap_over_any_argument(name: str) -> None:
    """One argument has a batch axis, the others are shared."""
    ours, plain, args = cases()[name]
    for k, arg in enumerate(args):
        many = torch.stack([arg.detach(), 2 * arg.detach()])
        dims = tuple(0 if i == k else None for i in range(len(args)))
        given = [many if i == k else a.detach() for i, a in enumerate(args)]
        got, want = torch.func.vmap(ours, dims)(*given), torch.func.vmap(plain, dims)(*given)
        assert_close(got, want, rtol=1e-12, atol=1e-12)

        def loss(*a: Tensor, of: Callable[..., Any] = ours) -> Tensor:
            return sum(t.sin().sum() for t in tensors(of(*a)))      # type: ignore[return-value]
        a = torch.func.vmap(torch.func.grad(loss, k), dims)(*given)
        b = torch.func.vmap(torch.func.grad(lambda *v: loss(*v, of=plain), k), dims)(*given)
        assert_close(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", list(cases()))
def test_many_gradients_at_once(name: str) -> None:
    """`is_grads_batched`, as `torch.autograd.functional.jacobian(vectorize=True)` asks for, and `torch.vmap` over gradients of an eager forward,
    against one gradient after another."""
    ours, _, args = cases()[name]
    out = torch.cat([t.flatten() for t in tensors(ours(*args))])[:5]
    rows = torch.eye(len(out), dtype=out.dtype)

    def gradients(at: Tensor, **kwargs: Any) -> tuple[Tensor, ...]:
        return torch.autograd.grad(out, args, at, retain_graph=True, materialize_grads=True, **kwargs)
    apart = [torch.stack(found) for found in zip(*(gradients(row) for row in rows))]
    for at_once in gradients(rows, is_grads_batched=True), torch.vmap(gradients)(rows):
        for a, b in zip(at_once, apart):
            assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_far_logits_stay_finite() -> None:
    """A row that is far below the others in every column: no division by zero, and zero gradient only where nothing could change."""
    z = torch.zeros(3, 3, requires_grad=True)
    far = z + torch.tensor([[0.0, 0.0, 0.0], [-300.0, -300.0, -300.0], [0.0, -200.0, 0.0]])
    m = sinkhorn.sinkhorn(far)
    m.square().sum().backward()
    assert_close(m.sum(-1), torch.ones(3))
    assert z.grad is not None and z.grad.isfinite().all()


@pytest.mark.parametrize("floor", [0.0, 1e-6])
@pytest.mark.parametrize("spread", [1.0, 30.0, 200.0])
def test_sinkhorn_in_float32_is_that_of_float64(spread: float, floor: float) -> None:
    """Mixers whose entries differ by up to e^600, and their gradients, which are walked back over 40 divisions."""
    torch.manual_seed(0)
    z, g = spread * torch.randn(64, 4, 4, dtype=torch.float64), torch.randn(64, 4, 4, dtype=torch.float64)
    narrow, wide = z.float().requires_grad_(), z.float().double().requires_grad_()
    got, want = sinkhorn.sinkhorn(narrow, 20, floor), sinkhorn.plain(wide - wide.logsumexp(-2, keepdim=True), 20, floor)
    assert_close(got.double(), want, rtol=1e-4, atol=1e-5)
    (a,), (b,) = torch.autograd.grad(got, narrow, g.float()), torch.autograd.grad(want, wide, g)
    assert_close(a.double(), b, rtol=1e-3, atol=1e-5)


def test_half_precision_lanes_and_autocast() -> None:
    """Gates are float32 whatever the lanes are; a float32 stream stays float32 under autocast."""
    lanes, w = torch.randn(N, *TOKENS, D), torch.randn(*TOKENS, N)
    z, same = rms_linear.lane_gates(lanes.bfloat16(), torch.randn(2, D), 1e-6)
    assert (z.dtype, same.dtype) == (torch.float32, torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        x, kept = read_lanes.read_lanes(lanes, w)
    assert (x.dtype, kept.dtype) == (torch.float32, torch.float32)
    assert_close(x, read_lanes.plain(lanes, w)[0])


def test_one_tensor_of_the_lanes_is_kept() -> None:
    """Forward and write keep the lanes once, and the branch's result."""
    kept: dict[int, int] = {}

    def pack(t: Tensor) -> Tensor:
        kept[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
        return t
    lanes, y = torch.randn(8, *TOKENS, 64, requires_grad=True), torch.randn(*TOKENS, 64, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        _, mixed = read_mix.read_mix(lanes, torch.ones(8), torch.eye(8))
        write_over.write_over(mixed, y, torch.ones(8))
    assert sum(kept.values()) <= 1.1 * 4 * (lanes.numel() + y.numel())

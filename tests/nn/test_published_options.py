"""Options of branches that single published models brought, against their formulas."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from skipway._errors import ShapeMismatch, UsageError
from skipway.nn import Attention, FeedForward, MoE, Parallel, Rotary, Stack
from skipway.nn.rotary import stretch

DIM = 8
F64 = torch.float64


def shaken(module: Any) -> Any:
    with torch.no_grad():
        for p in module.parameters():
            p.add_(0.4 * torch.randn_like(p))
    return module


def test_a_sink_takes_part_and_has_no_value() -> None:
    torch.manual_seed(0)
    a = shaken(Attention(DIM, 2, True, window=3, sinks=True).double())
    x = torch.randn(1, 5, DIM, dtype=F64)
    rows = []
    for t in range(5):
        heads = []
        for h in range(2):
            part = slice(4 * h, 4 * h + 4)
            seen = range(max(0, t - 2), t + 1)
            scores = torch.stack([a.query(x[0, t])[part] @ a.key(x[0, s])[part] / 2 for s in seen])
            weights = scores.exp() / (scores.exp().sum() + a.sink[h].exp())
            heads.append(sum(w * a.value(x[0, s])[part] for w, s in zip(weights, seen)))
        rows.append(a.output(torch.cat(heads)))
    torch.testing.assert_close(a(x)[0], torch.stack(rows), rtol=1e-12, atol=1e-12)
    a(x).sum().backward()
    assert bool((a.sink.grad != 0).all())


def test_without_sinks_a_head_must_look_at_something() -> None:
    a = Attention(DIM, 2, sinks=True)
    with torch.no_grad():
        a.sink.fill_(60.0)
    assert bool((a(torch.randn(1, 4, DIM)) - a.output.bias).abs().max() < 1e-6)


def quick(x: Tensor) -> Tensor:
    return x / (1 + (-1.702 * x).exp())


def test_bounded_gates() -> None:
    torch.manual_seed(0)
    m = shaken(FeedForward(DIM, 12, "geglu_quick", limit=0.5, shift=1.0).double())
    x = 3 * torch.randn(4, DIM, dtype=F64)
    want = m.output(quick(m.gate(x).clamp(max=0.5)) * (m.input(x).clamp(-0.5, 0.5) + 1))
    torch.testing.assert_close(m(x), want, rtol=1e-12, atol=1e-12)
    assert bool(m.gate(x).min() < -0.5) and bool(m.gate(x).max() > 0.5)
    with pytest.raises(UsageError, match=r"kind 'gelu' with limit=None, shift=1\.0; those are for the gated kinds"):
        FeedForward(DIM, shift=1.0)


def test_bounded_experts() -> None:
    torch.manual_seed(0)
    m = shaken(MoE(DIM, 6, 4, 2, kind="geglu_quick", bias=True, shared=5, limit=0.5, shift=1.0, router_bias=True).double())
    x = 2 * torch.randn(5, DIM, dtype=F64)
    y, logits = m(x)
    for t in range(5):
        best = logits[t].topk(2)
        total = m.shared(x[t])
        for weight, e in zip(best.values.softmax(0), best.indices):          # the softmax over those that are chosen
            gate, up = m.gate[e] @ x[t] + m.gate_bias[e], m.input[e] @ x[t] + m.input_bias[e]
            total = total + weight * (m.output[e] @ (quick(gate.clamp(max=0.5)) * (up.clamp(-0.5, 0.5) + 1)) + m.output_bias[e])
        torch.testing.assert_close(y[t], total, rtol=1e-12, atol=1e-12)


def test_experts_that_are_looked_up() -> None:
    torch.manual_seed(0)
    m = shaken(MoE(DIM, 6, 5, 2, scores="sqrt_softplus", scale=1.5, table=7).double())
    assert m.table.tolist() == [[(2 * k + j) % 5 for j in range(2)] for k in range(7)]
    m.table[3] = torch.tensor([4, 1])
    x, ids = torch.randn(2, 2, DIM, dtype=F64), torch.tensor([[3, 0], [6, 3]])
    y, logits = m(x, ids=ids)
    for b in range(2):
        for t in range(2):
            chosen = m.table[ids[b, t]]
            scores = (1 + logits[2 * b + t, chosen].exp()).log().sqrt()
            total = sum(1.5 * s / scores.sum() * (m.output[e] @ (torch.nn.functional.silu(m.gate[e] @ x[b, t]) * (m.input[e] @ x[b, t])))
                        for s, e in zip(scores, chosen))
            torch.testing.assert_close(y[b, t], total, rtol=1e-12, atol=1e-12)
    with pytest.raises(ShapeMismatch, match="got no ids"):
        m(x)
    stack = Stack([MoE(DIM, 6, 5, 2), m], DIM).double()
    assert stack(x, ids=ids).shape == x.shape
    with pytest.raises(TypeError, match="no branch takes 'ids'"):
        Stack([MoE(DIM, 6, 5, 2)], DIM)(x.float(), ids=ids)


def test_dtypes_of_a_router() -> None:
    torch.manual_seed(0)
    m = MoE(DIM, 6, 4, 2, router_dtype=torch.float32, score_dtype=torch.float32).double()
    x = torch.randn(3, DIM, dtype=F64)
    _, logits = m(x)
    assert logits.dtype == torch.float32
    torch.testing.assert_close(logits, x.float() @ m.router.weight.float().T)
    assert m.choose(logits.double())[0].dtype == torch.float32
    assert MoE(DIM, 6, 4, 2).double().choose(logits.double())[0].dtype == F64
    low = MoE(DIM, 6, 4, 2, router_dtype=torch.float32).bfloat16()
    y, logits = low(x.bfloat16())
    assert (y.dtype, logits.dtype) == (torch.bfloat16, torch.float32)


def test_dropout_of_each_parallel_branch() -> None:
    """Where each of two ones is dropped by itself, their sum is 0, 2 or 4; where the sum is dropped, 0 or 4."""
    class One(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.ones_like(x)
    torch.manual_seed(0)
    p = Parallel([One(), One()], dropout=0.5)
    values = p(torch.zeros(4000, 1)).flatten()
    assert set(values.tolist()) == {0.0, 2.0, 4.0}
    assert abs(float(values.mean()) - 2) < 0.1
    assert set(p.eval()(torch.zeros(10, 1)).flatten().tolist()) == {2.0}


def test_yarn_by_two_factors() -> None:
    told: dict[str, Any] = {"kind": "yarn", "factor": 40.0, "original": 4096}
    assert stretch(40.0) == pytest.approx(0.1 * math.log(40) + 1)
    assert stretch(0.5) == 1.0
    both = Rotary(64, scaling={**told, "mscale": 0.5, "mscale_all": 0.9})
    assert both.amplitude == pytest.approx((0.05 * math.log(40) + 1) / (0.09 * math.log(40) + 1))
    assert Rotary(64, scaling=told).amplitude == stretch(40.0)
    assert Rotary(64, scaling={**told, "mscale": 0.5}).amplitude == stretch(40.0)
    assert Rotary(64, scaling={**told, "mscale": 0.5, "mscale_all": 0.9, "attention_factor": 1.0}).amplitude == 1.0

"""Feed-forward and mixture of experts against their formulas."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from skipway._errors import UsageError
from skipway.nn import FeedForward, MoE, Residual, Stack, load_balance_loss

DIM, HIDDEN = 8, 12


def gelu(v: Tensor) -> Tensor:
    return v * 0.5 * (1 + torch.erf(v / math.sqrt(2)))


def gelu_tanh(v: Tensor) -> Tensor:
    return v * 0.5 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v ** 3)))


def silu(v: Tensor) -> Tensor:
    return v / (1 + torch.exp(-v))


FUNCTIONS = {"gelu": gelu, "gelu_tanh": gelu_tanh, "relu": lambda v: v.clamp(min=0), "relu2": lambda v: v.clamp(min=0) ** 2, "silu": silu,
             "swiglu": silu, "geglu": gelu, "geglu_tanh": gelu_tanh, "reglu": lambda v: v.clamp(min=0)}


@pytest.mark.parametrize("kind", FUNCTIONS)
@pytest.mark.parametrize("bias", [True, False])
def test_the_formula(kind: str, bias: bool) -> None:
    torch.manual_seed(0)
    m = FeedForward(DIM, HIDDEN, kind, bias=bias).double()
    x = torch.randn(2, 3, DIM, dtype=torch.float64)
    inner = m.input(x)
    want = m.output(FUNCTIONS[kind](inner) if m.gate is None else FUNCTIONS[kind](m.gate(x)) * inner)
    torch.testing.assert_close(m(x), want)
    assert (m.gate is not None) == kind.endswith(("glu", "glu_tanh")) and (m.input.bias is not None) == bias
    assert [len(list(m.weights(k))) for k in ("input", "gate", "output", "value")] == [1, int(m.gate is not None), 1, 0]


def test_kinds_and_width() -> None:
    assert FeedForward(DIM).input.out_features == 4 * DIM
    with pytest.raises(UsageError, match="unknown kind 'swish' of a feed-forward; wanted one of gelu, gelu_tanh, relu"):
        FeedForward(DIM, kind="swish")
    m = FeedForward(DIM, HIDDEN, "relu", dropout=0.5)
    x = torch.ones(400, DIM)
    torch.manual_seed(0)
    assert not torch.equal(m(x), m(x)) and torch.equal(m.eval()(x), m(x))


def mixture(**options: Any) -> MoE:
    torch.manual_seed(0)
    made = MoE(DIM, HIDDEN, 6, 2, **options).double()
    with torch.no_grad():
        for p in made.parameters():
            p.add_(0.2 * torch.randn_like(p))
    return made


@torch.no_grad()
def by_hand(m: MoE, x: Tensor, choice: Any = None) -> Tensor:
    """One token at a time."""
    rows = []
    for v in x.reshape(-1, DIM):
        logits = m.router(v)
        scores = logits.softmax(-1) if m.scores == "softmax" else torch.sigmoid(logits)
        judged = scores if m.correction is None else scores + m.correction
        best = sorted(range(m.experts), key=lambda e: -float(judged[e])) if choice is None else choice(judged)
        best = best[:m.top_k]
        total = sum(scores[e] for e in best) if m.normalise else 1.0
        y = torch.zeros(DIM, dtype=v.dtype)
        for e in best:
            up = m.input[e] @ v + (0 if m.input_bias is None else m.input_bias[e])
            gate = None if m.gate is None else m.gate[e] @ v + (0 if m.gate_bias is None else m.gate_bias[e])
            inner = m.function(up) if gate is None else m.function(gate) * up
            y = y + m.scale * scores[e] / total * (m.output[e] @ inner + (0 if m.output_bias is None else m.output_bias[e]))
        if m.shared is not None:
            y = y + (1 if m.shared_gate is None else torch.sigmoid(m.shared_gate(v))) * m.shared(v)
        rows.append(y)
    return torch.stack(rows).view_as(x)


@pytest.mark.parametrize("options", [
    {}, {"kind": "gelu", "bias": True}, {"shared": 5}, {"shared": 5, "shared_gate": True}, {"scores": "sigmoid", "normalise": False, "scale": 2.5},
    {"correction": True, "scores": "sigmoid"}, {"router_bias": True}], ids=str)
def test_a_mixture_token_by_token(options: dict[str, Any]) -> None:
    m = mixture(**options)
    if m.correction is not None:
        m.correction.copy_(torch.linspace(1, -1, 6))
    x = torch.randn(3, 5, DIM, dtype=torch.float64)
    y, logits = m(x)
    torch.testing.assert_close(y, by_hand(m, x))
    torch.testing.assert_close(logits, m.router(x).reshape(-1, 6))


def test_groups_of_experts() -> None:
    """Three groups of two, the best two by their one best expert: the worst group is left out."""
    m = mixture(groups=3, top_groups=2, group_best=1)

    def choice(judged: Tensor) -> list[int]:
        groups = sorted(range(3), key=lambda g: -float(judged[2 * g:2 * g + 2].max()))[:2]
        return sorted((e for g in groups for e in (2 * g, 2 * g + 1)), key=lambda e: -float(judged[e]))
    x = torch.randn(4, 5, DIM, dtype=torch.float64)
    torch.testing.assert_close(m(x)[0], by_hand(m, x, choice))


def test_an_expert_without_tokens_gets_a_gradient_of_zero() -> None:
    m = mixture()
    y, _ = m(torch.randn(1, 1, DIM, dtype=torch.float64))
    y.sum().backward()
    used = m.input.grad.flatten(1).abs().sum(1) > 0
    assert m.input.grad is not None and used.sum() == 2


@pytest.mark.parametrize("options", [{}, {"kind": "gelu", "bias": True, "shared": 5}], ids=str)
def test_compiled_without_a_break(options: dict[str, Any]) -> None:
    """Numbers and gradients of the graph whose shapes do not depend on the choice."""
    m = mixture(**options).float()
    x = torch.randn(3, 8, DIM)
    torch._dynamo.reset()
    run = torch.compile(m, fullgraph=True, backend="aot_eager")
    found = []
    for call in (m, run):
        y, logits = call(x)
        found.append([y, *torch.autograd.grad((y.sin().sum() + logits.square().mean()), list(m.parameters()))])
    for a, b in zip(*found):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_router_logits_come_out_of_a_stack() -> None:
    stack = Stack([MoE(DIM, HIDDEN, 4), nn.Linear(DIM, DIM), MoE(DIM, HIDDEN, 4)], DIM)
    _, extras = stack(torch.randn(2, 3, DIM), extras=True)
    assert [len(e) for e in extras] == [1, 0, 1] and extras[0][0].shape == (6, 4)
    assert stack.layers[0].scheme.role == "moe"
    block = Residual(MoE(DIM, HIDDEN, 4), DIM, drop_path=0.5)
    out, logits = block(torch.randn(4, 3, DIM))
    assert out.shape == (4, 3, DIM) and len(logits) % 3 == 0


def test_load_balance_loss() -> None:
    """1 where choices and probabilities are even, the number of experts where all go to one."""
    even = torch.eye(4).repeat(5, 1) * 1e-3
    assert load_balance_loss(even, 1) == pytest.approx(1.0, abs=1e-6)
    one = torch.tensor([[50.0, 0, 0, 0]]).repeat(7, 1)
    assert load_balance_loss(one, 1) == pytest.approx(4.0)
    logits = torch.randn(9, 4, requires_grad=True)
    load_balance_loss(logits, 2).backward()
    assert logits.grad.abs().max() > 0


def test_wrong_use_is_refused() -> None:
    with pytest.raises(UsageError, match="6 experts in 4 groups"):
        MoE(DIM, HIDDEN, 6, groups=4)
    with pytest.raises(UsageError, match="4 experts in 1 groups, 1 of them, 5 a token"):
        MoE(DIM, HIDDEN, 4, 5)
    with pytest.raises(UsageError, match="scores='max'"):
        MoE(DIM, HIDDEN, 4, scores="max")

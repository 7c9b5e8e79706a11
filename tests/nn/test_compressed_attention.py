"""Compressed attention against its equations, written out token by token."""

import pytest
import torch
from torch import Tensor

from skipway._errors import UsageError
from skipway.nn import CompressedAttention
from skipway.nn.compressed_attention import Compressor

F64 = torch.float64


def made(**options: object) -> CompressedAttention:
    torch.manual_seed(0)
    a = CompressedAttention(20, 4, 8, query_latent=6, window=3, turned=4, groups=2, group_width=5, **options).double()       # type: ignore[arg-type]
    with torch.no_grad():
        for p in a.parameters():
            p.add_(0.3 * torch.randn_like(p))
    return a


def norm(x: Tensor, gain: Tensor | float = 1.0, eps: float = torch.finfo(F64).eps) -> Tensor:
    return gain * x / (x.square().mean(-1, keepdim=True) + eps).sqrt()


def turned(a: CompressedAttention, v: Tensor, position: int) -> Tensor:
    angles = position * a.rotary.frequencies.float()
    turns = torch.polar(torch.ones(2, dtype=F64), angles.double())
    return torch.cat((v[:4], torch.view_as_real(torch.view_as_complex(v[4:].view(2, 2)) * turns).flatten()))


def summary(a: CompressedAttention, c: Compressor, x: Tensor, group: int) -> Tensor:
    """The summary of one group of tokens of one sample."""
    pairs = []
    for t in range(group * c.rate, (group + 1) * c.rate):
        value, gate = c.value(x[t]), c.gate(x[t]) + c.bias[t % c.rate]
        pairs.append((value[-c.width:], gate[-c.width:]))
        if c.overlap and group:
            value, gate = c.value(x[t - c.rate]), c.gate(x[t - c.rate]) + c.bias[t % c.rate]
            pairs.append((value[:c.width], gate[:c.width]))
    weights = torch.stack([g for _, g in pairs]).softmax(0)
    return turned(a, norm((weights * torch.stack([v for v, _ in pairs])).sum(0), c.norm.weight), group * c.rate)


def by_hand(a: CompressedAttention, x: Tensor) -> Tensor:
    rows = []
    keys = [turned(a, norm(a.value(v), a.value_norm.weight), t) for t, v in enumerate(x)]
    for t, v in enumerate(x):
        u = norm(a.query_down(v), a.query_norm.weight)
        seen = [keys[s] for s in range(max(0, t - 2), t + 1)]
        if a.summaries is not None and a.rate is not None:
            past = list(range((t + 1) // a.rate))
            if a.chooser is not None and past:
                k = a.chooser
                q = k.query(u).view(k.heads, k.width)
                angle = [torch.stack([turned(a, h, t) for h in q]) @ summary(a, k.keys, x, s) for s in past]
                scores = torch.stack([(k.weigh(v) * k.heads ** -0.5 * s.relu() * k.width ** -0.5).sum() for s in angle])
                past = sorted(scores.topk(min(k.top, len(past))).indices.tolist())
            seen += [summary(a, a.summaries, x, s) for s in past]
        stacked, heads = torch.stack(seen), []
        for h, q in enumerate(a.query(u).split(8)):
            q = turned(a, norm(q, eps=a.eps), t)
            weights = torch.cat((stacked @ q * 8 ** -0.5, a.sink[h:h + 1])).softmax(0)[:-1]
            heads.append(turned(a, weights @ stacked, -t))
        groups = torch.cat(heads).view(2, -1)
        rows.append(a.output(torch.cat([m @ g for m, g in zip(a.mix.view(2, 5, -1), groups)])))
    return torch.stack(rows)



@pytest.mark.parametrize("options", [{}, {"rate": 4}, {"rate": 2, "chosen": {"heads": 8, "width": 8, "top": 2}}], ids=["window", "heavy", "sparse"])
def test_equal_to_its_equations(options: dict[str, object]) -> None:
    """With so many heads that no score is the sum of none: which of several zeros is chosen is nobody's promise."""
    a, x = made(**options), torch.randn(2, 11, 20, dtype=F64)
    with torch.no_grad():
        # Weights of a summary are made in float32.
        torch.testing.assert_close(a(x), torch.stack([by_hand(a, v) for v in x]), rtol=1e-6, atol=1e-6)


def test_no_token_sees_what_comes_later() -> None:
    a, x = made(rate=2, chosen={"heads": 8, "width": 8, "top": 2}), torch.randn(1, 10, 20, dtype=F64)
    with torch.no_grad():
        for t in range(1, 10):
            torch.testing.assert_close(a(x)[:, :t], a(x[:, :t]), rtol=1e-6, atol=1e-6)


def test_the_choice_has_no_gradient() -> None:
    a = made(rate=2, chosen={"heads": 2, "width": 8, "top": 1})
    a(torch.randn(1, 8, 20, dtype=F64)).square().sum().backward()
    assert a.chooser is not None and a.summaries is not None
    assert all(p.grad is None for p in a.chooser.parameters())
    assert all(p.grad is not None and bool(p.grad.abs().max() > 0) for p in a.summaries.parameters())


def test_what_does_not_fit() -> None:
    with pytest.raises(UsageError, match="4 heads in 3 groups"):
        CompressedAttention(20, 4, 8, query_latent=6, window=3, turned=4, groups=3)
    with pytest.raises(UsageError, match="a choice only among summaries"):
        made(chosen={"heads": 8, "width": 8, "top": 2})

"""Attention against its formula, written out head by head and token by token; masks, groups, windows, residuals inside it."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from skipway._errors import ShapeMismatch, UsageError
from skipway.nn import Attention, Encoder, Rotary

DIM, HEADS, BATCH, TOKENS = 12, 4, 2, 6


def built(**options: Any) -> Attention:
    torch.manual_seed(0)
    made = Attention(DIM, HEADS, **options).double()
    with torch.no_grad():
        for p in made.parameters():
            p.add_(0.3 * torch.randn_like(p))
    return made


def data(tokens: int = TOKENS) -> Tensor:
    return torch.randn(BATCH, tokens, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(tokens))


def rotate(v: list[Tensor], position: int, theta: float, interleaved: bool = False) -> list[Tensor]:
    half = len(v) // 2
    out = list(v)
    for i in range(half):
        a, b = (2 * i, 2 * i + 1) if interleaved else (i, i + half)
        angle = position / theta ** (2 * i / len(v))
        out[a] = v[a] * math.cos(angle) - v[b] * math.sin(angle)
        out[b] = v[a] * math.sin(angle) + v[b] * math.cos(angle)
    return out


def by_hand(m: Attention, x: Tensor, source: Tensor, sees: Any, *, theta: float | None = None, cap: float | None = None, added: Any = None) -> Tensor:
    """One head, one query at a time. sees(i, j): whether query i sees key j."""
    width, share = m.head_dim, m.heads // m.kv_heads
    rows = []
    for b in range(len(x)):
        q, k, v = m.query(x[b]), m.key(source[b]), m.value(source[b])
        out = torch.zeros(x.shape[1], m.heads * width, dtype=x.dtype)
        for h in range(m.heads):
            one, two = slice(h * width, (h + 1) * width), slice(h // share * width, (h // share + 1) * width)
            for i in range(x.shape[1]):
                scores = {}
                for j in range(source.shape[1]):
                    if not sees(i, j):
                        continue
                    a, c = list(q[i, one]), list(k[j, two])
                    if theta is not None:
                        a, c = rotate(a, i, theta), rotate(c, j, theta)
                    s = sum(u * w for u, w in zip(a, c)) * m.scale
                    s = s if cap is None else cap * torch.tanh(s / cap)
                    scores[j] = s if added is None else s + added[b, h, i, j]
                total = sum(torch.exp(s) for s in scores.values())
                out[i, one] = sum(torch.exp(s) / total * v[j, two] for j, s in scores.items())
        rows.append(m.output(out))
    return torch.stack(rows)


@pytest.mark.parametrize(("options", "sees", "more"), [
    ({}, lambda i, j: True, {}),
    ({"causal": True}, lambda i, j: j <= i, {}),
    ({"causal": True, "kv_heads": 2, "bias": False}, lambda i, j: j <= i, {}),
    ({"causal": True, "window": 3}, lambda i, j: i - 3 < j <= i, {}),
    ({"window": 2}, lambda i, j: abs(i - j) < 2, {}),
    ({"softcap": 2.0, "kv_heads": 1, "causal": True}, lambda i, j: j <= i, {"cap": 2.0}),
    ({"scale": 0.2, "head_dim": 4}, lambda i, j: True, {}),
    ({"rotary": {"theta": 50.0}, "head_dim": 4, "causal": True}, lambda i, j: j <= i, {"theta": 50.0})], ids=lambda v: "" if callable(v) else str(v))
def test_the_formula(options: dict[str, Any], sees: Any, more: dict[str, Any]) -> None:
    m = built(**options)
    torch.testing.assert_close(m(data()), by_hand(m, data(), data(), sees, **more), rtol=1e-6 if "rotary" in options else 1e-12, atol=1e-7)


def test_cross_attention() -> None:
    m = built(cross=True)
    x, context = data(), data(4)
    torch.testing.assert_close(m(x, context=context), by_hand(m, x, context, lambda i, j: True))
    seen = torch.tensor([[True, True, False, True], [True, False, True, True]])
    got = m(x, context=context, context_mask=seen)
    for b in range(BATCH):
        want = by_hand(m, x[b:b + 1], context[b:b + 1], lambda i, j, b=b: bool(seen[b, j]))
        torch.testing.assert_close(got[b:b + 1], want)
    wide = Attention(DIM, HEADS, cross=True, context_dim=5).double()
    assert wide(x, context=torch.randn(BATCH, 4, 5, dtype=torch.float64)).shape == x.shape


def test_masks_by_sample_and_added_ones() -> None:
    m = built()
    x = data()
    added = torch.randn(BATCH, HEADS, TOKENS, TOKENS, dtype=torch.float64)
    torch.testing.assert_close(m(x, mask=added), by_hand(m, x, x, lambda i, j: True, added=added))
    real = torch.ones(BATCH, TOKENS, dtype=torch.bool)
    real[1, 4:] = False
    got = built(causal=True)(x, mask=added, key_mask=real)
    want = by_hand(m, x[1:], x[1:], lambda i, j: j <= i and j < 4, added=added[1:])
    torch.testing.assert_close(got[1:], want)


def test_fused_and_written_out_are_the_same() -> None:
    """A cap too high to matter sends the same attention down the other path, gradients included."""
    one, two = built(causal=True, kv_heads=2), built(causal=True, kv_heads=2, softcap=1e9)
    x, y = data().requires_grad_(), data().requires_grad_()
    a, b = one(x), two(y)
    a.sin().sum().backward()
    b.sin().sum().backward()
    torch.testing.assert_close(a, b)
    torch.testing.assert_close(x.grad, y.grad)


def test_a_token_that_sees_nothing_gets_nothing() -> None:
    m = built(softcap=5.0)
    nothing = torch.ones(TOKENS, TOKENS, dtype=torch.bool)
    nothing[2] = False
    assert torch.equal(m(data(), mask=nothing)[:, 2], m.output.bias.expand(BATCH, -1))


@pytest.mark.parametrize("kind", ["head", "all"])
def test_norms_on_queries_and_keys(kind: str) -> None:
    m = built(qk_norm=kind)
    x = data()
    q, k, v = m.query(x), m.key(x), m.value(x)

    def normed(t: Tensor, gain: Tensor) -> Tensor:
        t = t.unflatten(-1, (HEADS, -1)) if kind == "head" else t
        t = t / t.square().mean(-1, keepdim=True).add(torch.finfo(t.dtype).eps).sqrt() * gain
        return t if kind == "head" else t.unflatten(-1, (HEADS, -1))
    q, k = normed(q, m.query_norm.weight), normed(k, m.key_norm.weight)
    weights = (torch.einsum("bihd,bjhd->bhij", q, k) * m.scale).softmax(-1)
    want = m.output(torch.einsum("bhij,bjhd->bihd", weights, v.unflatten(-1, (HEADS, -1))).flatten(-2))
    torch.testing.assert_close(m(x), want)


def test_value_residual() -> None:
    """l_1 V_first + l_2 V, both 1/2 at the start; the first layer's own output does not change."""
    first, later = built(value_residual="first"), built(value_residual="later")
    plain = built()
    later.load_state_dict(plain.state_dict(), strict=False)
    x = data()
    y, value = first(x)
    torch.testing.assert_close(y, plain(x))
    torch.testing.assert_close(value.transpose(1, 2).flatten(-2), first.value(x))
    with torch.no_grad():
        later.mix.copy_(torch.tensor([0.3, 0.7]))
        other = built()
        other.value.weight.mul_(0.7)
        other.value.bias.mul_(0.7)
        handed = torch.zeros_like(value)
        torch.testing.assert_close(later(x, first_value=handed), other(x))
        torch.testing.assert_close(later(x, first_value=value), plain(x))       # the same values: 0.3 V + 0.7 V
    with pytest.raises(ShapeMismatch, match='value_residual="later" got no first_value'):
        later(x)
    assert [layer.branch.value_residual for layer in Encoder(DIM, HEADS, 3, attention={"value_residual": True}).layers if hasattr(
        layer.branch, "value_residual")] == ["first", "later", "later"]


def test_score_residual() -> None:
    """The scores of the attention before are added, before the mask."""
    m = built(score_residual=True, causal=True)
    x = data()
    y, scores = m(x)
    torch.testing.assert_close(y, built(causal=True)(x))
    q, k = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in (m.query(x), m.key(x)))
    torch.testing.assert_close(scores, q @ k.transpose(-2, -1) * m.scale)
    z, more = m(x, scores=scores)
    torch.testing.assert_close(more, 2 * scores)
    torch.testing.assert_close(z, built(causal=True)(x, mask=scores))


def test_reads_of_three_inputs() -> None:
    """A scheme may read query, key and value apart."""
    m = built()
    x, y, z = data(), data() + 1, data() - 1
    torch.testing.assert_close(m(x, y), m(x, y, y))
    got = m(x, y, z)
    with torch.no_grad():
        other = built()
    q, k, v = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in (other.query(x), other.key(y), other.value(z)))
    torch.testing.assert_close(got, other.output(((q @ k.transpose(-2, -1) * m.scale).softmax(-1) @ v).transpose(1, 2).flatten(-2)))


def test_rotary_positions() -> None:
    x = torch.randn(1, 1, 5, 8, dtype=torch.float64)
    for interleaved in (False, True):
        got = Rotary(8, theta=100.0, interleaved=interleaved)(x)
        want = torch.stack([torch.stack(rotate(list(x[0, 0, t]), t, 100.0, interleaved)) for t in range(5)])
        torch.testing.assert_close(got[0, 0], want, rtol=1e-6, atol=1e-6)
    half = Rotary(8, partial=0.5)(x)
    torch.testing.assert_close(half[..., :4], Rotary(4)(x[..., :4]))
    assert torch.equal(half[..., 4:], x[..., 4:])
    places = torch.tensor([[3, 0, 7, 1, 2]])
    turned = Rotary(8)(x, places)
    torch.testing.assert_close(turned[:, :, 1], x[:, :, 1])
    torch.testing.assert_close(turned[:, :, 0], Rotary(8)(x[:, :, :1].expand(1, 1, 4, 8))[:, :, 3])


def test_only_distances_matter_to_rotary_scores() -> None:
    m = built(rotary=True, head_dim=4)
    x = data()
    places = torch.arange(TOKENS)
    torch.testing.assert_close(m(x, positions=places), m(x, positions=places + 17), rtol=1e-4, atol=1e-4)
    assert not torch.allclose(m(x, positions=places), m(x, positions=places * 2), rtol=1e-3)


def test_wrong_use_is_refused() -> None:
    with pytest.raises(UsageError, match="width 12 with 5 heads and 5 of keys"):
        Attention(12, 5)
    with pytest.raises(UsageError, match="4 heads and 3 of keys"):
        Attention(12, 4, kv_heads=3)
    with pytest.raises(UsageError, match="value_residual='last'"):
        Attention(12, 4, value_residual="last")
    with pytest.raises(ShapeMismatch, match="got no context"):
        Attention(12, 4, cross=True)(torch.randn(1, 2, 12))
    with pytest.raises(ShapeMismatch, match="not built with cross=True got a context"):
        Attention(12, 4)(torch.randn(1, 2, 12), context=torch.randn(1, 2, 12))
    with pytest.raises(UsageError, match="3 of the 3 channels of a head"):
        Rotary(3)
    with pytest.raises(UsageError, match="kind 'stretch'; wanted one of linear, ntk, llama3, yarn"):
        Rotary(8, scaling={"kind": "stretch", "factor": 2})
    with pytest.raises(UsageError, match="rotary scaling llama3 got factor; it takes factor, low, high, original"):
        Rotary(8, scaling={"kind": "llama3", "factor": 8})

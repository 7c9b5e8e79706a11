"""token-misaligned-branch: heads that are merged wrongly and rows that are moved, in every way an attention is written."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .values import DIM, Residual, found, places

CODE = "SKW502"
HEADS, TOKENS = 4, 6


class Attention(nn.Module):
    """`mix(self, q, k, v)` on (batch, head, token, channel); faulty: heads are merged without being put behind the tokens."""

    def __init__(self, mix: Callable[..., Tensor], faulty: bool, groups: int = 1) -> None:
        super().__init__()
        self.mix, self.faulty, self.groups = mix, faulty, groups
        self.q, self.k, self.v = nn.Linear(DIM, DIM), nn.Linear(DIM, DIM // groups), nn.Linear(DIM, DIM // groups)
        self.out, self.bias = nn.Linear(DIM, DIM), nn.Parameter(torch.randn(HEADS, TOKENS, TOKENS))

    def forward(self, x: Tensor, memory: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        memory = x if memory is None else memory
        q, k, v = (part(y).unflatten(-1, (n, -1)).transpose(1, 2) for part, y, n in (
            (self.q, x, HEADS), (self.k, memory, HEADS // self.groups), (self.v, memory, HEADS // self.groups)))
        if self.groups > 1:
            k, v = k.repeat_interleave(self.groups, 1), v.repeat_interleave(self.groups, 1)
        y = self.mix(self, q, k, v) if mask is None else self.mix(self, q, k, v, mask)
        return self.out(y.reshape(*x.shape[:2], DIM) if self.faulty else y.transpose(1, 2).reshape(*x.shape[:2], DIM))


class Block(nn.Module):
    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.norm1, self.norm2, self.attn = nn.LayerNorm(DIM), nn.LayerNorm(DIM), attention
        self.ffn = nn.Sequential(nn.Linear(DIM, 32), nn.GELU(), nn.Linear(32, DIM))

    def forward(self, x: Tensor, memory: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        x = x + self.attn(self.norm1(x), memory, mask)
        return x + self.ffn(self.norm2(x))


def plain(m: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.transpose(-1, -2) / 2).softmax(-1) @ v


def by_einsum(m: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.einsum("bhqk,bhkd->bhqd", torch.einsum("bhkd,bhqd->bhqk", k, q).softmax(-1), v)


def keys_first(m: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.einsum("bhkd,bhqd->bhkq", k, q).softmax(-2).transpose(-1, -2) @ v


def biased(m: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.transpose(-1, -2) / 2 + m.bias).softmax(-1) @ v


def causal(m: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def fused(m: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, mask)


def masked(m: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    return (q @ k.transpose(-1, -2) / 2 + mask).softmax(-1) @ v


def over_channels(m: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return ((F.normalize(q, dim=-2).transpose(-1, -2) @ F.normalize(k, dim=-2)).softmax(-1) @ v.transpose(-1, -2)).transpose(-1, -2)


MIXES = [plain, by_einsum, keys_first, biased, causal, fused]


def made(mix: Callable[..., Tensor], faulty: bool, **options: Any) -> nn.Module:
    torch.manual_seed(0)
    return Block(Attention(mix, faulty, **options)).eval()


def tokens(batch: int = 2, count: int = TOKENS) -> Tensor:
    return torch.randn(batch, count, DIM, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("batch", [1, 3, TOKENS])
@pytest.mark.parametrize("mix", MIXES)
def test_heads_merged_wrongly_and_rightly(mix: Callable[..., Tensor], batch: int) -> None:
    hits = found(CODE, made(mix, True), tokens(batch))
    assert [f.where for f in hits] == ["attn"] and hits[0].severity == "error"
    assert hits[0].values == {"rows_reached": HEADS, "other_rows": HEADS - 1, "want": 0}
    assert places(CODE, made(mix, False), tokens(batch)) == []


def test_grouped_heads_and_cross_attention() -> None:
    assert places(CODE, made(fused, True, groups=2), tokens()) == ["attn"]
    assert places(CODE, made(fused, False, groups=2), tokens()) == []
    memory = tokens(2, 9) * 0.5
    assert places(CODE, made(plain, True), tokens(), memory) == ["attn"]
    assert places(CODE, made(plain, False), tokens(), memory) == []


@pytest.mark.parametrize("low", [-1e9, float("-inf")])
@pytest.mark.parametrize("mix", [masked, fused])
def test_a_mask_that_leaves_each_token_itself_alone(mix: Callable[..., Tensor], low: float) -> None:
    mask = torch.full((TOKENS, TOKENS), low).fill_diagonal_(0.0)
    assert places(CODE, made(mix, True), tokens(), mask=mask) == ["attn"]
    assert places(CODE, made(mix, False), tokens(), mask=mask) == []


@pytest.mark.parametrize("faulty", [True, False])
def test_an_output_projection_of_zero_hides_nothing(faulty: bool) -> None:
    model: Any = made(plain, faulty)
    nn.init.zeros_(model.attn.out.weight)
    nn.init.zeros_(model.attn.out.bias)
    assert places(CODE, model, tokens()) == (["attn"] if faulty else [])
    assert not bool(model.attn.out.weight.any())


def test_equal_rows_hide_nothing() -> None:
    assert places(CODE, made(plain, True), torch.ones(2, TOKENS, DIM)) == ["attn"]


def test_attention_over_channels() -> None:
    assert places(CODE, made(over_channels, False), tokens()) == []


@pytest.mark.parametrize("faulty", [True, False])
def test_token_first(faulty: bool) -> None:
    def attend(m: Any, x: Tensor) -> Tensor:
        t, b, _ = x.shape
        q, k, v = (y.reshape(t, b * HEADS, -1).transpose(0, 1) for y in m.qkv(m.norm(x)).chunk(3, -1))
        y = (q @ k.transpose(1, 2)).softmax(-1) @ v
        return x + m.out(y.reshape(t, b, DIM) if faulty else y.transpose(0, 1).reshape(t, b, DIM))

    model = Residual(attend, qkv=nn.Linear(DIM, 3 * DIM), out=nn.Linear(DIM, DIM)).eval()
    assert bool(places(CODE, model, tokens(TOKENS, 2))) is faulty


@pytest.mark.parametrize("faulty", [True, False])
def test_an_image(faulty: bool) -> None:
    class Image(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.qkv, self.out = nn.BatchNorm2d(DIM), nn.Conv2d(DIM, 3 * DIM, 1), nn.Conv2d(DIM, DIM, 1)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.qkv(self.norm(x)).flatten(2).unflatten(1, (3, HEADS, -1)).transpose(-1, -2).unbind(1)
            y = F.scaled_dot_product_attention(q, k, v)
            return x + self.out((y if faulty else y.transpose(-1, -2)).reshape(x.shape))

    assert bool(places(CODE, Image().eval(), torch.randn(2, DIM, 3, 2))) is faulty


@pytest.mark.parametrize("undone", [True, False])
def test_shifted_windows(undone: bool) -> None:
    def attend(m: Any, x: Tensor) -> Tensor:
        b, t, _ = x.shape
        w = m.norm(x).roll(-1, 1).reshape(b * t // 3, 3, DIM)
        y = m.attn(w, w, w, need_weights=False)[0].reshape(b, t, DIM)
        return x + (y.roll(1, 1) if undone else y)

    model = Residual(attend, attn=nn.MultiheadAttention(DIM, 2, batch_first=True)).eval()
    assert bool(places(CODE, model, tokens())) is not undone


def padded(m: Any, x: Tensor) -> Tensor:
    return m.ffn(F.pad(x, (0, 0, 1, 0))[:, :-1])


MOVES: dict[str, tuple[Callable[[Any, Tensor], Tensor], bool]] = {
    "flip": (lambda m, x: m.ffn(x.flip(1)), True), "flip and back": (lambda m, x: m.ffn(x.flip(1)).flip(1), False),
    "roll": (lambda m, x: m.ffn(x.roll(1, 1)), True), "roll and back": (lambda m, x: m.ffn(x.roll(1, 1)).roll(-1, 1), False),
    "axes exchanged": (lambda m, x: m.ffn(x.unflatten(1, (2, 3)).transpose(1, 2).flatten(1, 2)), True),
    "axes exchanged and back": (lambda m, x: m.ffn(x.unflatten(1, (2, 3)).transpose(1, 2)).transpose(1, 2).flatten(1, 2), False),
    "a view for a transpose": (lambda m, x: m.point(x.reshape(len(x), DIM, -1)).reshape(x.shape), True),
    "a transpose": (lambda m, x: m.point(x.transpose(1, 2)).transpose(1, 2), False),
    "two tokens stacked": (lambda m, x: m.pair(x.reshape(len(x), -1, 2 * DIM)).reshape(x.shape), False),
    "a shift with padding": (padded, False),
    "a mean over tokens": (lambda m, x: m.ffn(x) * x.mean(1, keepdim=True).sigmoid(), False),
    "a token MLP": (lambda m, x: m.mix(x.transpose(1, 2)).transpose(1, 2), False),
    "a convolution": (lambda m, x: m.conv(x.transpose(1, 2)).transpose(1, 2), False),
}


@pytest.mark.parametrize("name", MOVES)
def test_branches_without_attention(name: str) -> None:
    move, fires = MOVES[name]
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(DIM, DIM), Residual(lambda m, x: x + move(m, m.norm(x)), mix=nn.Linear(TOKENS, TOKENS),
                                                        conv=nn.Conv1d(DIM, DIM, 3, padding=1), point=nn.Conv1d(DIM, DIM, 1),
                                                        pair=nn.Linear(2 * DIM, 2 * DIM))).eval()
    assert bool(places(CODE, model, tokens())) is fires


def test_alike_branches_are_told_each() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*[Block(Attention(plain, k != 1)) for k in range(3)]).eval()
    assert places(CODE, model, tokens()) == ["0.attn", "2.attn"]

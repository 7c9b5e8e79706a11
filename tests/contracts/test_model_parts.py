"""What the architectures share, against formulas: norms in mixed dtypes, scaled embeddings, the patterns of windows, the rows of a checkpoint."""

from functools import partial

import pytest
import torch

import skipway
from skipway.models._base import Row
from skipway.models._checkpoint import _joined, _split
from skipway.models._decoder import slides
from skipway.models._parts import OffsetRMSNorm, RMSNorm, ScaledEmbedding, initial_normal


@pytest.mark.parametrize("gain", [torch.float32, torch.bfloat16])
def test_a_norm_keeps_the_dtype_of_the_stream(gain: torch.dtype) -> None:
    torch.manual_seed(0)
    norm, x = RMSNorm(64, eps=1e-5), torch.randn(5, 64)
    norm.weight.data = torch.randn(64).to(gain)
    y = norm(x.bfloat16())
    assert y.dtype == torch.bfloat16
    wide = x.bfloat16().double()
    want = norm.weight.double() * wide / (wide.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    torch.testing.assert_close(y.double(), want, rtol=2 ** -7, atol=1e-6)


def test_a_norm_of_one_plus_its_weight_starts_as_one() -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 16)
    norm = OffsetRMSNorm(16, eps=1e-6)
    want = x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    torch.testing.assert_close(norm(x), want)
    torch.testing.assert_close(norm.double()(x.double()), want.double())
    for start in (1.0, 0.25):                               # a scheme that sets the gain knows of the 1
        scheme = skipway.schemes.build("sandwich", 16, norm=partial(OffsetRMSNorm, eps=1e-6), start=start)
        torch.testing.assert_close(scheme.out_norm(x), start * want)
    assert skipway.schemes.build("sandwich", 16, norm=OffsetRMSNorm).norms() == ("norm", "out_norm")


def test_scaled_embedding() -> None:
    torch.manual_seed(0)
    e = ScaledEmbedding(5, 48, 0)
    initial_normal(e, 1.0)
    ids = torch.tensor([[0, 3]])
    torch.testing.assert_close(e(ids), e.weight[ids] * 48 ** 0.5)
    assert not e(ids)[0, 0].any()
    root = torch.tensor(48 ** 0.5).bfloat16()               # rounded first, as the weights were trained with
    low = e.bfloat16()
    assert torch.equal(low(ids), low.weight[ids] * root)


@pytest.mark.parametrize(("types", "want"), [
    ("s", (True,)), ("sf", (True, False)), ("sfsfs", (True, False)), ("sssssfsssss", (True,) * 5 + (False,)),
    ("ffs", (False, False, True)), ("fffff", (False,)),
    ("fssss", (False, True, True, True, True))])
def test_windows_by_a_pattern(types: str, want: tuple[bool, ...]) -> None:
    assert slides([{"s": "sliding_attention", "f": "full_attention"}[t] for t in types], len(types)) == want


def test_the_rows_of_a_checkpoint() -> None:
    a, b = torch.arange(8.0).view(4, 2), 10 + torch.arange(12.0).view(6, 2)
    turns = Row(("a", "b"), "t", "rows", 2)
    whole = torch.tensor([[0, 1], [2, 3], [10, 11], [12, 13], [14, 15], [4, 5], [6, 7], [16, 17], [18, 19], [20, 21.0]])
    assert torch.equal(_joined([a, b], turns), whole)
    assert all(torch.equal(x, y) for x, y in zip(_split([whole], [4, 6], turns), (a, b), strict=True))
    gate, up = torch.randn(3, 4, 5), torch.randn(3, 4, 5)
    alternate = Row(("gate", "up"), "t", "each rows turned", 4)
    whole = _joined([gate, up], alternate)
    assert whole.shape == (3, 5, 8)
    assert torch.equal(whole[..., 0::2], gate.mT) and torch.equal(whole[..., 1::2], up.mT)
    assert all(torch.equal(x, y) for x, y in zip(_split([whole], [4, 4], alternate), (gate, up), strict=True))
    assert torch.equal(_joined([gate], Row("g", "t", "each turned")), gate.mT)
    assert torch.equal(_split([gate.mT], [4], Row("g", "t", "each turned"))[0], gate)


def test_a_module_for_further_tokens_is_left_out() -> None:
    config = skipway.models.sizes("deepseek")["3"]
    kind = type(skipway.models.build("deepseek"))
    assert kind.ignores("model.layers.61.eh_proj.weight", config) and kind.ignores("layers.61.embed_tokens.weight", config)
    assert not kind.ignores("model.layers.60.input_layernorm.weight", config)

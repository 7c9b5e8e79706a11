"""The relative bias: T5's, and its edges."""

import pytest
import torch

from skipway._errors import UsageError
from skipway.nn import Attention, RelativeBias


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("buckets", "farthest"), [(32, 128), (8, 12)])
def test_equal_to_transformers(causal: bool, buckets: int, farthest: int) -> None:
    transformers = pytest.importorskip("transformers")
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5")
    config = transformers.T5Config(num_heads=3, relative_attention_num_buckets=buckets, relative_attention_max_distance=farthest, is_decoder=causal)
    theirs, ours = t5.T5Attention(config, has_relative_attention_bias=True, layer_idx=0), RelativeBias(3, buckets, farthest, causal=causal)
    with torch.no_grad():
        ours.table.weight.copy_(torch.randn(buckets, 3))
        theirs.relative_attention_bias.weight.copy_(ours.table.weight)
    for tokens in (1, 17, 300):
        assert torch.equal(ours(tokens, tokens), theirs.compute_bias(tokens, tokens))
    assert torch.equal(ours(2, 9), ours(9, 9)[:, :, 7:])


def test_buckets_written_out() -> None:
    """Causal, 8 buckets up to 16: 0 to 3 alone, then one for each factor of sqrt(2), the last for all that is farther; behind is bucket 0."""
    bias = RelativeBias(1, 8, 16, causal=True)
    away = -torch.tensor([-2, 0, 1, 2, 3, 4, 5, 6, 8, 11, 12, 16, 90])
    assert bias.bucket(away).tolist() == [0, 0, 1, 2, 3, 4, 4, 5, 6, 6, 7, 7, 7]
    both = RelativeBias(1, 16, 16)
    assert both.bucket(-away).tolist() == [2, 0, 9, 10, 11, 12, 12, 13, 14, 14, 15, 15, 15]


def test_it_is_a_mask_of_an_attention() -> None:
    attention, bias = Attention(8, 2, True, bias=False, scale=1.0).double(), RelativeBias(2, 8, 16, causal=True).double()
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    q, k, v = (getattr(attention, n)(x).unflatten(-1, (2, 4)).transpose(1, 2) for n in ("query", "key", "value"))
    scores = q @ k.mT + bias(5, 5)
    weights = scores.masked_fill(torch.ones(5, 5).triu(1).bool(), float("-inf")).softmax(-1)
    want = attention.output((weights @ v).transpose(1, 2).flatten(-2))
    torch.testing.assert_close(attention(x, mask=bias(5, 5)), want)


def test_wrong_use_is_refused() -> None:
    with pytest.raises(UsageError, match="a relative bias of 6 buckets; wanted a multiple of 4"):
        RelativeBias(2, 6)

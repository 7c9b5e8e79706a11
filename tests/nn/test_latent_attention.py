"""Latent attention against its equations, written out head by head and token by token."""

import math

import pytest
import torch
from torch import Tensor

from skipway._errors import UsageError
from skipway.nn import LatentAttention, Stack
from skipway.nn.rotary import Rotary


def made(**options: object) -> LatentAttention:
    torch.manual_seed(0)
    return LatentAttention(24, 3, 10, plain=6, turned=4, value=5, **options).double()       # type: ignore[arg-type]


def norm(x: Tensor) -> Tensor:
    return x / (x.square().mean() + torch.finfo(x.dtype).eps).sqrt()


def by_hand(a: LatentAttention, x: Tensor) -> Tensor:
    """One sample, (tokens, dim)."""
    rotary = Rotary(4).double()
    rows = []
    turned = [rotary(a.turned(v)[None, None, None], torch.tensor([t]))[0, 0, 0] for t, v in enumerate(x)]
    latent = [norm(a.latent(v)) for v in x]
    for t, v in enumerate(x):
        u = v if a.query_down is None else norm(a.query_down(v))
        heads = []
        for h, q in enumerate(a.query(u).split(10)):
            q = torch.cat((q[:6], rotary(q[None, None, None, 6:], torch.tensor([t]))[0, 0, 0]))
            keys = [torch.cat((a.key.weight[6 * h:6 * h + 6] @ latent[s], turned[s])) for s in range(t + 1)]
            weights = torch.stack([q @ k / math.sqrt(10) for k in keys]).softmax(0)
            heads.append(sum(w * (a.value.weight[5 * h:5 * h + 5] @ latent[s]) for s, w in enumerate(weights)))
        rows.append(a.output(torch.cat(heads)))
    return torch.stack(rows)


@pytest.mark.parametrize("options", [{}, {"query_latent": 7, "bias": True}])
def test_equal_to_its_equations(options: dict[str, object]) -> None:
    a, x = made(**options), torch.randn(2, 5, 24, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(a(x), torch.stack([by_hand(a, v) for v in x]), rtol=1e-12, atol=1e-12)


def test_padding_and_positions_change_nothing_they_should_not() -> None:
    a, x = made(), torch.randn(1, 6, 24, dtype=torch.float64)
    mask = torch.tensor([[True, True, True, True, False, False]])
    torch.testing.assert_close(a(x, key_mask=mask)[:, :4], a(x[:, :4]), rtol=1e-12, atol=1e-12)
    moved = a(x, positions=torch.arange(6) + 40)            # scores know distances only, to the precision of angles
    torch.testing.assert_close(moved, a(x), rtol=1e-5, atol=1e-5)
    assert (a(x, positions=torch.arange(6) * 3) - a(x)).abs().max() > 1e-3


def test_in_a_stack() -> None:
    y = Stack([made(), made()], 24, scheme="deepnorm").double()(torch.randn(2, 4, 24, dtype=torch.float64))
    assert y.shape == (2, 4, 24)


def test_bad_widths() -> None:
    with pytest.raises(UsageError, match=r"latent=0.*wanted positive widths"):
        LatentAttention(24, 3, 0)

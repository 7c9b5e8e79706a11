"""depth-init-missing: the spread of output projections against the declared scheme."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import skipway

from .values import found, places

CODE = "SKW304"
WIDTH, STD = 64, 0.02
IDS = torch.arange(12).view(2, 6)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.c_attn(x).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4)
        return self.c_proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.c_fc, self.c_proj = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.c_proj(F.gelu(self.c_fc(x)))


class Block(nn.Module):
    def __init__(self, parallel: bool) -> None:
        super().__init__()
        self.ln_1, self.ln_2, self.attn, self.mlp, self.parallel = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH), Attention(), Mlp(), parallel

    def forward(self, x: Tensor) -> Tensor:
        if self.parallel:
            return x + self.attn(self.ln_1(x)) + self.mlp(self.ln_1(x))
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt(nn.Module):
    def __init__(self, layers: int, start: Callable[[str, Tensor, int], None] | None, parallel: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.wte, self.h = nn.Embedding(50, WIDTH), nn.ModuleList([Block(parallel) for _ in range(layers)])
        self.ln_f, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 50, bias=False)
        for name, p in self.named_parameters() if start is not None else ():
            if p.dim() > 1:
                start(name, p, layers)
        self.eval()

    def forward(self, ids: Tensor) -> Tensor:
        x = self.wte(ids)
        for block in self.h:
            x = block(x)
        return self.head(self.ln_f(x))


def plain(name: str, p: Tensor, layers: int) -> None:
    nn.init.normal_(p, std=STD)


def scaled(name: str, p: Tensor, layers: int) -> None:
    nn.init.normal_(p, std=STD / math.sqrt(2 * layers) if name.endswith("c_proj.weight") else STD)


def zeroed(name: str, p: Tensor, layers: int) -> None:
    nn.init.normal_(p, std=0.0 if name.endswith("c_proj.weight") else STD)


def only_mlp(name: str, p: Tensor, layers: int) -> None:
    nn.init.normal_(p, std=STD / math.sqrt(2 * layers) if name.endswith("mlp.c_proj.weight") else STD)


def xavier(power: float, factor: float = 1.0) -> Callable[[str, Tensor, int], None]:
    def start(name: str, p: Tensor, layers: int) -> None:
        nn.init.xavier_normal_(p, gain=factor * layers ** power if name.endswith("c_proj.weight") else 1.0)
    return start


def run(model: nn.Module, scheme: str | None = "gpt2", **options: Any) -> list[str]:
    return places(CODE, model, IDS, expect=skipway.Expect(branch_init=scheme), **options)


def both(layers: int) -> list[str]:
    return [f"h.{k}.{part}.c_proj" for k in range(layers) for part in ("attn", "mlp")]


@pytest.mark.parametrize("layers", [1, 2, 6])
@pytest.mark.parametrize("parallel", [False, True])
def test_missing_and_there(layers: int, parallel: bool) -> None:
    assert sorted(run(Gpt(layers, plain, parallel))) == both(layers)
    assert run(Gpt(layers, scaled, parallel)) == []


def test_says_what_is_there_and_what_is_wanted() -> None:
    hit = found(CODE, Gpt(8, plain), IDS, expect=skipway.Expect(branch_init="gpt2"))[0]
    assert hit.severity == "warning" and hit.values["layers"] == 8
    assert hit.values["std"] == pytest.approx(0.02, rel=0.05)
    assert hit.values["want"] == pytest.approx(0.005, rel=0.05)


def test_one_kind_of_branch_alone() -> None:
    assert sorted(run(Gpt(6, only_mlp))) == [f"h.{k}.attn.c_proj" for k in range(6)]


def test_the_default_of_torch_is_named_though_a_wide_branch_starts_smaller() -> None:
    assert sorted(run(Gpt(6, None))) == both(6)
    assert not {w for w in run(Gpt(2, None)) if "mlp" in w}         # half the spread of what comes in is what two blocks want


@pytest.mark.parametrize("start", [zeroed, scaled])
def test_zero_is_there(start: Any) -> None:
    assert run(Gpt(6, start)) == []


@pytest.mark.parametrize(("scheme", "there", "missing"), [
    ("zero", zeroed, plain), ("deepnorm", xavier(-0.25, 8 ** -0.25), xavier(0.0)), ("t_fixup", xavier(-0.25, 0.67), xavier(0.0))])
def test_other_schemes(scheme: str, there: Any, missing: Any) -> None:
    assert run(Gpt(6, there), scheme) == []
    assert sorted(run(Gpt(6, missing), scheme)) == both(6)


def test_quiet_where_nothing_is_declared_or_the_model_is_trained() -> None:
    assert run(Gpt(6, plain), None) == []
    assert places(CODE, Gpt(6, plain), IDS, expect=skipway.Expect(branch_init=1e-5)) == []
    trained = Gpt(6, plain)
    with torch.no_grad():
        for p in trained.parameters():
            p.add_(torch.randn(p.shape, generator=torch.Generator().manual_seed(0)) * 0.01)
    assert run(trained) == []


def test_a_norm_behind_the_branch_undoes_the_spread() -> None:
    class Sandwich(Block):
        def forward(self, x: Tensor) -> Tensor:
            return x + self.ln_2(self.mlp(self.ln_1(x)))

    model = Gpt(1, None)
    model.h = nn.ModuleList([Sandwich(False) for _ in range(4)])
    assert run(model.eval()) == []


@pytest.mark.parametrize("name", ["gpt-2", "GPT2", "depth", ""])
def test_an_unknown_scheme_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"want one of gpt2, zero, deepnorm, t_fixup") as told:
        skipway.Expect(branch_init=name)
    assert "\n" not in str(told.value)

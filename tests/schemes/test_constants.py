"""Constants and starting values of schemes against numbers worked out by hand from the papers' tables; depth counted as each paper counts it."""

import math
from typing import Any

import pytest
import torch
from torch import nn

from skipway import schemes
from skipway._errors import SchemeError
from skipway.schemes import Init, Tuning


def made(name: str, depth: int, index: int = 0, dim: int = 8, **rest: Any) -> Any:
    """One sublayer's scheme in a stack of so many sublayers, two a block."""
    return schemes.build(name, dim, depth=depth, index=index, **rest)


CONSTANTS = [
    # scheme, sublayers, index, options, attribute, value by hand
    ("deepnorm", 24, 0, {}, "alpha", 2.2133638),                                            # (2 * 12)^(1/4)
    ("deepnorm", 24, 0, {}, "beta", 0.3194716),                                             # (8 * 12)^(-1/4)
    ("deepnorm", 36, 0, {"stack": "encoder", "decoder_blocks": 18}, "alpha", 1.9987463),    # 0.81 (18^5)^(1/16)
    ("deepnorm", 36, 0, {"stack": "encoder", "decoder_blocks": 18}, "beta", 0.3525710),     # 0.87 (18^5)^(-1/16)
    ("deepnorm", 54, 0, {"stack": "decoder", "per_block": 3}, "alpha", 2.7108060),          # (3 * 18)^(1/4)
    ("deepnorm", 54, 0, {"stack": "decoder", "per_block": 3}, "beta", 0.2608474),           # (12 * 18)^(-1/4)
    ("sub_norm", 24, 0, {}, "gain", 1.7827097),                                             # sqrt(ln 24)
    ("sub_norm", 24, 0, {"stack": "encoder", "decoder_blocks": 6}, "gain", 1.7498340),      # sqrt(ln 18 ln 24 / 3)
    ("sub_norm", 18, 0, {"stack": "decoder", "per_block": 3}, "gain", 1.7001086),           # sqrt(ln 18)
    ("t_fixup", 12, 0, {}, "gain", 0.4280919),                                              # 0.67 * 6^(-1/4)
    ("t_fixup", 18, 0, {"stack": "decoder", "per_block": 3}, "gain", 0.3688939),            # (9 * 6)^(-1/4)
    ("t_fixup", 12, 0, {"dim": 64}, "embedding_std", 0.04611175),                           # 64^(-1/2) (9 * 6)^(-1/4)
    ("fixup", 16, 0, {}, "gain", 0.25),                                                     # 16^(-1/2), two layers a branch
    ("fixup", 16, 0, {"layers": 3}, "gain", 0.5),                                           # 16^(-1/4), three
    ("layer_norm_scaling", 16, 0, {}, "scale", 1.0),
    ("layer_norm_scaling", 16, 6, {}, "scale", 0.5),                                        # block 4
    ("layer_norm_scaling", 16, 7, {}, "scale", 0.5),                                        # the same block
    ("keel", 32, 0, {}, "alpha", 1.0),
    ("keel", 32, 1, {}, "alpha", 1.0),                                                      # the first feed-forward
    ("keel", 32, 2, {}, "alpha", 32.0),
    ("keel", 32, 2, {"alpha": 3.0}, "alpha", 3.0),
    ("depth_mup", 16, 3, {}, "scale", 0.25),
    ("depth_mup", 16, 3, {"base_depth": 4}, "scale", 0.5),
    ("complete_p", 16, 3, {}, "scale", 0.25),                                               # 8 blocks beside 2
    ("complete_p", 16, 3, {"alpha": 0.5}, "scale", 0.5),
    ("complete_p", 16, 3, {"alpha": 0.0}, "scale", 1.0),
    ("running_mean", 16, 0, {}, "keep", math.sqrt(1 / 2)),                                  # attention of block 0: k = 2
    ("running_mean", 16, 1, {}, "add", math.sqrt(1 / 3)),                                   # feed-forward of block 0: k = 3
    ("running_mean", 16, 10, {}, "keep", math.sqrt(11 / 12)),                               # attention of block 5: k = 12
    ("scaled", 16, 3, {}, "a", 0.70710678),
    ("scaled", 16, 3, {}, "b", 0.70710678),
]


@pytest.mark.parametrize(("name", "depth", "index", "options", "attribute", "value"), CONSTANTS)
def test_constants(name: str, depth: int, index: int, options: dict[str, Any], attribute: str, value: float) -> None:
    assert getattr(made(name, depth, index, **options), attribute) == pytest.approx(value, rel=1e-6)


STARTS = [
    ("layer_scale", 24, 0, {}, "scale", 0.1),                           # 12 blocks
    ("layer_scale", 36, 0, {}, "scale", 0.1),                           # 18
    ("layer_scale", 48, 0, {}, "scale", 1e-5),                          # 24
    ("layer_scale", 72, 0, {}, "scale", 1e-6),                          # 36
    ("layer_scale", 72, 0, {"start": 0.2}, "scale", 0.2),
    ("rezero", 12, 0, {}, "scale", 0.0),
    ("zero_tanh", 12, 0, {}, "scale", 0.0),
    ("skip_init", 16, 0, {}, "scale", 0.0),
    ("skip_init", 16, 0, {"start": "depth"}, "scale", 0.25),
    ("admin", 12, 0, {}, "omega", 1.0),
    ("highway", 12, 0, {}, "gate.bias", -2.0),
    ("gru_gate", 12, 0, {}, "bias", 2.0),
    ("review_gate", 12, 0, {}, "gate.weight", 0.0),
    ("sandwich", 12, 0, {"start": 0.1}, "out_norm.weight", 0.1),
    ("output_norm", 12, 0, {"start": 0.0}, "norm.weight", 0.0),
    ("fixup", 12, 0, {}, "scale", 1.0),
    ("x0_lambdas", 24, 0, {}, "residual", 1.0),
    ("x0_lambdas", 24, 0, {}, "input", 0.0),
    ("x0_lambdas", 24, 0, {"start": "decaying"}, "residual", 1.15),     # the first of 12 blocks
    ("x0_lambdas", 24, 0, {"start": "decaying"}, "input", 0.20),
    ("x0_lambdas", 24, 22, {"start": "decaying"}, "residual", 1.05),    # the last
    ("x0_lambdas", 24, 22, {"start": "decaying"}, "input", 0.05),
    ("x0_lambdas", 10, 4, {"start": "decaying"}, "residual", 1.10),     # the middle one of 5
]


@pytest.mark.parametrize(("name", "depth", "index", "options", "parameter", "value"), STARTS)
def test_parameters_start_at(name: str, depth: int, index: int, options: dict[str, Any], parameter: str, value: float) -> None:
    held = dict(made(name, depth, index, **options).named_parameters())[parameter]
    torch.testing.assert_close(held, torch.full_like(held, value))


def test_which_blocks_are_post_norm() -> None:
    """A quarter of 24 blocks are six: twelve sublayers. A quarter of seven is one, rounded down."""
    assert [made("mix_norm", 48, k).placement for k in range(48)] == ["post"] * 12 + ["pre"] * 36
    assert [made("mix_norm", 14, k).placement for k in range(14)] == ["post"] * 2 + ["pre"] * 12


def test_norms_that_the_first_sublayer_lacks() -> None:
    assert made("keel", 32, 0).norms() == ("norm",)
    assert made("keel", 32, 1).norms() == ("norm", "post_norm")


def test_carry_of_keel() -> None:
    """The share of the stream that the norms let through, by the table of the paper: 0.969 at 16 sublayers, 0.996 at 128."""
    for depth, want in ((16, 0.969), (128, 0.996)):
        alpha = made("keel", depth, depth - 1).alpha
        assert (alpha / math.sqrt(alpha ** 2 + 1)) ** depth == pytest.approx(want, abs=5e-4)


def test_weights_that_are_asked_for() -> None:
    gpt2 = made("gpt2_init", 24).initial()
    assert gpt2["output"] == Init("normal", pytest.approx(0.0040824829))           # 0.02 / sqrt(24)
    assert {gpt2[k] for k in ("input", "query", "key", "value", "gate", "inner")} == {Init("normal", 0.02)}
    fixup = made("fixup", 16).initial()
    assert fixup["output"].kind == "zero" and fixup["input"] == Init("he", 0.25)
    t_fixup = made("t_fixup", 12).initial()
    assert t_fixup["query"] == t_fixup["key"] == Init("xavier", 1.0) and t_fixup["value"] == Init("xavier", pytest.approx(0.4280919))
    for name in ("sub_norm", "deepnorm"):                                           # queries and keys keep their start
        assert set(made(name, 24).initial()) == {"value", "output", "input", "gate"}


def test_tuning_of_complete_p() -> None:
    """8 blocks beside 2, width 8 beside 2: both four times the base."""
    assert made("complete_p", 16, base_dim=2).tuning() == Tuning(matrix=1 / 4, vector=1.0, eps=1 / 16, decay=4.0)
    assert made("complete_p", 16, base_dim=2).rates() == {}
    half = made("complete_p", 16, alpha=0.5, base_dim=2)
    assert half.tuning() == Tuning(matrix=1 / 8, vector=1 / 2, eps=1 / 8, decay=4.0)
    assert half.rates() == {"norm.weight": 0.5, "norm.bias": 0.5}
    assert made("complete_p", 4).tuning() == Tuning()
    assert made("depth_mup", 16).tuning() == Tuning(matrix=1 / 4, vector=1 / 4)
    assert made("pre_norm", 16).tuning() == Tuning()


def test_rate_of_the_lambda_that_multiplies() -> None:
    assert made("x0_lambdas", 16, 2).rates() == {"residual": 0.01}
    assert made("x0_lambdas", 16, 3).rates() == {}


REFUSED = [
    ("mix_norm", 8, {"share": 1.5}, "share is 1.5"),
    ("sub_norm", 8, {"stack": "middle"}, "stack is 'middle'; wanted one of alone, encoder, decoder"),
    ("sub_norm", 8, {"stack": "encoder"}, "give decoder_blocks="),
    ("t_fixup", 8, {"stack": "alone"}, "wanted one of encoder, decoder"),
    ("keel", None, {}, "needs the depth of the stack for alpha"),
    ("layer_scale", None, {}, "needs the depth"),
    ("skip_init", None, {"start": "depth"}, "needs the depth"),
    ("skip_init", 8, {"start": "deep"}, "start is 'deep'; wanted a number or 'depth'"),
    ("fixup", 8, {"layers": 1}, "needs 2 or more"),
    ("b2t", 8, {"per_block": 1}, "give per_block= of 2 or more"),
    ("x0_lambdas", 8, {"start": "rising"}, "wanted plain or decaying"),
    ("review_gate", 8, {"start": "one"}, "wanted zero or linear"),
    ("branch_norm", 8, {"period": 0}, "scheme branch_norm: period is 0"),
    ("pro_res", 8, {"step": -1}, "step -1"),
    ("depth_mup", 8, {"base_depth": 0}, "base_depth is 0"),
    ("complete_p", 8, {"base_blocks": 0}, "base_blocks is 0"),
    ("complete_p", 8, {"base_dim": 0}, "base_dim 0"),
    ("output_norm", 8, {"start": 0.0, "norm": lambda _: nn.Identity()}, "start=0.0 is for the gain of its norm, and Identity has none"),
]


@pytest.mark.parametrize(("name", "depth", "options", "message"), REFUSED)
def test_refused_when_built(name: str, depth: int | None, options: dict[str, Any], message: str) -> None:
    with pytest.raises(SchemeError, match=message) as told:
        schemes.build(name, 8, depth=depth, **options)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(("name", "options"), [("keel", {"alpha": 4.0}), ("layer_scale", {"start": 0.1}), ("x0_lambdas", {}), ("pro_res", {})])
def test_depth_is_not_asked_for_where_it_is_not_used(name: str, options: dict[str, Any]) -> None:
    schemes.build(name, 8, **options)

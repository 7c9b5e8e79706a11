"""Lanes and depth reads give the numbers of public modules, weights copied across; where a module does not follow the paper, a test says how.

The modules work in float32 whatever they are given, so numbers agree to float32's own steps. Theirs run as their own decoder layers run them,
around the same branches and norms as ours.
"""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import skipway
from skipway import schemes
from skipway.ops.sinkhorn import sinkhorn

DIM, SUBLAYERS, LANES = 16, 6, 4


class Branch(nn.Module):
    """tanh of a linear map of each input, summed."""

    def __init__(self, inputs: int = 1) -> None:
        super().__init__()
        self.maps, self.role = nn.ModuleList(nn.Linear(DIM, DIM) for _ in range(inputs)), "other"

    def forward(self, *given: Tensor) -> Tensor:
        return torch.tanh(sum(m(v) for m, v in zip(self.maps, given)))


def shaken(*modules: nn.Module) -> None:
    """Random values off every start."""
    with torch.no_grad():
        for p in (p for m in modules for p in m.parameters()):
            p.copy_(0.3 * torch.randn_like(p) + (p if p.isfinite().all() and p.abs().max() < 100 else 0))


def stack(scheme: str, **options: Any) -> skipway.nn.Stack:
    """Six sublayers of ours without a final norm."""
    torch.manual_seed(0)
    return skipway.nn.Stack([Branch() for _ in range(SUBLAYERS)], DIM, scheme, final_norm=False, **options)


def parts(mine: skipway.nn.Stack) -> list[tuple[Any, Callable[[Tensor], Tensor]]]:
    """Scheme and branch behind its norm, of each sublayer."""
    def behind(layer: Any) -> Callable[[Tensor], Tensor]:
        return lambda x: layer.branch(layer.scheme.norm(x))
    return [(layer.scheme, behind(layer)) for layer in mine.layers]


def equal(mine: nn.Module, theirs: Callable[[Tensor], Tensor], rtol: float = 1e-5) -> None:
    """The outputs and their gradients by the input."""
    x = torch.randn(2, 3, DIM, requires_grad=True)
    got, want = mine(x), theirs(x)
    assert_close(got, want, rtol=rtol, atol=rtol)
    weights = torch.randn_like(got)
    a, b = (torch.autograd.grad((v * weights).sum(), x)[0] for v in (got, want))
    assert_close(a, b, rtol=10 * rtol, atol=10 * rtol)


def copied(scheme: nn.Module, **values: Tensor) -> None:
    with torch.no_grad():
        for name, value in values.items():
            scheme.get_parameter(name).copy_(value)


# manifold-constrained lanes

def mhc(kind: str, convention: str = "transposed") -> tuple[skipway.nn.Stack, Callable[[Tensor], Tensor]]:
    """Ours and theirs with the same weights; kind is a model of transformers."""
    pytest.importorskip("transformers", minversion="5.24")
    mine = stack("mhc", convention=convention, leave="gated" if kind == "deepseek_v4" else "mean")
    if kind == "deepseek_v4":
        from transformers.models.deepseek_v4.configuration_deepseek_v4 import DeepseekV4Config as Config
        from transformers.models.deepseek_v4.modeling_deepseek_v4 import DeepseekV4HyperConnection as Rule
        from transformers.models.deepseek_v4.modeling_deepseek_v4 import DeepseekV4HyperHead as Head
        config = Config(hidden_size=DIM)
        head: Any = Head(config)
    else:
        from transformers.models.glm5_next.configuration_glm5_next import Glm5NextTextConfig as Config  # type: ignore[assignment]
        from transformers.models.glm5_next.modeling_glm5_next import Glm5NextTextHyperConnection as Rule  # type: ignore[assignment]
        from transformers.models.glm5_next.modeling_glm5_next import Glm5NextTextHyperHead as Head  # type: ignore[assignment]
        config = Config(hidden_size=DIM)
        head = Head()
    rules = [Rule(config) for _ in mine.layers]
    for rule in (*rules, head):
        for p in rule.parameters():
            nn.init.zeros_(p)
    shaken(mine, *rules, head)
    for (scheme, _), rule in zip(parts(mine), rules):
        scheme.eps = config.rms_norm_eps
        copied(scheme, phi=rule.fn, bias=rule.base, alpha=rule.scale)
    if kind == "deepseek_v4":
        copied(mine.layers[-1].scheme, leave_phi=head.hc_fn, leave_bias=head.hc_base, leave_alpha=head.hc_scale)

    def theirs(x: Tensor) -> Tensor:
        lanes = x.unsqueeze(2).expand(-1, -1, LANES, -1)
        for rule, (_, branch) in zip(rules, parts(mine)):
            lanes = lanes.contiguous()
            post, comb, inner = rule(lanes)
            lanes = post.unsqueeze(-1) * branch(inner).unsqueeze(-2) + torch.matmul(comb.transpose(-1, -2), lanes)
        return head(lanes)                                  # type: ignore[no-any-return]
    return mine, theirs


@pytest.mark.parametrize("kind", ["deepseek_v4", "glm5_next"])
def test_manifold_lanes(kind: str) -> None:
    """Equal but for the 1e-6 that they add in each division of Sinkhorn's and to a read gate."""
    equal(*mhc(kind), rtol=3e-5)


def test_their_mixer_is_the_transpose_of_the_paper() -> None:
    mine, theirs = mhc("deepseek_v4", "paper")
    x = torch.randn(2, 3, DIM)
    assert (mine(x) - theirs(x)).abs().max() > 1e-2


# unmixed lanes

def test_identity_lanes() -> None:
    pytest.importorskip("transformers", minversion="5.24")
    from transformers.models.hy_v4.configuration_hy_v4 import HYV4Config
    from transformers.models.hy_v4.modeling_hy_v4 import HYV4HyperConnection, HYV4HyperHead
    mine, config = stack("identity_hyper"), HYV4Config(hidden_size=DIM)
    rules, head = [HYV4HyperConnection(config) for _ in mine.layers], HYV4HyperHead(config)
    for rule in (*rules, head):
        for p in rule.parameters():
            nn.init.zeros_(p)
    shaken(mine, *rules, head)
    for (scheme, _), rule in zip(parts(mine), rules):
        scheme.eps = config.rms_norm_eps
        copied(scheme, phi=rule.fn, bias=rule.base, alpha=rule.scale)
    copied(mine.layers[-1].scheme, leave_phi=head.hc_fn, leave_bias=head.hc_base, leave_alpha=head.hc_scale)

    def theirs(x: Tensor) -> Tensor:
        lanes = x.unsqueeze(2).expand(-1, -1, LANES, -1)
        for rule, (_, branch) in zip(rules, parts(mine)):
            post, inner = rule(lanes)
            lanes = post.unsqueeze(-1) * branch(inner).unsqueeze(-2) + lanes
        return head(lanes)                                  # type: ignore[no-any-return]
    equal(mine, theirs)


def test_gated_residual() -> None:
    pytest.importorskip("transformers", minversion="5.24")
    from transformers.models.qwen4_exp.configuration_qwen4_exp import Qwen4ExpTextConfig
    from transformers.models.qwen4_exp.modeling_qwen4_exp import Qwen4ExpTextGatedResidual
    config = Qwen4ExpTextConfig(hidden_size=DIM, hc_lowrank=5)
    mine = stack("gated_residual", rank=5, eps=config.rms_norm_eps)
    rules, last = [Qwen4ExpTextGatedResidual(config) for _ in mine.layers], Qwen4ExpTextGatedResidual(config, use_combine=False)
    shaken(mine, *rules, last)
    readers = [*((layer.scheme.reader, r) for layer, r in zip(mine.layers, rules)), (mine.layers[-1].scheme.leaver, last)]
    for reader, rule in readers:
        copied(reader, gain=1 + rule.hc_norm.weight.view(LANES, DIM), down=rule.input_mix_weight_down.weight, up=rule.input_mix_weight_up.weight)
    for layer, rule in zip(mine.layers, rules):
        copied(layer.scheme, inject=rule.block_inject_weight.weight)

    def theirs(x: Tensor) -> Tensor:
        lanes = x.repeat(1, 1, LANES)
        for rule, layer in zip(rules, mine.layers):
            inner, kept, inject = rule(lanes)
            lanes = kept + (layer.branch(inner).unsqueeze(-2) * inject.unsqueeze(-1)).flatten(-2)
        return last(lanes)                                  # type: ignore[no-any-return]
    equal(mine, theirs)


def test_hyper_connections() -> None:
    """lucidrains' class follows the paper: static and dynamic parts, lanes in turn, a sum at the end."""
    package = pytest.importorskip("hyper_connections")
    mine = stack("hyper", leave="sum", eps=1e-12)
    rules = [package.HyperConnections(LANES, dim=DIM, layer_index=k) for k in range(SUBLAYERS)]
    expand, reduce = package.HyperConnections.get_expand_reduce_stream_functions(LANES)
    for (scheme, _), rule in zip(parts(mine), rules):       # the starts are the same
        assert_close(rule.static_alpha, torch.cat([scheme.read_weight[:, None], scheme.mixer], 1), rtol=0, atol=0)
        assert_close(rule.static_beta, scheme.write_weight, rtol=0, atol=0)
    shaken(mine, *rules)
    for (scheme, _), rule in zip(parts(mine), rules):
        gain = (1 + rule.norm.gamma).unsqueeze(-1)          # ours is absorbed by the gates
        copied(scheme, read_weight=rule.static_alpha[:, 0], mixer=rule.static_alpha[:, 1:], write_weight=rule.static_beta,
               gates=(gain * torch.cat([rule.dynamic_alpha_fn, rule.dynamic_beta_fn[:, None]], 1)).mT,
               read_scale=rule.dynamic_alpha_scale, write_scale=rule.dynamic_beta_scale)

    def theirs(x: Tensor) -> Tensor:
        lanes = expand(x)
        for rule, (_, branch) in zip(rules, parts(mine)):
            inner, add = rule(lanes)
            lanes = add(branch(inner))
        return reduce(lanes)                                # type: ignore[no-any-return]
    equal(mine, theirs)


def test_their_fractions_are_summed() -> None:
    """hyper-connections with num_fracs: each fraction gets the sum of all fractions of the branch, so its start is not pre_norm. Ours is."""
    package = pytest.importorskip("hyper_connections")
    rule = package.HyperConnections(1, dim=DIM, layer_index=0, num_fracs=2)
    x, y = torch.randn(2, 3, DIM), torch.randn(2, 3, DIM)
    first, second = y.chunk(2, -1)
    assert_close(rule(x)[1](y), x + torch.cat([first + second] * 2, -1))
    scheme = schemes.build("frac", DIM, fractions=2)
    stream = scheme.enter(x)
    assert_close(scheme.leave(scheme.write(stream, y, scheme.read(stream)[1])), x + y)


def test_their_manifold_collapses_at_the_start() -> None:
    """hyper-connections' mHC: the same Sinkhorn, on logits of 1 on the diagonal; a lane's own part is soon gone. Ours starts at 8."""
    module = pytest.importorskip("hyper_connections.manifold_constrained_hyper_connections")
    z = torch.randn(5, LANES, LANES)
    assert_close(sinkhorn(z), module.sinkhorn_knopps(z))
    theirs = module.ManifoldConstrainedHyperConnections(LANES, dim=DIM, layer_index=0).static_alpha[:, 1:]
    ours = schemes.build("mhc", DIM).bias[2 * LANES:].view(LANES, LANES)
    kept = [torch.linalg.svdvals(sinkhorn(m))[1].item() ** 24 for m in (theirs, ours)]
    assert kept[0] < 1e-10 and kept[1] > 0.9


def test_their_lanes_multiply() -> None:
    """x-transformers' HyperConnection normalises a row for each lane, not the matrix: the mixer is all ones, lanes grow n-fold a sublayer."""
    module = pytest.importorskip("x_transformers.x_transformers")
    rule = module.HyperConnection(DIM, layer_index=0, num_residual_streams=LANES)
    x = torch.randn(2, 3, DIM)
    _, kept, more = rule.prepare(x.repeat_interleave(LANES, 0))
    assert_close(rule(torch.zeros_like(x), kept, **more), LANES * x.repeat_interleave(LANES, 0))
    scheme = schemes.build("mhc", DIM)
    stream = scheme.enter(x)
    assert_close(scheme.write(stream, torch.zeros_like(x), scheme.read(stream)[1]), stream)


# alternating updates and augmented residuals

def test_altup() -> None:
    pytest.importorskip("transformers", minversion="5.24")
    from transformers.models.gemma3n.configuration_gemma3n import Gemma3nTextConfig
    from transformers.models.gemma3n.modeling_gemma3n import Gemma3nTextAltUp
    config = Gemma3nTextConfig(hidden_size=DIM, altup_num_inputs=LANES, altup_active_idx=0)
    mine = stack("altup", active=0, dynamic=True, birth="project", eps=config.rms_norm_eps)
    rules = [Gemma3nTextAltUp(config).eval() for _ in range(SUBLAYERS // 2)]
    enter, leave = ([nn.Linear(DIM, DIM, bias=False) for _ in range(LANES - 1)] for _ in range(2))
    shaken(mine, *rules)
    for k, layer in enumerate(mine.layers):
        rule = rules[k // 2]
        copied(layer.scheme, router=rule.modality_router.weight, router_gain=rule.router_norm.weight)
        if k % 2 == 0:
            copied(layer.scheme, predict=torch.eye(LANES), predict_gate=rule.prediction_coefs.weight.view(LANES, LANES, LANES))
        else:
            copied(layer.scheme, correct=torch.ones(LANES), correct_gate=rule.correction_coefs.weight)
    copied(mine.layers[0].scheme, enter_maps=torch.stack([m.weight for m in enter]))
    copied(mine.layers[-1].scheme, leave_maps=torch.stack([m.weight for m in leave]))

    def sized(v: Tensor, like: Tensor) -> Tensor:           # as the model's own forward does it
        return v * like.pow(2).mean(-1, keepdim=True) ** 0.5 / v.pow(2).mean(-1, keepdim=True).clamp(min=1e-5).sqrt()

    def theirs(x: Tensor) -> Tensor:
        lanes = torch.stack([x, *(sized(m(x), x) for m in enter)])
        for k, rule in enumerate(rules):
            predictions = rule.predict(lanes)
            z = predictions[0]
            for _, branch in parts(mine)[2 * k:2 * k + 2]:
                z = z + branch(z)
            lanes = rule.correct(predictions, z)
        return torch.stack([lanes[0], *(sized(m(v), lanes[0]) for m, v in zip(leave, lanes[1:]))]).mean(0)
    equal(mine, theirs)


def test_laurel() -> None:
    pytest.importorskip("transformers", minversion="5.24")
    from transformers.models.gemma3n.configuration_gemma3n import Gemma3nTextConfig
    from transformers.models.gemma3n.modeling_gemma3n import Gemma3nTextLaurelBlock
    config = Gemma3nTextConfig(hidden_size=DIM, laurel_rank=3)
    mine = stack("laurel", kind="gemma3n", rank=3, norm=lambda d: nn.RMSNorm(d, eps=config.rms_norm_eps))
    rules = [Gemma3nTextLaurelBlock(config) for _ in mine.layers]
    shaken(mine, *rules)
    for layer, rule in zip(mine.layers, rules):
        copied(layer.scheme, down=rule.linear_left.weight, up=rule.linear_right.weight)
        copied(layer.scheme.low_norm, weight=rule.post_laurel_norm.weight)

    def theirs(x: Tensor) -> Tensor:
        for rule, layer in zip(rules, mine.layers):
            normed = layer.scheme.norm(x)
            gated = x + layer.scheme.out_norm(layer.branch(normed))
            x = (gated + rule(normed)) / math.sqrt(2)
        return x
    equal(mine, theirs)


# softmax over depth

@pytest.mark.parametrize("queries", [1, 3])
def test_block_attention_residual(queries: int) -> None:
    """Inkling-2: values are normed and scores scaled; attention with three queries reads three sums."""
    pytest.importorskip("transformers", minversion="5.24")
    from transformers.models.inkling2.configuration_inkling2 import Inkling2TextConfig
    from transformers.models.inkling2.modeling_inkling2 import Inkling2BlockAttentionResidual
    config = Inkling2TextConfig(hidden_size=DIM)
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    roles = ["self_attention" if queries == 3 else "other", "ffn"] * (SUBLAYERS // 2)
    branches = [Branch(queries if k % 2 == 0 else 1) for k in range(SUBLAYERS)]
    mine = skipway.nn.Stack(branches, DIM, "block_attention_residual", roles=roles, final_norm=False, every=2,
                            normed=True, scale=DIM ** -0.5, split=True)
    rules = [Inkling2BlockAttentionResidual(config, queries if k % 2 == 0 else 1) for k in range(SUBLAYERS)]
    last = Inkling2BlockAttentionResidual(config)
    shaken(mine, *rules, last)
    for layer, rule in zip(mine.layers[1:], rules[1:]):
        copied(layer.scheme, query=rule.query.view(-1, DIM))
    copied(mine.layers[-1].scheme, leave_query=last.query)

    def theirs(x: Tensor) -> Tensor:                        # the order of the model's own layers: a part is kept once the next one has read it
        done, part = x.new_zeros(*x.shape[:-1], 0, DIM), x
        for k, (rule, layer) in enumerate(zip(rules, mine.layers)):
            given = rule(done, part) if k else [x] * queries
            y = layer.branch(*[norm(v) for norm, v in zip(layer.scheme.norm, given)])
            if k % 4 == 0:
                done, part = torch.cat([done, part.unsqueeze(-2)], -2), y
            else:
                part = part + y
        return last(done, part)[0]                          # type: ignore[no-any-return]
    equal(mine, theirs)


def test_their_query_is_the_latest_state() -> None:
    """x-transformers' AttentionResidual asks with the latest state plus a map of it, so its start is no mean; the paper's query is zero then."""
    module = pytest.importorskip("x_transformers.x_transformers")
    torch.manual_seed(0)
    past = [torch.randn(2, 3, DIM) for _ in range(4)]
    theirs = module.AttentionResidual(DIM, lora_rank=2)(past)
    mean = torch.stack(past).mean(0)
    assert (theirs - mean).abs().max() > 0.1
    scheme = schemes.build("attention_residual", DIM, index=4)
    assert_close(scheme.attend(tuple(past), scheme.query[0]), mean)

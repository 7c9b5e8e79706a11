"""Labels of the graph: what carries signal, which state a value is, its gain and marks, and norms in every spelling."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from skipway.wiring import operations as ops
from skipway.wiring.graph import Graph
from skipway.wiring.labels import HANDLERS, norms
from skipway.wiring.states import CONSTANT, DROPPED, GATED, MOVED, NARROWED, PART, RANDOM, SCALAR, SHIFTED, VECTOR

from .small import DIM, Branch, Calls, Tower, only_site, recorded, tokens


def graph(run: Callable[..., Any], *inputs: Tensor, **parts: Any) -> Graph:
    return Graph(recorded(Calls(run, **parts), *inputs))


def last(g: Graph) -> int:
    return g.record.outputs[0]


# --- signal ---------------------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("run", "signal"), [
    (lambda m, x: x * 2, True),
    (lambda m, x: x.long().float(), True),
    (lambda m, x: m.f.weight * 2, False),
    (lambda m, x: torch.arange(4.0)[None] * m.f.bias, False),
    (lambda m, x: torch.zeros_like(x), False),
    (lambda m, x: torch.rand_like(x), False),
    (lambda m, x: m.f(x), True),
])
def test_what_carries_signal(run: Callable[..., Tensor], signal: bool) -> None:
    g = graph(run, torch.randn(2, 4), f=nn.Linear(4, 4))
    if signal and "long" in str(run.__code__.co_names):
        assert g.depends[last(g)] and not g.signal[last(g)]     # a floating value made of integers is a mask
    else:
        assert bool(g.signal[last(g)]) is signal


def test_masks_and_indices_depend_and_carry_no_signal() -> None:
    g = graph(lambda m, x: (x > 0).float() * 3, torch.randn(2, 4))
    assert g.depends[last(g)] == 1 and g.signal[last(g)] == 0


def test_a_lookup_of_integers_is_learned_signal() -> None:
    g = graph(lambda m, ids: m.e(ids), torch.arange(4), e=nn.Embedding(9, 3))
    assert g.signal[last(g)] and g.learned[last(g)] and g.state[last(g)].via == "learned"


KEPT: dict[str, tuple[Callable[[Tensor], Tensor], int]] = {
    "view": (lambda x: x.view(-1), 0), "transpose": (lambda x: x.transpose(1, 2), 0), "cast up": (lambda x: x.double(), 0),
    "cast down": (lambda x: x.bfloat16(), NARROWED), "slice": (lambda x: x[:, :2], PART), "roll": (lambda x: x.roll(1, 1), MOVED),
    "pad": (lambda x: F.pad(x, (0, 0, 1, 1)), MOVED), "dropout": (lambda x: F.dropout(x, 0.5, True), DROPPED), "detach": (lambda x: x.detach(), 0),
    "constant": (lambda x: x * 2, CONSTANT), "shift": (lambda x: x + 1, SHIFTED), "table": (lambda x: x + torch.ones(DIM), SHIFTED),
    "clone": (lambda x: x.clone(memory_format=torch.contiguous_format), 0), "fill of masked": (lambda x: x.masked_fill(torch.ones(5, 1) > 2, 0.0), 0),
    "repeat": (lambda x: x.repeat(1, 1, 1), 0), "clamp": (lambda x: x.clamp(-9, 9), 0), "copy_": (lambda x: torch.empty_like(x).copy_(x), 0),
}


@pytest.mark.parametrize("name", sorted(KEPT))
def test_this_keeps_a_value(name: str) -> None:
    run, mark = KEPT[name]
    g = graph(lambda m, x: run(x), tokens())
    assert g.state[last(g)] is g.state[0] and g.signal[last(g)] and not g.learned[last(g)]
    assert g.marks[last(g)] & ~RANDOM == mark


@pytest.mark.parametrize(("run", "gain"), [
    (lambda x: x * 2 * 3, 6.0), (lambda x: -x, -1.0), (lambda x: x / 4, 0.25), (lambda x: 1 - x, -1.0), (lambda x: (x + 1) * 0.5, 0.5),
    (lambda x: x * torch.full((), 3.0), 3.0), (lambda x: x * torch.randn(()), 1.0)])
def test_constants_on_the_way(run: Callable[[Tensor], Tensor], gain: float) -> None:
    g = graph(lambda m, x: run(x), tokens())
    if g.gain[last(g)] is not None:
        assert g.gain[last(g)] == pytest.approx(gain)
    assert g.state[last(g)] is g.state[0]


@pytest.mark.parametrize(("weight", "mark"), [(lambda m: m.scalar, SCALAR), (lambda m: m.vector, VECTOR), (lambda m: m.vector.sigmoid(), VECTOR),
                                              (lambda m: m.scalar.tanh() * 2, SCALAR)])
def test_learned_scales_keep_a_value_without_a_constant_gain(weight: Callable[[nn.Module], Tensor], mark: int) -> None:
    g = graph(lambda m, x: x * weight(m), tokens(), scalar=nn.Parameter(torch.ones(1)), vector=nn.Parameter(torch.ones(DIM)))
    assert (g.state[last(g)] is g.state[0], g.marks[last(g)], g.gain[last(g)]) == (True, mark, None)


def test_a_gate_is_a_scale_and_a_product_is_not() -> None:
    gated = graph(lambda m, x: x * torch.sigmoid(m.f(x)), tokens(), f=nn.Linear(DIM, DIM))
    assert gated.state[last(gated)] is gated.state[0] and gated.marks[last(gated)] & GATED and gated.products == []
    product = graph(lambda m, x: x * m.f(x), tokens(), f=nn.Linear(DIM, DIM))
    assert product.state[last(product)].via == "product" and [p[0] for p in product.products] == [last(product)]


LEARNED: dict[str, tuple[Callable[..., Tensor], Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda m, x: m.f(x), lambda: nn.Linear(4, 4), (2, 3, 4)),
    "conv": (lambda m, x: m.f(x), lambda: nn.Conv1d(3, 3, 1), (2, 3, 4)),
    "transposed conv": (lambda m, x: m.f(x), lambda: nn.ConvTranspose1d(3, 3, 1), (2, 3, 4)),
    "buffer matrix": (lambda m, x: x @ m.f.running_mean.view(2, 2), lambda: nn.BatchNorm1d(4), (2, 2)),
    "attention": (lambda m, x: F.scaled_dot_product_attention(x, x, x), nn.Identity, (2, 3, 4)),
    "lstm": (lambda m, x: m.f(x)[0], lambda: nn.LSTM(4, 4), (2, 3, 4)),
    "gru cell": (lambda m, x: m.f(x), lambda: nn.GRUCell(4, 4), (2, 4)),
    "bilinear": (lambda m, x: m.f(x, x), lambda: nn.Bilinear(4, 4, 4), (2, 4)),
    "fourier": (lambda m, x: torch.fft.fft(x).real, nn.Identity, (2, 3, 4)),
}


@pytest.mark.parametrize("name", sorted(LEARNED))
def test_this_is_learned(name: str) -> None:
    run, part, shape = LEARNED[name]
    g = graph(run, torch.randn(*shape), f=part())
    assert any(g.learned), name
    assert g.state[last(g)] is not g.state[0]


@pytest.mark.parametrize("run", [lambda m, x: F.gelu(x), lambda m, x: x * m.f.weight[0], lambda m, x: x.mean(-1), lambda m, x: F.layer_norm(x, (4,)),
                                 lambda m, x: x.softmax(-1), lambda m, x: x + m.f.bias])
def test_this_is_not_learned(run: Callable[..., Tensor]) -> None:
    assert not any(graph(run, torch.randn(2, 4), f=nn.Linear(4, 4)).learned)


def test_an_attention_knows_its_query_key_and_value() -> None:
    def run(m: nn.Module, x: Tensor, c: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(m.q(x), m.k(c), m.v(c))

    def by_hand(m: nn.Module, x: Tensor, c: Tensor) -> Tensor:
        return (m.q(x) @ m.k(c).transpose(-1, -2) * 0.25).softmax(-1) @ m.v(c)
    for how in (run, by_hand):
        g = graph(how, tokens()[:, None], tokens(length=7)[:, None], q=nn.Linear(DIM, DIM), k=nn.Linear(DIM, DIM), v=nn.Linear(DIM, DIM))
        ((_, operands),) = g.attention.items()
        assert [g.record.calls[g.nodes[_made(g, n)].call].path for n in operands] == ["q", "k", "v"]


def _made(g: Graph, n: int) -> int:
    state = g.state[n]
    assert state is not None
    return state.node


def test_every_handled_operation_has_one_handler() -> None:
    known = ops.IDENTITY | ops.PARTS | ops.POOLS | ops.ACTS | set(ops.NORMS) | ops.MATMULS | ops.CONVOLUTIONS | ops.ATTENTIONS | ops.ADDS
    assert set(HANDLERS) >= known
    assert not ops.IDENTITY & ops.MATMULS and not ops.ACTS & ops.IDENTITY


# --- norms in every spelling -------------------------------------------------------------------------------------------------------------

class Spelt(nn.Module):
    """A norm written by hand: `how(x, weight, bias)`."""

    def __init__(self, how: Callable[..., Tensor], size: tuple[int, ...] = (DIM,)) -> None:
        super().__init__()
        self.how, self.weight, self.bias = how, nn.Parameter(torch.ones(size)), nn.Parameter(torch.zeros(size))

    def forward(self, x: Tensor) -> Tensor:
        return self.how(x, self.weight, self.bias)


EPS = 1e-5


def _ln_var(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, keepdim=True, unbiased=False) + EPS) * w + b


def _ln_std(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return w * (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True, unbiased=False) + EPS) + b


def _ln_centred(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    d = x - x.mean(-1, keepdim=True)
    return d * torch.rsqrt(d.pow(2).mean(-1, keepdim=True) + EPS) * w + b


def _ln_var_mean(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    var, mean = torch.var_mean(x, -1, unbiased=False, keepdim=True)
    return b + w * ((x - mean) * (var + EPS).rsqrt())


def _ln_float(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    y = x.double()
    y = y - y.mean(-1, keepdim=True)
    return (y / (y.square().mean(-1, keepdim=True) + EPS).sqrt()).to(x.dtype) * w + b


def _ln_in_place(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    y = x - x.mean(-1, keepdim=True)
    return y.div_((y.pow(2).mean(-1, keepdim=True) + EPS).sqrt_()).mul_(w).add_(b)


def _rms_rsqrt(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return w * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS)


def _rms_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return x / (x.norm(dim=-1, keepdim=True) * DIM**-0.5 + EPS) * w


def _rms_llama(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    y = x.to(torch.float64)
    return w * (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + EPS)).type_as(x)


def _rms_gemma(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return x * (x.pow(2).mean(-1, keepdim=True) + EPS).pow(-0.5) * (1 + (w - 1))


def _rms_product(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return x * (1 / torch.sqrt((x * x).sum(-1, keepdim=True) / DIM + EPS)) * w


def _rms_vector(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return x / torch.linalg.vector_norm(x, dim=-1, keepdim=True) * DIM**0.5 * w


def _normalize(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.normalize(x, dim=-1) * DIM**0.5 * w


def _l1(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return x / x.abs().mean(-1, keepdim=True) * w


BY_HAND = {"LayerNorm": (_ln_var, _ln_std, _ln_centred, _ln_var_mean, _ln_float, _ln_in_place),
           "RMSNorm": (_rms_rsqrt, _rms_norm, _rms_llama, _rms_gemma, _rms_product, _rms_vector, _normalize)}
EVERY = [(name, how) for name, hows in BY_HAND.items() for how in hows]


@pytest.mark.parametrize(("name", "how"), EVERY, ids=[h.__name__ for _, h in EVERY])
def test_a_norm_by_hand_is_what_it_is(name: str, how: Callable[..., Tensor]) -> None:
    """As the numbers have it, and as the site has it, before the branch, after it, and after the join."""
    x, w, b = torch.randn(2, 5, DIM), torch.rand(DIM) + 0.5, torch.randn(DIM)
    want = F.layer_norm(x, (DIM,), w, b) if name == "LayerNorm" else F.rms_norm(x, (DIM,), w)
    torch.testing.assert_close(how(x, w, b), want, rtol=1e-3, atol=1e-3)
    for placement, join in (("pre", lambda m, x: x + m.f(m.norm(x))), ("output", lambda m, x: x + m.norm(m.f(x))),
                            ("post", lambda m, x: m.norm(x + m.f(x)))):
        ffn = nn.Sequential(nn.Linear(DIM, 32), nn.ReLU(), nn.Linear(32, DIM))
        model = Calls(lambda m, x, join=join: m.head(join(m, m.stem(x))), stem=nn.Linear(DIM, DIM), head=nn.Linear(DIM, 3), norm=Spelt(how), f=ffn)
        site = only_site(model, tokens())
        assert (site.placement, site.norm, site.norm_modules, site.gain) == (placement, name, ("norm",), 1.0)
        assert [b.kind for b in site.branches] == ["ffn"]


MODULES: list[tuple[str, Callable[[], nn.Module], str]] = [
    ("LayerNorm", lambda: nn.LayerNorm(8), "LayerNorm"), ("LayerNorm without parameters", lambda: nn.LayerNorm(8, elementwise_affine=False),
                                                          "LayerNorm"),
    ("LayerNorm without bias", lambda: nn.LayerNorm(8, bias=False), "LayerNorm"), ("RMSNorm", lambda: nn.RMSNorm(8), "RMSNorm"),
    ("RMSNorm without parameters", lambda: nn.RMSNorm(8, elementwise_affine=False), "RMSNorm"),
    ("RMSNorm in float32", lambda: nn.RMSNorm(8, eps=1e-6), "RMSNorm")]


@pytest.mark.parametrize(("module", "name"), [m[1:] for m in MODULES], ids=[m[0] for m in MODULES])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_torch_s_norms_over_channels(module: Callable[[], nn.Module], name: str, dtype: torch.dtype) -> None:
    model = Calls(lambda m, x: m.head(x + m.b(F.gelu(m.a(m.norm(x))))), norm=module(), a=nn.Linear(8, 8), b=nn.Linear(8, 8), head=nn.Linear(8, 3))
    site = only_site(model.to(dtype), torch.randn(2, 5, 8, dtype=dtype))
    assert (site.placement, site.norm, site.norm_modules) == ("pre", name, ("norm",))


class Frozen(nn.Module):
    """A frozen batch norm: statistics and weights in buffers, as one product and one sum."""

    def __init__(self, dim: int, late: bool) -> None:
        super().__init__()
        self.late = late
        for name, value in (("weight", 1.0), ("bias", 0.0), ("running_mean", 0.0), ("running_var", 1.0)):
            self.register_buffer(name, torch.full((dim,), value))

    def forward(self, x: Tensor) -> Tensor:
        w, b, mean, var = (t.view(1, -1, 1, 1) for t in (self.weight, self.bias, self.running_mean, self.running_var))
        if self.late:
            return (x - mean) / (var + EPS).sqrt() * w + b
        scale = w * (var + EPS).rsqrt()
        return x * scale + (b - mean * scale)


IMAGES: list[tuple[str, Callable[[], nn.Module], str]] = [
    ("BatchNorm", lambda: nn.BatchNorm2d(4), "BatchNorm"), ("BatchNorm without parameters", lambda: nn.BatchNorm2d(4, affine=False), "BatchNorm"),
    ("BatchNorm without statistics", lambda: nn.BatchNorm2d(4, track_running_stats=False), "BatchNorm"),
    ("GroupNorm", lambda: nn.GroupNorm(2, 4), "GroupNorm"), ("InstanceNorm", lambda: nn.InstanceNorm2d(4), "GroupNorm"),
    ("InstanceNorm with parameters", lambda: nn.InstanceNorm2d(4, affine=True, track_running_stats=True), "GroupNorm"),
    ("frozen, one product", lambda: Frozen(4, late=False), "BatchNorm"), ("frozen, a quotient", lambda: Frozen(4, late=True), "BatchNorm")]


@pytest.mark.parametrize(("module", "name"), [m[1:] for m in IMAGES], ids=[m[0] for m in IMAGES])
@pytest.mark.parametrize("training", [False, True])
def test_norms_of_images(module: Callable[[], nn.Module], name: str, training: bool) -> None:
    def run(m: nn.Module, x: Tensor) -> Tensor:
        x = m.stem(x)
        return m.head(F.relu(x + m.norm(m.b(F.relu(m.a(x))))))
    conv = [nn.Conv2d(4, 4, 3, padding=1) for _ in range(4)]
    model = Calls(run, stem=conv[0], a=conv[1], b=conv[2], head=conv[3], norm=module()).train(training)
    site = only_site(model, torch.randn(2, 4, 6, 6))
    assert (site.placement, site.norm, site.norm_modules) == ("output", name, ("norm",))
    assert (site.gain, site.scale) == (1.0, "none")


@pytest.mark.parametrize("run", [
    lambda m, x: x - x.mean(-1, keepdim=True),                          # centred, not normed
    lambda m, x: x / x.sum(-1, keepdim=True),
    lambda m, x: x.softmax(-1),
    lambda m, x: x * m.scale,
    lambda m, x: x * x.mean(1, keepdim=True),                           # a gate by a mean
    lambda m, x: x * torch.rsqrt(m.f(x).square().mean(-1, keepdim=True) + EPS),     # by a statistic of something else
])
def test_this_is_no_norm(run: Callable[..., Tensor]) -> None:
    g = graph(run, tokens(), scale=nn.Parameter(torch.ones(DIM)), f=nn.Linear(DIM, DIM))
    assert [s.norm.name for s in g.state if s is not None and s.norm is not None] == []


def test_the_norm_s_own_weight_is_no_scale() -> None:
    model = Calls(lambda m, x: m.head(x + m.norm(m.f(x))), norm=Spelt(_rms_rsqrt), f=Branch(), head=nn.Linear(DIM, 3))
    assert only_site(model, tokens()).scale == "none"
    scaled = Calls(lambda m, x: m.head(x + m.g * m.norm(m.f(x))), norm=Spelt(_rms_rsqrt), f=Branch(), g=nn.Parameter(torch.ones(DIM)),
                   head=nn.Linear(DIM, 3))
    assert only_site(scaled, tokens()).scale == "vector"


def test_the_final_norm_by_hand_is_found() -> None:
    import skipway

    model = Tower(Calls(lambda m, x: x + m.f(x), f=Branch()))
    for how in (_ln_centred, _rms_rsqrt, _normalize):
        model.norm = Spelt(how)  # type: ignore[assignment]
        assert [s.final_norm for s in skipway.trace(model, tokens()).streams] == ["norm"]


def test_a_graph_blind_to_statistics_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(norms, "norm_by", lambda *a: False)
    with pytest.raises(AssertionError):
        test_a_norm_by_hand_is_what_it_is("LayerNorm", _ln_var)


def test_a_graph_that_takes_an_activation_for_the_value_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(HANDLERS, "softmax", HANDLERS["clone"])
    monkeypatch.setitem(HANDLERS, "_softmax", HANDLERS["clone"])
    g = graph(lambda m, x: x.softmax(-1), tokens())
    assert g.state[last(g)] is g.state[0]

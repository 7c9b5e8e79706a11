"""Residual and Stack: routing of arguments, extra results, dtype of the stream, shapes, checkpoints, compile, functional calls."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.utils.checkpoint import checkpoint

import skipway
from skipway._errors import SchemeError, ShapeMismatch
from skipway.nn import Attention, Decoder, Encoder, EncoderBlock, FeedForward, MoE, Parallel, Residual, Stack, normalise_weights

DIM = 8


class Told(nn.Module):
    """A branch that takes one keyword argument and returns it besides."""

    def forward(self, x: Tensor, *, factor: float = 1.0) -> tuple[Tensor, float]:
        return x * factor, factor


def test_keyword_arguments_go_to_the_branches_that_name_them() -> None:
    stack = Stack([Told(), nn.Linear(DIM, DIM), Told()], DIM, "plain")
    x = torch.randn(2, 3, DIM)
    y, extras = stack(x, factor=2.0, extras=True)
    assert extras == [(2.0,), (), (2.0,)]
    torch.testing.assert_close(y, 3 * (3 * x + stack.layers[1].branch(3 * x)))
    with pytest.raises(TypeError, match="no branch takes 'factr'; they take factor, input"):
        stack(x, factr=2.0)


def test_a_residual_passes_arguments_and_extra_results() -> None:
    block = Residual(Told(), DIM, "plain")
    x = torch.randn(2, 3, DIM)
    y, factor = block(x, factor=3.0)
    assert factor == 3.0 and torch.equal(y, x + 3 * x)


class Gives(nn.Module):
    gives = ("note",)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, str]:
        return x, x.mean(), "more"


class Reads(nn.Module):
    def forward(self, x: Tensor, note: Tensor | None = None) -> Tensor:
        return x if note is None else x * note


def test_what_a_branch_gives_goes_to_those_behind_it_alone() -> None:
    stack = Stack([Reads(), Gives(), Reads()], DIM, "plain")
    x = torch.rand(2, 3, DIM)
    y, extras = stack(x, extras=True)
    assert extras == [(), ("more",), ()]
    torch.testing.assert_close(y, 4 * x * (1 + (2 * x).mean()))


def test_a_cross_attention_gets_its_own_mask_only() -> None:
    torch.manual_seed(0)
    decoder = Decoder(DIM, 2, 1)
    x, context = torch.randn(2, 4, DIM), torch.randn(2, 3, DIM)
    plain = decoder(x, context=context)
    seen = torch.ones(2, 3, dtype=torch.bool)
    assert torch.equal(decoder(x, context=context, mask=torch.ones(4, 4, dtype=torch.bool), context_mask=seen), plain)
    seen[1, 2] = False
    other = decoder(x, context=context, context_mask=seen)
    assert torch.equal(other[0], plain[0]) and not torch.equal(other[1], plain[1])


@pytest.mark.parametrize("branch", [nn.Linear(DIM, DIM + 1), nn.Linear(DIM, 1), nn.Flatten(1)])
def test_a_branch_of_another_shape_is_refused(branch: nn.Module) -> None:
    model = nn.Sequential(nn.Linear(3, DIM), nn.Sequential(Residual(branch, DIM)))
    with pytest.raises(ShapeMismatch, match=r"1\.0\.branch returned the shape \(.*\) for an input of shape \(2, 5, 8\)"):
        model(torch.randn(2, 5, 3))


def test_a_branch_that_returns_nothing_is_refused() -> None:
    class Empty(nn.Module):
        def forward(self, x: Tensor) -> None:
            pass
    with pytest.raises(ShapeMismatch, match=r"returned None, wanted a tensor of the shape \(2, 8\)"):
        Residual(Empty(), DIM)(torch.randn(2, DIM))


def test_wrong_use_is_refused() -> None:
    with pytest.raises(SchemeError, match="a stack of no branches"):
        Stack([], DIM)
    with pytest.raises(SchemeError, match="1 roles for 2 branches"):
        Stack([nn.Identity(), nn.Identity()], DIM, roles=["ffn"])
    with pytest.raises(SchemeError, match="takes no options, got lanes"):
        Residual(nn.Identity(), DIM, skipway.schemes.build("plain", DIM), lanes=2)


# the dtype of the stream

class Seen(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.dtypes = nn.Linear(DIM, DIM), []

    def forward(self, x: Tensor) -> Tensor:
        self.dtypes.append(x.dtype)
        return self.linear(x)


@pytest.mark.parametrize("scheme", ["pre_norm", "post_norm", "hyper", "layer_scale", "reversible"])
def test_a_float32_stream_with_bfloat16_branches(scheme: str) -> None:
    torch.manual_seed(0)
    stack = Stack([Seen() for _ in range(4)], DIM, scheme, stream_dtype=torch.float32).to(torch.bfloat16)
    assert all(p.dtype == (torch.bfloat16 if ".branch." in n else torch.float32) for n, p in stack.named_parameters())
    assert "stream in float32" in repr(stack)
    x = torch.randn(2, 3, DIM, dtype=torch.bfloat16)
    streams: list[torch.dtype] = []
    for layer in stack.layers:
        layer.register_forward_hook(lambda m, a, out: streams.extend(t.dtype for t in (out[0] if isinstance(out[0], tuple) else (out[0],))))
    y = stack(x)
    assert y.dtype == torch.bfloat16 and set(streams) == {torch.float32}
    assert all(layer.branch.dtypes == [torch.bfloat16] for layer in stack.layers)
    y.float().sum().backward()
    assert all(p.grad is not None and p.grad.dtype == p.dtype for p in stack.layers[1].parameters())


def test_small_writes_are_not_lost_in_a_float32_stream() -> None:
    """Sixty-four writes of 1/1024 beside a 1: all rounded away in bfloat16, none in float32."""
    class Small(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.full_like(x, 2 ** -10)

    x = torch.ones(1, DIM, dtype=torch.bfloat16)
    lost = Stack([Small() for _ in range(64)], DIM, "plain")
    kept = Stack([Small() for _ in range(64)], DIM, "plain", stream_dtype=torch.float32)
    assert torch.equal(lost(x), x)
    assert torch.equal(kept(x), x + 64 * 2 ** -10)


def test_weights_of_the_scheme_stay_in_float32_without_a_detour() -> None:
    """A value that bfloat16 cannot hold is lost in a branch and kept by a scheme only if it never passed through bfloat16."""
    stack = Stack([nn.Linear(DIM, DIM)], DIM, "layer_scale", stream_dtype=torch.float32, start=0.1)
    before = stack.layers[0].scheme.scale.clone()
    assert torch.equal(stack.to(torch.bfloat16).layers[0].scheme.scale, before)


# where people train

def encoder(**options: Any) -> Encoder:
    torch.manual_seed(0)
    return Encoder(DIM, 2, 3, causal=True, **options)


def step(model: nn.Module, x: Tensor, run: Any = None) -> list[Tensor]:
    y = (model if run is None else run)(x)
    return [y.detach(), *torch.autograd.grad(y.sin().sum(), list(model.parameters()))]


@pytest.mark.parametrize("scheme", ["pre_norm", "post_norm", "hyper", "dense_former", "reversible"])
def test_activation_checkpointing(scheme: str) -> None:
    """Around the stack, around a sublayer, and by the stack's own option: the same numbers, dropout included."""
    x = torch.randn(2, 4, DIM)
    stored = encoder(scheme=scheme, dropout=0.2, activations="stored")
    torch.manual_seed(1)
    want = step(stored, x)
    own = encoder(scheme=scheme, dropout=0.2, activations="recomputed")
    whole = encoder(scheme=scheme, dropout=0.2, activations="stored")
    for model, run in ((own, own), (whole, lambda v: checkpoint(whole, v, use_reentrant=False))):
        torch.manual_seed(1)
        for a, b in zip(step(model, x, run), want):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_checkpoints_keep_less() -> None:
    from torch.autograd.graph import saved_tensors_hooks

    def kept(model: nn.Module) -> int:
        sizes: list[int] = []
        with saved_tensors_hooks(lambda t: (sizes.append(t.nbytes), t)[1], lambda t: t):
            model(torch.randn(2, 32, DIM))
        return sum(sizes)
    assert kept(encoder(activations="recomputed")) < 0.4 * kept(encoder())


@pytest.mark.parametrize("options", [
    {}, {"scheme": "post_norm"}, {"scheme": "hyper"}, {"scheme": "reversible"}, {"activations": "recomputed"}, {"drop_path": 0.3},
    {"stream_dtype": torch.float64}, {"attention": {"rotary": True, "qk_norm": "head", "kv_heads": 1}},
    {"attention": {"value_residual": True, "score_residual": True, "softcap": 5.0, "window": 2}}], ids=str)
def test_one_graph_under_compile(options: dict[str, Any]) -> None:
    model = encoder(**options).eval()
    x = torch.randn(2, 4, DIM)
    want = step(model, x)
    torch._dynamo.reset()
    for a, b in zip(step(model, x, torch.compile(model, fullgraph=True, backend="aot_eager")), want):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_the_shape_check_costs_nothing_under_compile() -> None:
    """The compiled graph of a residual holds the branch, the norm and the add, and no other operation."""
    found: list[list[str]] = []

    def look(graph: Any, inputs: Any) -> Any:
        found.append([n.target.__name__ if callable(n.target) else str(n.target) for n in graph.graph.nodes if n.op == "call_function"])
        return graph.forward
    block = Residual(nn.Linear(DIM, DIM), DIM)
    torch._dynamo.reset()
    torch.compile(block, fullgraph=True, backend=look)(torch.randn(2, DIM))
    assert found == [["layer_norm", "linear", "add"]]


@pytest.mark.parametrize("scheme", ["pre_norm", "hyper", "reversible"])
def test_functional_call_and_vmap(scheme: str) -> None:
    models = [Stack([Attention(DIM, 2), FeedForward(DIM)], DIM, scheme) for _ in range(3)]
    x = torch.randn(2, 4, DIM)
    stacked = {n: torch.stack([dict(m.named_parameters())[n].detach() for m in models]) for n, _ in models[0].named_parameters()}
    got = vmap(lambda p: functional_call(models[0], p, (x,)))(stacked)
    torch.testing.assert_close(got, torch.stack([m(x) for m in models]), rtol=1e-5, atol=1e-5)


def test_hooks_on_a_layer_see_every_pass() -> None:
    model = encoder()
    calls: list[int] = []
    for k, layer in enumerate(model.layers):
        layer.register_forward_hook(lambda m, a, out, k=k: calls.append(k))
    model(torch.randn(2, 4, DIM))
    assert calls == [0, 1, 2, 3, 4, 5]


# branches beside each other

def test_parallel_branches_share_one_norm_or_have_their_own() -> None:
    torch.manual_seed(0)
    a, f = Attention(DIM, 2), FeedForward(DIM)
    x = torch.randn(2, 4, DIM)
    shared = Residual(Parallel([a, f]), DIM)
    n = shared.scheme.norm(x)
    torch.testing.assert_close(shared(x), x + a(n) + f(n))
    own = Residual(Parallel([a, f], norm=nn.LayerNorm, dim=DIM), DIM, "plain")
    with torch.no_grad():
        own.branch.norms[0].weight.mul_(2)
    torch.testing.assert_close(own(x), x + a(own.branch.norms[0](x)) + f(own.branch.norms[1](x)))
    mask = torch.ones(4, 4, dtype=torch.bool).tril()
    torch.testing.assert_close(shared(x, mask=mask), x + a(n, mask=mask) + f(n))
    with pytest.raises(TypeError, match="no branch takes 'msk'"):
        shared(x, msk=mask)
    with pytest.raises(ShapeMismatch, match="like the branches beside it"):
        Residual(Parallel([a, nn.Linear(DIM, 1)]), DIM)(x)
    assert len(list(shared.branch.weights("output"))) == 2


def test_parallel_branches_in_a_stack_are_one_site_each() -> None:
    torch.manual_seed(0)
    stack = Stack([Parallel([Attention(16, 2), FeedForward(16)]) for _ in range(4)], 16, per_block=1)
    report = skipway.check(nn.Sequential(nn.Linear(5, 16), stack, nn.Linear(16, 3)), torch.randn(2, 7, 5), stage="train")
    assert [f for f in report.findings if f.severity != "note"] == []
    sites = [site for s in report.wiring.streams if s.main for site in s.sites]
    assert [(s.placement, s.parallel, sorted(b.kind for b in s.branches)) for s in sites] == [("pre", True, ["ffn", "self_attention"])] * 4


def test_extra_results_of_parallel_branches() -> None:
    torch.manual_seed(0)
    stack = Stack([Parallel([Attention(DIM, 2, value_residual="first"), MoE(DIM, 8, 4)]), Parallel([Attention(DIM, 2, value_residual="later"),
                                                                                               FeedForward(DIM)])], DIM, per_block=1)
    y, extras = stack(torch.randn(2, 3, DIM), extras=True)
    assert y.shape == (2, 3, DIM) and [len(e) for e in extras] == [1, 0] and extras[0][0].shape == (6, 4)


# whole rows of blocks

@pytest.mark.parametrize(("build", "sites", "kinds"), [
    (lambda: Encoder(16, 2, 3), 6, ["self_attention", "ffn"] * 3),
    (lambda: Encoder(16, 2, 3, scheme="post_norm"), 6, ["self_attention", "ffn"] * 3),
    (lambda: Decoder(16, 2, 2, cross=False, attention={"rotary": True, "kv_heads": 1, "bias": False}, feed_forward={"kind": "swiglu"}), 4,
     ["self_attention", "ffn"] * 2)], ids=["pre", "post", "decoder"])
def test_check_reads_them_as_they_are_meant(build: Any, sites: int, kinds: list[str]) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 16), build(), nn.Linear(16, 3))
    report = skipway.check(model, torch.randn(2, 7, 5), stage="train")
    assert [f for f in report.findings if f.severity != "note"] == []
    main = [s for s in report.wiring.streams if s.main]
    assert [len(s.sites) for s in main] == [sites]
    assert [b.kind for site in main[0].sites for b in site.branches] == kinds


def test_a_decoder_with_a_context_has_three_sites_a_block() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.source, self.target = nn.Linear(5, 16), nn.Linear(5, 16)
            self.encoder, self.decoder, self.head = Encoder(16, 2, 2), Decoder(16, 2, 2), nn.Linear(16, 3)

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return self.head(self.decoder(self.target(y), context=self.encoder(self.source(x))))
    torch.manual_seed(0)
    report = skipway.check(Model(), torch.randn(2, 7, 5), torch.randn(2, 6, 5), stage="train")
    assert [f for f in report.findings if f.severity != "note"] == []
    kinds = {tuple(b.kind for site in s.sites for b in site.branches) for s in report.wiring.streams if s.main}
    assert kinds == {("self_attention", "ffn") * 2, ("self_attention", "cross_attention", "ffn") * 2}


def test_a_block_is_one_line() -> None:
    block = EncoderBlock(DIM, 2)
    assert block.final_norm is None and [layer.scheme.role for layer in block.layers] == ["self_attention", "ffn"]


def test_weights_on_the_unit_sphere() -> None:
    """nGPT's step: rows of what reads the stream and columns of what writes to it have length 1, and nothing else is touched."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(5, DIM), Encoder(DIM, 2, 2, scheme="ngpt", feed_forward={"kind": "swiglu"}))
    biases = {n: p.clone() for n, p in model.named_parameters() if p.ndim < 2}
    assert normalise_weights(model) == 1 + 2 * (4 + 3)
    attention, feed_forward = (layer.branch for layer in model[1].layers[:2])
    for weight in (model[0].weight, attention.query.weight, attention.value.weight, feed_forward.input.weight, feed_forward.gate.weight,
                   attention.output.weight.T, feed_forward.output.weight.T):
        torch.testing.assert_close(weight.norm(dim=1), torch.ones(len(weight)))
    assert all(torch.equal(p, biases[n]) for n, p in model.named_parameters() if n in biases)
    assert normalise_weights(nn.Linear(DIM, DIM)) == 0
    y = model(torch.tensor([[0, 3, 1]]))
    torch.testing.assert_close(y.norm(dim=-1), torch.ones(1, 3))

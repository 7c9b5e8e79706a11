"""Fused parts, wrappers and compiled parts are seen through: the same sites as without them."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import skipway
from skipway._errors import TraceError

from .small import DIM, Block, Calls, Tower, all_sites, facts_of, only_site, streams, structure, tokens


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("fast", [False, True])
def test_torch_s_encoder_layers_are_opened(norm_first: bool, fast: bool) -> None:
    layer = nn.TransformerEncoderLayer(DIM, 2, 32, batch_first=True, norm_first=norm_first)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(fast)
    try:
        sites = all_sites(model, tokens())
        assert torch.backends.mha.get_fastpath_enabled() is fast
    finally:
        torch.backends.mha.set_fastpath_enabled(before)
    assert [[b.kind for b in s.branches] for s in sites] == [["self_attention"], ["ffn"]] * 2
    assert {(s.placement, s.norm, s.gain) for s in sites} == {("pre" if norm_first else "post", "LayerNorm", 1.0)}
    assert [(s.layer, s.norm_modules) for s in sites] == [(k, (f"layers.{k}.norm{j}",)) for k in (0, 1) for j in (1, 2)]


def test_the_fast_path_is_put_back_after_an_exception() -> None:
    before = torch.backends.mha.get_fastpath_enabled()
    with pytest.raises(TraceError):
        skipway.trace(nn.TransformerEncoderLayer(DIM, 2, 32, batch_first=True).eval(), torch.randn(2, 5, DIM + 1))
    assert torch.backends.mha.get_fastpath_enabled() is before


def test_torch_s_decoder_layers_have_three_sites() -> None:
    model = nn.TransformerDecoder(nn.TransformerDecoderLayer(DIM, 2, 32, batch_first=True), 2)
    sites = all_sites(model.eval(), tokens(), tokens(length=7))
    assert [[b.kind for b in s.branches] for s in sites] == [["self_attention"], ["cross_attention"], ["ffn"]] * 2


class Wrapped(nn.Module):
    """A tower whose blocks run inside something."""

    def __init__(self, around: Callable[[nn.Module, Tensor], Tensor]) -> None:
        super().__init__()
        self.around, self.stem, self.norm, self.head = around, nn.Linear(DIM, DIM), nn.LayerNorm(DIM), nn.Linear(DIM, 3)
        self.blocks = nn.ModuleList([Block(), Block()])

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = self.around(block, x)
        return self.head(self.norm(x))


class Passing(torch.autograd.Function):
    """The identity, with a backward of its own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad


class Doubling(torch.autograd.Function):
    """An activation with a backward of its own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad


def bare() -> list[Any]:
    return structure(streams(Wrapped(lambda block, x: block(x)), tokens()))


AROUND: dict[str, Callable[[nn.Module, Tensor], Tensor]] = {
    "checkpoint": lambda block, x: checkpoint(block, x, use_reentrant=False),
    "checkpoint, reentrant": lambda block, x: checkpoint(block, x, use_reentrant=True),
    "autograd function": lambda block, x: Passing.apply(block(x)),
    "no_grad": lambda block, x: torch.no_grad()(block)(x),
    "enable_grad": lambda block, x: torch.enable_grad()(block)(x),
    "inference_mode": lambda block, x: torch.inference_mode()(block)(x),
    "autocast": lambda block, x: torch.autocast("cpu", torch.bfloat16, enabled=False)(block)(x),
    "functional_call": lambda block, x: torch.func.functional_call(block, dict(block.named_parameters()), (x,)),
}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", sorted(AROUND))
def test_a_wrapper_around_a_block_changes_nothing(name: str, training: bool) -> None:
    assert structure(streams(Wrapped(AROUND[name]).train(training), tokens())) == bare()


def test_a_block_whose_forward_is_called_has_its_sites() -> None:
    """Without a module call nobody knows where the block begins: its sites stand in the model itself."""
    have = all_sites(Wrapped(lambda block, x: block.forward(x)), tokens())
    assert [facts_of(s) for s in have] == [facts_of(s) for s in all_sites(Wrapped(lambda block, x: block(x)), tokens())]
    assert {s.module for s in have} == {""}


def compiled(model: nn.Module) -> nn.Module:
    return torch.compile(model, backend="eager")  # type: ignore[return-value]


WRAPPERS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "compile": compiled,
    "data parallel": nn.DataParallel,
    "script": torch.jit.script,
    "trace": lambda model: torch.jit.trace(model, tokens(), check_trace=False),
    "sequential": lambda model: nn.Sequential(model),
    "hooks": lambda model: _hooked(model),
    "weight norm": lambda model: _parametrised(model, nn.utils.parametrizations.weight_norm),
    "spectral norm": lambda model: _parametrised(model, nn.utils.parametrizations.spectral_norm),
}


def _hooked(model: nn.Module) -> nn.Module:
    for module in model.modules():
        module.register_forward_pre_hook(lambda m, args: args)
        module.register_forward_hook(lambda m, args, out: None)
    return model


def _parametrised(model: nn.Module, how: Callable[[nn.Module], nn.Module]) -> nn.Module:
    how(model.stem)
    for block in model.blocks:
        how(block.up)
    return model


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", sorted(WRAPPERS))
def test_a_wrapped_model_has_the_sites_of_the_bare_one(name: str, training: bool) -> None:
    def make() -> nn.Module:
        return Tower(Simple(), Simple()).train(training)
    want, have = skipway.trace(make(), tokens()), skipway.trace(WRAPPERS[name](make()), tokens())
    assert [facts_of(s) for s in have.sites] == [facts_of(s) for s in want.sites]
    assert len(have.sites) == 2 and have.sites[0].gain == 1.0 and have.sites[0].branches[0].kind == "ffn"
    assert [s.final_norm is None for s in have.streams] == [False]


class Simple(nn.Module):
    """A block that every wrapper can take."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(DIM), nn.Linear(DIM, 32), nn.Linear(32, DIM)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))


@pytest.mark.parametrize("part", ["block", "function"])
def test_compiled_and_scripted_parts_are_seen_through(part: str) -> None:
    def ffn(m: nn.Module, x: Tensor) -> Tensor:
        return m.down(F.gelu(m.up(m.norm(x))))
    if part == "block":
        model = Tower(compiled(Simple()), torch.jit.script(Simple()))  # type: ignore[arg-type]
    else:
        made = torch.compile(ffn, backend="eager")
        model = Tower(Calls(lambda m, x: x + made(m, x), norm=nn.LayerNorm(DIM), up=nn.Linear(DIM, 32), down=nn.Linear(32, DIM)), Simple())
    assert [facts_of(s) for s in skipway.trace(model, tokens()).sites] == [facts_of(s) for s in skipway.trace(Tower(Simple(), Simple()),
        tokens()).sites]


def test_the_paths_inside_wrappers() -> None:
    assert skipway.trace(nn.DataParallel(Tower(Simple())), tokens()).sites[0].module == "module.blocks.0"
    assert skipway.trace(compiled(Tower(Simple())), tokens()).sites[0].module.endswith("blocks.0")


def test_an_autograd_function_inside_a_branch() -> None:
    model = Calls(lambda m, x: m.head(x + m.down(Doubling.apply(m.up(m.norm(x))))), norm=nn.LayerNorm(DIM), up=nn.Linear(DIM, 32),
                  down=nn.Linear(32, DIM), head=nn.Linear(DIM, 3))
    site = only_site(model, tokens())
    assert (site.placement, site.gain, [b.kind for b in site.branches]) == ("pre", 1.0, ["ffn"])


def test_a_trace_inside_a_forward_is_its_own() -> None:
    """A model that traces another one while it is traced."""
    def run(m: nn.Module, x: Tensor) -> Tensor:
        m.seen.append(len(skipway.trace(m.other[0], tokens()).sites))
        return m.f(x)
    counts: list[int] = []

    class Seen:
        append = staticmethod(counts.append)
    assert all_sites(Calls(run, f=nn.Linear(4, 4), other=[Tower(Block())], seen=Seen()), torch.randn(2, 4)) == []
    assert counts == [2]

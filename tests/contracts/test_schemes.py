"""The contract of a scheme, held for every member of the registry: its numbers are those of its oracle, and what it declares is true."""

import importlib
import math
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

sys.path.insert(0, str(Path(__file__).parents[1]))

import skipway
from oracles import Case, Config
from skipway import schemes
from skipway._errors import SchemeError, ShapeMismatch

NAMES = schemes.names()
DIM = 8
TIGHT = 1e-12


class Toy(nn.Module):
    """A branch that works on each token alone: tanh(W x + b), summed over its inputs, each with its own W."""

    def __init__(self, dim: int, inputs: int = 1) -> None:
        super().__init__()
        self.mats = nn.ModuleList(nn.Linear(dim, dim) for _ in range(inputs))
        self.inner: nn.Module | None = None

    def forward(self, *given: Tensor) -> Tensor:
        y = torch.tanh(sum(m(v) for m, v in zip(self.mats, given)))
        return y if self.inner is None else self.out(self.inner(y))

    def inner_norm(self, make: Callable[[int], nn.Module]) -> None:
        dim = self.mats[0].out_features
        self.inner, self.out = make(dim), nn.Linear(dim, dim)

    def weights(self, kind: str) -> list[Tensor]:
        return [m.weight for m in self.mats] if kind in ("input", "output") else []


def oracle(name: str) -> Any:
    return importlib.import_module(f"oracles.{name}")


def cases() -> list[Any]:
    return [pytest.param(name, case, id="-".join([name, *(f"{k}={v}" for k, v in case.items())])) for name in NAMES for case in oracle(name).CASES]


def build(name: str, case: Case, dim: int = DIM, init: bool = True, seed: int = 0) -> tuple[skipway.nn.Stack, Config, dict[str, Any]]:
    """A stack of toy branches under one case."""
    own = {f.name for f in fields(Config)}
    config = Config(**{k: v for k, v in case.items() if k in own})
    options = {k: v for k, v in case.items() if k not in own}
    torch.manual_seed(seed)
    stack = _stack(name, config, options, [1] * config.depth, dim, init)
    counts = _inputs(stack, dim)
    if any(c != 1 for c in counts):
        torch.manual_seed(seed)
        stack = _stack(name, config, options, counts, dim, init)
    return stack, config, options


def _stack(name: str, config: Config, options: dict[str, Any], counts: list[int], dim: int, init: bool) -> skipway.nn.Stack:
    return skipway.nn.Stack([Toy(dim, c) for c in counts], dim, name, per_block=config.per_block, roles=config.roles or None, final_norm=False,
                            init=init, **options)


def _inputs(stack: skipway.nn.Stack, dim: int) -> list[int]:
    """How many vectors each sublayer reads."""
    stream, counts = stack.layers[0].enter(torch.randn(2, 3, dim)), []
    for layer in stack.layers:
        given, memo = layer.scheme.read(stream)
        counts.append(len(given) if isinstance(given, tuple) else 1)
        stream = layer.scheme.write(stream, given[0] if isinstance(given, tuple) else given, memo)
    return counts


def shake(module: nn.Module, seed: int = 1, size: float = 0.3) -> None:
    """Moves every parameter, and every counter of steps, off its start, so that no term is zero by chance."""
    if isinstance(module, skipway.nn.Stack):
        module.advance(300)
    made = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in module.parameters():
            p.add_(size * torch.randn(p.shape, generator=made, dtype=torch.float64).to(p.dtype))


def by_oracle(name: str, stack: skipway.nn.Stack, x: Tensor, config: Config, options: dict[str, Any]) -> Tensor:
    """The whole batch, token by token."""
    p = [{**dict(layer.scheme.named_parameters()), **dict(layer.scheme.named_buffers())} for layer in stack.layers]
    branches = [layer.branch for layer in stack.layers]
    rows = [oracle(name).token(v, branches, p, config, **options) for v in x.reshape(-1, x.shape[-1])]
    return torch.stack(rows).reshape(x.shape)


def gradients(y: Tensor, stack: nn.Module, x: Tensor) -> dict[str, Tensor]:
    """Gradients of a fixed mixture of the outputs by x and by every parameter; zero where none arrives."""
    weights = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).reshape(y.shape).cos()
    names, wanted = zip(("x", x), *stack.named_parameters())
    found = torch.autograd.grad((y * weights).sum(), wanted, allow_unused=True)
    return {n: torch.zeros_like(w) if g is None else g for n, w, g in zip(names, wanted, found)}


def distance(a: Tensor, b: Tensor, least: float = 0.0) -> float:
    """Largest difference relative to the largest element, or to `least` where that is more."""
    a, b = a.detach(), b.detach()
    size = max(float(b.abs().max()), least)
    return float((a - b).abs().max()) / size if size > 0 else float(a.abs().max())


def compared(name: str, case: Case, break_it: Callable[[skipway.nn.Stack], None] | None = None) -> tuple[float, str]:
    """The worst relative difference of a scheme from its oracle, over the output and all gradients, and where it is."""
    stack, config, options = build(name, case)
    stack.double()
    shake(stack)
    x = torch.randn(2, 2, DIM, dtype=torch.float64, requires_grad=True)
    want = by_oracle(name, stack, x, config, options)
    theirs = gradients(want, stack, x)
    if break_it is not None:
        break_it(stack)
    got = stack(x)
    ours = gradients(got, stack, x)
    # A gradient that an invariance makes nearly zero (a norm behind equal lanes) is a difference of large numbers: held to the others' size.
    least = 1e-3 * max(float(g.abs().max()) for g in theirs.values())
    worst = {"output": distance(got, want), **{f"gradient of {n}": distance(ours[n], theirs[n], least) for n in theirs}}
    where = max(worst, key=worst.__getitem__)
    return worst[where], where


@pytest.mark.parametrize(("name", "case"), cases())
def test_equal_to_the_oracle(name: str, case: Case) -> None:
    worst, where = compared(name, case)
    assert worst <= TIGHT, where


def _detached(stack: skipway.nn.Stack) -> None:
    """The shortcut of the third sublayer gives no gradient."""
    scheme = stack.layers[2].scheme
    write = scheme.write

    def cut(s: Any) -> Any:
        return s.detach() if isinstance(s, Tensor) else type(s)(cut(v) for v in s) if isinstance(s, (tuple, list)) else s
    scheme.write = lambda stream, y, memo: write(cut(stream), y, cut(memo))


def _factor(stack: skipway.nn.Stack) -> None:
    """The branch of the third sublayer is scaled by a little, by another factor on each channel: some schemes take no length from their branch."""
    scheme = stack.layers[2].scheme
    write = scheme.write
    scheme.write = lambda stream, y, memo: write(stream, torch.linspace(1.0, 1.002, y.shape[-1]).to(y) * y, memo)


@pytest.mark.parametrize("fault", [_detached, _factor])
@pytest.mark.parametrize("name", [n for n in NAMES if n != "none"])
def test_a_planted_fault_is_seen(name: str, fault: Callable[[skipway.nn.Stack], None]) -> None:
    worst, _ = compared(name, oracle(name).CASES[0], fault)
    assert worst > 1e-7


@pytest.mark.parametrize(("name", "case"), cases())
def test_gradients_by_finite_differences(name: str, case: Case) -> None:
    stack, _, _ = build(name, case, dim=4 if not any(isinstance(v, int) and v > 4 for v in case.values()) else DIM)
    stack.double()
    shake(stack)
    dim = stack.layers[0].scheme.dim
    x = torch.randn(1, 2, dim, dtype=torch.float64, requires_grad=True)
    own = {n: p for n, p in stack.named_parameters() if ".scheme." in n}
    assert torch.autograd.gradcheck(lambda v, *ps: functional_call(stack, dict(zip(own, ps)), (v,)), (x, *own.values()), fast_mode=True)


@pytest.mark.parametrize("name", NAMES)
def test_the_start_is_the_one_declared(name: str) -> None:
    """Bit for bit the scheme it names, or the identity."""
    declared = schemes.load(name).at_start
    assert declared in (None, "identity", "plain", "pre_norm", "post_norm")
    if declared is None:
        return
    stack, config, _ = build(name, oracle(name).CASES[0], init=declared == "identity")
    x = torch.randn(2, 3, DIM)
    want = x
    if declared != "identity":
        torch.manual_seed(0)
        other = _stack(declared, config, {}, [1] * config.depth, DIM, False)
        for mine, layer in zip(stack.layers, other.layers):
            mats = mine.branch.mats
            with torch.no_grad():                           # where it reads several inputs, they are equal at the start
                layer.branch.mats[0].weight.copy_(sum(m.weight for m in mats))
                layer.branch.mats[0].bias.copy_(sum(m.bias for m in mats))
        want = other(x)
    if any(len(layer.branch.mats) > 1 for layer in stack.layers):
        torch.testing.assert_close(stack(x), want, rtol=1e-5, atol=1e-6)
    else:
        assert torch.equal(stack(x), want)


@pytest.mark.parametrize("name", NAMES)
def test_state_dict_round_trip(name: str) -> None:
    case = oracle(name).CASES[0]
    one, other = build(name, case)[0], build(name, case, seed=5)[0]
    shake(one)
    other.load_state_dict(one.state_dict(), strict=True)
    x = torch.randn(2, 3, DIM)
    assert torch.equal(one(x), other(x))


def compiled(name: str, backend: str) -> None:
    stack, _, _ = build(name, oracle(name).CASES[0])
    shake(stack)
    x = torch.randn(2, 3, DIM, requires_grad=True)
    want = stack(x)
    theirs = gradients(want, stack, x)
    torch._dynamo.reset()
    got = torch.compile(stack, fullgraph=True, backend=backend)(x)
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
    for key, gradient in gradients(got, stack, x).items():
        torch.testing.assert_close(gradient, theirs[key], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_one_graph_under_compile(name: str) -> None:
    compiled(name, "aot_eager")


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_inductor_gives_the_same(name: str) -> None:
    compiled(name, "inductor")


@pytest.mark.parametrize("name", NAMES)
def test_autocast(name: str) -> None:
    """Under bfloat16 autocast the result is that of float32, up to bfloat16's own steps; the scheme's parameters stay float32 and get gradients."""
    stack, _, _ = build(name, oracle(name).CASES[0])
    shake(stack, size=0.1)
    x = torch.randn(2, 3, DIM, requires_grad=True)
    want = stack(x)
    with torch.autocast("cpu", torch.bfloat16):
        got = stack(x)
    assert distance(got.float(), want) < 0.05
    assert all(g.isfinite().all() for g in gradients(got.float(), stack, x).values())


@pytest.mark.parametrize("name", NAMES)
def test_many_models_in_one_call(name: str) -> None:
    """functional_call and vmap: three models at once give what they give one by one."""
    case = oracle(name).CASES[0]
    models = [build(name, case, seed=s)[0] for s in range(3)]
    for s, m in enumerate(models):
        shake(m, seed=s)
    x = torch.randn(2, 3, DIM)
    stacked = {n: torch.stack([dict(m.named_parameters())[n].detach() for m in models]) for n, _ in models[0].named_parameters()}
    got = vmap(lambda ps: functional_call(models[0], ps, (x,)))(stacked)
    torch.testing.assert_close(got, torch.stack([m(x) for m in models]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_declared_facts(name: str) -> None:
    stack, _, _ = build(name, oracle(name).CASES[0])
    for layer in stack.layers:
        scheme = layer.scheme
        owned = dict(scheme.named_modules())
        assert all(n in owned for n in scheme.norms())
        names = dict(scheme.named_parameters())
        assert set(scheme.no_decay()) <= set(names)
        assert set(scheme.rates()) <= set(names)
        assert math.isfinite(sum(scheme.traffic)) and scheme.traffic.writes >= 0
    told = [id(p) for g in stack.param_groups(lr=1.0) for p in g["params"]]
    assert sorted(told) == sorted(id(p) for p in stack.parameters())
    assert schemes.load(name).__doc__
    assert "Source:" in (importlib.import_module(f"skipway.schemes.{name}").__doc__ or "")


@pytest.mark.parametrize("name", NAMES)
def test_wrong_use_is_refused(name: str) -> None:
    with pytest.raises(SchemeError, match="has no option 'nonsense'"):
        schemes.build(name, DIM, depth=4, nonsense=1)
    if schemes.load(name).needs_depth:
        with pytest.raises(SchemeError, match="needs the depth"):
            schemes.build(name, DIM)
    stack, _, _ = build(name, oracle(name).CASES[0])
    stack.layers[0].branch = nn.Sequential(nn.Linear(DIM, 1))
    stack.layers[0].branch.forward = lambda *v: torch.ones(2, 3, 1)
    with pytest.raises(ShapeMismatch, match=r"layers\.0\.branch returned the shape \(2, 3, 1\)"):
        stack(torch.randn(2, 3, DIM))


@pytest.mark.parametrize("name", NAMES)
def test_check_recovers_it(name: str) -> None:
    """Eight blocks: placement and lanes as declared, and nothing found above a note; `none` is found."""
    torch.manual_seed(0)
    case = {k: v for k, v in oracle(name).CASES[0].items() if k not in ("depth", "roles", "per_block")}
    stack, _, _ = build(name, {**case, "depth": 16}, dim=16)
    norm = nn.LayerNorm(16) if stack.layers[-1].scheme.final_norm else nn.Identity()
    model = nn.Sequential(nn.Linear(5, 16), stack, norm, nn.Linear(16, 3))
    report = skipway.check(model, torch.randn(2, 7, 5), stage="train")
    loud = [f for f in report.findings if f.severity != "note"]
    if name == "none":
        assert [f.code for f in loud] == ["SKW101"]
        return
    assert loud == []
    main = [s for s in report.wiring.streams if s.main]
    scheme = stack.layers[-1].scheme
    assert [s.lanes for s in main] == [scheme.lanes] * (1 + len(scheme.beside))
    wanted = [[layer.scheme.placement for layer in stack.layers if layer.scheme.joins]]
    wanted += [[placement] * len(stack.layers) for placement in scheme.beside]
    assert [[site.placement for site in s.sites] for s in main] == wanted


def test_unknown_names_are_answered_with_near_ones() -> None:
    with pytest.raises(SchemeError, match="unknown scheme 'prenorm'; did you mean pre_norm"):
        schemes.load("prenorm")


def test_every_scheme_has_an_oracle_of_its_own() -> None:
    """And no oracle imports the package."""
    import ast
    import pathlib
    folder = pathlib.Path(__file__).parents[1] / "oracles"
    assert {f.stem for f in folder.glob("[a-z]*.py")} == set(NAMES)
    for file in folder.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            named = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(n.startswith("skipway") for n in named), file.name

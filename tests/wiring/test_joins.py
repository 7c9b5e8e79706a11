"""What a join is: every spelling of an add is one, look-alikes are none, and the gain is the sum over identity paths."""

import math
import operator
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from skipway.wiring import joins
from skipway.wiring.graph import Graph
from skipway.wiring.record import Node

from .small import DIM, Block, Branch, Calls, Joined, all_sites, only_site, recorded, streams, tokens


def _filled(x: Tensor, y: Tensor) -> Tensor:
    out = torch.empty_like(x)
    out.copy_(x)
    return out.add_(y)


def _halves(x: Tensor, y: Tensor) -> Tensor:
    out = x.clone()
    out[..., : DIM // 2] += y[..., : DIM // 2]
    out[..., DIM // 2:] += y[..., DIM // 2:]
    return out


def _scattered(x: Tensor, y: Tensor) -> Tensor:
    return x.index_add(1, torch.arange(x.shape[1]), y)


def _through_a_view(x: Tensor, y: Tensor) -> Tensor:
    out = x.clone()
    out.view(-1, DIM).add_(y.reshape(-1, DIM))
    return out


SPELLINGS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "x + y": lambda x, y: x + y,
    "y + x": lambda x, y: y + x,
    "x.add(y)": lambda x, y: x.add(y),
    "torch.add": lambda x, y: torch.add(x, y),
    "torch.add(out=)": lambda x, y: torch.add(x, y, out=torch.empty_like(x)),
    "x += y": lambda x, y: operator.iadd(x, y),
    "y += x": lambda x, y: operator.iadd(y, x),
    "x - -y": lambda x, y: x - -y,
    "y - -x": lambda x, y: y - (-x),
    "x.sub(-y)": lambda x, y: x.sub(y.neg()),
    "rsub": lambda x, y: torch.rsub(-x, y),
    "sum()": lambda x, y: sum([x, y]),  # type: ignore[arg-type, return-value]
    "stack().sum()": lambda x, y: torch.stack([x, y]).sum(0),
    "stack(-1).sum(-1)": lambda x, y: torch.stack([x, y], -1).sum(-1),
    "einsum": lambda x, y: torch.einsum("p...,p->...", torch.stack([x, y]), torch.ones(2)),
    "addcmul": lambda x, y: torch.addcmul(x, y, torch.ones(1)),
    "addcdiv": lambda x, y: torch.addcdiv(x, y, torch.ones(1)),
    "foreach": lambda x, y: torch._foreach_add([x], [y])[0],
    "copy_ then add_": _filled,
    "view().add_": _through_a_view,
    "flat": lambda x, y: (x.flatten() + y.flatten()).view_as(x),
    "transposed": lambda x, y: (x.transpose(1, 2) + y.transpose(1, 2)).transpose(1, 2),
    "float64": lambda x, y: (x.double() + y.double()).float(),
    "index_add": _scattered,
    "dropout": lambda x, y: x + F.dropout(y, 0.1, training=True),
    "ones * y": lambda x, y: x + torch.ones(()) * y,
    "x + y + position": lambda x, y: x + y + torch.linspace(0, 1, DIM),
    "x + 1 + y": lambda x, y: x + 1.0 + y,
    "cat of halves": lambda x, y: torch.cat([x[..., :8] + y[..., :8], x[..., 8:] + y[..., 8:]], -1),
    "halves in place": _halves,
}
# One join written as two adds of disjoint halves: told as one or as two, each with gain 1.
HALVES = {"cat of halves", "halves in place"}


@pytest.mark.parametrize("name", sorted(SPELLINGS.keys() - HALVES))
def test_a_spelling_is_one_join_of_gain_one(name: str) -> None:
    site = only_site(Joined(SPELLINGS[name]), tokens())
    assert (site.gain, site.shortcut, site.placement, site.norm) == (1.0, "identity", "pre", "LayerNorm")
    assert [b.kind for b in site.branches] == ["ffn"]
    assert site.branches[0].modules[0] == "branch"
    assert site.branch_scale == 1.0 and site.scale == "none"
    assert site.norm_modules == ("branch.norm",)


@pytest.mark.parametrize("name", sorted(SPELLINGS))
def test_every_spelling_has_its_line(name: str) -> None:
    for site in all_sites(Joined(SPELLINGS[name]), tokens()):
        first, last = _lines_of(SPELLINGS[name])
        assert site.file == __file__
        assert first <= site.line <= last


def _lines_of(join: Callable[..., Tensor]) -> tuple[int, int]:
    first = join.__code__.co_firstlineno
    return first, max(line for _, _, line in join.__code__.co_lines() if line)


@pytest.mark.parametrize("name", sorted(HALVES))
def test_halves_have_gain_one(name: str) -> None:
    found = all_sites(Joined(SPELLINGS[name]), tokens())
    assert len(found) in (1, 2)
    assert [s.gain for s in found] == [1.0] * len(found)
    assert {m for s in found for b in s.branches for m in b.modules} >= {"branch"}


@pytest.mark.parametrize("name", ["x += y", "y += x", "copy_ then add_", "view().add_", "x + y", "torch.add(out=)"])
def test_in_place_is_told(name: str) -> None:
    wanted = {"x += y", "y += x", "copy_ then add_", "view().add_", "torch.add(out=)"}
    assert only_site(Joined(SPELLINGS[name]), tokens()).in_place == (name in wanted)


FUSED: dict[str, Callable[[nn.Module, Tensor], Tensor]] = {
    "addmm": lambda m, x: torch.addmm(x[0], F.relu(m.up(x[0])), m.down.weight.t()).unsqueeze(0),
    "baddbmm": lambda m, x: torch.baddbmm(x, F.relu(m.up(x)), m.down.weight.t().expand(x.shape[0], -1, -1)),
    "addbmm": lambda m, x: torch.addbmm(x[0], F.relu(m.up(x)), m.down.weight.t().expand(x.shape[0], -1, -1)).unsqueeze(0),
    "addmv": lambda m, x: torch.addmv(x[0, 0], m.down.weight, F.relu(m.up(x[0, 0]))).view(1, 1, -1),
    "addmm_": lambda m, x: x[0].clone().addmm_(F.relu(m.up(x[0])), m.down.weight.t()).unsqueeze(0),
}


@pytest.mark.parametrize("name", sorted(FUSED))
def test_a_multiply_and_add_at_once_is_a_join(name: str) -> None:
    model = Calls(lambda m, x: m.head(FUSED[name](m, m.stem(x))), stem=nn.Linear(DIM, DIM), up=nn.Linear(DIM, 32),
                  down=nn.Linear(32, DIM, bias=False),
                  head=nn.Linear(DIM, 3))
    site = only_site(model, tokens(1))
    assert (site.gain, site.shortcut, site.branch_scale) == (1.0, "identity", 1.0)
    assert [b.kind for b in site.branches] == ["ffn"] and "up" in site.branches[0].modules


# --- gains ----------------------------------------------------------------------------------------------------------------------------

GAINS: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], float, float]] = {       # join, gain, constant on the branch
    "alpha on the branch": (lambda x, y: x.add(y, alpha=0.5), 1.0, 0.5),
    "alpha on the shortcut": (lambda x, y: y.add(x, alpha=2), 2.0, 1.0),
    "sub with alpha": (lambda x, y: x.sub(y, alpha=0.25), 1.0, -0.25),
    "double skip": (lambda x, y: x + (x + y), 2.0, 1.0),
    "double skip in place": (lambda x, y: (x + y).add_(x), 2.0, 1.0),
    "double skip of a half": (lambda x, y: x + 0.5 * (x + y), 1.5, 0.5),
    "constant on the shortcut": (lambda x, y: 1.5 * x + y, 1.5, 1.0),
    "division of the shortcut": (lambda x, y: x / 4 + y, 0.25, 1.0),
    "constants multiply": (lambda x, y: (x * 3).mul(0.5) + y * 0.2 * 0.5, 1.5, 0.1),
    "a table of one constant": (lambda x, y: x * torch.full((), 1.25) + y, 1.25, 1.0),
    "minus the shortcut": (lambda x, y: y - x, -1.0, 1.0),
    "lerp": (lambda x, y: torch.lerp(x, y, 0.25), 0.75, 0.25),
    "mean of two": (lambda x, y: torch.stack([x, y]).mean(0), 0.5, 0.5),
    "shortcut from two halves": (lambda x, y: (0.25 * x + 0.5 * x) + y, 0.75, 1.0),
    "addcmul value": (lambda x, y: torch.addcmul(x, y, torch.ones(1), value=0.125), 1.0, 0.125),
}


@pytest.mark.parametrize("name", sorted(GAINS))
def test_gain_and_branch_scale(name: str) -> None:
    join, gain, scale = GAINS[name]
    site = only_site(Joined(join), tokens())
    assert (site.gain, site.branch_scale) == (pytest.approx(gain), pytest.approx(scale))
    assert site.scale == ("none" if scale == 1 else "constant")


@pytest.mark.parametrize("name", sorted(GAINS))
def test_gain_is_what_the_numbers_say(name: str) -> None:
    """With a silent branch the join multiplies by its gain; with a silent shortcut by the constant on the branch."""
    join, gain, scale = GAINS[name]
    x, y, zero = torch.randn(2, 5, DIM), torch.randn(2, 5, DIM), torch.zeros(2, 5, DIM)
    torch.testing.assert_close(join(x.clone(), zero.clone()), gain * x)
    torch.testing.assert_close(join(zero.clone(), y.clone()), scale * y)


def test_shards_bring_the_identity_along_each() -> None:
    model = Calls(lambda m, x: m.head(sum(x + part(x) for part in m.parts)), parts=nn.ModuleList(Branch() for _ in range(3)), head=nn.Linear(DIM, 3))
    site = only_site(model, tokens())
    assert site.gain == 3.0
    assert [b.modules[0] for b in site.branches] == ["parts.0", "parts.1", "parts.2"]


def test_a_learned_gate_leaves_no_constant_gain() -> None:
    def gated(m: nn.Module, x: Tensor) -> Tensor:
        t = torch.sigmoid(m.gate(x))
        return m.head(t * m.branch(x) + (1 - t) * x)
    site = only_site(Calls(gated, gate=nn.Linear(DIM, DIM), branch=Branch(), head=nn.Linear(DIM, 3)), tokens())
    assert (site.gain, site.scale, site.branch_scale) == (None, "input_dependent", None)


# --- what is no join ------------------------------------------------------------------------------------------------------------------

def _attend(m: nn.Module, x: Tensor, bias: Tensor | None = None, turn: Callable[[Tensor], Tensor] = lambda t: t) -> Tensor:
    q, k, v = turn(m.q(x)), turn(m.k(x)), m.v(x)
    scores = q @ k.transpose(1, 2) / math.sqrt(DIM)
    return m.o((scores if bias is None else scores + bias).softmax(-1) @ v)


def _attention(run: Callable[..., Tensor]) -> nn.Module:
    return Calls(run, q=nn.Linear(DIM, DIM), k=nn.Linear(DIM, DIM), v=nn.Linear(DIM, DIM), o=nn.Linear(DIM, DIM))


def _rotated(t: Tensor) -> Tensor:
    angle = torch.arange(t.shape[1])[:, None] * torch.linspace(1, 0, DIM // 2).repeat(2)
    a, b = t.chunk(2, -1)
    return t * angle.cos() + torch.cat([-b, a], -1) * angle.sin()


def _causal(length: int) -> Tensor:
    return torch.full((length, length), float("-inf")).triu(1)


def _alibi(length: int) -> Tensor:
    place = torch.arange(length)
    return -0.5 * (place[None] - place[:, None]).abs()


def _tanh_gelu(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * x**3)))


def _experts(m: nn.Module, x: Tensor) -> Tensor:
    w = m.router(x).softmax(-1)
    out = torch.zeros_like(x)
    for i, expert in enumerate(m.experts):
        out = out + w[..., i: i + 1] * expert(x)
    return out + m.shared(x)


def _softmax_by_hand(m: nn.Module, x: Tensor) -> Tensor:
    s = m.a(x)
    e = (s - s.amax(-1, keepdim=True)).exp()
    return m.b(e / e.sum(-1, keepdim=True))


def _loss(m: nn.Module, x: Tensor) -> Tensor:
    y = m.b(F.relu(m.a(x)))
    return F.mse_loss(y, x) + 0.1 * y.square().mean() + 0.01 * m.a.weight.square().sum()


def _two() -> dict[str, nn.Module]:
    return {"a": nn.Linear(DIM, DIM), "b": nn.Linear(DIM, DIM)}


NONE: dict[str, Callable[[], tuple[nn.Module, tuple[Tensor, ...]]]] = {
    "position table": lambda: (Calls(lambda m, i: m.b(F.relu(m.a(m.e(i) + m.p.weight[:5]))), e=nn.Embedding(9, DIM), p=nn.Embedding(8, DIM),
                                     **_two()),
                               (torch.arange(5).view(1, 5),)),
    "position lookup": lambda: (Calls(lambda m, i: m.b(F.relu(m.a(m.e(i) + m.p(torch.arange(5))))), e=nn.Embedding(9, DIM), p=nn.Embedding(8, DIM),
                                      **_two()),
                                (torch.arange(5).view(1, 5),)),
    "type lookup": lambda: (Calls(lambda m, i, t: m.b(F.relu(m.a(m.e(i) + m.p(t)))), e=nn.Embedding(9, DIM), p=nn.Embedding(8, DIM), **_two()),
                            (torch.arange(5).view(1, 5), torch.zeros(1, 5, dtype=torch.long))),
    "rotary": lambda: (_attention(lambda m, x: _attend(m, x, turn=_rotated)), (tokens(),)),
    "causal mask": lambda: (_attention(lambda m, x: _attend(m, x, _causal(x.shape[1]))), (tokens(),)),
    "float mask given as an input": lambda: (_attention(_attend), (tokens(), _causal(5))),
    "alibi": lambda: (_attention(lambda m, x: _attend(m, x, _alibi(x.shape[1]))), (tokens(),)),
    "tanh gelu": lambda: (Calls(lambda m, x: m.b(_tanh_gelu(m.a(x))), **_two()), (tokens(),)),
    "experts": lambda: (Calls(_experts, router=nn.Linear(DIM, 3), experts=nn.ModuleList(Branch() for _ in range(3)), shared=Branch()), (tokens(),)),
    "low-rank pair": lambda: (Calls(lambda m, x: m.c(F.relu(m.a(x) + 0.5 * m.up(m.down(x)))), c=nn.Linear(DIM, 3), down=nn.Linear(DIM, 2, bias=False),
                                    up=nn.Linear(2, DIM, bias=False), **_two()), (tokens(),)),
    "loss terms": lambda: (Calls(_loss, **_two()), (tokens(),)),
    "logit bias": lambda: (Calls(lambda m, x: m.b(F.relu(m.a(x))) + m.c, c=nn.Parameter(torch.zeros(DIM)), **_two()), (tokens(),)),
    "minus the mean": lambda: (Calls(lambda m, x: m.b((y := F.relu(m.a(x))) - y.mean(-1, keepdim=True)), **_two()), (tokens(),)),
    "softmax by hand": lambda: (Calls(_softmax_by_hand, **_two()), (tokens(),)),
    "two towers": lambda: (Calls(lambda m, x, z: m.c(F.relu(m.a(x)) + F.relu(m.b(z))), c=nn.Linear(DIM, 3), **_two()), (tokens(), tokens() + 1)),
    "two linear maps of one value": lambda: (Calls(lambda m, x: m.c(F.relu(m.a(x) + m.b(x))), c=nn.Linear(DIM, 3), **_two()), (tokens(),)),
    "two wider maps of one value": lambda: (Calls(lambda m, x: m.c(F.relu(m.a(x) + m.b(x))), a=nn.Linear(DIM, 32), b=nn.Linear(DIM, 32),
                                                  c=nn.Linear(32, 3)), (tokens(),)),
    "swish gate": lambda: (Calls(lambda m, x: m.c(F.silu(m.a(x)) * m.b(x)), c=nn.Linear(DIM, 3), **_two()), (tokens(),)),
    "a value with itself": lambda: (Calls(lambda m, x: m.b(F.relu(y := m.a(x)) + F.relu(y)), **_two()), (tokens(),)),
    "variance by hand": lambda: (Calls(lambda m, x: m.b(((y := m.a(x)).square().mean(-1, keepdim=True) - y.mean(-1, keepdim=True).square()) + 0 * y),
                                       **_two()), (tokens(),)),
    "noise": lambda: (Calls(lambda m, x: m.b(F.relu(y := m.a(x)) + torch.randn_like(y)), **_two()), (tokens(),)),
}


@pytest.mark.parametrize("name", sorted(NONE))
def test_this_is_no_join(name: str) -> None:
    model, args = NONE[name]()
    assert [(s.module, s.line, s.gain) for s in all_sites(model.eval(), *args)] == []


@pytest.mark.parametrize("name", ["rotary", "causal mask", "float mask given as an input", "alibi", "tanh gelu", "experts", "low-rank pair"])
def test_the_same_inside_a_block_adds_no_site(name: str) -> None:
    """A skip around the look-alike is the one site there is."""
    model, args = NONE[name]()
    around = Calls(lambda m, x, *rest: m.head(x + m.inner(m.norm(x), *rest)), inner=_sized(model), norm=nn.LayerNorm(DIM), head=nn.Linear(DIM, 3))
    site = only_site(around.eval(), *args)
    assert (site.gain, site.placement, site.shortcut) == (1.0, "pre", "identity")


def _sized(model: nn.Module) -> nn.Module:
    """The model with an output of the width of its input."""
    if hasattr(model, "c") and isinstance(model.c, nn.Linear):
        model.c = nn.Linear(model.c.in_features, DIM)
    return model


# --- projections and long skips ---------------------------------------------------------------------------------------------------------

def test_a_convolution_on_the_skip_is_a_projection() -> None:
    model = Calls(lambda m, x: m.head(F.relu(m.skip(x) + m.b(F.relu(m.a(x))))), a=nn.Conv2d(4, 8, 3, 2, 1), b=nn.Conv2d(8, 8, 3, padding=1),
                  skip=nn.Conv2d(4, 8, 1, 2), head=nn.Conv2d(8, 3, 1))
    site = only_site(model, torch.randn(1, 4, 8, 8))
    assert (site.shortcut, site.gain) == ("projection", 1.0)
    assert [b.kind for b in site.branches] == ["conv"] and {"a", "b"} <= set(site.branches[0].modules) and "skip" not in site.branches[0].modules


def test_a_normed_projection_is_one() -> None:
    model = Calls(lambda m, x: m.head(F.relu(m.norm(m.skip(x)) + m.b(F.relu(m.a(x))))), a=nn.Conv2d(4, 8, 3, 2, 1), b=nn.Conv2d(8, 8, 3, padding=1),
                  skip=nn.Conv2d(4, 8, 1, 2), norm=nn.BatchNorm2d(8), head=nn.Conv2d(8, 3, 1))
    assert only_site(model.eval(), torch.randn(1, 4, 8, 8)).shortcut == "projection"


def test_a_wider_matrix_is_a_projection_where_its_partner_bends() -> None:
    model = Calls(lambda m, x: m.head(m.skip(x) + m.b(F.relu(m.a(x)))), a=nn.Linear(DIM, 24), b=nn.Linear(24, 32), skip=nn.Linear(DIM, 32),
                  head=nn.Linear(32, 3))
    assert only_site(model, tokens()).shortcut == "projection"


def test_a_pooled_projection_is_one() -> None:
    model = Calls(lambda m, x: m.head(F.relu(m.skip(F.avg_pool2d(x, 2)) + m.b(F.relu(m.a(x))))), a=nn.Conv2d(4, 8, 3, 2, 1),
                  b=nn.Conv2d(8, 8, 3, padding=1), skip=nn.Conv2d(4, 8, 1), head=nn.Conv2d(8, 3, 1))
    assert only_site(model, torch.randn(1, 4, 8, 8)).shortcut == "projection"


def _long(m: nn.Module, x: Tensor) -> Tensor:
    x = first = m.stem(x)
    for block in m.blocks:
        x = block(x)
    return m.head(m.norm(x + first))


def test_a_long_skip_is_no_double_skip() -> None:
    model = Calls(_long, stem=nn.Linear(DIM, DIM), blocks=nn.ModuleList(Block() for _ in range(4)), norm=nn.LayerNorm(DIM), head=nn.Linear(DIM, 3))
    found = [s for stream in streams(model, tokens()) if stream.main for s in stream.sites]
    assert [s.gain for s in found[:8]] == [1.0] * 8
    assert all(s.gain == 1.0 for s in found)
    assert [b.kind for s in found[:8] for b in s.branches] == ["self_attention", "ffn"] * 4


@pytest.mark.parametrize(("depth", "gains"), [(1, [2.0]), (2, [1.0, 1.0])])
def test_one_around_a_single_block_is(depth: int, gains: list[float]) -> None:
    model = Calls(_long, stem=nn.Linear(DIM, DIM), blocks=nn.ModuleList(Calls(lambda m, x: x + m.f(x), f=Branch()) for _ in range(depth)),
                  norm=nn.LayerNorm(DIM), head=nn.Linear(DIM, 3))
    assert [s.gain for s in all_sites(model, tokens())] == gains


@pytest.mark.parametrize(("stacks", "gains"), [(1, [1.0] * 2), (3, [2.0] * 3)])
def test_short_ones_in_a_row_are(stacks: int, gains: list[float]) -> None:
    """An add around two joins: run once it is a long skip, run again and again the caller adds what its blocks have added."""
    pair = [nn.Sequential(*[Calls(lambda m, x: x + m.f(x), f=Branch()) for _ in range(2)]) for _ in range(stacks)]
    model = Calls(lambda m, x: m.head(m.norm(m.body(m.stem(x)))), body=nn.Sequential(*[Calls(lambda m, x: x + m.f(x), f=p) for p in pair]),
                  stem=nn.Linear(DIM, DIM), norm=nn.LayerNorm(DIM), head=nn.Linear(DIM, 3))
    assert [s.gain for s in all_sites(model, tokens())] == gains


def test_joins_know_what_they_join() -> None:
    """Shortcut, branch and region of a join are nodes of the record."""
    found = recorded(Joined(SPELLINGS["x + y"]), tokens())
    graph = Graph(found)
    (join,) = graph.joins.found
    node = graph.nodes[join.node]
    assert node.op == "add" and node.ins == (join.shortcut, join.branch)
    assert graph.record.calls[graph.nodes[join.shortcut].call].path == "stem"
    assert graph.record.calls[graph.nodes[join.branch].call].path == "branch.down"
    assert join.region.hits == {join.shortcut} and join.region.learned
    assert [graph.nodes[n].op for n in join.region.nodes if graph.learned[n]] == ["addmm", "addmm"]


def test_a_recorder_that_adds_up_wrong_gains_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joins, "times", lambda a, b: None if a is None or b is None else a + b)
    with pytest.raises(AssertionError):
        test_gain_and_branch_scale("constants multiply")


def test_a_reach_that_finds_nothing_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joins.Joins, "reach", lambda *a, **k: None)
    with pytest.raises(AssertionError, match="want one site"):
        test_a_spelling_is_one_join_of_gain_one("x + y")


def test_a_graph_that_joins_every_sum_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def joined(self: joins.Joins, node: Node, a: int, b: int) -> None:
        state = self.graph.state[a]
        assert state is not None
        self._join(node, a, b, 1.0, joins.Region([], set(), True), state, "identity")
    monkeypatch.setattr(joins.Joins, "_sum", joined)
    with pytest.raises(AssertionError):
        test_this_is_no_join("experts")

"""What is true at a site: kind and placement of its branches, scales, parallel branches, shortcut kinds, modules."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from skipway.wiring import kinds, sites
from skipway.wiring.structure import KINDS, PLACEMENTS, SCALES, SHORTCUTS

from .small import DIM, Block, Branch, Calls, all_sites, only_site, streams, tokens


class Attention(nn.Module):
    """One head, written out."""

    def __init__(self, dim: int = DIM) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim) for _ in range(4))

    def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        c = x if context is None else context
        return self.o((self.q(x) @ self.k(c).transpose(-1, -2) * 0.25).softmax(-1) @ self.v(c))


class Torch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attn = nn.MultiheadAttention(DIM, 2, batch_first=True)

    def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        c = x if context is None else context
        return self.attn(x, c, c)[0]


class Swiglu(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up, self.down = nn.Linear(DIM, 32), nn.Linear(DIM, 32), nn.Linear(32, DIM)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Experts(nn.Module):
    """Top-1 of three feed-forwards."""

    def __init__(self) -> None:
        super().__init__()
        self.router, self.experts = nn.Linear(DIM, 3), nn.ModuleList(mlp() for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        weight, chosen = self.router(x).softmax(-1).topk(1, -1)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            out = out + expert(x) * weight * (chosen == i)
        return out


class Scan(nn.Module):
    """A selective state-space mixer: a causal depthwise convolution, then a decaying sum over time."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.conv, self.step, self.out = nn.Linear(DIM, 32), nn.Conv1d(32, 32, 3, padding=2, groups=32), nn.Linear(32,
            32), nn.Linear(32, DIM)
        self.decay = nn.Parameter(torch.zeros(32))

    def forward(self, x: Tensor) -> Tensor:
        u = F.silu(self.conv(self.inner(x).transpose(1, 2))[..., : x.shape[1]].transpose(1, 2))
        step, state, out = F.softplus(self.step(u)), torch.zeros(x.shape[0], 32), []
        for t in range(x.shape[1]):
            state = torch.exp(-step[:, t] * self.decay.exp()) * state + step[:, t] * u[:, t]
            out.append(state)
        return self.out(torch.stack(out, 1))


class Rows(nn.Module):
    """A convolution over tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv1d(DIM, DIM, 3, padding=1), nn.Conv1d(DIM, DIM, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(F.relu(self.a(x.transpose(1, 2)))).transpose(1, 2)


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(DIM, 32), nn.GELU(), nn.Linear(32, DIM))


BRANCHES: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "attention by hand": (Attention, "self_attention"), "torch's attention": (Torch, "self_attention"), "mlp": (mlp, "ffn"),
    "swiglu": (Swiglu, "ffn"),
    "experts": (Experts, "moe"), "scan": (Scan, "ssm"), "convolutions": (Rows, "conv"), "one linear map": (lambda: nn.Linear(DIM, DIM), "other"),
}


def sited(join: Callable[[nn.Module, Tensor], Tensor], **parts: Any) -> nn.Module:
    """stem -> join -> head."""
    return Calls(lambda m, x: m.head(join(m, m.stem(x))), stem=nn.Linear(DIM, DIM), head=nn.Linear(DIM, 3), **parts)


PLACED: dict[str, Callable[[nn.Module, Tensor], Tensor]] = {
    "pre": lambda m, x: x + m.f(m.norm(x)),
    "post": lambda m, x: m.norm(x + m.f(x)),
    "sandwich": lambda m, x: x + m.norm2(m.f(m.norm(x))),
    "output": lambda m, x: x + m.norm(m.f(x)),
    "none": lambda m, x: x + m.f(x),
}


@pytest.mark.parametrize("branch", sorted(BRANCHES))
@pytest.mark.parametrize("placement", sorted(PLACED))
@pytest.mark.parametrize("norm", [nn.LayerNorm, nn.RMSNorm])
def test_kind_and_placement(branch: str, placement: str, norm: type[nn.Module]) -> None:
    make, kind = BRANCHES[branch]
    found = streams(sited(PLACED[placement], f=make(), norm=norm(DIM), norm2=norm(DIM)).eval(), tokens())
    (site,) = [s for stream in found if stream.main for s in stream.sites]
    wanted = {"none": (), "sandwich": ("norm", "norm2")}.get(placement, ("norm",))
    assert ([b.kind for b in site.branches], site.placement, site.norm_modules) == ([kind], placement, wanted)
    assert site.norm == (None if placement == "none" else norm.__name__)
    assert (site.gain, site.shortcut, site.scale, site.branch_scale, site.parallel) == (1.0, "identity", "none", 1.0, False)
    assert all(path == "f" or path.startswith("f.") for path in site.branches[0].modules) and site.branches[0].modules
    assert site.module == ""


def test_an_inner_norm() -> None:
    class Conv(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.norm, self.b = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            return x + self.b(F.relu(self.norm(self.a(x))))
    model = nn.Sequential(nn.Conv2d(3, 4, 1), Conv(), nn.ReLU(), nn.Conv2d(4, 2, 1)).eval()
    site = only_site(model, torch.randn(1, 3, 6, 6))
    assert (site.placement, site.norm, site.norm_modules, [b.kind for b in site.branches]) == ("inner", "BatchNorm", ("1.norm",), ["conv"])


def test_cross_attention() -> None:
    for part in (Attention(), Torch()):
        site = only_site(sited_cross(part), tokens(), tokens(length=7))
        assert ([b.kind for b in site.branches], site.placement) == (["cross_attention"], "pre")


def sited_cross(part: nn.Module) -> nn.Module:
    return Calls(lambda m, x, c: m.head((y := m.stem(x)) + m.f(m.norm(y), c)), f=part, norm=nn.LayerNorm(DIM), stem=nn.Linear(DIM, DIM),
                 head=nn.Linear(DIM, 3))


def test_parallel_branches_share_a_site_or_a_state() -> None:
    one = sited(lambda m, x: x + (m.a(m.norm(x)) + m.f(m.norm(x))), a=Attention(), f=mlp(), norm=nn.LayerNorm(DIM))
    site = only_site(one, tokens())
    assert (sorted(b.kind for b in site.branches), site.parallel, site.placement) == (["ffn", "self_attention"], True, "pre")

    def two(m: nn.Module, x: Tensor) -> Tensor:
        y = m.norm(x)
        return x + m.a(y) + m.f(y)
    first, second = all_sites(sited(two, a=Attention(), f=mlp(), norm=nn.LayerNorm(DIM)), tokens())
    assert [b.kind for s in (first, second) for b in s.branches] == ["self_attention", "ffn"]
    assert (first.parallel, second.parallel) == (False, True)
    serial = all_sites(nn.Sequential(nn.Linear(DIM, DIM), Block(), nn.Linear(DIM, 3)), tokens())
    assert [s.parallel for s in serial] == [False, False]


SCALED: dict[str, tuple[Callable[[nn.Module, Tensor], Tensor], str, float | None]] = {
    "none": (lambda m, y: y, "none", 1.0), "one": (lambda m, y: y * 1.0, "none", 1.0), "constant": (lambda m, y: y * 0.5, "constant", 0.5),
    "depth": (lambda m, y: y / 4, "constant", 0.25), "scalar": (lambda m, y: m.s * y, "scalar", None),
    "scalar of one": (lambda m, y: m.s1 * y, "scalar", None),
    "tanh of a scalar": (lambda m, y: m.s.tanh() * y, "scalar", None), "vector": (lambda m, y: m.v * y, "vector", None),
    "vector buffer": (lambda m, y: y.mul(m.b), "vector", None), "gate": (lambda m, y: torch.sigmoid(m.g(y)) * y, "input_dependent", None),
    "constant and vector": (lambda m, y: 0.5 * (m.v * y), "vector", None), "dropout": (lambda m, y: F.dropout(y, 0.5, True), "none", None),
}


@pytest.mark.parametrize("name", sorted(SCALED))
def test_what_scales_a_branch(name: str) -> None:
    scale, kind, value = SCALED[name]
    model = sited(lambda m, x: x + scale(m, m.f(m.norm(x))), f=mlp(), norm=nn.LayerNorm(DIM), s=nn.Parameter(torch.zeros(())),
                  v=nn.Parameter(torch.ones(DIM)),
                  s1=nn.Parameter(torch.zeros(1)), g=nn.Linear(DIM, DIM))
    model.register_buffer("b", torch.ones(DIM))
    site = only_site(model, tokens())
    assert (site.scale, site.gain) == (kind, 1.0)
    if name != "dropout":
        assert site.branch_scale == value


def test_drop_path_is_no_scale() -> None:
    def run(m: nn.Module, x: Tensor) -> Tensor:
        y = m.f(m.norm(x))
        return x + y.div(0.9) * torch.empty(x.shape[0], 1, 1).bernoulli_(0.9)
    site = only_site(sited(run, f=mlp(), norm=nn.LayerNorm(DIM)).train(), tokens())
    assert site.gain == 1.0 and site.scale in ("none", "constant")


def test_a_normed_shortcut() -> None:
    def run(m: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
        x = m.stem(x)
        x = x + m.f(m.norm(x))
        y = m.norm2(x)
        return m.head(y + m.g(y)), x                                # the raw state is returned, so its norm is no post-norm
    model = Calls(run, stem=nn.Linear(DIM, DIM), f=mlp(), g=mlp(), norm=nn.LayerNorm(DIM), norm2=nn.LayerNorm(DIM), head=nn.Linear(DIM, 3))
    assert [(s.shortcut, s.placement) for s in all_sites(model, tokens())] == [("identity", "pre"), ("normed", "none")]


def test_a_norm_behind_the_stem_is_part_of_the_stem() -> None:
    model = Calls(lambda m, x: m.head((y := m.norm(m.stem(x))) + m.f(y)), stem=nn.Linear(DIM, DIM), f=mlp(), norm=nn.LayerNorm(DIM),
                  head=nn.Linear(DIM, 3))
    site = only_site(model, tokens())
    assert (site.shortcut, site.placement, site.gain) == ("identity", "none", 1.0)


def test_a_pooled_shortcut() -> None:
    model = Calls(lambda m, x: m.head(F.avg_pool2d(x := m.stem(x), 2) + m.b(F.relu(m.a(x)))), stem=nn.Conv2d(3, 4, 1), a=nn.Conv2d(4, 4, 3, 2, 1),
                  b=nn.Conv2d(4, 4, 3, padding=1), head=nn.Conv2d(4, 2, 1))
    assert only_site(model, torch.randn(1, 3, 8, 8)).shortcut in ("pooled", "projection")


def _pooled_blocks(pools: int) -> nn.Module:
    """Two blocks of convolutions behind a stem, with a pool before the first `pools` of them."""
    def run(m: nn.Module, x: Tensor) -> Tensor:
        x = m.stem(x)
        for index, block in enumerate(m.blocks):
            x = F.max_pool2d(x, 2) if index < pools else x
            x = x + block(x)
        return m.head(x)
    blocks = nn.ModuleList(nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1)) for _ in range(2))
    return Calls(run, stem=nn.Conv2d(3, 4, 1), blocks=blocks, head=nn.Conv2d(4, 2, 1))


@pytest.mark.parametrize(("pools", "want"), [(0, ["identity", "identity"]), (1, ["identity", "identity"]), (2, ["identity", "pooled"])])
def test_a_pool_behind_the_stem_is_part_of_the_stem(pools: int, want: list[str]) -> None:
    assert [s.shortcut for s in all_sites(_pooled_blocks(pools), torch.randn(1, 3, 16, 16))] == want


STEM_FACTORS: dict[str, Callable[[nn.Module, Tensor], Tensor]] = {
    "number": lambda m, x: x * 4.0,
    "root of the width, as a tensor": lambda m, x: x * torch.tensor(DIM ** 0.5),
    "buffer": lambda m, x: x * m.scale,
    "over a buffer": lambda m, x: x / m.scale,
    "vector": lambda m, x: x * m.vector,
    "buffer, then positions and dropout": lambda m, x: F.dropout(x * m.scale + m.vector, 0.1, training=True),
}
SUMS: dict[str, tuple[Callable[[nn.Module, Tensor], Tensor], list[float | None]]] = {
    "plain": (lambda m, x: x + m(x), [1.0, 1.0]),
    "half the shortcut": (lambda m, x: 0.5 * x + m(x), [0.5, 0.5]),
    "twice": (lambda m, x: x + (x + m(x)), [2.0, 2.0]),
    "lerp": (lambda m, x: torch.lerp(x, m(x), 0.25), [0.75, 0.75]),
}


@pytest.mark.parametrize("body", sorted(SUMS))
@pytest.mark.parametrize("stem", sorted(STEM_FACTORS))
def test_a_factor_of_the_stem_is_not_the_gain_of_the_first_shortcut(stem: str, body: str) -> None:
    add, want = SUMS[body]

    def run(m: nn.Module, ids: Tensor) -> Tensor:
        x = STEM_FACTORS[stem](m, m.table(ids))
        for block in m.blocks:
            x = add(block, x)
        return m.head(x)
    model = Calls(run, table=nn.Embedding(8, DIM), blocks=nn.ModuleList(Branch() for _ in range(2)), head=nn.Linear(DIM, 3),
                  vector=nn.Parameter(torch.ones(DIM)))
    model.register_buffer("scale", torch.tensor(4.0))
    assert [s.gain for s in all_sites(model, torch.zeros(1, 5, dtype=torch.long))] == want


def test_shares_of_a_value_with_a_learned_factor_are_one_shortcut() -> None:
    model = Calls(lambda m, x: m.head(0.25 * (x := m.stem(x) * m.gate) + 0.5 * x + m.f(x)), stem=nn.Linear(DIM, DIM), f=Branch(),
                  gate=nn.Parameter(torch.ones(())), head=nn.Linear(DIM, 3))
    assert only_site(model, tokens()).gain == 0.75


def test_a_learned_factor_on_the_first_shortcut_itself_is_told() -> None:
    model = Calls(lambda m, x: m.head((y := (x := m.stem(x)) * m.gate + m.f(x)) + m.g(y)), stem=nn.Linear(DIM, DIM), f=Branch(), g=Branch(),
                  gate=nn.Parameter(torch.ones(())), head=nn.Linear(DIM, 3))
    assert [s.gain for s in all_sites(model, tokens())] == [None, 1.0]


def test_every_word_is_in_its_closed_set() -> None:
    assert {kind for _, kind in BRANCHES.values()} | {"cross_attention"} == set(KINDS)
    assert set(PLACED) | {"inner"} == set(PLACEMENTS)
    assert {kind for _, kind, _ in SCALED.values()} == set(SCALES)
    assert set(SHORTCUTS) == {"identity", "projection", "normed", "pooled", "mixed"}


@pytest.mark.parametrize(("paths", "want"), [(["a.b.c", "a.b.d"], "a.b"), (["a.b", "a.b"], "a.b"), (["ab", "ac"], ""), ([], ""), (["a", ""], ""),
                                             (["a.b", "a"], "a")])
def test_the_common_owner(paths: list[str], want: str) -> None:
    assert sites.common(paths) == want


def test_a_graph_that_calls_everything_a_feed_forward_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sites, "kind_of", lambda g, region: "ffn")
    with pytest.raises(AssertionError):
        test_kind_and_placement("scan", "pre", nn.LayerNorm)
    assert kinds.kind_of is not sites.kind_of


def test_a_reader_that_misses_raw_reads_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sites, "_entries", lambda g, region: (sites.RAW, [], set()))
    with pytest.raises(AssertionError):
        test_kind_and_placement("mlp", "pre", nn.LayerNorm)

"""The trunk: cut nodes of the signal graph, and sublayers that stand on it with no path around."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from skipway.wiring.graph import Graph
from skipway.wiring.trunk import Trunk

from .small import DIM, Block, Branch, Calls, Tower, recorded, tokens


def trunk(model: nn.Module, *args: Tensor) -> Trunk:
    return Trunk(Graph(recorded(model, *args)))


def paths(t: Trunk, nodes: tuple[int, ...]) -> list[str]:
    return list(dict.fromkeys(t.g.record.calls[t.g.nodes[n].call].path for n in nodes))


def test_in_a_residual_tower_stem_and_head_stand_alone() -> None:
    t = trunk(Tower(Block(), Block()), tokens())
    assert [paths(t, u.learned) for u in t.units()] == [["stem"], ["head"]]
    assert [u.sublayer for u in t.units()] == [False, False]
    joins = {j.node for j in t.g.joins.found}
    assert len(joins) == 4 and joins <= t.cut_set, "every path runs through every join of the one stream"


class Bare(nn.Module):
    """The second sublayer is not added."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.attn, self.ffn = nn.LayerNorm(DIM), nn.MultiheadAttention(DIM, 2, batch_first=True), Branch()

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        return self.ffn(x + self.attn(y, y, y, need_weights=False)[0])


def test_a_sublayer_without_a_skip_stands_on_the_trunk() -> None:
    t = trunk(Tower(Block(), Bare(), Block()), tokens())
    found = [paths(t, u.learned) for u in t.units() if u.sublayer]
    assert found == [["blocks.1.ffn.up", "blocks.1.ffn.down"]]
    (call,) = [c for c in t.g.record.calls if c.path == "blocks.1.ffn"]
    unit = t.standing(call)
    assert unit is not None and unit.sublayer and paths(t, unit.learned) == ["blocks.1.ffn.up", "blocks.1.ffn.down"]
    others = [c.path for c in t.g.record.calls if c.path.endswith(".ffn") and c is not call]
    assert others == ["blocks.0.ffn", "blocks.2.ffn"]
    assert [t.standing(c) for c in t.g.record.calls if c.path in others] == [None, None]


def test_an_attention_alone_is_a_sublayer() -> None:
    model = Calls(lambda m, x: m.head(m.b(m.attn(y := m.a(x), y, y)[0])), a=Block(), attn=nn.MultiheadAttention(DIM, 2, batch_first=True), b=Block(),
                  head=nn.Linear(DIM, 3))
    t = trunk(model, tokens())
    (unit,) = [u for u in t.units() if u.sublayer]
    assert unit.attends


@pytest.mark.parametrize(("run", "bare"), [
    (lambda m, x: m.b(F.relu(m.a(x))), True),
    (lambda m, x: x + m.b(F.relu(m.a(x))), False),
    (lambda m, x: torch.cat([x, m.b(F.relu(m.a(x)))], -1)[..., :DIM], False),       # a skip by concatenation
    (lambda m, x: 0.5 * x + 0.5 * m.b(F.relu(m.a(x))), False),
    (lambda m, x: torch.lerp(x, m.b(F.relu(m.a(x))), 0.5), False),
    (lambda m, x: torch.maximum(x, m.b(F.relu(m.a(x)))), False),                    # a way around that is no join
])
def test_what_counts_as_a_way_around(run: Callable[..., Tensor], bare: bool) -> None:
    inner = Calls(run, a=nn.Linear(DIM, 32), b=nn.Linear(32, DIM))
    t = trunk(nn.Sequential(nn.Linear(DIM, DIM), Block(), inner, Block(), nn.Linear(DIM, 3)), tokens())
    (call,) = [c for c in t.g.record.calls if c.path == "2"]
    assert (t.standing(call) is not None) is bare


class Random(nn.Module):
    """Values made by a program: each step maps one earlier value, or adds two. The last one is the output."""

    def __init__(self, program: list[tuple[bool, int, int]]) -> None:
        super().__init__()
        self.program, self.maps = program, nn.ModuleList(nn.Linear(4, 4) for _ in program)

    def forward(self, x: Tensor) -> Tensor:
        made = [x]
        for (adds, i, j), f in zip(self.program, self.maps, strict=True):
            a, b = made[i % len(made)], made[j % len(made)]
            made.append(torch.maximum(a, b) if adds else torch.tanh(f(a)))
        return made[-1] * 1


def cuts_by_removal(g: Graph) -> set[int]:
    """Nodes without which nothing leads from the input to the output: one search for every node."""
    users: dict[int, list[int]] = {}
    for node in g.nodes:
        for i in node.ins:
            users.setdefault(i, []).append(node.id)
    start, end = next(n.id for n in g.nodes if n.op == "input"), g.record.outputs[0]

    def reaches(without: int) -> bool:
        seen, stack = {start}, [start] if start != without else []
        while stack:
            for u in users.get(stack.pop(), []):
                if u not in seen and u != without:
                    seen.add(u)
                    stack.append(u)
        return end in seen and start != without and end != without
    return {n.id for n in g.nodes if not reaches(n.id)} if reaches(-1) else set()


@settings(max_examples=100, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=9))
def test_cuts_are_the_nodes_that_no_path_goes_around(program: list[tuple[bool, int, int]]) -> None:
    g = Graph(recorded(Random(program), torch.randn(2, 4)))
    assert Trunk(g).cut_set == cuts_by_removal(g)


def test_a_sweep_that_forgets_edges_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def everything(self: Trunk, starts: list[int], sink: int) -> None:
        self.cuts = list(range(min(starts), sink + 1))
        self.inside = {n: [] for n in self.cuts}
    monkeypatch.setattr(Trunk, "_sweep", everything)
    g = Graph(recorded(Random([(False, 0, 0), (True, 0, 1)]), torch.randn(2, 4)))
    assert Trunk(g).cut_set != cuts_by_removal(g)

"""Reads over depth: in every spelling one stream with a join for each value that is kept or grown, and what only looks like such reads."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import skipway
from skipway.wiring import depth
from skipway.wiring.trace import label

from .small import DIM, Branch, Calls, recorded, streams, tokens

Values = list[Tensor]


def _terms(m: nn.Module, values: Values) -> Tensor:
    a = torch.stack([(m.norm(v) * m.query).sum(-1) for v in values]).softmax(0)
    return sum(v * a[i].unsqueeze(-1) for i, v in enumerate(values))


def _broadcast(m: nn.Module, values: Values) -> Tensor:
    v = torch.stack(values)
    return ((m.norm(v) @ m.query).softmax(0).unsqueeze(-1) * v).sum(0)


def _einsum(m: nn.Module, values: Values) -> Tensor:
    v = torch.stack(values)
    return torch.einsum("nbt,nbtd->btd", torch.einsum("d,nbtd->nbt", m.query, m.norm(v)).softmax(0), v)


def _matmul(m: nn.Module, values: Values) -> Tensor:
    v = torch.stack(values, 2)
    return ((m.norm(v) @ m.query).softmax(-1).unsqueeze(-2) @ v).squeeze(-2)


def _eager(m: nn.Module, values: Values) -> Tensor:
    v = torch.cat([v.unsqueeze(-2) for v in values], -2)
    return ((m.query.expand(*v.shape[:2], 1, -1) @ m.norm(v).mT).softmax(-1) @ m.norm(v)).squeeze(-2)


def _fused(m: nn.Module, values: Values) -> Tensor:
    v = torch.stack(values, 2)
    return F.scaled_dot_product_attention(m.query.expand(*v.shape[:2], 1, -1), m.norm(v), v)[:, :, 0]


def _nested(m: nn.Module, values: Values) -> Tensor:
    """The finished values in one tensor, the last beside them, and the result taken apart."""
    done = torch.cat([torch.zeros(*values[0].shape[:2], 0, DIM), *(v.unsqueeze(-2) for v in values[:-1])], -2)
    v = m.norm(torch.cat([done, values[-1].unsqueeze(-2)], -2))
    return F.scaled_dot_product_attention(m.query.expand(*v.shape[:2], 1, -1), v, v).unbind(-2)[0]


READS: dict[str, Callable[[nn.Module, Values], Tensor]] = {
    f.__name__.strip("_"): f for f in (_terms, _broadcast, _einsum, _matmul, _eager, _fused, _nested)}


def deep(how: str, every: int, sublayers: int = 6) -> nn.Module:
    """Values over `every` sublayers each, read by every sublayer and by the head."""
    def run(m: nn.Module, x: Tensor) -> Tensor:
        values = [m.stem(x)]
        for k, (branch, read) in enumerate(zip(m.branches, m.reads[:-1], strict=True)):
            y = branch(read(values) if k else values[0])
            values = [*values, y] if k % every == 0 else [*values[:-1], values[-1] + y]
        return m.head(m.norm(m.reads[-1](values)))
    torch.manual_seed(0)
    reads = [Calls(READS[how], query=nn.Parameter(torch.zeros(DIM)), norm=nn.RMSNorm(DIM, elementwise_affine=False)) for _ in range(sublayers + 1)]
    return Calls(run, stem=nn.Linear(DIM, DIM), branches=nn.ModuleList(Branch() for _ in range(sublayers)), reads=nn.ModuleList(reads),
                 norm=nn.LayerNorm(DIM), head=nn.Linear(DIM, 3))


@pytest.mark.parametrize("every", [1, 2, 3, 6])
@pytest.mark.parametrize("how", sorted(READS))
def test_one_stream_in_every_spelling(how: str, every: int) -> None:
    model, x = deep(how, every), tokens()
    report = skipway.check(model, x, stage="train")
    (stream,) = [s for s in report.wiring.streams if s.main]
    assert len(stream.sites) == 6 and stream.lanes == 1 and stream.final_norm == "norm"
    assert [(s.placement, s.gain, s.norm_modules) for s in stream.sites] == [("pre", 1.0, (f"branches.{k}.norm",)) for k in range(6)]
    assert [s.shortcut for s in stream.sites] == ["mixed" if k % every == 0 else "identity" for k in range(6)]
    assert [[(b.kind, b.modules[0]) for b in s.branches] for s in stream.sites] == [[("ffn", f"branches.{k}")] for k in range(6)]
    assert [f.code for f in report.findings] == [] and report.wiring.links == ()
    assert report.wiring.replay(model, x).ok


def test_without_the_reads_the_stream_is_cut_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(depth, "find", lambda g: {})
    with pytest.raises((AssertionError, ValueError)):
        test_one_stream_in_every_spelling("fused", 2)


def test_values_that_are_read_for_the_first_time_together_share_a_site() -> None:
    """Two sublayers write before the next read."""
    def run(m: nn.Module, x: Tensor) -> Tensor:
        values = [m.stem(x)]
        for k in range(0, 6, 2):
            y = m.branches[k](m.reads[k](values) if k else values[0])
            values = [*values, y, m.branches[k + 1](y)]
        return m.head(m.norm(m.reads[6](values)))
    model = deep("broadcast", 1)
    model.run = run
    (stream,) = [s for s in streams(model, tokens()) if s.main]
    assert [s.placement for s in stream.sites] == ["pre"] * 3


def none(run: Callable[..., Tensor], **parts: nn.Module) -> None:
    torch.manual_seed(0)
    assert label(recorded(Calls(run, stem=nn.Linear(DIM, DIM), head=nn.Linear(DIM, 3), **parts), tokens())).reads == {}


def test_branches_beside_each_other_are_not_deep() -> None:
    """Selective kernels: a softmax weighs three branches of one value."""
    def run(m: nn.Module, x: Tensor) -> Tensor:
        x = m.stem(x)
        made = torch.stack([f(x) for f in m.fs])
        return m.head(x + (m.gate(made.sum(0)).softmax(-1).permute(2, 0, 1).unsqueeze(-1) * made).sum(0))
    none(run, fs=nn.ModuleList(Branch() for _ in range(3)), gate=nn.Linear(DIM, 3))


def test_states_of_one_stream_that_are_pooled_at_its_end_are_that_stream() -> None:
    def run(m: nn.Module, x: Tensor) -> Tensor:
        states = [m.stem(x)]
        for f in m.fs:
            states.append(states[-1] + f(states[-1]))
        v = torch.stack(states)
        return m.head((m.gate(v).softmax(0) * v).sum(0))
    none(run, fs=nn.ModuleList(Branch() for _ in range(3)), gate=nn.Linear(DIM, 1))


def test_experts_that_a_router_weighs_are_not_deep() -> None:
    def run(m: nn.Module, x: Tensor) -> Tensor:
        x = m.stem(x)
        a = m.gate(x).softmax(-1)
        return m.head(x + sum(a[..., i, None] * f(x) for i, f in enumerate(m.fs)))
    none(run, fs=nn.ModuleList(Branch() for _ in range(4)), gate=nn.Linear(DIM, 4))


def test_tokens_that_are_set_beside_each_other_are_no_depth() -> None:
    def run(m: nn.Module, x: Tensor) -> Tensor:
        x = m.stem(x)
        for f in m.fs:
            y = torch.cat([x.mean(1, keepdim=True), f(x)], 1)
            x = x + F.scaled_dot_product_attention(x, y, y)
        return m.head(x)
    none(run, fs=nn.ModuleList(Branch() for _ in range(3)))

"""Versions: an in-place write makes a new one of what it writes and of everything that shares an element with it, and of nothing else."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from skipway.wiring import record as module
from skipway.wiring.record import Record

from .small import Calls, recorded, run_for_real


def ran(run: Callable[..., Any], *inputs: Tensor, **parts: Any) -> Record:
    return recorded(Calls(lambda m, *x: run(*x), **parts), *inputs)


def ops(record: Record) -> list[tuple[str, tuple[int, ...]]]:
    return [(n.op, n.ins) for n in record.nodes]


def sources(record: Record, n: int) -> set[int]:
    """A node and all it was computed from."""
    seen, stack = {n}, [n]
    while stack:
        for i in record.nodes[stack.pop()].ins:
            if i not in seen:
                seen.add(i)
                stack.append(i)
    return seen


def test_a_write_makes_a_new_version() -> None:
    def run(x: Tensor, y: Tensor) -> Tensor:
        z = x * 2
        before = z * 3
        z.add_(y)
        return before, z * 5
    found = ran(run, torch.randn(3), torch.randn(3))
    assert ops(found) == [("input", ()), ("input", ()), ("mul", (0,)), ("mul", (2,)), ("add", (2, 1)), ("mul", (4,))]
    assert found.outputs == (3, 5)
    assert [n.write for n in found.nodes] == [False] * 4 + [True, False]
    assert found.nodes[4].group == 2


def test_a_write_through_a_view_reaches_the_base_and_other_views() -> None:
    def run(x: Tensor, y: Tensor) -> Tensor:
        z = x.clone()
        flat, row = z.view(-1), z[0]
        flat.add_(y)
        return z * 2, row * 3
    found = ran(run, torch.randn(2, 3), torch.randn(6))
    (write,) = [n.id for n in found.nodes if n.write]
    assert all(write in sources(found, n) for n in found.outputs)
    assert found.nodes[found.nodes[found.outputs[0]].ins[0]].op == "reread"       # the whole of it
    assert found.nodes[found.nodes[found.outputs[1]].ins[0]].op == "patch"        # a part of what was written


def test_views_share_a_group_and_copies_do_not() -> None:
    def run(x: Tensor) -> tuple[Tensor, ...]:
        z = x * 1
        return z[0], z.t(), z.view(-1), z.clone(), z + 0
    found = ran(run, torch.randn(2, 3))
    groups = [found.nodes[n].group for n in found.outputs]
    assert groups[0] == groups[1] == groups[2] == 1
    assert len(set(groups)) == 3


def test_disjoint_slices_keep_their_version() -> None:
    def run(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        z = x.clone()
        a, b, c = z[:2], z[2:], z[1:3]
        a.add_(y)
        return a * 2, b * 2, c * 2
    found = ran(run, torch.randn(4, 3), torch.randn(2, 3))
    (write,) = [n.id for n in found.nodes if n.write]
    assert [write in sources(found, n) for n in found.outputs] == [True, False, True]


def test_two_writes_through_two_views_are_both_seen() -> None:
    def run(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
        z = x.clone()
        left, right = z.chunk(2, -1)
        left.add_(a)
        right.add_(b)
        return z * 2
    found = ran(run, torch.randn(2, 4), torch.randn(2, 2), torch.randn(2, 2))
    assert {0, 1, 2} <= sources(found, found.outputs[0])


def test_interleaved_columns_do_not_meet() -> None:
    def run(x: Tensor, y: Tensor) -> Tensor:
        z = x.clone()
        even, odd = z[:, ::2], z[:, 1::2]
        even.add_(y)
        return odd * 2
    found = ran(run, torch.randn(2, 4), torch.randn(2, 2))
    assert 1 not in sources(found, found.outputs[0])


def test_a_view_of_equal_size_and_start_is_not_the_whole() -> None:
    def run(x: Tensor, y: Tensor) -> Tensor:
        z = x.clone()
        every_other, first = z[::2], z[:2]
        every_other.zero_().add_(y)
        return first * 2
    found = ran(run, torch.randn(4, 3), torch.randn(2, 3))
    assert {0, 1} <= sources(found, found.outputs[0])                   # its second row is still the input's


def test_overwriting_a_part_keeps_the_rest() -> None:
    def run(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        z = x * 2
        z[:1].copy_(y)
        part = z * 3
        z.copy_(y)
        return part, z * 4
    found = ran(run, torch.randn(2, 3), torch.randn(1, 3))
    assert sources(found, found.outputs[0]) >= {0, 1}
    assert 0 not in sources(found, found.outputs[1])


def test_out_forgets_what_was_there() -> None:
    def run(x: Tensor, y: Tensor) -> Tensor:
        z = x * 2
        torch.mul(y, y, out=z)
        return z * 3
    found = ran(run, torch.randn(3), torch.randn(3))
    assert 0 not in sources(found, found.outputs[0]) and 1 in sources(found, found.outputs[0])
    (write,) = [n for n in found.nodes if n.write]
    assert (write.op, write.ins) == ("mul", (1, 1))


def test_foreach_pairs_its_lists() -> None:
    def run(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> list[Tensor]:
        left = [a * 1, b * 1]
        torch._foreach_add_(left, [c, d])
        return [*left, *torch._foreach_mul(left, [d, c])]
    found = ran(run, *(torch.randn(3) for _ in range(4)))
    assert [n.op for n in found.nodes[6:]] == ["add", "add", "mul", "mul"]
    assert [sources(found, n) & {0, 1, 2, 3} for n in found.outputs] == [{0, 2}, {1, 3}, {0, 2, 3}, {1, 2, 3}]


def test_running_statistics_are_no_part_of_the_result() -> None:
    found = recorded(nn.BatchNorm1d(3).train(), torch.randn(4, 3))
    written = {n.id for n in found.nodes if n.write}
    assert written and written.isdisjoint(sources(found, found.outputs[0]))


# A program over a buffer of 4 x 4: take a view of a tensor that is there, write to one, or look at one.
INDICES: list[Any] = [slice(0, 2), slice(2, 4), slice(1, 3), slice(0, 4, 2), slice(1, 4, 2), (slice(None), slice(0, 2)),
                      (slice(None), slice(1, 4, 2)), 0, 2]
WRITES = ("add", "fill", "copy", "out")
STEPS = st.one_of(
    st.tuples(st.just("view"), st.integers(0, 7), st.integers(0, len(INDICES))),
    st.tuples(st.sampled_from(WRITES), st.integers(0, 7), st.just(0)),
    st.tuples(st.just("look"), st.integers(0, 7), st.just(0)))
Program = list[tuple[str, int, int]]
PROGRAMS = st.lists(STEPS, min_size=1, max_size=12)
START = 2.0**40


class Runs(nn.Module):
    """Runs a program. Every write leaves a bit of its own in what it reaches; `looked` says which tensor each output was."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        self.program = program

    def forward(self, x: Tensor) -> list[Tensor]:
        held, seen, looked = [x.clone()], [], []
        for k, (what, which, how) in enumerate(self.program):
            which %= len(held)
            t, value = held[which], 2.0**k
            if what == "view":
                held.append(self.view(t, how))
            elif what == "add":
                t.add_(value)
            elif what == "fill":
                t.fill_(value)
            elif what == "copy":
                t.copy_(torch.full((), value))
            elif what == "out":
                torch.full(t.shape, value, out=t)
            else:
                seen.append(t.clone())
                looked.append(which)
        self.looked = (*looked, *range(len(held)))
        return [*seen, *[t.clone() for t in held]]

    def view(self, t: Tensor, how: int) -> Tensor:
        index = INDICES[how] if how < len(INDICES) else None
        needs = 2 if isinstance(index, tuple) else 1
        if index is None or t.dim() < needs or (isinstance(index, int) and index >= t.shape[0]):
            return t.t() if t.dim() == 2 else t.view(t.shape)
        return t[index]


def buffer() -> Tensor:
    return torch.full((4, 4), START, dtype=torch.float64)


def bits(t: Tensor) -> set[int]:
    return {k for v in t.flatten().tolist() for k in range(12) if int(v) >> k & 1}


def lost_writes(program: Program) -> list[str]:
    """Looks that hold, by their numbers, a write that the record does not lead back to."""
    values = Runs(program)(buffer())
    found = recorded(Runs(program), buffer())
    steps = [k for k, (what, _, _) in enumerate(program) if what in WRITES]
    step_of = dict(zip([n.id for n in found.nodes if n.write], steps, strict=True))
    known = [{step_of[n] for n in sources(found, out) if n in step_of} for out in found.outputs]
    looks = enumerate(zip(values, known, strict=True))
    return [f"look {i} holds {sorted(bits(v))}, the record leads to {sorted(k)}" for i, (v, k) in looks if not bits(v) <= k]


def false_versions(program: Program) -> list[str]:
    """Looks at one tensor whose versions are equal where its values are not, or the other way round. Writes change every value they reach."""
    runs = Runs(program)
    values = runs(buffer())
    found = recorded(runs, buffer())
    version = [found.nodes[n].ins[0] for n in found.outputs]
    told: list[str] = []
    for i, which in enumerate(runs.looked):
        for j in range(i):
            if runs.looked[j] == which and (version[i] == version[j]) != torch.equal(values[i], values[j]):
                told.append(f"tensor {which}: versions {version[j]} and {version[i]}, values {values[j].tolist()} and {values[i].tolist()}")
    return told


drawn = settings(max_examples=150, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))


@drawn
@given(PROGRAMS)
def test_random_writes_are_not_lost(program: Program) -> None:
    assert lost_writes(program) == []


@drawn
@given(PROGRAMS)
def test_a_tensor_has_a_new_version_exactly_when_its_content_changed(program: Program) -> None:
    assert false_versions(program) == []


@drawn
@given(PROGRAMS)
def test_random_writes_are_recorded_alike_with_and_without_numbers(program: Program) -> None:
    assert ops(recorded(Runs(program), buffer())) == ops(run_for_real(Runs(program), buffer()))


ROW_AND_ROWS: Program = [("view", 0, 7), ("view", 0, 1), ("look", 0, 0), ("look", 1, 0), ("add", 2, 0)]


def test_a_recorder_that_forgets_views_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    assert lost_writes(ROW_AND_ROWS) == [] == false_versions(ROW_AND_ROWS)
    monkeypatch.setattr(module, "overlap", lambda a, b: False)
    assert lost_writes(ROW_AND_ROWS) != [] and false_versions(ROW_AND_ROWS) != []


def test_a_recorder_that_sees_writes_everywhere_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "overlap", lambda a, b: True)
    assert false_versions(ROW_AND_ROWS) != []

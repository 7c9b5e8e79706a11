"""The record: versions of what is written in place, module paths and calls, source lines, and values that the forward asks for."""

import linecache
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

import skipway
from skipway._errors import NeedsDataError, TraceError
from skipway.wiring import record as module
from skipway.wiring.record import Record

from .small import DIM, Branch, Calls, Joined, only_site, recorded, run_for_real, tokens


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


# --- versions -------------------------------------------------------------------------------------------------------------------------

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
INDICES: list[Any] = [slice(0, 2), slice(2, 4), slice(1, 3), slice(0, 4, 2), slice(1, 4, 2), (slice(None), slice(0, 2)), (slice(None), slice(1, 4, 2)), 0, 2]
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
    return [f"look {i} holds {sorted(bits(v))}, the record leads to {sorted(k)}" for i, (v, k) in enumerate(zip(values, known, strict=True)) if not bits(v) <= k]


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
    monkeypatch.setattr(module, "_overlap", lambda a, b: False)
    assert lost_writes(ROW_AND_ROWS) != [] and false_versions(ROW_AND_ROWS) != []


def test_a_recorder_that_sees_writes_everywhere_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_overlap", lambda a, b: True)
    assert false_versions(ROW_AND_ROWS) != []


# --- modules and calls ----------------------------------------------------------------------------------------------------------------

def test_calls_have_paths_and_numbers() -> None:
    def run(m: nn.Module, x: Tensor) -> Tensor:
        for _ in range(2):
            x = m.parts[0](x)
        return m.parts[1](m.parts[0](x))
    found = recorded(Calls(run, parts=nn.ModuleList([nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.ReLU())])), torch.randn(2, 4))
    assert [(c.path, c.number, c.parent) for c in found.calls] == [
        ("", 0, -1), ("parts.0", 0, 0), ("parts.0", 1, 0), ("parts.0", 2, 0), ("parts.1", 0, 0), ("parts.1.0", 0, 4), ("parts.1.1", 0, 4)]
    assert [c.path for c in found.calls if any(n.op == "relu" and n.call == c.id for n in found.nodes)] == ["parts.1.1"]
    first, second = found.calls[1], found.calls[2]
    assert first.outs[0][1] == second.ins[0][1], "what the first call returns is what the second is given"
    assert first.first < first.last <= second.first


def test_a_module_that_is_held_twice_has_its_first_name() -> None:
    part = nn.Linear(4, 4)
    model = Calls(lambda m, x: m.b(m.a(x)), a=part, b=part)
    assert [(c.path, c.number) for c in recorded(model, torch.randn(2, 4)).calls] == [("", 0), ("a", 0), ("a", 1)]


@pytest.mark.parametrize(("holder", "name"), [
    (lambda part: [nn.Identity(), part], "held.1"), (lambda part: (part,), "held.0"), (lambda part: {"deep": part}, "held.deep"),
    (lambda part: [[part]], "held.0.0")])
def test_unregistered_modules_have_the_name_of_what_holds_them(holder: Callable[[nn.Module], Any], name: str) -> None:
    part = Branch(4)
    model = Calls(lambda m, x: part(x), held=holder(part))
    found = recorded(model, torch.randn(2, 3, 4))
    own = [c for c in found.calls if not c.registered]
    assert own[0].path == name
    assert [c.path for c in own] == [name] + [f"{name}.{sub}" for sub in ("norm", "up", "down")]
    assert {n.name for n in found.nodes if n.op == "param"} == {f"{name}.{p}" for p, _ in part.named_parameters()}


def test_an_unregistered_module_in_an_attribute() -> None:
    model = Calls(lambda m, x: m.__dict__["hidden"](x))
    model.__dict__["hidden"] = nn.Linear(4, 4)
    assert [(c.path, c.registered) for c in recorded(model, torch.randn(2, 4)).calls] == [("", True), ("hidden", False)]


def test_a_module_that_nothing_holds_is_named_by_its_class() -> None:
    model = Calls(lambda m, x: nn.Linear(4, 4)(x))
    assert [c.path for c in recorded(model, torch.randn(2, 4)).calls] == ["", "<Linear>"]


def test_leaves_have_the_names_of_what_they_are() -> None:
    model = Calls(lambda m, x, mask: m.norm(m.f(x)) * mask["deep"], f=nn.Linear(4, 4), norm=nn.BatchNorm1d(4)).eval()
    found = recorded(model, torch.randn(2, 4), mask={"deep": torch.ones(2, 4)})
    names = {(n.op, n.name) for n in found.nodes if n.op in ("input", "param", "buffer", "const")}
    assert names == {("input", "0"), ("input", "mask.deep"), ("param", "f.weight"), ("param", "f.bias"), ("param", "norm.weight"), ("param", "norm.bias"),
                     ("buffer", "norm.running_mean"), ("buffer", "norm.running_var")}


def test_a_constant_of_the_forward_is_a_leaf_without_a_name() -> None:
    table = torch.ones(4)
    found = recorded(Calls(lambda m, x: x + table), torch.randn(2, 4))
    assert [(n.op, n.name) for n in found.nodes] == [("input", "0"), ("const", ""), ("add", "")]


# --- source lines ---------------------------------------------------------------------------------------------------------------------

def _line(mark: str) -> int:
    """The line of this file that ends in a comment with that mark."""
    lines = linecache.getlines(__file__)
    (found,) = [k for k, text in enumerate(lines, 1) if text.rstrip().endswith(f"# mark: {mark}")]
    return found


def test_the_line_of_a_join_is_the_users() -> None:
    def join(x: Tensor, y: Tensor) -> Tensor:
        y = y * 1.0
        return x + y  # mark: plain
    site = only_site(Joined(join), tokens())
    assert (site.file, site.line) == (__file__, _line("plain"))


def test_the_line_of_a_write() -> None:
    def run(x: Tensor) -> Tensor:
        y = x.clone()
        y[0].mul_(2)  # mark: write
        return y
    (write,) = [n for n in ran(run, torch.randn(2, 3)).nodes if n.write]
    assert write.where == (__file__, _line("write"))


# --- values on demand -----------------------------------------------------------------------------------------------------------------

def _mask_all(m: nn.Module, x: Tensor, mask: Tensor) -> Tensor:
    return m.f(x) if bool(mask.all()) else m.f(x * mask[..., None]) + x


def _count(m: nn.Module, x: Tensor) -> Tensor:
    for _ in range(int(torch.arange(4).sum().item())):
        x = m.f(x)
    return x


def _longest(m: nn.Module, ids: Tensor) -> Tensor:
    longest = int((ids != 0).sum(1).max())
    return m.e(ids[:, :longest])


def test_a_mask_that_is_tested_is_worked_out() -> None:
    model = Calls(_mask_all, f=nn.Linear(4, 4))
    full, half = (recorded(model, torch.randn(2, 3, 4), mask) for mask in (torch.ones(2, 3).bool(), torch.ones(2, 3).tril().bool()))
    assert (full.how, half.how) == ("abstract", "abstract") and full.notes == half.notes == []
    assert "add" not in [n.op for n in full.nodes] and "add" in [n.op for n in half.nodes]


def test_the_item_of_a_table_is_worked_out() -> None:
    found = recorded(Calls(_count, f=nn.Linear(4, 4)), torch.randn(2, 4))
    assert found.how == "abstract" and [c.number for c in found.calls[1:]] == list(range(6))


def test_a_shape_that_hangs_on_an_input_is_worked_out() -> None:
    ids = torch.tensor([[1, 2, 3, 0, 0], [4, 5, 0, 0, 0]])
    found = recorded(Calls(_longest, e=nn.Embedding(9, 4)), ids)
    assert found.how == "abstract" and found.nodes[found.outputs[0]].shape == (2, 3, 4)


def test_a_nonzero_of_an_input_is_worked_out() -> None:
    found = recorded(Calls(lambda m, x, mask: m.f(x[mask.nonzero()[:, 0]]), f=nn.Linear(4, 4)), torch.randn(3, 4), torch.tensor([1, 0, 1]))
    assert found.how == "abstract" and found.nodes[found.outputs[0]].shape == (2, 4)


def _weighed(m: nn.Module, x: Tensor) -> Tensor:
    y = m.f(x)
    return y * 2 if float(y.abs().sum()) > 0 else y + x


def test_a_value_that_hangs_on_weights_takes_a_real_run_and_says_so() -> None:
    wiring = skipway.trace(Calls(_weighed, f=nn.Linear(4, 4)), torch.randn(2, 4))
    assert wiring.how == "real"
    assert len(wiring.notes) == 1 and "recorded from a real run" in wiring.notes[0] and "depend on weights" in wiring.notes[0]


def test_without_weights_it_is_an_error_that_says_what_to_pass() -> None:
    with torch.device("meta"):
        model = Calls(_weighed, f=nn.Linear(4, 4))
    with pytest.raises(NeedsDataError, match=r"Calls\.forward: .*needs values that depend on weights.*real weights and real inputs") as told:
        skipway.trace(model, torch.randn(2, 4, device="meta"))
    assert "\n" not in str(told.value) and isinstance(told.value, TraceError)
    with pytest.raises(NeedsDataError):
        skipway.trace(model, torch.randn(2, 4))


def test_a_model_on_meta_that_needs_no_values_is_recorded() -> None:
    with torch.device("meta"):
        model = Joined(torch.add)
    site = only_site(model, torch.randn(2, 5, DIM, device="meta"))
    assert (site.gain, [b.kind for b in site.branches]) == (1.0, ["ffn"])


def test_values_are_those_of_the_first_version() -> None:
    """An input that was written to has other values than the one that was passed."""
    def run(m: nn.Module, ids: Tensor) -> Tensor:
        ids = ids.clone()
        ids[ids > 3] = 0
        n = int(ids.max())
        return F.one_hot(ids, n + 1).float()
    found = recorded(Calls(run), torch.tensor([[1, 9, 2]]))
    assert found.nodes[found.outputs[0]].shape == (1, 3, 3)


def test_the_dtype_that_is_asked_for_is_the_one_recorded() -> None:
    from skipway.wiring.forward import How, record

    model = Calls(lambda m, x, n: m.f(x) + n[..., None], f=nn.Linear(4, 4))
    found = record(model, (torch.randn(2, 4), torch.ones(2, dtype=torch.long)), {}, How(dtype=torch.bfloat16))
    kinds = {n.op: n.dtype for n in found.nodes if n.name != "1"}
    assert (kinds["input"], kinds["addmm"], kinds["add"]) == (torch.bfloat16,) * 3
    assert [n.dtype for n in found.nodes if n.name == "1"] == [torch.long]
    assert model.f.weight.dtype == torch.float32

"""The record: module paths and calls, leaves, source lines, and values that the forward asks for. Versions: test_record_versions.py."""

import linecache
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import skipway
from skipway._errors import NeedsDataError, TraceError
from skipway.wiring.forward import How, record
from skipway.wiring.record import Record

from .small import DIM, Branch, Calls, Joined, only_site, recorded, tokens


def ran(run: Callable[..., Any], *inputs: Tensor, **parts: Any) -> Record:
    return recorded(Calls(lambda m, *x: run(*x), **parts), *inputs)


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
    assert names == {("input", "0"), ("input", "mask.deep"), ("param", "f.weight"), ("param", "f.bias"), ("param", "norm.weight"),
                     ("param", "norm.bias"),
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
    model = Calls(lambda m, x, n: m.f(x) + n[..., None], f=nn.Linear(4, 4))
    found = record(model, (torch.randn(2, 4), torch.ones(2, dtype=torch.long)), {}, How(dtype=torch.bfloat16))
    kinds = {n.op: n.dtype for n in found.nodes if n.name != "1"}
    assert (kinds["input"], kinds["addmm"], kinds["add"]) == (torch.bfloat16,) * 3
    assert [n.dtype for n in found.nodes if n.name == "1"] == [torch.long]
    assert model.f.weight.dtype == torch.float32

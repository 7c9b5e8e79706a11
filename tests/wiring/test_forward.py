"""The run itself: the model is left as it was found, wrappers and fused parts are seen through, and errors say what to do."""

import copy
import linecache
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import skipway
from skipway._errors import TraceError, UsageError
from skipway.wiring import forward as runs
from skipway.wiring.forward import record_other_mode

from .small import DIM, Block, Branch, Calls, Joined, Tower, recorded, tokens

# --- the model is left as it was found ------------------------------------------------------------------------------------------------


def found(value: Any, seen: dict[int, Any]) -> Any:
    """Everything a value holds, as plain values: tensors by identity and numbers, modules by what they hold."""
    if isinstance(value, Tensor):
        grad = None if value.grad is None else (id(value.grad), value.grad.tolist())
        return "tensor", id(value), value.dtype, value.requires_grad, value.device.type, None if value.is_meta else value.tolist(), grad
    if id(value) in seen:
        return "seen", id(value)
    if isinstance(value, (list, tuple, set)):
        seen[id(value)] = value
        return type(value).__name__, id(value), [found(v, seen) for v in value]
    if isinstance(value, dict):
        seen[id(value)] = value
        return "dict", id(value), [(k, found(v, seen)) for k, v in value.items()]
    if (hasattr(value, "__dict__") and not isinstance(value, type) and not callable(value)) or isinstance(value, nn.Module):
        seen[id(value)] = value
        return type(value).__name__, id(value), [(k, found(v, seen)) for k, v in vars(value).items()]
    return value if isinstance(value, (int, float, str, bool, type(None))) else ("thing", id(value))


def left(model: nn.Module, *args: Any) -> Any:
    fast = torch.backends.mha.get_fastpath_enabled()
    world = torch.get_rng_state().tolist(), random.getstate(), fast, torch.is_grad_enabled(), id(nn.Module.__call__)
    return world, [found(value, {}) for value in (model, *args)]


class Careless(nn.Module):
    """A forward that changes what it can: attributes, lists, buffers, random numbers, its input. `weigh` asks for a run with numbers."""

    def __init__(self, weigh: bool, fail: bool = False) -> None:
        super().__init__()
        self.weigh, self.fail = weigh, fail
        self.norm, self.lin, self.drop = nn.BatchNorm1d(DIM), nn.Linear(DIM, DIM), nn.Dropout(0.5)
        self.steps, self.kept, self.table, self.last = 0, [1], {"a": 1}, None
        self.register_buffer("count", torch.zeros(3))
        self.register_buffer("late", None)
        self.lin.weight.grad = torch.ones(DIM, DIM)

    def forward(self, x: Tensor) -> Tensor:
        y = self.drop(self.lin(self.norm(x)))
        self.steps += 1
        self.kept.append(2)
        self.table.update(b=2)
        del self.table["a"]
        self.last = y
        self.fresh = [y]
        self.count += 1
        self.late = torch.ones(2)
        self.drop.p = 0.25
        self.lin.training = not self.lin.training
        self.extra = nn.Linear(2, 2)
        x.mul_(2)
        torch.rand(3)
        if self.weigh and float(y.sum()) == 12345:
            return y
        if self.fail:
            raise ValueError("planted")
        return y


@pytest.fixture
def grads_on() -> Iterator[None]:
    with torch.enable_grad():
        yield


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("weigh", [False, True])
def test_a_model_is_left_as_it_was(weigh: bool, training: bool, grads_on: None) -> None:
    model, x = Careless(weigh).train(training), torch.randn(4, DIM)
    before = left(model, x)
    wiring = skipway.trace(model, x)
    assert wiring.how == ("real" if weigh else "abstract")
    assert left(model, x) == before


@pytest.mark.parametrize("weigh", [False, True])
def test_also_after_an_exception(weigh: bool, grads_on: None) -> None:
    model, x = Careless(weigh, fail=True).train(), torch.randn(4, DIM)
    before = left(model, x)
    with pytest.raises(TraceError, match="planted"):
        skipway.trace(model, x)
    assert left(model, x) == before


@pytest.mark.parametrize("weigh", [False, True])
def test_also_after_a_check_of_both_modes(weigh: bool, grads_on: None) -> None:
    model, x = Careless(weigh).train(), torch.randn(4, DIM)
    before = left(model, x)
    skipway.check(model, x, dtype="bfloat16")
    assert left(model, x) == before


def _weighed(x: Tensor) -> Tensor:
    return x * 1 if float(x.abs().sum()) >= 0 else x


def _each_run(change: Callable[[nn.Module], None], **parts: Any) -> Iterator[tuple[nn.Module, str]]:
    """A model whose forward does `change`, to be recorded without numbers and with them."""
    def plain(m: nn.Module, x: Tensor) -> Tensor:
        change(m)
        return m.lin(x)
    for run, how in ((plain, "abstract"), (lambda m, x: _weighed(plain(m, x)), "real")):
        yield Calls(run, lin=nn.Linear(4, 4), **parts), how


class Holder:
    def __init__(self) -> None:
        self.value: Any = 1


def _set(m: nn.Module) -> None:
    m.held.value = 2


CHANGES: dict[str, tuple[Callable[[nn.Module], Any], Callable[[], Any]]] = {
    "a weight's data": (lambda m: m.lin.weight.data.clamp_(-0.001, 0.001), lambda: None),
    "a row of a weight": (lambda m: m.lin.weight[0].mul_(2), lambda: None),
    "an element of a weight": (lambda m: m.lin.weight.__setitem__((0, 0), 9.0), lambda: None),
    "new data for a weight": (lambda m: setattr(m.lin.weight, "data", m.lin.weight.data * 2), lambda: None),
    "a weight in place": (lambda m: m.lin.weight.mul_(2), lambda: None),
    "a weight by foreach": (lambda m: torch._foreach_mul_([m.lin.weight, m.lin.bias], 2.0), lambda: None),
    "a weight by out=": (lambda m: torch.add(m.lin.bias, 1, out=m.lin.bias), lambda: None),
    "an element of a buffer": (lambda m: m.held.running_mean.__setitem__(0, 5.0), lambda: nn.BatchNorm1d(4)),
    "a view of a buffer": (lambda m: m.held.running_mean.view(2, 2)[0].fill_(3.0), lambda: nn.BatchNorm1d(4)),
    "a buffer replaced": (lambda m: setattr(m.held, "running_mean", m.held.running_mean + 1), lambda: nn.BatchNorm1d(4)),
    "a tensor in an attribute": (lambda m: m.held.add_(1), lambda: torch.zeros(4)),
    "a tensor in a list": (lambda m: m.held[0].add_(1), lambda: [torch.zeros(4)]),
    "a list in a dictionary": (lambda m: m.held["deep"].append(3), lambda: {"deep": []}),
    "a list in a list": (lambda m: m.held[0].append(3), lambda: [[1]]),
    "a plain object": (_set, Holder),
    "an unregistered module's flag": (lambda m: m.held[0].eval(), lambda: [nn.BatchNorm1d(4)]),
    "an unregistered module's statistics": (lambda m: m.held[0](torch.ones(2, 4) + m.lin.bias), lambda: [nn.BatchNorm1d(4)]),
    "python's random numbers": (lambda m: random.random(), lambda: None),
    "a hook": (lambda m: m.lin.register_forward_hook(lambda *a: None), lambda: None),
    "a parameter added": (lambda m: m.register_parameter("more", nn.Parameter(torch.ones(1))), lambda: None),
    "requires_grad": (lambda m: m.lin.requires_grad_(False), lambda: None),
}


@pytest.mark.parametrize("name", sorted(CHANGES))
def test_this_change_is_undone(name: str, grads_on: None) -> None:
    change, held = CHANGES[name]
    for model, how in _each_run(change, held=held()):
        x = torch.randn(2, 4)
        before = left(model, x)
        with torch.no_grad():
            kept = copy.deepcopy(model.state_dict())
        assert skipway.trace(model, x).how == how
        assert all(torch.equal(v, kept[k]) for k, v in model.state_dict().items()), f"{how}: numbers changed"
        assert left(model, x) == before, how


def test_an_input_is_left_as_it_was_where_a_value_of_it_is_asked_for() -> None:
    def run(m: nn.Module, ids: Tensor, mask: Tensor) -> Tensor:
        ids.masked_fill_(mask, 0)
        mask.logical_not_()
        return m.e(ids[:, : int(mask.sum())])
    ids, mask = torch.arange(6).view(1, 6), torch.arange(6).view(1, 6) > 3
    kept = ids.clone(), mask.clone()
    skipway.trace(Calls(run, e=nn.Embedding(9, 4)), ids, mask)
    assert torch.equal(ids, kept[0]) and torch.equal(mask, kept[1])


def test_a_run_that_keeps_nothing_is_seen(monkeypatch: pytest.MonkeyPatch, grads_on: None) -> None:
    import contextlib

    monkeypatch.setattr(runs, "_kept", lambda *a: contextlib.nullcontext())
    with pytest.raises(AssertionError):
        test_a_model_is_left_as_it_was(False, True, None)


def test_the_other_mode_is_looked_at_and_put_back() -> None:
    model, x = Tower(Block(), Block()).train(), tokens()
    model.blocks[0].eval()
    flags = [m.training for m in model.modules()]
    first = recorded(model, x)
    other = record_other_mode(first, (x,), {}, None)
    assert (first.training, other.training) == (True, False)
    assert [m.training for m in model.modules()] == flags


def test_module_calls_are_restored() -> None:
    before = nn.Module.__call__
    skipway.trace(Tower(Block()), tokens())
    with pytest.raises(TraceError):
        skipway.trace(Careless(False, fail=True), torch.randn(4, DIM))
    assert nn.Module.__call__ is before


# --- errors -----------------------------------------------------------------------------------------------------------------------------

def _raises(m: nn.Module, x: Tensor) -> Tensor:
    raise KeyError("no such key")  # mark: raised


def _needs(m: nn.Module, x: Tensor, mask: Tensor) -> Tensor:
    return x * mask


ERRORS: list[tuple[str, Callable[[], Any], type[Exception], str]] = [
    ("no inputs", lambda: skipway.trace(nn.Linear(4, 4)), UsageError, r"trace: got nothing as inputs, want at least one tensor"),
    ("no tensors", lambda: skipway.trace(nn.Linear(4, 4), 3, [1.0], mask=None), UsageError,
     r"trace: got int, list, mask: NoneType as inputs, want at least one tensor"),
    ("no module", lambda: skipway.trace(F.relu, torch.ones(1)), UsageError, r"trace: got .*function.*, want a torch\.nn\.Module"),
    ("a class", lambda: skipway.trace(nn.Linear, torch.ones(1)), UsageError, r"trace: got type, want a torch\.nn\.Module"),
    ("raises", lambda: skipway.trace(Calls(_raises), torch.ones(1)), TraceError,
     r"Calls\.forward failed at .*test_forward\.py:\d+: KeyError: 'no such key'"),
    ("wrong shape", lambda: skipway.trace(Joined(torch.add), torch.ones(2, 5, 7)), TraceError,
     r"Joined\.forward failed at .*small\.py:\d+: RuntimeError: .*check that these inputs fit the model"),
    ("missing argument", lambda: skipway.trace(Calls(lambda m, *a: _needs(m, *a)), torch.ones(1)), TraceError,
     r"TypeError: .*missing 1 required.*'mask'"),
    ("missing argument of forward", lambda: skipway.trace(nn.Bilinear(2, 2, 2), torch.ones(2, 2)), TraceError,
     r"Bilinear\.forward failed.*TypeError: .*missing 1 required.*'input2'"),
    ("unknown argument", lambda: skipway.trace(nn.Linear(4, 4), torch.ones(2, 4), mask=torch.ones(1)), TraceError,
     r"unexpected keyword argument 'mask'"),
    ("not implemented", lambda: skipway.trace(nn.Module(), torch.ones(1)), TraceError, r"Module\.forward failed.*forward"),
]


@pytest.mark.parametrize(("call", "kind", "text"), [e[1:] for e in ERRORS], ids=[e[0] for e in ERRORS])
def test_an_error_is_one_clear_line(call: Callable[[], Any], kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text) as told:
        call()
    assert "\n" not in str(told.value) and len(str(told.value)) < 500
    assert re.search(r"; \w+", str(told.value)), "it says what to do next"


def test_the_line_of_an_error_is_the_users() -> None:
    with pytest.raises(TraceError) as told:
        skipway.trace(Calls(_raises), torch.ones(1))
    line = next(k for k, text in enumerate(linecache.getlines(__file__), 1) if text.rstrip().endswith("# mark: raised"))
    assert f"{__file__}:{line}:" in str(told.value)
    assert isinstance(told.value.__cause__, KeyError)


def test_branch_has_its_own_norm() -> None:
    """Guards the parts that the tests here are made of."""
    assert skipway.trace(Joined(torch.add), tokens()).sites[0].norm_modules == ("branch.norm",)
    assert isinstance(Joined(torch.add).branch, Branch)

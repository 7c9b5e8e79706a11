"""`check`: which rules run, in which order findings come, what a report holds, and what `assert_wired` raises."""

import json
import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import skipway
from skipway import _registry
from skipway._errors import TraceError, UsageError, WiringError
from skipway.checks import run as module
from skipway.checks.records import SEVERITIES

from ..wiring.small import DIM, Block, Branch, Calls, Tower, tokens

CODES = {name: _registry.load("skipway.rules", name).CODE for name in _registry.names("skipway.rules")}


class Bare(nn.Module):
    """Its feed-forward is not added."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.attn, self.ffn = nn.LayerNorm(DIM), nn.MultiheadAttention(DIM, 2, batch_first=True), Branch()

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        x = x + self.attn(y, y, y, need_weights=False)[0]
        return self.ffn(x)  # mark: bare


class Twice(nn.Module):
    """A double skip, and the input written to."""

    def __init__(self) -> None:
        super().__init__()
        self.f = Branch()

    def forward(self, x: Tensor) -> Tensor:
        return x + (x + self.f(x))  # mark: twice


class NoNorm(Tower):
    """The stream reaches the head without a norm."""

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(x)))


def faulty() -> nn.Module:
    return NoNorm(Block(), Bare(), Twice(), Block())


def codes(report: skipway.Report) -> list[str]:
    return [f.code for f in report.findings]


def line_of(mark: str) -> int:
    with open(__file__, encoding="utf-8") as file:
        (found,) = [k for k, text in enumerate(file, 1) if text.rstrip().endswith(f"# mark: {mark}")]
    return found


def test_a_right_model_has_no_findings() -> None:
    report = skipway.check(Tower(Block(), Block()), tokens())
    assert report.findings == () and report.ok and report.worst() is None
    assert set(report.rules_run) == {c for n, c in CODES.items() if _registry.load("skipway.rules", n).STAGE == "graph"}
    assert list(report.rules_run) == sorted(report.rules_run)
    assert report.wiring == skipway.trace(Tower(Block(), Block()), tokens())


def test_each_fault_is_named_at_its_place() -> None:
    report = skipway.check(faulty(), tokens())
    errors = {(f.code, f.where) for f in report.findings if f.severity == "error"}
    assert {c for c, _ in errors} == {"SKW101", "SKW103", "SKW204"}
    assert ("SKW101", "blocks.1.ffn") in errors
    double = next(f for f in report.findings if f.code == "SKW103")
    assert (double.rule, double.file, double.line) == ("double-skip", __file__, line_of("twice"))
    assert not report.ok and report.worst() == "error"


@pytest.mark.parametrize(("options", "want"), [
    ({"select": ["SKW101"]}, {"SKW101"}), ({"select": ["missing-skip"]}, {"SKW101"}), ({"select": ["SKW1"]}, {"SKW101", "SKW103"}),
    ({"select": ["SKW1", "SKW2"], "ignore": ["SKW101"]}, {"SKW103", "SKW204"}), ({"ignore": ["SKW1"]}, {"SKW204"}),
    ({"ignore": ["missing-final-norm", "double-skip"]}, {"SKW101"}), ({"select": ["SKW"], "ignore": ["SKW"]}, set()),
    ({"select": ["double-skip", "SKW204"]},
                                                                                                                        {"SKW103", "SKW204"})])
def test_select_and_ignore(options: dict[str, Any], want: set[str]) -> None:
    report = skipway.check(faulty(), tokens(), **options)
    assert {f.code for f in report.findings if f.severity == "error"} == want
    assert set(codes(report)) <= set(report.rules_run)


def test_rules_run_are_the_chosen_ones() -> None:
    assert skipway.check(faulty(), tokens(), select=["SKW101"]).rules_run == ("SKW101",)
    assert "SKW101" not in skipway.check(faulty(), tokens(), ignore=["missing-skip"]).rules_run


@pytest.mark.parametrize(("options", "text"), [
    ({"select": ["SKW999"]}, "'SKW999' names no rule"), ({"ignore": ["no-such-rule"]}, "'no-such-rule' names no rule"),
    ({"select": ["skw101"]}, "names no rule"),
    ({"stage": "all"}, "stage 'all' is not one of graph, values, train"), ({"dtype": "int8"}, "dtype 'int8' is no floating torch dtype"),
    ({"dtype": torch.int64}, "is no floating torch dtype"), ({"dtype": "nothing"}, "is no floating torch dtype"),
    ({"entry_points": {"nowhere": torch.ones(1)}}, "entry point 'nowhere' is no method of Tower")])
def test_an_argument_outside_its_set(options: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError, match=re.escape(text)) as told:
        skipway.check(Tower(Block()), tokens(), **options)
    assert "\n" not in str(told.value)


def test_an_unknown_placement_is_refused() -> None:
    with pytest.raises(ValueError, match="want one of pre, post, sandwich, output, inner, none"):
        skipway.Expect(placement="before")


def test_findings_are_ordered_by_severity_code_and_place() -> None:
    blocks = [Twice() if k in (2, 10) else Block() for k in range(12)]
    report = skipway.check(NoNorm(*blocks), tokens())
    keys = [(-SEVERITIES.index(f.severity), f.code) for f in report.findings]
    assert keys == sorted(keys)
    assert [f.where for f in report.findings if f.code == "SKW103"] == sorted((f.where for f in report.findings if f.code == "SKW103"),
                                                                              key=lambda w: int(w.split(".")[1]))
    assert [f.where.split(".")[1] for f in report.findings if f.code == "SKW103"] == ["2", "10"]


def test_a_report_is_plain_values() -> None:
    report = skipway.check(faulty(), tokens())
    data = report.to_dict()
    assert set(data) == {"schema", "target", "stage", "ok", "fail_on", "suppressed", "rules_run", "not_understood", "findings", "wiring", "rules"}
    assert (data["schema"], data["stage"], data["ok"], data["target"], data["suppressed"]) == ("skipway.report/1", "graph", False, None, 0)
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    assert data["wiring"] == report.wiring.to_dict() and [f["code"] for f in data["findings"]] == codes(report)
    assert all(f["rule"] in CODES and CODES[f["rule"]] == f["code"] and f["message"] and "\n" not in f["message"] for f in data["findings"])
    assert skipway.check(faulty(), tokens()).to_dict() == data


def test_assert_wired_says_where() -> None:
    assert skipway.assert_wired(Tower(Block()), tokens()) is None
    with pytest.raises(WiringError) as told:
        skipway.assert_wired(faulty(), tokens())
    text = str(told.value)
    assert text.startswith("NoNorm is not wired right:\n")
    assert f"{__file__}:{line_of('twice')}: SKW103 double-skip: " in text
    assert isinstance(told.value, AssertionError)
    assert len(text.splitlines()) == 1 + len(skipway.check(faulty(), tokens()).findings)


def test_assert_wired_takes_what_check_takes() -> None:
    skipway.assert_wired(faulty(), tokens(), ignore=["SKW1", "SKW204"])
    with pytest.raises(WiringError, match="SKW202 raw-skip-in-post-norm"):
        skipway.assert_wired(Tower(Block()), tokens(), expect=skipway.Expect(placement="post"))


@pytest.mark.parametrize("stage", ["values", "train"])
def test_a_later_stage_runs_the_graph_s_rules_too(stage: str) -> None:
    early, late = skipway.check(faulty(), tokens()), skipway.check(faulty(), tokens(), stage=stage)
    assert set(early.rules_run) <= set(late.rules_run)
    assert [f for f in late.findings if f.code in early.rules_run] == list(early.findings)
    assert late.stage == stage
    if set(early.rules_run) == set(late.rules_run):
        assert any("no rule of stage" in note for note in late.wiring.notes)


# --- dtype and modes ----------------------------------------------------------------------------------------------------------------------

class Casts(nn.Module):
    """`x.float()` is a copy, except where x is float32 already."""

    def __init__(self) -> None:
        super().__init__()
        self.f = Branch()

    def forward(self, x: Tensor) -> Tensor:
        r = x.float()
        r.add_(self.f(x))
        return r.to(x.dtype)


@pytest.mark.parametrize(("dtype", "fires"), [(None, True), ("float32", True), (torch.float32, True), ("bfloat16", False), ("torch.float16", False),
                                              (torch.float64, False)])
def test_the_dtype_changes_what_is_seen(dtype: Any, fires: bool) -> None:
    report = skipway.check(Calls(lambda m, x: m.head(m.f(x)), f=Casts(), head=nn.Linear(DIM, 3)), tokens(), dtype=dtype)
    assert ("SKW601" in codes(report)) is fires


def test_the_dtype_of_the_model_itself_is_seen() -> None:
    assert "SKW601" not in codes(skipway.check(Calls(lambda m, x: m.f(x), f=Casts()).bfloat16(), tokens().bfloat16(), dtype="bfloat16"))
    assert "SKW601" in codes(skipway.check(Calls(lambda m, x: m.f(x), f=Casts()).bfloat16(), tokens().bfloat16(), dtype="float32"))


def test_the_dtype_of_a_model_that_needs_numbers() -> None:
    def run(m: nn.Module, x: Tensor) -> Tensor:
        y = m.tower(x)
        return y * 2 if float(y.float().abs().sum()) >= 0 else y
    model = Calls(run, tower=Tower(Block()))
    report = skipway.check(model, tokens(), dtype="bfloat16")
    assert report.wiring.how == "real" and len(report.wiring.sites) == 2
    assert {p.dtype for p in model.parameters()} == {torch.float32}


class Moody(nn.Module):
    """Writes into its input in one mode only."""

    def __init__(self, mode: bool | None) -> None:
        super().__init__()
        self.f, self.mode = Branch(), mode

    def forward(self, x: Tensor) -> Tensor:
        y = self.f(x)
        return x.add_(y) if self.training is self.mode else x + y


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("writes_in", [False, True])
def test_both_modes_are_looked_at(writes_in: bool, given: bool) -> None:
    model = Calls(lambda m, x: m.head(m.f(x)), f=Moody(writes_in), head=nn.Linear(DIM, 3)).train(given)
    found = [f for f in skipway.check(model, tokens()).findings if f.code == "SKW601"]
    assert [f.where for f in found] == ["f"]
    other = f"(in {'train' if writes_in else 'eval'} mode)"
    assert (other in found[0].message) is (writes_in is not given)
    assert [m.training for m in model.modules()] == [given] * len(list(model.modules()))


@pytest.mark.parametrize("last", [None, False])
def test_blocks_that_were_alike_in_one_mode_may_differ_in_the_other(last: bool | None) -> None:
    """Of blocks that did the same, one runs in the other mode; a flag that tells them apart there must not be overlooked."""
    blocks = nn.ModuleList([Moody(None), Moody(None), Moody(last)])
    model = Calls(lambda m, x: m.head(sum(block(x) for block in m.blocks)), blocks=blocks, head=nn.Linear(DIM, 3)).train()
    assert [f.where for f in skipway.check(model, tokens()).findings if f.code == "SKW601"] == (["blocks.2"] if last is False else [])


def test_a_mode_that_fails_is_a_note() -> None:
    def run(m: nn.Module, x: Tensor) -> Tensor:
        if m.training:
            raise RuntimeError("no training")
        return m.tower(x)
    report = skipway.check(Calls(run, tower=Tower(Block())).eval(), tokens())
    assert report.findings == ()
    assert [n for n in report.wiring.notes if n.startswith("the other mode was not looked at") and "no training" in n]
    with pytest.raises(TraceError, match="no training"):
        skipway.check(Calls(run, tower=Tower(Block())).train(), tokens())


def test_a_reference_and_expectations_are_used() -> None:
    assert codes(skipway.check(Tower(Block()), tokens(), expect=skipway.Expect(placement="pre"))) == []
    assert codes(skipway.check(Tower(Block()), tokens(), expect=skipway.Expect(placement="post"))) == ["SKW202", "SKW202"]
    assert skipway.check(Tower(Block()), tokens(), reference=Tower(Block())).ok


def test_a_check_that_drops_its_ignore_list_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = module._chosen
    monkeypatch.setattr(module, "_chosen", lambda stage, select, ignore: plain(stage, select, ()))
    with pytest.raises(AssertionError):
        test_select_and_ignore({"ignore": ["SKW1"]}, {"SKW204"})


def test_a_check_of_one_mode_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*args: Any) -> Any:
        raise TraceError("planted")
    monkeypatch.setattr(module, "record_other_mode", none)
    with pytest.raises(AssertionError):
        test_both_modes_are_looked_at(False, True)

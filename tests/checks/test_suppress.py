"""`# skipway: ignore[...]` on the line of a finding."""

from collections.abc import Callable
from pathlib import Path

import pytest
from torch import Tensor, nn

import skipway
from skipway.checks import run as module
from skipway.checks.records import Finding
from skipway.checks.suppress import suppressed

from ..wiring.small import Branch, Calls, Tower, tokens


def _plain(m: nn.Module, x: Tensor) -> Tensor:
    return x + (x + m.f(x))


def _whole_line(m: nn.Module, x: Tensor) -> Tensor:
    return x + (x + m.f(x))  # skipway: ignore


def _by_code(m: nn.Module, x: Tensor) -> Tensor:
    return x + (x + m.f(x))  # skipway: ignore[SKW103]


def _by_slug(m: nn.Module, x: Tensor) -> Tensor:
    return x + (x + m.f(x))  # skipway: ignore[double-skip]


def _in_a_list(m: nn.Module, x: Tensor) -> Tensor:
    return x + (x + m.f(x))  # skipway: ignore[SKW999, SKW103 ,missing-skip]


def _another_code(m: nn.Module, x: Tensor) -> Tensor:
    return x + (x + m.f(x))  # skipway: ignore[SKW101]


def _start_of_a_code(m: nn.Module, x: Tensor) -> Tensor:
    return x + (x + m.f(x))  # skipway: ignore[SKW1]


def _line_above(m: nn.Module, x: Tensor) -> Tensor:
    # skipway: ignore[SKW103]
    return x + (x + m.f(x))


def _empty_list(m: nn.Module, x: Tensor) -> Tensor:
    return x + (x + m.f(x))  # skipway: ignore[]


@pytest.mark.parametrize(("run", "gone"), [(_plain, False), (_whole_line, True), (_by_code, True), (_by_slug, True), (_in_a_list, True),
                                           (_another_code, False),
                                           (_start_of_a_code, False), (_line_above, False), (_empty_list, False)])
def test_a_comment_on_the_line_of_a_join(run: Callable[[nn.Module, Tensor], Tensor], gone: bool) -> None:
    report = skipway.check(Tower(Calls(run, f=Branch())), tokens(), select=["SKW103"])
    assert [f.code for f in report.findings] == ([] if gone else ["SKW103"])
    assert report.suppressed == int(gone) and report.ok is gone
    assert report.to_dict()["suppressed"] == int(gone)


TEXTS = [("x = 1  # skipway: ignore", True), ("x = 1  #skipway:ignore[SKW101]", True), ("x = 1  # skipway: ignore[SKW102]", False), ("x = 1", False),
         ("x = 1  # skipway: ignores nothing", False),
         ("x = '# no skipway: ignore'", False), ("", False)]


@pytest.mark.parametrize(("text", "gone"), TEXTS)
def test_what_a_comment_is(text: str, gone: bool, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(f"\n{text}\n")
    assert suppressed(Finding("SKW101", "missing-skip", "error", "a", "said", str(tmp_path / "a.py"), 2)) is gone


def test_a_finding_without_a_line_stays() -> None:
    assert not suppressed(Finding("SKW101", "missing-skip", "error", "a", "said"))
    assert not suppressed(Finding("SKW101", "missing-skip", "error", "a", "said", "no_such_file.py", 3))


def test_a_check_that_reads_no_comments_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "suppressed", lambda finding: False)
    with pytest.raises(AssertionError):
        test_a_comment_on_the_line_of_a_join(_by_code, True)

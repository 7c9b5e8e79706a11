"""The bar of something long: nothing where stderr is no terminal, nor where it is short."""

import io

import pytest
import rich.console

from skipway.cli import _progress


def drawn(monkeypatch: pytest.MonkeyPatch, terminal: bool, delay: float) -> str:
    out = io.StringIO()
    real = rich.console.Console
    monkeypatch.setattr(rich.console, "Console", lambda **options: real(file=out, force_terminal=terminal, width=80))
    monkeypatch.setattr(_progress, "DELAY", delay)
    with _progress.bar("lesions of net[0]") as tell:
        for done in range(1, 4):
            tell(done, 7)
    return out.getvalue()


def test_a_long_one_has_a_bar_with_its_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    said = drawn(monkeypatch, True, -1)
    assert "lesions of net[0]" in said and "3/7" in said


@pytest.mark.parametrize(("terminal", "delay"), [(True, 60), (False, -1)])
def test_a_short_one_and_a_file_have_none(terminal: bool, delay: float, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "lesions" not in drawn(monkeypatch, terminal, delay)

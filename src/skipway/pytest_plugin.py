"""The pytest plugin: the fixture `wiring`, the option `--skipway-stage` and the ini option `skipway_stage`.

pytest loads this file in every project that skipway is installed beside, so it imports nothing of weight until the fixture is used.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from torch import nn

    from skipway.checks import Expect, Report
    from skipway.checks.config import Config

STAGES = ("graph", "values", "train")


class AssertWired(Protocol):
    """What the fixture `wiring` is."""

    def __call__(self, model: "nn.Module", *args: Any, stage: str | None = None, expect: "Expect | None" = None,
                 select: Iterable[str] = (), ignore: Iterable[str] = (), **kwargs: Any) -> "Report": ...


def pytest_addoption(parser: pytest.Parser) -> None:
    told = "stage of checks by the fixture `wiring`: graph (no numbers), values (one real forward) or train (forward and backward)"
    parser.getgroup("skipway").addoption("--skipway-stage", choices=STAGES, default=None, help=told)
    parser.addini("skipway_stage", told, default="graph")


def pytest_configure(config: pytest.Config) -> None:
    stage = config.getini("skipway_stage")
    if stage not in STAGES:
        raise pytest.UsageError(f"skipway_stage: got {stage!r}, want one of {', '.join(STAGES)}")


@pytest.fixture
def wiring(request: pytest.FixtureRequest) -> AssertWired:
    """Checks a model as `skipway.check` does and fails the test where a finding is an error: `wiring(model, *args, **options) -> Report`.

    The stage is that of --skipway-stage or of the ini option skipway_stage, unless the call names one. [tool.skipway] of the nearest
    pyproject.toml at or above the test's file counts: `select` unless the call selects, `ignore` beside the call's, `expect` under the
    call's, and `per-file`. The options that `skipway.check` knows go to it, everything else to the model's forward.
    """
    chosen = request.config.getoption("--skipway-stage") or request.config.getini("skipway_stage")

    def assert_wired(model: "nn.Module", *args: Any, stage: str | None = None, expect: "Expect | None" = None,
                     select: Iterable[str] = (), ignore: Iterable[str] = (), **kwargs: Any) -> "Report":
        __tracebackhide__ = True
        from skipway._errors import WiringError
        from skipway.checks import check
        from skipway.checks.config import read, without_left_out
        from skipway.report import render
        declared = read(request.path.parent)
        report = check(model, *args, stage=stage or chosen, expect=_expect(declared, expect), select=tuple(select) or declared.select,
                       ignore=(*ignore, *declared.ignore), **kwargs)
        report = without_left_out(report, declared)
        if not report.ok:
            raise WiringError(f"{report.wiring.model} is not wired right\n\n{render(report.to_dict())}")
        return report

    return assert_wired


def _expect(declared: "Config", given: "Expect | None") -> "Expect":
    """What the project declares, under what the call does."""
    from dataclasses import fields

    from skipway.checks import Expect
    own = {f.name: value for f in fields(Expect) if given is not None and (value := getattr(given, f.name)) is not None}
    return Expect(**{**declared.expect, **own})

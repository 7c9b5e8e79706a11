"""`skipway check TARGET`: finds the residual wiring of a model and judges it."""

import contextlib
import pathlib
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skipway._errors import SkipwayError, UsageError
from skipway.cli._errors import FAILED, one_line, tell
from skipway.cli._output import colored, one_of, writable, write
from skipway.cli._progress import progress
from skipway.cli._values import entry_points, expectation, listed
from skipway.report._escape import plain

if TYPE_CHECKING:
    from skipway.checks.config import Config, Declared
    from skipway.checks.records import Report

SEVERITIES = ("note", "warning", "error")
STAGES = ("graph", "values", "train")

Texts = list[str]


def command(
    target: Annotated[str | None, typer.Argument(help="path/file.py:attr, package.module:attr, hf:NAME, timm:NAME or torchvision:NAME. Without "
                                                 "it, all `targets` of [tool.skipway] are checked.")] = None,
    given: Annotated[Texts | None, typer.Option("--input", help='One input, "x=float32[2,3,224,224]" or "ids=int64[1,16]<1000"; repeatable.')] = None,
    inputs: Annotated[str | None, typer.Option(help="file.py:function that returns the inputs: a tuple, a dict or (tuple, dict).")] = None,
    config: Annotated[Texts | None, typer.Option(help="KEY=VALUE for the configuration of an hf: target; repeatable.")] = None,
    form: Annotated[str, typer.Option("--format", help="text, json, html, svg, sarif, github or another format that is installed.")] = "text",
    stage: Annotated[str, typer.Option(help="graph (no numbers), values (one real forward) or train (forward and backward).")] = "graph",
    expect: Annotated[Texts | None, typer.Option(help="KEY=VALUE that you declare about the model, such as placement=pre; repeatable.")] = None,
    select: Annotated[Texts | None, typer.Option(help="Only these rules; codes or prefixes, with commas or repeated.")] = None,
    ignore: Annotated[Texts | None, typer.Option(help="Not these rules; codes or prefixes, with commas or repeated.")] = None,
    entry_point: Annotated[Texts | None, typer.Option(help="NAME=file.py:function: a method of the model and its arguments; repeatable.")] = None,
    hooks: Annotated[Texts | None, typer.Option(help="Module paths that hooks will be put on; with commas or repeated.")] = None,
    dtype: Annotated[str | None, typer.Option(help="The dtype that the model will run in, such as bfloat16.")] = None,
    fail_on: Annotated[str, typer.Option(help="Exit status 1 for findings at or above this: error, warning or note.")] = "error",
    output: Annotated[pathlib.Path | None, typer.Option(help="Write the report to this file instead of stdout.")] = None,
    mode: Annotated[str, typer.Option(help="eval or train: the mode the model is put in.")] = "eval",
    fix: Annotated[bool, typer.Option("--fix-plan", help="Print, instead of the report, the skipway.rewire plan that mends what was found.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Text: print the findings only.")] = False,
    debug: Annotated[bool, typer.Option(help="Print tracebacks.")] = False,
) -> None:
    """Find every residual join of a model and judge it.

    Runs the target's own Python code, as a test runner does. Exit status: 0 no finding at or above --fail-on, 1 findings,
    2 a target could not be checked, or was not understood.
    """
    with one_line(debug):
        one_of("--stage", stage, STAGES)
        one_of("--fail-on", fail_on, SEVERITIES)
        one_of("--mode", mode, ("eval", "train"))
        from skipway.report import formats
        one_of("--format", form, formats())
        if fix and (form != "text" or quiet):
            raise UsageError("--fix-plan prints Python in place of the report; leave --format and --quiet out")
        writable(output)
        from skipway.checks.config import Declared, read
        declared = read()
        if target is not None:
            jobs: Sequence[Declared] = [Declared(target, tuple(given or ()), inputs, tuple(config or ()))]
        else:
            jobs = _declared(declared, form, {"--input": given, "--inputs": inputs, "--config": config, "--entry-point": entry_point})
        options = {"stage": stage, "select": listed(select or ()) or declared.select, "ignore": (*listed(ignore or ()), *declared.ignore),
                   "hooks": listed(hooks or ()), "dtype": dtype, "entry_points": entry_points(entry_point or ())}
        reports: list[Report] = []
        for job in jobs:
            try:
                wanted = {**options, "expect": expectation(expect or (), {**declared.expect, **job.expect})}
                with contextlib.nullcontext() if target is not None else contextlib.chdir(declared.folder):
                    reports.append(replace(_one(job, mode, wanted, declared), fail_on=fail_on))
            except SkipwayError as error:
                if target is not None:
                    raise
                tell(error, f"{job.target}: {str(error).removeprefix(f'{job.target}: ')}", debug)
        if reports and fix:
            from skipway.cli._fix_plan import fix_plan
            write("\n".join(filter(None, (fix_plan(report.to_dict()) for report in reports))), output)
        elif reports:
            _write(reports, form, output, quiet, target is None)
        if len(reports) < len(jobs) or any(report.not_understood for report in reports):
            raise typer.Exit(FAILED)
        if any(_fails(report) for report in reports):
            raise typer.Exit(1)


def _declared(declared: "Config", form: str, given: dict[str, Any]) -> "Sequence[Declared]":
    """The targets that [tool.skipway] declares. Options that belong to one target are refused."""
    from skipway.report import several
    if not declared.targets:
        where = f"[tool.skipway] of {declared.folder}/pyproject.toml declares no targets" if declared.folder else "no pyproject.toml declares any"
        raise UsageError(f"check: no TARGET was given and {where}; name one, such as path/file.py:attr, or add targets = [\"path/file.py:attr\"]")
    for option, value in given.items():
        if value:
            raise UsageError(f"{option}: it belongs to one target and no TARGET was given; name the target, or write it in [tool.skipway] targets")
    if len(declared.targets) > 1 and not several(form):
        raise UsageError(f"--format {form}: it holds one report and [tool.skipway] declares {len(declared.targets)} targets; name one TARGET")
    return declared.targets


def _one(job: "Declared", mode: str, options: dict[str, Any], declared: "Config") -> "Report":
    """The report about one target."""
    with progress(f"building {plain(job.target)}") as say:
        from skipway.cli._run import checked
        from skipway.targets import resolve
        found = resolve(job.target, inputs=job.input, inputs_from=job.inputs, config=job.config)
        say(f"checking {plain(job.target)}")
        return checked(found, mode, options, declared)


def _fails(report: "Report") -> bool:
    worst = report.worst()
    return worst is not None and SEVERITIES.index(worst) >= SEVERITIES.index(report.fail_on)


def _write(reports: "Sequence[Report]", form: str, output: pathlib.Path | None, quiet: bool, many: bool) -> None:
    """One report, or with `many` what the format makes of all declared targets."""
    from skipway.report import render, render_all, several
    color = colored(output)
    records = [report.to_dict() for report in reports]
    if quiet and form == "text":
        from skipway.report.text import render_findings
        text = "".join(render_findings(record, color=color) for record in records)
    elif many and several(form):
        text = render_all(records, form, color=color)
    else:
        text = "".join(render(record, form, color=color) for record in records)
    write(text, output)

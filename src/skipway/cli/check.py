"""`skipway check TARGET`: finds the residual wiring of a model and judges it."""

import os
import pathlib
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skipway._errors import NeedsDataError, SkipwayError, UsageError
from skipway.cli._errors import one_line
from skipway.cli._progress import progress
from skipway.cli._values import entry_points, expectation, listed

if TYPE_CHECKING:
    from skipway.checks.records import Report
    from skipway.targets import Target

SEVERITIES = ("note", "warning", "error")
STAGES = ("graph", "values", "train")
NO_STREAM = "no residual stream was found: nothing is added back to the value it was computed from, so most rules have nothing to look at"

Texts = list[str]


def command(
    target: Annotated[str, typer.Argument(help="path/file.py:attr, package.module:attr, hf:NAME, timm:NAME or torchvision:NAME.")],
    given: Annotated[Texts | None, typer.Option("--input", help='One input, "x=float32[2,3,224,224]" or "ids=int64[1,16]<1000"; repeatable.')] = None,
    inputs: Annotated[str | None, typer.Option(help="file.py:function that returns the inputs: a tuple, a dict or (tuple, dict).")] = None,
    config: Annotated[Texts | None, typer.Option(help="KEY=VALUE for the configuration of an hf: target; repeatable.")] = None,
    form: Annotated[str, typer.Option("--format", help="text, json or another format that is installed.")] = "text",
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
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Text: print the findings only.")] = False,
    debug: Annotated[bool, typer.Option(help="Print tracebacks.")] = False,
) -> None:
    """Find every residual join of a model and judge it.

    Runs the target's own Python code, as a test runner does. Exit status: 0 no finding at or above --fail-on, 1 findings,
    2 the target could not be checked.
    """
    with one_line(debug):
        _one_of("--stage", stage, STAGES)
        _one_of("--fail-on", fail_on, SEVERITIES)
        _one_of("--mode", mode, ("eval", "train"))
        from skipway.report import formats
        _one_of("--format", form, formats())
        from skipway.checks.config import read
        declared = read()
        options = {"stage": stage, "expect": expectation(expect or (), declared.expect), "select": listed(select or ()) or declared.select,
                   "ignore": (*listed(ignore or ()), *declared.ignore), "hooks": listed(hooks or ()), "dtype": dtype}
        with progress(f"building {target}") as say:
            from skipway.targets import resolve
            found = resolve(target, inputs=tuple(given or ()), inputs_from=inputs, config=tuple(config or ()))
            say(f"checking {target}")
            report = run(found, mode, {**options, "entry_points": entry_points(entry_point or ())})
        _write(report, form, output, quiet)
        worst = report.worst()
        if worst is not None and SEVERITIES.index(worst) >= SEVERITIES.index(fail_on):
            raise typer.Exit(1)


def run(target: "Target", mode: str, options: dict[str, Any]) -> "Report":
    """The target's report; on a small real copy where the model has no numbers and its forward, or the stage, needs them."""
    if target.abstract and options["stage"] != "graph":
        small = target.shrunken()
        if small is None:
            raise UsageError(f"{target.name}: --stage {options['stage']} needs numbers and no small copy of this model could be made; "
                             "name a factory in a file that builds one with weights")
        return _checked(small, mode, options, f"stage {options['stage']} needs numbers")
    try:
        return _checked(target, mode, options)
    except NeedsDataError as error:
        small = target.shrunken()
        if small is None:
            raise
        said = str(error)
    return _checked(small, mode, options, said)


def _checked(target: "Target", mode: str, options: dict[str, Any], reason: str = "") -> "Report":
    import skipway
    target.model.train(mode == "train")
    clash = sorted(set(target.kwargs) & {*options, "reference", "config"})
    if clash:
        raise SkipwayError(f"{target.name}: the forward's argument {clash[0]!r} has the name of an option of the check; give it by position")
    report: Report = skipway.check(target.model, *target.args, **options, **target.kwargs)
    report = _per_file(report)
    notes = [*target.notes[:-1], f"{reason}: {target.notes[-1]}"] if reason and target.notes else list(target.notes)
    if not report.wiring.streams:
        notes.append(NO_STREAM)
    wiring = replace(report.wiring, notes=tuple(dict.fromkeys((*report.wiring.notes, *notes))))
    return replace(report, target=target.name, wiring=wiring)


def _per_file(report: "Report") -> "Report":
    """Without the findings that [tool.skipway] leaves out for their file."""
    from skipway.checks.config import left_out, read
    declared = read()
    kept = tuple(f for f in report.findings if not left_out(f, declared.per_file, declared.folder))
    return replace(report, findings=kept, suppressed=report.suppressed + len(report.findings) - len(kept))


def _write(report: "Report", form: str, output: pathlib.Path | None, quiet: bool) -> None:
    from skipway.report import render
    color = output is None and sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    if quiet and form == "text":
        from skipway.report.text import render_findings
        text = render_findings(report.to_dict(), color=color)
    else:
        text = render(report.to_dict(), form, color=color)
    if output is None:
        typer.echo(text, nl=False, color=color)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--output {output}: {error.strerror}; give a file in a folder that exists and may be written to") from error


def _one_of(option: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise UsageError(f"{option}: got {value!r}, want one of {', '.join(known)}")

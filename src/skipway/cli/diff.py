"""`skipway diff A B`: what differs between two wirings, a port and its original or a model before and after a change."""

import pathlib
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skipway.cli._errors import one_line
from skipway.cli._output import one_of, writable, write
from skipway.cli._progress import progress
from skipway.report._escape import plain

if TYPE_CHECKING:
    from skipway.wiring import Wiring

SCHEMA = "skipway.diff/1"
Texts = list[str]


def command(
    a: Annotated[str, typer.Argument(metavar="A", help="A target as check takes it, or the JSON file of a report or a wiring.")],
    b: Annotated[str, typer.Argument(metavar="B", help="What to compare with it: a target or a JSON file.")],
    names: Annotated[bool, typer.Option("--names", help="Paths of modules are compared, too.")] = False,
    given: Annotated[Texts | None, typer.Option("--input", help="One input of both models, as for check; repeatable.")] = None,
    given_a: Annotated[Texts | None, typer.Option("--input-a", help="One input of A; repeatable.")] = None,
    given_b: Annotated[Texts | None, typer.Option("--input-b", help="One input of B; repeatable.")] = None,
    inputs: Annotated[str | None, typer.Option("--inputs", help="file.py:function that returns the inputs of both.")] = None,
    inputs_a: Annotated[str | None, typer.Option("--inputs-a", help="file.py:function that returns the inputs of A.")] = None,
    inputs_b: Annotated[str | None, typer.Option("--inputs-b", help="file.py:function that returns the inputs of B.")] = None,
    config: Annotated[Texts | None, typer.Option("--config", help="KEY=VALUE for the configuration of both hf: targets; repeatable.")] = None,
    config_a: Annotated[Texts | None, typer.Option("--config-a", help="KEY=VALUE for the configuration of A; repeatable.")] = None,
    config_b: Annotated[Texts | None, typer.Option("--config-b", help="KEY=VALUE for the configuration of B; repeatable.")] = None,
    mode: Annotated[str, typer.Option(help="eval or train: the mode the models are put in.")] = "eval",
    as_json: Annotated[bool, typer.Option("--json", help="Print the differences as JSON.")] = False,
    output: Annotated[pathlib.Path | None, typer.Option(help="Write to this file instead of stdout.")] = None,
    debug: Annotated[bool, typer.Option(help="Print tracebacks.")] = False,
) -> None:
    """Say in what the wiring of B differs from that of A.

    Streams and sites are paired by order and kind, so module names may differ. Exit status: 0 nothing differs, 1 something does,
    2 one of them could not be had.
    """
    with one_line(debug):
        one_of("--mode", mode, ("eval", "train"))
        writable(output)
        first = _wiring(a, mode, (*(given or ()), *(given_a or ())), inputs_a or (inputs if not given_a else None),
                        (*(config or ()), *(config_a or ())), ("-a", bool(given_a or inputs_a or config_a)))
        second = _wiring(b, mode, (*(given or ()), *(given_b or ())), inputs_b or (inputs if not given_b else None),
                         (*(config or ()), *(config_b or ())), ("-b", bool(given_b or inputs_b or config_b)))
        found = first.diff(second, names=names)
        if as_json:
            text = _json(first, second, (a, b), found)
        else:
            from skipway.cli._differences import text as shown
            text = shown(first, second, (a, b), found)
        write(text, output)
        if found:
            raise typer.Exit(1)


def _wiring(target: str, mode: str, given: tuple[str, ...], inputs: str | None, config: tuple[str, ...], own: tuple[str, bool]) -> "Wiring":
    """The wiring in a JSON file, or of a target. own: the ending of the options that belong to this side, and whether one was given."""
    from skipway._errors import UsageError
    from skipway.cli._run import NO_STREAM, traced
    from skipway.cli._targets import stored
    if stored(target):
        from skipway.report._load import load
        from skipway.wiring.structure import Wiring
        if own[1]:
            raise UsageError(f"{target}: --input{own[0]}, --inputs{own[0]} and --config{own[0]} are for a model, and this is a file; leave them out")
        wiring = Wiring.from_dict(load(target)["wiring"])
    else:
        with progress(f"building {plain(target)}") as say:
            from skipway.targets import resolve
            made = resolve(target, inputs=given, inputs_from=inputs, config=config)
            say(f"tracing {plain(target)}")
            wiring = traced(made, mode)
    if not wiring.streams:
        raise UsageError(f"{target}: {NO_STREAM.partition(',')[0]}; there is nothing to compare")
    return wiring


def _json(first: "Wiring", second: "Wiring", targets: tuple[str, str], found: tuple[Any, ...]) -> str:
    """Schema "skipway.diff/1": docs/schema/diff.schema.json."""
    import json
    from dataclasses import asdict

    from skipway.report._values import encodable, jsonable
    sides = {side: {"target": target, "model": wiring.model, "sites": len(wiring.sites), "streams": len(wiring.streams),
                    "notes": list(wiring.notes)}
             for side, target, wiring in (("a", targets[0], first), ("b", targets[1], second))}
    whole = {"schema": SCHEMA, **sides, "equal": not found, "differences": [asdict(one) for one in found]}
    return encodable(json.dumps(jsonable(whole), indent=2, ensure_ascii=False, allow_nan=False) + "\n")

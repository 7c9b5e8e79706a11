"""`skipway probe TARGET`: what signal and gradient do at each join of a model, on one batch."""

import pathlib
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skipway._errors import UsageError
from skipway.cli._errors import one_line
from skipway.cli._output import colored, one_of, writable, write, write_bytes
from skipway.cli._progress import bar, progress
from skipway.report._escape import plain

if TYPE_CHECKING:
    from skipway.targets import Target
    from skipway.targets._data import Data

Texts = list[str]


def command(
    target: Annotated[str, typer.Argument(help="path/file.py:attr, package.module:attr, hf:NAME, hf:FOLDER, hf:FILE.gguf, timm:NAME or "
                                          "torchvision:NAME.")],
    data: Annotated[str | None, typer.Option(help="A text file, a .safetensors or .npz file of named inputs, a folder of images, or "
                                             "file.py:function. Without it inputs are random.")] = None,
    batch: Annotated[int, typer.Option(help="Rows of a text, or images.")] = 4,
    tokens: Annotated[int, typer.Option(help="Tokens a row of a text.")] = 128,
    tokenizer: Annotated[str | None, typer.Option(help="A tokenizer.json or its folder, for a text. Default: the target's own.")] = None,
    loss: Annotated[str | None, typer.Option(help="next-token, masked-token, classification or file.py:function; with it gradients are "
                                             "measured, too.")] = None,
    lesion: Annotated[bool, typer.Option("--lesion", help="Also the change of the loss when each site's branch is left out, one at a time.")] = False,
    find_nonfinite: Annotated[bool, typer.Option("--find-nonfinite", help="Instead, name what makes a NaN or an infinity out of finite "
                                                 "values.")] = False,
    seed: Annotated[int, typer.Option(help="Of random inputs, random weights and hidden tokens.")] = 0,
    given: Annotated[Texts | None, typer.Option("--input", help='One random input, "x=float32[2,3,224,224]" or "ids=int64[1,16]<1000"; '
                                                "repeatable.")] = None,
    inputs: Annotated[str | None, typer.Option(help="file.py:function that returns the inputs: a tuple, a dict or (tuple, dict).")] = None,
    config: Annotated[Texts | None, typer.Option(help="KEY=VALUE for the configuration of an hf: target; repeatable.")] = None,
    mode: Annotated[str, typer.Option(help="eval or train: the mode the model is put in.")] = "eval",
    dtype: Annotated[str | None, typer.Option(help="The dtype to run in, such as bfloat16. Default: the model's own.")] = None,
    form: Annotated[str, typer.Option("--format", help="text, json, csv, png, html or another format that is installed.")] = "text",
    output: Annotated[pathlib.Path | None, typer.Option(help="Write to this file instead of stdout.")] = None,
    debug: Annotated[bool, typer.Option(help="Print tracebacks.")] = False,
) -> None:
    """Measure stream, branches and gradient at each join of a model.

    On one batch, real or random. Runs the target's own Python code, as a test runner does. Exit status: 0 measured, 2 not; with --find-nonfinite 0
    where everything is finite and 1 where something is not.
    """
    with one_line(debug):
        from skipway.report._probe import check_format, formats
        one_of("--mode", mode, ("eval", "train"))
        one_of("--format", form, ("text", "json") if find_nonfinite else formats())
        _fit({"--input": given, "--inputs": inputs, "--data": data}, loss, lesion, find_nonfinite)
        writable(output)
        check_format(form, output is None)
        with progress(f"building {plain(target)}") as say:
            import torch

            from skipway.cli._probing import Request, made_ready
            from skipway.targets import resolve
            from skipway.targets._data import Wanted
            torch.manual_seed(seed)                     # what the target's own code makes up
            request = Request(mode, dtype, seed, data, loss, lesion)
            found = resolve(target, inputs=tuple(given or ()), inputs_from=inputs, config=tuple(config or ()), seed=seed)
            say(f"loading {plain(target)}")
            made, rows = made_ready(found, request, Wanted(batch, tokens, tokenizer))
        if find_nonfinite:
            _nonfinite(made, rows, form, output)
        else:
            _table(made, rows, request, form, output)


def _fit(ways: dict[str, Any], loss: str | None, lesion: bool, find_nonfinite: bool) -> None:
    """Raises UsageError where options contradict each other."""
    named = [option for option, value in ways.items() if value]
    if len(named) > 1:
        raise UsageError(f"{' and '.join(named)}: each gives the inputs; leave all but one out")
    if find_nonfinite and (lesion or loss):
        raise UsageError(f"--find-nonfinite: it looks at one forward and takes no {'--lesion' if lesion else '--loss'}; leave one of them out")
    if lesion and not loss:
        raise UsageError("--lesion: it measures the change of a loss; add --loss next-token, masked-token, classification or file.py:function")


def _table(made: "Target", rows: "Data", request: Any, form: str, output: pathlib.Path | None) -> None:
    from skipway.cli._probing import measured
    from skipway.report._probe import render
    name = plain(made.name)
    if request.lesion:
        with bar(f"lesions of {name}") as tell:
            table = measured(made, rows, request, tell)
    else:
        with progress(f"probing {name}"):
            table = measured(made, rows, request, lambda done, total: None)
    made_of = render(table.to_dict(), form, color=colored(output))
    if isinstance(made_of, bytes):
        write_bytes(made_of, output)
    else:
        write(made_of, output)


def _nonfinite(made: "Target", rows: "Data", form: str, output: pathlib.Path | None) -> None:
    from skipway.cli._probing import nonfinite
    from skipway.report._nonfinite import record, to_json, to_text
    with progress(f"looking for what is not finite in {plain(made.name)}"):
        found = nonfinite(made, rows)
    said = record(found, made.name, type(made.model).__name__, rows.said, (*made.notes, *rows.notes))
    write(to_json(said) if form == "json" else to_text(said, color=colored(output)), output)
    if found.origins:
        raise typer.Exit(1)

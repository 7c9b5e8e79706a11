"""`skipway compare TASK`: which residual design trains better, with paired seeds, tuned rates and honest statistics."""

import pathlib
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skipway._errors import UsageError
from skipway.cli._compare_view import View
from skipway.cli._errors import one_line
from skipway.cli._progress import bar
from skipway.report._escape import plain

if TYPE_CHECKING:
    from skipway.lab import Plan, Study

Text = str | None
Path = pathlib.Path | None
MANY = "; several make it a factor"
COUNT, COUNTS, VALUE, NAME = "N", "N[,N...]", "X", "NAME"      # what stands for a value in the help


def _text(metavar: str, help: str) -> Any:
    return typer.Option(metavar=metavar, help=help)


def command(
    task: Annotated[Text, typer.Argument(help="copy, recall, induction, modular, text, digits, mlp_depth, name:key=value, file.py:task, or a study "
                                         "file (.yaml).")] = None,
    preset: Annotated[Text, _text(NAME, "A known fact put to the test, in place of TASK: classroom, deepnorm, degradation, highway, lanes, "
                                  "rezero or warmup. Prints the claim, its source, and whether it held.")] = None,
    variants: Annotated[Text, _text("NAME[,NAME...]", "Schemes with options, models, or file.py:factory, as in "
                                    "pre_norm,hyper:lanes=4,gpt2:scheme=rezero. The first is the baseline. Default: "
                                    "none:normed=true,pre_norm, which differ in the skip alone.")] = None,
    baseline: Annotated[Text, _text(NAME, "The variant that the others are compared with. Default: the first.")] = None,
    seeds: Annotated[Text, _text(COUNT, "Number of seeds. Default: 3.")] = None,
    lr: Annotated[Text, _text("X[,X...]", "The grid of learning rates, as in 3e-4,1e-3,3e-3; every variant gets all of it. Default: the "
                              "task's.")] = None,
    steps: Annotated[Text, _text(COUNT, "Training steps. Default: the task's.")] = None,
    depth: Annotated[Text, _text(COUNTS, f"Blocks{MANY}. Default: the task's.")] = None,
    width: Annotated[Text, _text(COUNTS, f"Width of the stream{MANY}. Default: the task's.")] = None,
    heads: Annotated[Text, _text(COUNT, "Heads of attention. Default: the task's.")] = None,
    norm: Annotated[Text, _text("NAME[,NAME]", f"layer_norm or rms_norm{MANY}. Default: layer_norm.")] = None,
    warmup: Annotated[Text, _text(COUNTS, f"Steps of warm-up{MANY}. Default: the task's share of the steps.")] = None,
    init: Annotated[Text, _text("NAME[,NAME...]", f"lecun, xavier, he or small{MANY}. Default: the task's.")] = None,
    dtype: Annotated[Text, _text("NAME[,NAME...]", f"float32, float64 or bfloat16 (autocast){MANY}. Default: float32.")] = None,
    batch: Annotated[Text, _text(COUNTS, f"Rows a step{MANY}. Default: the task's.")] = None,
    optimizer: Annotated[Text, _text("NAME[,NAME...]", f"adamw, sgd or muon{MANY}. Default: adamw.")] = None,
    schedule: Annotated[Text, _text(NAME, "constant, cosine or linear. Default: cosine.")] = None,
    weight_decay: Annotated[Text, _text(VALUE, "Of the matrices. Default: the task's.")] = None,
    clip: Annotated[Text, _text(VALUE, "Largest gradient norm, or none. Default: 1.")] = None,
    match: Annotated[Text, _text(NAME, "params (adjusts the width), flops or time (adjust the steps) to the baseline's. Default: nothing is "
                                 "adjusted.")] = None,
    evaluate: Annotated[Text, _text(COUNT, "Steps between held-out evaluations. Default: a twentieth of all.")] = None,
    probes: Annotated[Text, _text(COUNT, "How often the depth is measured, evenly spread. Default: 3.")] = None,
    measure: Annotated[Text, _text("NAME[,NAME...]", "Further numbers at the probed steps: update, branch_update, composite_gain.")] = None,
    checkpoint: Annotated[Text, _text(COUNT, "Steps between checkpoints. Default: a fifth of all.")] = None,
    threshold: Annotated[Text, _text(VALUE, "Held-out loss that counts as learned. Default: half of a blind guess's.")] = None,
    alpha: Annotated[Text, _text(VALUE, "Rate of false verdicts. Default: 0.05.")] = None,
    until_decided: Annotated[bool, typer.Option("--until-decided", help="Add seeds until all is decided; the error rate holds.")] = False,
    max_seeds: Annotated[Text, _text(COUNT, "Most seeds of --until-decided. Default: 20.")] = None,
    model: Annotated[Text, _text("TARGET", "A model, as skipway check takes it (hf:PATH, file.py:make): base is that model as a variant, "
                                 "base+rezero, base+lanes:scheme=mhc the same with its joins rewired.")] = None,
    data: Annotated[Text, _text("FILE", "A file of one's own, for the task text.")] = None,
    device: Annotated[Text, _text(NAME, "cpu or cuda. Default: cpu.")] = None,
    engine: Annotated[Text, _text(NAME, "local (processes of this machine), together (the seeds of one variant as one stack in a process: faster for "
                                  "small steps), ray (a cluster), or another that is installed. Default: local.")] = None,
    ray_address: Annotated[Text, _text("ADDRESS", "With --engine ray: the running cluster, as in auto or head:6379. Default: a cluster of this "
                                       "machine, started and stopped.")] = None,
    workers: Annotated[int | None, typer.Option(metavar=COUNT, min=1, help="Trials at once. Default: one a core of the machine, or of the "
                                                "cluster.")] = None,
    out: Annotated[Path, _text("DIR", "Folder of the study. Default: compare-TASK.")] = None,
    resume: Annotated[Path, _text("DIR", "Go on with the study of this folder.")] = None,
    retry: Annotated[bool, typer.Option("--retry", help="With --resume: run failed trials again, too.")] = False,
    report: Annotated[Path, _text("DIR", "Write the report of this folder's study again.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and stop.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Start although it will take more than an hour.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report's record as JSON on stdout, all else on stderr.")] = False,
    debug: Annotated[bool, typer.Option(help="Print tracebacks.")] = False,
) -> None:
    """Train variants that differ in one thing, and say which is better.

    Where no difference was shown, it says that. With --preset: a study whose claim and thresholds are fixed; whether it held is printed, and the
    exit status is 0 either way.

    Runs the Python code of a file.py variant or task. Exit status: 0 done, 1 a trial failed, 2 not run, 130 stopped (with the line that goes on).
    """
    given = {k: v for k, v in locals().items() if k in _FIELDS and v is not None}
    with one_line(debug):
        from skipway.lab import _needs
        _needs.check()
        _fit(task, given, until_decided, resume, report, retry, dry_run)
        if report is not None:
            _rebuilt(report, as_json)
        elif resume is not None:
            _resumed(resume, _place(engine, ray_address, workers), retry, as_json)
        else:
            _new(_study(task or "", given, until_decided), out, _place(engine, ray_address, workers), as_json, dry_run, yes)


_FIELDS = ("preset", "variants", "baseline", "seeds", "lr", "steps", "depth", "width", "heads", "norm", "warmup", "init", "dtype", "batch",
           "optimizer", "schedule", "weight_decay", "clip", "match", "evaluate", "probes", "measure", "checkpoint", "threshold", "alpha", "max_seeds",
           "model", "data", "device")
_LISTS = ("lr", "depth", "width", "norm", "warmup", "init", "dtype", "batch", "optimizer")


def _fit(task: Text, given: dict[str, Any], until_decided: bool, resume: Path, report: Path, retry: bool, dry_run: bool) -> None:
    """Raises UsageError where options contradict each other."""
    old = "--resume" if resume is not None else "--report" if report is not None else ""
    if old and (task or given or until_decided or dry_run or (resume and report)):
        option = next(iter(given), "until_decided" if until_decided else "dry_run" if dry_run else "report")
        named = task or f"--{option.replace('_', '-')}"
        raise UsageError(f"{old} takes the study as it is in the folder; leave {named} out")
    if retry and resume is None:
        raise UsageError("--retry belongs to --resume DIR; give the folder of the study")
    if "preset" in given and task:
        raise UsageError(f"--preset {given['preset']} has a task of its own; leave {task} out")
    if not old and not task and "preset" not in given:
        from skipway.lab.tasks import names
        raise UsageError(f"no task: want one of {', '.join(names())}, file.py:task or a study file; skipway compare copy is the classroom experiment")


def _study(task: str, given: dict[str, Any], until_decided: bool) -> "Study":
    from skipway.lab._names import split
    from skipway.lab._study_file import make, read
    fields: dict[str, Any] = {k: v.split(",") if k in _LISTS and "," in v else v for k, v in given.items()}
    if "variants" in fields:
        fields["variants"] = split(fields["variants"])
    if "measure" in fields:
        fields["measure"] = fields["measure"].split(",")
    if until_decided:
        fields["until_decided"] = True
    if task.endswith((".yaml", ".yml")):
        return read(task, **fields)
    return make({"task": task, **fields} if task else fields, lambda loc: f"--{str(loc[0]).replace('_', '-')}: " if loc and loc[0] in fields else "")


def _place(engine: Text, ray_address: Text, workers: int | None) -> dict[str, Any]:
    """Where trials run, and how many at once. Without an engine there is none in it: a new study takes local, an old one its own."""
    if ray_address is not None and engine != "ray":
        raise UsageError(f"--ray-address is for --engine ray, and the engine is {engine or 'local'}; add --engine ray, or leave the address out")
    return {**({"engine": engine} if engine is not None else {}), "workers": workers, **({"address": ray_address} if ray_address is not None else {})}


def _new(study: "Study", out: Path, place: dict[str, Any], as_json: bool, dry_run: bool, yes: bool) -> None:
    import os

    from skipway.cli._compare_plan import duration, text
    from skipway.lab import engines, run
    from skipway.lab._plan import LONG, plan
    from skipway.lab._run import free
    where = engines.load(place.get("engine", "local"))
    folder = out if out is not None else _free(study)
    if not dry_run:
        free(folder)
    with bar("planning") as tell:
        made: Plan = plan(study, place["workers"] or os.cpu_count() or 1, tell)
    typer.echo(text(made, place.get("engine")), nl=False, err=as_json)
    if hasattr(where, "fits") and dry_run:
        where.fits(made.arms, made.rates, made.task)
    if dry_run:
        return
    if made.seconds > LONG and not yes:
        raise UsageError(f"this would take about {duration(made.seconds)}; add --yes to start it, or take fewer trials or steps")
    typer.echo(f"in {plain(str(folder))}\n", err=as_json)
    _worked(lambda tell, stop: run(made, folder, **place, tell=tell, stop=stop), folder, len(made.trials),
            {a.name: a.steps for a in made.arms}, as_json)


def _free(study: "Study") -> pathlib.Path:
    """The first folder of the name compare-TASK that holds no study."""
    stem = "compare-" + (study.preset or pathlib.PurePath(study.task.partition(":")[0]).stem)
    names = (stem if k == 1 else f"{stem}-{k}" for k in range(1, 10_000))
    return next(p for p in map(pathlib.Path, names) if not p.exists())


def _resumed(folder: pathlib.Path, place: dict[str, Any], retry: bool, as_json: bool) -> None:
    from skipway.lab import engines, resume
    from skipway.lab._run import alike
    from skipway.lab._store import Store
    if "engine" in place:
        engines.load(place["engine"])
    store = Store(folder)
    place = {**place, "engine": alike(store, place.get("engine"), folder)}
    left = len(store.trials("waiting", "running", *(("failed",) if retry else ())))
    typer.echo(f"{plain(str(folder))}: {left} of {len(store.trials())} trials are left", err=as_json)
    steps = {a.name: a.steps for a in store.arms()}
    store.close()
    _worked(lambda tell, stop: resume(folder, **place, retry=retry, tell=tell, stop=stop), folder, left, steps, as_json)


def _worked(work: Any, folder: pathlib.Path, trials: int, steps: dict[str, int], as_json: bool) -> None:
    """Runs with a view, and lets an interrupt stop it between two steps; a second one stops it at once."""
    import signal

    from skipway.lab._run import Stopped
    asked: list[int] = []

    def interrupted(number: int, frame: Any) -> None:
        asked.append(number)
        if len(asked) > 1:
            raise KeyboardInterrupt
        typer.echo("stopping at the next step; once more to stop at once", err=True)

    before = {number: signal.signal(number, interrupted) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with View(trials, steps) as view:
            record = work(view.heard, lambda: bool(asked))
    except (Stopped, KeyboardInterrupt):
        typer.echo(f"stopped; go on with: skipway compare --resume {plain(str(folder))}", err=True)
        raise typer.Exit(130) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    _shown(record, folder, as_json)
    if any(t["state"] == "failed" for t in record["trials"]):
        raise typer.Exit(1)


def _rebuilt(folder: pathlib.Path, as_json: bool) -> None:
    from skipway.lab import _report
    from skipway.lab._store import Store
    store = Store(folder)
    record = _report.made(store)
    store.close()
    _report.write(folder, record)
    _shown(record, folder, as_json)


def _shown(record: dict[str, Any], folder: pathlib.Path, as_json: bool) -> None:
    import json

    from skipway.cli import _compare_files
    from skipway.report._compare.text import render
    page = _compare_files.write(folder, record)
    typer.echo(json.dumps(record, allow_nan=False) if as_json else f"{render(record)}\nreport: {plain(str(page))}")

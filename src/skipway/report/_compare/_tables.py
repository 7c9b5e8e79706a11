"""Every number of a comparison as tables that can be sorted, filtered and copied."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from skipway.report._compare import _series
from skipway.report._compare._figures import Figure
from skipway.report._page.tables import Cell, Column, Row, Table

TONES = {"better": "fine", "worse": "error", "diverged": "warning"}
PLACE = Column("n", "#", number=True)


def table(id: str, caption: str, columns: Sequence[Column], rows: Iterable[Mapping[str, Any]], most: int, where: str) -> Table:
    """A table with its rows numbered, up to `most`; columns in which no row has anything are left out. where: the file that has all rows."""
    found = list(rows)
    kept = [{"n": i + 1, **row} for i, row in enumerate(found[:most])]
    made = tuple(Row({k: Cell(s) for k, v in row.items() if k != "tone" and (s := _text(v))}, row.get("tone", "")) for row in kept)
    held = {key for row in made for key in row.cells}
    left = len(found) - len(kept)
    more = f"{left} more rows are not on this page; {where} has them all." if left else ""
    return Table(id, caption, (PLACE, *(c for c in columns if c.key in held)), made, more)


def _text(value: Any) -> str:
    """A number in six digits that count, which a program can read again; empty where it was not measured."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)


def _columns(*pairs: str) -> list[Column]:
    """From "key Title" for texts, "key: Title" for numbers, "key` Title" for names in the type of source."""
    out = []
    for pair in pairs:
        key, _, title = pair.partition(" ")
        out.append(Column(key.rstrip(":`"), title, number=key.endswith(":"), code=key.endswith("`")))
    return out


def verdicts(record: dict[str, Any], most: int) -> Table:
    """One row a comparison."""
    columns = _columns("verdict Verdict", "variant` Variant", "baseline` Baseline", "mean: Difference", "low: Low", "high: High",
                       "boot_low: Bootstrap low", "boot_high: Bootstrap high", "p: p", "level: Held against", "effect: Times the noise",
                       "pairs: Paired seeds", "needed: Seeds needed", "lr: Rate", "baseline_lr: Baseline's rate", "diverged: Diverged")
    rows = []
    for c in record["comparisons"]:
        d = c["difference"] or {}
        rows.append({**{k: c[k] for k in ("verdict", "variant", "baseline", "p", "level", "lr", "baseline_lr")}, "diverged": c["diverged"] or None,
                     **{k: d.get(k) for k in ("mean", "low", "high", "boot_low", "boot_high", "effect", "needed")}, "pairs": c["seeds"],
                     "tone": TONES.get(c["verdict"], "")})
    return table("verdicts-table", "Verdicts", columns, rows, most, "report.json")


def summary(record: dict[str, Any], most: int) -> Table:
    """One row an arm, at its best rate."""
    columns = _columns("arm` Variant", "group` Group", "lr: Rate", "mean: Held-out loss", "low: Low", "high: High", "sd: Deviation",
                       "score: Score", "seeds: Seeds", "diverged: Diverged", "failed: Failed", "seconds: Seconds",
                       "tokens_per_second: Tokens / s", "peak_memory: Peak bytes",
                       "flops: FLOPs", "parameters: Parameters")
    columns = [Column(c.key, record["task"]["score"], number=True) if c.key == "score" else c for c in columns]
    rows = [{**s, **{k: (s["loss"] or {}).get(k) for k in ("mean", "low", "high", "sd")}, "flops": arm["flops"] * arm["steps"],
             "parameters": arm["parameters"]} for arm, s in zip(record["arms"], record["summary"], strict=True)]
    return table("cost-table", "Loss and cost of each variant at its best learning rate", columns, rows, most, "report.json")


def rates(record: dict[str, Any], most: int) -> Table:
    """One row an arm and learning rate."""
    columns = _columns("arm` Variant", "lr: Rate", "mean: Held-out loss", "low: Low", "high: High", "sd: Deviation", "seeds: Seeds",
                       "diverged: Diverged")
    rows = [{**r, **{k: (r["loss"] or {}).get(k) for k in ("mean", "low", "high", "sd")}} for r in record["rates"]]
    return table("rates-table", "Held-out loss by learning rate", columns, rows, most, "report.json")


def curves(record: dict[str, Any], most: int) -> Table:
    """One row an arm, split and step, at its best rate: what the curves show."""
    columns = _columns("arm` Variant", "split Split", "step: Step", "mean: Loss", "low: Lowest seed", "high: Highest seed", "seeds: Seeds")
    found = _series.best(record)
    rows = []
    for arm in record["arms"]:
        for split in ("held_out", "train"):
            rows += [{"arm": arm["name"], "split": split, "step": v.x, "mean": v.mid, "low": v.low, "high": v.high, "seeds": v.seeds}
                     for v in _series.curve(found[arm["name"]], split)]
    return table("curves-table", "Loss curves", columns, rows, most, "curves.csv")


def depth(record: dict[str, Any], most: int) -> Table:
    """One row an arm, probed step and sublayer: means over seeds."""
    columns = _columns("arm` Variant", "step: Step", "index: Sublayer", "kind Branch", "gradient: Gradient", "stream: Stream", "write: Write",
                       "ratio: Ratio", "seeds: Seeds")
    rows = []
    for name, trials in _series.best(record).items():
        cells: dict[tuple[int, int, str], list[dict[str, Any]]] = {}
        for d in (d for t in trials for d in t["depths"]):
            cells.setdefault((d["step"], d["index"], d["kind"]), []).append(d)
        for (step, index, kind), many in sorted(cells.items()):
            rows.append({"arm": name, "step": step, "index": index, "kind": kind, "seeds": len(many),
                         **{k: _mean([d[k] for d in many]) for k in ("gradient", "stream", "write", "ratio")}})
    return table("depth-table", "Gradient and stream by depth", columns, rows, most, "report.json")


def claims(record: dict[str, Any], most: int) -> list[tuple[str, Table]]:
    """(question, table) of each claim."""
    made = {"gradient": (_gradient, ("first: At the start", "first_is Which is", "last: At the end", "last_is Which is")),
            "convergence": (lambda r: r, ("steps: Steps", "reached: Seeds that got there", "seeds: Seeds")),
            "information": (lambda r: r, ("before: Untrained", "after: Trained", "chance: Chance", "measure Measure")),
            "depth": (lambda r: r, ("depth: Blocks", "loss: Held-out loss", "diverged: Diverged", "seeds: Seeds")),
            "measured": (lambda r: r, ("name Measure", "step: Step", "mean: Mean", "low: Lowest seed", "high: Highest seed", "seeds: Seeds"))}
    out = []
    for answer in record["answers"]:
        if answer["claim"] in made:
            row, columns = made[answer["claim"]]
            out.append((answer["question"], table(f"claim-{answer['claim']}", answer["question"], _columns("arm` Variant", *columns),
                                                  [row(r) for r in answer["rows"]], most, "report.json")))
    return out


def preset(record: dict[str, Any], most: int) -> Table:
    """One row a threshold of a preset."""
    columns = _columns("held Held", "what Number", "value: Value", "relation Relation", "bound: Threshold")
    checks = record["claim"]["checks"] if record.get("claim") else []
    rows = [{**c, "held": "yes" if c["held"] else "no", "tone": "fine" if c["held"] else "warning"} for c in checks]
    return table("preset-table", "The claim's numbers beside its thresholds", columns, rows, most, "report.json")


def _gradient(row: dict[str, Any]) -> dict[str, Any]:
    first, last = row["first_step"], row["last_step"]
    return {"arm": row["arm"], "first": first["ratio"], "first_is": first["verdict"], "last": last["ratio"], "last_is": last["verdict"]}


def arms(record: dict[str, Any], most: int) -> Table:
    """One row an arm: what it is made of."""
    columns = _columns("name` Variant", "group` Group", "baseline Baseline", "kind Kind", "scheme` Scheme", "options` Options",
                       "model` Model", "factory` Factory", "depth: Blocks", "width: Width", "heads: Heads", "norm Norm", "init Start", "dtype Dtype",
                       "optimizer Optimizer", "schedule Schedule", "batch: Batch", "steps: Steps", "warmup: Warm-up", "weight_decay: Weight decay",
                       "clip: Clip", "parameters: Parameters", "flops: FLOPs a step",
                       "shared: Shared parameters", "paired: Start equal", "device Device", "notes Notes")
    rows = [{**a, "options": ", ".join(f"{k}={v}" for k, v in a["options"].items()), "notes": "; ".join(a["notes"])} for a in record["arms"]]
    return table("arms-table", "What each variant is", columns, rows, most, "report.json")


def trials(record: dict[str, Any], most: int) -> Table:
    """One row a trial."""
    columns = _columns("arm` Variant", "lr: Rate", "seed: Seed", "state State", "final: Held-out loss", "score: Score", "step: Step",
                       "seconds: Seconds", "wall: Whole seconds", "tokens_per_second: Tokens / s", "peak_memory: Peak bytes",
                       "resumed: Resumed", "reason Reason")
    columns = [Column(c.key, record["task"]["score"], number=True) if c.key == "score" else c for c in columns]
    tones = {"failed": "error", "diverged": "warning"}
    rows = [{**t, "resumed": t.get("resumed") or None, "tone": tones.get(t["state"], "")} for t in record["trials"]]
    return table("trials-table", "Trials", columns, rows, most, "report.json")


def shown(figures: Iterable[Figure], section: str) -> list[Figure]:
    """The figures of a section."""
    return [f for f in figures if f.section == section]


def _mean(values: Sequence[float | None]) -> float | None:
    kept = [v for v in values if v is not None]
    return sum(kept) / len(kept) if kept else None


ALL = (preset, verdicts, summary, rates, curves, depth, arms, trials)

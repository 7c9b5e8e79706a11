"""A comparison as plain text: a preset's claim, the verdicts with their sentences, the numbers of each variant, then the claims one by one."""

from collections.abc import Sequence
from typing import Any

from skipway.report._escape import plain

Rows = Sequence[Sequence[str]]


def render(record: dict[str, Any]) -> str:
    """The whole text, with a newline at its end."""
    parts = [claim(record), _verdicts(record), _summary(record), *(_answer(a, record) for a in record["answers"]), _failed(record)]
    return "\n\n".join(p for p in parts if p) + "\n"


def table(rows: Rows, indent: str = "  ") -> str:
    """Columns as wide as they must be; the first is left-aligned, the others right."""
    wide = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ("  ".join(cell.rjust(w) if i else cell.ljust(w) for i, (cell, w) in enumerate(zip(row, wide, strict=True))) for row in rows)
    return "\n".join(indent + line.rstrip() for line in lines)


def claim(record: dict[str, Any]) -> str:
    """Whether a preset's claim held, with each number beside its threshold; nothing for other studies."""
    found = record.get("claim")
    if not found:
        return ""
    rows = [["", "", "number", "threshold"],
            *([said(c), plain(c["what"], 300), _number(c["value"]), f"{c['relation']} {c['bound']:g}"] for c in found["checks"])]
    wide = max(len(row[1]) for row in rows)
    lines = [f"  {row[0]:6}  {row[1]:{wide}}  {row[2]:>9}  {row[3]}".rstrip() for row in rows]
    return "\n".join([f"{outcome(found).upper()}: {plain(found['claim'], 500)}", f"  source: {plain(found['source'], 500)}", *lines])


def outcome(claim: dict[str, Any]) -> str:
    """In three words or fewer."""
    return {True: "claim held", False: "claim failed", None: "claim not decided"}[claim["held"]]


def said(check: dict[str, Any]) -> str:
    return "held" if check["held"] else "failed"


def _verdicts(record: dict[str, Any]) -> str:
    lines = []
    for c in record["comparisons"]:
        lines.append(f"{c['verdict'].upper()}: {plain(c['sentence'], 1000)}")
        lines += [f"  note: {plain(n, 1000)}" for n in c["notes"]]
    return "\n".join(lines) or "One arm alone: there is nothing to compare it with."


def _summary(record: dict[str, Any]) -> str:
    rows = [["variant", "rate", "held-out loss", "interval", record["task"]["score"], "seeds", "diverged", "parameters", "s / trial", "tokens / s",
             "peak MB"]]
    for arm, s in zip(record["arms"], record["summary"], strict=True):
        loss = s["loss"] or {}
        span = f"{loss['low']:.4g} to {loss['high']:.4g}" if loss.get("low") is not None else "-"
        rows.append([plain(s["arm"]), _number(s["lr"]), _number(loss.get("mean")), span, _number(s["score"], ".3f"), str(s["seeds"]),
                     str(s["diverged"]), f"{arm['parameters']:,}", _number(s["seconds"], ".1f"), _number(s["tokens_per_second"], ",.0f"),
                     _number(s["peak_memory"] and s["peak_memory"] / 1e6, ".0f")])
    return "Each variant at its best learning rate\n" + table(rows)


def _answer(answer: dict[str, Any], record: dict[str, Any]) -> str:
    made = {"gradient": _gradient, "convergence": _convergence, "information": _information, "depth": _depth, "measured": _measured}
    rows = made[answer["claim"]](answer["rows"]) if answer["claim"] in made else []
    return f"{answer['question']}\n{table(rows)}" if rows else ""


def _gradient(rows: list[dict[str, Any]]) -> Rows:
    def cell(found: dict[str, Any]) -> str:
        return "-" if found["verdict"] is None else f"{found['verdict']} ({found['ratio']:.3g})"
    return [["first sublayer / last", "at the start", "at the end"], *([plain(r["arm"]), cell(r["first_step"]), cell(r["last_step"])] for r in rows)]


def _convergence(rows: list[dict[str, Any]]) -> Rows:
    return [["steps", "mean", "seeds that got there"],
            *([plain(r["arm"]), _number(r["steps"], ".0f"), f"{r['reached']} of {r['seeds']}"] for r in rows)]


def _information(rows: list[dict[str, Any]]) -> Rows:
    return [["share of the input", "untrained", "trained", "chance"],
            *([plain(r["arm"]), *(_number(r[k], ".3f") for k in ("before", "after", "chance"))] for r in rows)]


def _depth(rows: list[dict[str, Any]]) -> Rows:
    return [["variant", "depth", "held-out loss", "diverged"],
            *([plain(r["variant"]), str(r["depth"]), _number(r["loss"]), f"{r['diverged']} of {r['seeds']}"] for r in rows)]


def _measured(rows: list[dict[str, Any]]) -> Rows:
    return [["measured", "measure", "step", "mean", "lowest seed", "highest seed"],
            *([plain(r["arm"]), r["name"], str(r["step"]), *(_number(r[k]) for k in ("mean", "low", "high"))] for r in rows)]


def _failed(record: dict[str, Any]) -> str:
    lines = [f"  {plain(t['arm'])} at {t['lr']:g}, seed {t['seed']}: {plain(t['reason'], 300)}" for t in record["trials"] if t["state"] == "failed"]
    return "\n".join(["Trials that failed", *lines]) if lines else ""


def _number(value: float | None, form: str = ".4g") -> str:
    return "-" if value is None else format(value, form)

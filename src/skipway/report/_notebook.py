"""What a notebook shows of a wiring, a report, a probe's table or a comparison: one HTML fragment that loads nothing and runs nothing.

Each fragment brings its style along, which follows the system's light or dark, and paints its own paper, so that it can be read on any page. Every
text is made plain and escaped (`skipway.report._escape`).
"""

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from skipway._errors import UsageError
from skipway.report import svg
from skipway.report._compare import _tables
from skipway.report._drawing.style import COLORS
from skipway.report._escape import xml
from skipway.report._groups import count, places, plural, totals, verdict
from skipway.report._load import as_report
from skipway.report._page.tables import Table
from skipway.report._probe._looks import heading, lines, looks
from skipway.report._probe._looks import verdict as probed
from skipway.report._probe._quantities import measured, text

ROWS = 40               # rows of a table; what is left out is counted
DRAWN = 300_000         # characters of a drawing
FINDINGS = 30
SIDE = ("stream", "module", "kind")
_numbers = itertools.count()

STYLE = """
.skw{font:13px/1.5 ui-sans-serif,system-ui,sans-serif;background:PAPER0;color:INK0;border:1px solid LINE0;border-radius:4px;padding:10px 14px;
overflow-x:auto;color-scheme:light}
.skw code,.skw td.n{font-family:ui-monospace,monospace;font-size:12px}.skw code{background:none;color:inherit;padding:0}
.skw p{margin:4px 0}.skw .quiet,.skw th{color:QUIET0}.skw .error{color:ERROR0}.skw .warning{color:WARNING0}.skw .note{color:NOTE0}
.skw table{border-collapse:collapse;margin:8px 0;font-size:12px}.skw th,.skw td{padding:2px 8px;text-align:left;border-bottom:1px solid LINE0;
background:none;white-space:nowrap}.skw td.n,.skw th.n{text-align:right}.skw summary{cursor:pointer}.skw b{font-weight:650}
"""


def fragment(data: dict[str, Any]) -> str:
    """The fragment of a dictionary, by its schema. Raises UsageError for another one."""
    kind = str(data.get("schema", "")).partition("/")[0]
    made = {"skipway.wiring": _wiring, "skipway.report": _report, "skipway.probe": _probe, "skipway.compare": _compare}.get(kind)
    if made is None:
        raise UsageError(f"notebook: got schema {data.get('schema')!r}, want that of a wiring, a report, a probe's table or a comparison")
    return f'<div class="skw"><style>{_style()}</style>{made(data)}</div>'


def _style() -> str:
    def colored(place: int) -> str:
        out = STYLE
        for name in ("paper", "ink", "line", "quiet", "error", "warning", "note"):
            out = out.replace(f"{name.upper()}0", COLORS[name][place])
        return out.strip().replace("\n", "")
    return f"{colored(0)}@media(prefers-color-scheme:dark){{{colored(1).replace('color-scheme:light', 'color-scheme:dark')}}}{svg.style(dark=True)}"


def _wiring(data: dict[str, Any]) -> str:
    report = as_report(data, "notebook")
    main = [s for s in data["streams"] if s["main"]]
    sites = sum(len(s["sites"]) for s in main)
    return f"{_head(data)}<p>{plural(sites, 'site')} on {plural(len(main), 'stream')}</p>{_drawing(report)}{_notes(data['notes'])}"


def _report(data: dict[str, Any]) -> str:
    found = data["findings"]
    tone = next((s for s in ("error", "warning", "note") if any(f["severity"] == s for f in found)), "")
    said = verdict(found)
    items = [f'<p><b class="{xml(f["severity"])}">{xml(f["code"])} {xml(f["rule"])}</b> <code>{xml(_place(f))}</code> {xml(f["message"], 1500)}</p>'
             for f in found[:FINDINGS]]
    more = f'<p class="quiet">{len(found) - FINDINGS} more findings: report.findings has all</p>' if len(found) > FINDINGS else ""
    return (f'{_head(data["wiring"])}<p><b class="{tone}">{xml(said[:1].upper() + said[1:])}</b> '
            f'<span class="quiet">{xml(totals(data), 600)}</span></p>{"".join(items)}{more}{_drawing(data)}{_notes(data["wiring"]["notes"])}')


def _probe(data: dict[str, Any]) -> str:
    tone, title, detail = probed(data)
    made = f'{count(data["parameters"])} parameters; {xml(heading(data), 600)}'
    parts = [f'<p><b>{xml(data["model"] or "model")}</b> <span class="quiet">{made}</span></p>',
             f'<p><b class="{tone}">{xml(title)}</b> {xml(detail)}</p>']
    for stream in data["summary"]:
        rows = [*lines(stream), *((f"look at {where}", why) for where, why in looks(stream)[:6])]
        body = "".join(f"<tr><th>{xml(name)}</th><td>{xml(said, 600)}</td></tr>" for name, said in rows)
        parts.append(f'<p>stream <code>{xml(stream["stream"])}</code>, {plural(stream["sites"], "site")}</p><table>{body}</table>')
    keys = list(dict.fromkeys(key for quantity in measured(data["rows"]) for key in quantity.keys))
    side = SIDE if len(data["summary"]) > 1 else SIDE[1:]
    sites = [[str(r["index"]), *(str(r[k]) for k in side), *(text(r.get(k)) for k in keys)] for r in data["rows"]]
    table = _table(["#", *side, *keys], sites, {0, *range(1 + len(side), 1 + len(side) + len(keys))}, "Table.rows has all")
    return "".join(parts) + f"<details><summary>{plural(len(sites), 'site')} in numbers</summary>{table}</details>" + _notes(data["notes"])


def _compare(data: dict[str, Any]) -> str:
    task = data["arms"][0]["task"] if data["arms"] else data["task"]["name"]
    tones = {"worse": "error", "diverged": "warning"}
    said = [f'<p><b class="{tones.get(c["verdict"], "")}">{xml(c["verdict"].capitalize())}</b> {xml(c["sentence"], 1500)}</p>'
            for c in data["comparisons"][:FINDINGS]]
    left = len(data["comparisons"]) - len(said)
    more = f'<p class="quiet">{left} more verdicts: record["comparisons"] has all</p>' if left else ""
    return f"<p><b>compare {xml(str(task))}</b></p>{''.join(said)}{more}{_made(_tables.summary(data, ROWS))}"


def _made(table: Table) -> str:
    """A table of the pages, in a notebook's columns."""
    rows = [[cell.text for _, cell in row.pairs(table.columns)] for row in table.rows]
    return _table([c.title for c in table.columns], rows, {i for i, c in enumerate(table.columns) if c.number}, "") + (
        f'<p class="quiet">{xml(table.left_out)}</p>' if table.left_out else "")


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]], numbers: set[int], where: str) -> str:
    def line(cells: Iterable[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}{' class=n' if i in numbers else ''}>{xml(cell)}</{tag}>" for i, cell in enumerate(cells)) + "</tr>"
    left = len(rows) - ROWS
    more = f'<p class="quiet">{left} more rows: {where}</p>' if left > 0 else ""
    return f"<table><thead>{line(titles, 'th')}</thead><tbody>{''.join(line(row, 'td') for row in rows[:ROWS])}</tbody></table>{more}"


def _drawing(report: dict[str, Any]) -> str:
    if not report["wiring"]["streams"]:
        return '<p class="quiet">no residual stream was found</p>'
    drawn = svg.drawing(report["wiring"], report["findings"], legend=False, prefix=f"skw{next(_numbers)}")
    return drawn if len(drawn) < DRAWN else '<p class="quiet">the drawing is too large for a cell: .draw("svg") gives it as a file</p>'


def _head(wiring: dict[str, Any]) -> str:
    how = "abstract, no numbers were computed" if wiring["how"] == "abstract" else f"from one {wiring['how']} forward"
    return f'<p><b>{xml(wiring["model"] or "model")}</b> <span class="quiet">{count(wiring["parameters"])} parameters; {xml(how)}</span></p>'


def _notes(notes: Sequence[str]) -> str:
    return "".join(f'<p class="quiet">note: {xml(note, 600)}</p>' for note in notes)


def _place(finding: dict[str, Any]) -> str:
    if finding.get("file") and finding.get("line"):
        if "ipykernel_" in finding["file"]:
            return f"this notebook, line {finding['line']} of its cell"
        return f"{str(finding['file']).replace(chr(92), '/').rpartition('/')[2]}:{finding['line']}"
    return places([finding["where"]])

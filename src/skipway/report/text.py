"""The report for a person: the model at a glance, one line a repeated block, then findings like a compiler's, then the totals."""

import textwrap
from collections.abc import Sequence
from typing import Any

from skipway.report._escape import plain
from skipway.report._groups import count, groups, place, places, plural, totals
from skipway.report._paths import common, fold, one_index, pattern, shown

COLORS = {"error": "31", "warning": "33", "note": "36", "bold": "1", "dim": "2"}
JOIN = "\N{CIRCLED PLUS}"
LONGEST = 4000          # characters of a message, a note or a list of paths; a name has at most 400
BLANK = dict.fromkeys(map(ord, "\t\n\v\f\r"), " ")


def render(report: dict[str, Any], *, color: bool = False, width: int = 100) -> str:
    """The report as text; every line fits `width` columns. Colour adds escape sequences and changes no character."""
    page = _Page(color, width)
    wiring = report["wiring"]
    page.head(report)
    for stream in wiring["streams"]:
        if stream["main"]:
            _stream(page, stream)
    _side(page, [s for s in wiring["streams"] if not s["main"]])
    findings(page, report["findings"])
    if wiring["notes"]:
        page.gap()
    for note in wiring["notes"]:
        page.add(f"note: {_cut(note)}", "  ", mark=("note:", "note"))
    page.gap()
    page.add(totals(report), "  ")
    return page.text()


def render_all(reports: Sequence[dict[str, Any]], *, color: bool = False, width: int = 100) -> str:
    """One report under the other."""
    return "\n".join(render(report, color=color, width=width) for report in reports)


def render_findings(report: dict[str, Any], *, color: bool = False, width: int = 100) -> str:
    """The findings alone; empty where there are none."""
    page = _Page(color, width)
    findings(page, report["findings"])
    return page.text() if page.lines else ""


class _Page:
    """Lines that fit the width, with colour put on after wrapping."""

    def __init__(self, color: bool, width: int) -> None:
        self.color, self.width = color, max(width, 40)
        self.lines: list[str] = []

    def add(self, text: str, indent: str, first: str = "", mark: tuple[str, str] | None = None) -> None:
        """`text` wrapped; later lines start with `indent`. mark: a word of it and its colour."""
        text = plain(text.translate(BLANK), 8 * len(text) + 1)          # an escape is up to 8 characters long; nothing is cut here
        lines = textwrap.wrap(text, self.width, initial_indent=first, subsequent_indent=indent, break_on_hyphens=False) or [first]
        if mark is not None:
            word, style = mark
            at = next((i for i, line in enumerate(lines) if word in line), None)
            if at is not None:
                lines[at] = lines[at].replace(word, self.paint(word, style), 1)
        self.lines += lines

    def paint(self, text: str, style: str) -> str:
        return f"\x1b[{COLORS[style]}m{text}\x1b[0m" if self.color else text

    def gap(self) -> None:
        if self.lines and self.lines[-1]:
            self.lines.append("")

    def head(self, report: dict[str, Any]) -> None:
        wiring = report["wiring"]
        how = {"abstract": "abstract (no numbers were computed)", "real": "real (one forward was run)"}.get(wiring["how"], wiring["how"])
        target = f"  [{plain(report['target'])}]" if report["target"] else ""
        name = plain(wiring["model"] or "model")
        self.add(f"{name}  {count(wiring['parameters'])} parameters  {how}{target}", "  ", mark=(name, "bold"))

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


def _stream(page: _Page, stream: dict[str, Any]) -> None:
    sites = stream["sites"]
    lanes = f"  {stream['lanes']} lanes" if stream["lanes"] > 1 else ""
    final = plain(stream["final_norm"]) if stream["final_norm"] is not None else "none"
    page.gap()
    page.add(f"stream {plain(stream['name'])}{lanes}  {plural(len(sites), 'site')}  stem {plain(shown(stream['stem']))}  final norm {final}", "    ",
             mark=("stream", "bold"))
    for paths, block in blocks(sites):
        times = f"x{len(paths)}"
        where = plain(pattern(paths), LONGEST) + (" (one module)" if len(paths) > 1 and len(set(paths)) == 1 else "")
        marks = "  ".join(f"{JOIN} {label(site)}".replace(" ", "\N{NO-BREAK SPACE}") for site in block)
        start = len(page.lines)
        page.add(f"{where}  {marks}", " " * 8, first=f"  {times:<5} ")
        page.lines[start:] = [line.replace("\N{NO-BREAK SPACE}", " ") for line in page.lines[start:]]


def blocks(sites: list[dict[str, Any]]) -> list[tuple[list[str], list[dict[str, Any]]]]:
    """Repeated blocks, in order of first use: the path of each, and the sites of the first."""
    layers: list[list[dict[str, Any]]] = []
    for site in sites:
        if layers and layers[-1][0]["layer"] == site["layer"]:
            layers[-1].append(site)
        else:
            layers.append([site])
    alike: dict[tuple[str, ...], list[int]] = {}
    for number, layer in enumerate(layers):
        alike.setdefault(tuple(label(site) for site in layer), []).append(number)
    paths = [common(site["module"] for site in layer) for layer in layers]
    groups = sorted([numbers[i] for i in group] for numbers in alike.values() for group in fold([paths[n] for n in numbers]))
    out: list[tuple[list[str], list[dict[str, Any]]]] = []
    for group in groups:
        here = [paths[n] for n in group]
        outer = joined(out[-1][0], here) if out else None
        if outer is not None:
            out[-1] = (outer, out[-1][1] + layers[group[0]])
        else:
            out.append((here, layers[group[0]]))
    return out


def joined(first: list[str], second: list[str]) -> list[str] | None:
    """The blocks that hold two parts each, such as block.0.layer.0 and block.0.layer.1; None where the parts belong to no common blocks."""
    if len(first) < 2 or len(first) != len(second):
        return None
    outer = [common(pair) for pair in zip(first, second, strict=True)]
    at = one_index(outer)
    if at is None or at < 0 or len(set(outer)) < len(outer):
        return None
    return [".".join(path.split(".")[:at + 1]) for path in outer]


def label(site: dict[str, Any]) -> str:
    """Placement, norm and branch kinds of a site, and whatever of it is not plain."""
    words = [site["placement"] if site["placement"] != "none" else "no-norm"]
    if site["norm"] and site["placement"] != "none":
        words.append(site["norm"])
    words.append("+".join(branch["kind"] for branch in site["branches"]) or "other")
    if site["parallel"] and len(site["branches"]) < 2:
        words.append("parallel")
    if site["shortcut"] != "identity" and (site["shortcut"], site["placement"]) != ("normed", "post"):    # post-norm means a normed shortcut
        words.append(f"shortcut={site['shortcut']}")
    if site["gain"] is None:
        words.append("gain=varies")
    elif site["gain"] != 1:
        words.append(f"gain={site['gain']:.4g}")
    if site["scale"] == "constant" and site["branch_scale"] is not None:
        words.append(f"scale={site['branch_scale']:.4g}")
    elif site["scale"] != "none":
        words.append(f"scale={site['scale']}")
    return " ".join(words)


def _side(page: _Page, streams: list[dict[str, Any]]) -> None:
    if not streams:
        return
    sites = [site for stream in streams for site in stream["sites"]]
    kinds = sorted({branch["kind"] for site in sites for branch in site["branches"]})
    page.gap()
    page.add(f"side streams  {plural(len(streams), 'stream')} with {plural(len(sites), 'site')} ({', '.join(kinds)})", "    ",
             mark=("side streams", "bold"))


def findings(page: _Page, found: list[dict[str, Any]]) -> None:
    """Findings by severity, then place; one line for what is the same in many repeated blocks."""
    if found:
        page.gap()
    for group in groups(found):
        first = found[group[0]]
        message = _cut(first["message"]) + (f" [{first['severity']}]" if first["severity"] != "error" else "")
        if len(group) > 1:
            message += f" (x{len(group)}: {plain(places([found[i]['where'] for i in group]), LONGEST)})"
        page.add(f"{plain(place(first))}: {first['code']} {first['rule']}: {message}", "    ", mark=(first["code"], first["severity"]))


def _cut(text: str) -> str:
    """A message or note, which may hold line breaks of its own."""
    return plain(text.translate(BLANK), LONGEST)

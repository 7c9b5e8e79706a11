"""Reports for the tests of pages: a plain one, a hostile one, and one that is as large as they come."""

import itertools
import pathlib
from typing import Any

from skipway.checks.records import Finding, Report, RuleText
from skipway.wiring.structure import Branch, Site, Stream, Wiring

SCRIPT = "<script>window.ran = 1</script>"
IMAGE = "<img src=x onerror=window.ran=1>"
QUOTES = "\"'`><svg onload=window.ran=1>"
LINES = "a\nb\r\n\tc\u2028d\x00\x1b[31m"
RIGHT_TO_LEFT = "\u202egnp.exe\u2066\u200f"
LONG = "n" * 10_000
NASTY = (SCRIPT, IMAGE, QUOTES, LINES, RIGHT_TO_LEFT, LONG, "</title></style></script><script>window.ran = 1</script>", "{{ 7 * 7 }}{% raw %}",
         "javascript:window.ran=1", "=HYPERLINK(1)", "&lt;&amp;&#60;script&#62;", "\ud800")

SOURCE = '''\
import torch.nn as nn


class Block(nn.Module):
    """</pre><script>window.ran = 1</script>"""

    def forward(self, x):
        y = self.norm1(x)
        x = y + self.attn(y)            # "taken" from <the normed> tensor & kept
        return x + self.mlp(self.norm2(x))
'''
FAULT = 9                   # the line of SOURCE with the fault
HELP = "What it does\n    Reports a join whose shortcut is normed:\n    `n + F(n)`.\nWhat to do\n    Keep the raw stream.\n"


def site(index: int, layer: int, module: str, kind: str, file: str | None, line: int) -> Site:
    return Site(index, layer, module, file, line, "pre", "LayerNorm", (f"{module}.norm{index % 2 + 1}",), "identity", 1.0, "none", 1.0, False, False,
                (Branch(kind, (f"{module}.{'attn' if index % 2 == 0 else 'mlp'}",)),))


def stack(depth: int, file: str | None, path: str = "net.layers") -> tuple[Site, ...]:
    return tuple(site(2 * n + p, n, f"{path}.{n}", ("self_attention", "ffn")[p], file, FAULT + p) for n in range(depth) for p in range(2))


def fault(where: str, file: str | None, line: int | None = FAULT, severity: str = "error", message: str = "") -> Finding:
    message = message or f"`{where}` adds the output of a norm; keep the raw stream"
    return Finding("SKW201", "normed-skip", severity, where, message, file, line)


def report(sites: tuple[Site, ...], findings: tuple[Finding, ...], **other: Any) -> dict[str, Any]:
    wiring = Wiring((Stream("net", True, 1, "net.embed", "net.norm", sites),) if sites else (), "Net", 8_030_261_248, "abstract", ("one note",))
    rules = {"SKW101": RuleText("missing-skip", "error", "graph", "a sublayer stands on the stream itself"),
             "SKW201": RuleText("normed-skip", "error", "graph", "the shortcut is normed", HELP)}
    return Report(findings, wiring, target="net.py:Net", rules_run=("SKW101", "SKW201"), rules=rules, **other).to_dict()


def written(folder: pathlib.Path) -> str:
    """A file of the user's own, and its path."""
    path = folder / "net.py"
    path.write_text(SOURCE, encoding="utf-8")
    return str(path)


def plain(folder: pathlib.Path, depth: int = 4) -> dict[str, Any]:
    """Faults in all blocks but the first, a note, and a warning about no line."""
    file = written(folder)
    found = [fault(f"net.layers.{n}.attn", file) for n in range(1, depth)]
    return report(stack(depth, file), (*found, fault("net.layers.0.mlp", file, FAULT + 1, "note", "a note"),
                                       fault("net.head", None, None, "warning", "about no line")))


def clean() -> dict[str, Any]:
    return report(stack(3, None), ())


def hostile(folder: pathlib.Path) -> dict[str, Any]:
    """Every text of the report is somebody's bad joke."""
    sites = tuple(Site(n, n, nasty, f"{nasty}.py", 3, "pre", "LayerNorm", (f"{nasty}.norm",), "identity", 1.0, "none", 1.0, False, False,
                       (Branch("ffn", (f"{nasty}.{other}",)),)) for n, (nasty, other) in enumerate(zip(NASTY, NASTY[1:] + NASTY[:1])))
    own = written(folder)
    findings = tuple(Finding("SKW201", "normed-skip", ("error", "warning", "note")[n % 3], nasty, f"{nasty} `{nasty}` {nasty}", f"{nasty}.py", 3)
                     for n, nasty in enumerate(NASTY))
    odd = tuple(Finding(nasty, nasty, "error", nasty, nasty, own, FAULT) for nasty in NASTY[:3])
    streams = (Stream(SCRIPT, True, 1, IMAGE, QUOTES, sites), Stream(RIGHT_TO_LEFT, False, 1, LONG, LINES, sites[:2]))
    wiring = Wiring(streams, f"{SCRIPT}{RIGHT_TO_LEFT}", 10, IMAGE, NASTY)
    rules = {nasty: RuleText(nasty, nasty, nasty, nasty, f"{nasty.splitlines()[0]}\n    {nasty.splitlines()[0]}") for nasty in NASTY}
    return Report((*findings, *odd), wiring, stage=QUOTES, target=f"{IMAGE}{LONG}{LINES}", rules_run=NASTY, rules=rules, fail_on=SCRIPT).to_dict()


def largest(folder: pathlib.Path, depth: int = 126, kinds: int = 400) -> dict[str, Any]:
    """Hundreds of findings that are not alike, on a deep model with long names, some of 10,000 characters."""
    file = written(folder)
    path = "model_with_a_long_name.decoder.transformer_layers"
    messages = [f"`{path}.{n}` fault {'abcdefghij'[n % 10]}{'<&>' * (n % 40)} {'w' * n}; do this" for n in range(kinds)]
    found = [fault(f"{path}.{n % depth}.attn", file, message=message) for n, message in enumerate(messages)]
    return report(stack(depth, file, path), (*found, *(fault(f"{LONG}.{n}", file, n % 9 + 1, message=f"{LONG} {'x' * n}") for n in range(100))))


def quotes(folder: pathlib.Path, number: int = 150) -> dict[str, Any]:
    """The widest there is: every character of every text is written with five, in the source too."""
    path = folder / "quotes.py"
    path.write_text("\n".join(['"' * 400] * 20), encoding="utf-8")
    wide, letters = '"' * 1700, ["".join(letter) for letter in itertools.product("abcdefgh", repeat=4)][:number]
    found = tuple(Finding(f"{name}{wide}", wide, "error", f"{name}{wide}", f"{name}{wide}", str(path), n % 20 + 1) for n, name in enumerate(letters))
    sites = tuple(Site(n, n, wide, wide, 3, wide, wide, (wide,), wide, 1.0, wide, 1.0, True, True, (Branch(wide, (wide,)),)) for n in range(number))
    streams = tuple(Stream(wide, True, 1, wide, wide, sites[:20]) for _ in range(6))
    rules = {f.code: RuleText(wide, wide, wide, wide, f"{wide}\n    {wide}\n" * 20) for f in found}
    return Report(found, Wiring(streams, wide, 1, wide, (wide,) * 200), stage=wide, target=wide, rules_run=tuple(rules), rules=rules).to_dict()

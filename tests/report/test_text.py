"""The text report against reports built by hand."""

import json
import re
from dataclasses import replace

import pytest

from skipway._errors import UsageError
from skipway.checks.records import Finding, Report
from skipway.report import formats, render
from skipway.report._paths import common, fold, pattern, ranges
from skipway.report.text import count, render_findings
from skipway.wiring.structure import Branch, Site, Stream, Wiring


def site(index: int, layer: int, module: str, kind: str = "ffn", **other: object) -> Site:
    plain = Site(index, layer, module, "model.py", 7, "pre", "LayerNorm", (f"{module}.norm",), "identity", 1.0, "none", 1.0, False, False,
                 tuple(Branch(k, ()) for k in kind.split("+")))
    return replace(plain, **other)  # type: ignore[arg-type]


def block(number: int, **other: object) -> tuple[Site, Site]:
    return (site(2 * number, number, f"net.layers.{number}", "self_attention", **other),
            site(2 * number + 1, number, f"net.layers.{number}", "ffn", **other))


def report(*sites: Site, findings: tuple[Finding, ...] = (), **other: object) -> Report:
    streams = (Stream("net", True, 1, "net.embed", "net.norm", sites),) if sites else ()
    wiring = Wiring(streams, "Net", 8_030_261_248, "abstract")
    return Report(findings, replace(wiring, **other), target="hf:net", rules_run=("SKW101", "SKW102"))  # type: ignore[arg-type]


GOLDEN = """\
Net  8.03 B parameters  abstract (no numbers were computed)  [hf:net]

stream net  6 sites  stem net.embed  final norm net.norm
  x3    net.layers.{0-2}  ⊕ pre LayerNorm self_attention  ⊕ pre LayerNorm ffn

model.py:12: SKW101 missing-skip: net.layers.1.mlp: no skip around it; add x +
    (x2: net.layers.{1-2}.mlp)
net.head: SKW205 double-norm: a norm follows a norm [note]

note: the forward needs data

2 errors, 1 note; 6 sites on 1 stream; 2 rules ran (stage graph)
"""


def golden_report() -> Report:
    miss = [Finding("SKW101", "missing-skip", "error", f"net.layers.{n}.mlp", f"net.layers.{n}.mlp: no skip around it; add x +", "model.py", 12)
            for n in (2, 1)]
    norm = Finding("SKW205", "double-norm", "note", "net.head", "a norm follows a norm")
    return report(*block(0), *block(1), *block(2), findings=(norm, *miss), notes=("the forward needs data",))


def test_golden() -> None:
    assert render(golden_report().to_dict(), width=82) == GOLDEN


def test_it_can_be_rendered_again_from_its_json() -> None:
    whole = golden_report().to_dict()
    again = json.loads(render(whole, "json"))
    assert again == json.loads(json.dumps(whole)) and render(again) == render(whole)


def test_colour_changes_no_character() -> None:
    whole = golden_report().to_dict()
    coloured = render(whole, color=True)
    assert "\x1b[31mSKW101\x1b[0m" in coloured and "\x1b[36mSKW205\x1b[0m" in coloured
    assert re.sub(r"\x1b\[\d+m", "", coloured) == render(whole) and "\x1b" not in render(whole)


@pytest.mark.parametrize("width", [60, 100])
def test_every_line_fits(width: int) -> None:
    long = "a" * 30 + "." + "b" * 90
    found = Finding("SKW101", "missing-skip", "error", long, "word " * 60, "/" + "folder/" * 30 + "file.py", 3)
    odd = {"shortcut": "projection", "gain": 2.0, "scale": "input_dependent"}
    many = [site(i, i, f"{long}.{i}", "self_attention+cross_attention+ffn", **odd) for i in range(3)]
    text = render(report(*many, findings=(found,), notes=("x" * 250, "note " * 50)).to_dict(), width=width)
    assert max(len(line) for line in text.splitlines()) <= width
    assert "word word" in text and "gain=2" in text and "\N{NO-BREAK SPACE}" not in text


@pytest.mark.parametrize(("other", "shown"), [
    ({}, "⊕ pre LayerNorm ffn"),
    ({"placement": "none", "norm": None}, "⊕ no-norm ffn"),
    ({"gain": 2.0}, "⊕ pre LayerNorm ffn gain=2"),
    ({"gain": None}, "⊕ pre LayerNorm ffn gain=varies"),
    ({"scale": "constant", "branch_scale": 0.5}, "⊕ pre LayerNorm ffn scale=0.5"),
    ({"scale": "vector"}, "⊕ pre LayerNorm ffn scale=vector"),
    ({"shortcut": "projection"}, "⊕ pre LayerNorm ffn shortcut=projection"),
    ({"shortcut": "normed"}, "⊕ pre LayerNorm ffn shortcut=normed"),
    ({"shortcut": "normed", "placement": "post"}, "⊕ post LayerNorm ffn"),
    ({"parallel": True}, "⊕ pre LayerNorm ffn parallel"),
    ({"parallel": True, "branches": (Branch("self_attention", ()), Branch("ffn", ()))}, "⊕ pre LayerNorm self_attention+ffn"),
])
def test_marks(other: dict[str, object], shown: str) -> None:
    lines = render(report(site(0, 0, "block", **other)).to_dict()).splitlines()
    assert lines[3] == f"  x1    block  {shown}"


def test_unlike_blocks_stand_on_lines_of_their_own() -> None:
    sites = [s for n in range(6) for s in block(n, gain=1.0 if n % 2 else 2.0)]
    lines = render(report(*sites).to_dict()).splitlines()
    assert lines[3].startswith("  x3    net.layers.{0,2,4}") and lines[4].startswith("  x3    net.layers.{1,3,5}")


def test_parts_of_one_block_stand_on_one_line() -> None:
    sites = [site(2 * n + p, 2 * n + p, f"block.{n}.layer.{p}", kind) for n in range(3) for p, kind in enumerate(("self_attention", "ffn"))]
    lines = render(report(*sites).to_dict()).splitlines()
    assert lines[3] == "  x3    block.{0-2}  ⊕ pre LayerNorm self_attention  ⊕ pre LayerNorm ffn"


def test_one_module_used_many_times() -> None:
    lines = render(report(*(site(n, n, "layers.0") for n in range(4))).to_dict()).splitlines()
    assert lines[3] == "  x4    layers.0 (one module)  ⊕ pre LayerNorm ffn"


def test_side_streams_and_lanes() -> None:
    main = Stream("net", True, 4, "embed", None, (site(0, 0, "a"),))
    side = tuple(Stream(f"side {n}", False, 1, "", None, (site(0, 0, "b", "ssm"), site(1, 0, "b", "other"))) for n in range(3))
    text = render(report(streams=(main, *side)).to_dict())
    assert "stream net  4 lanes  1 site  stem embed  final norm none" in text
    assert "side streams  3 streams with 6 sites (other, ssm)" in text
    assert text.endswith("no findings; 1 site on 1 stream; 2 rules ran (stage graph)\n")


def test_no_stream() -> None:
    text = render(report(notes=("no residual stream was found",)).to_dict())
    assert "note: no residual stream was found" in text and "0 sites on 0 streams" in text


def test_findings_alone() -> None:
    assert render_findings(report().to_dict()) == ""
    assert render_findings(golden_report().to_dict()).startswith("model.py:12: SKW101 missing-skip: ")


def test_severity_then_place() -> None:
    found = tuple(Finding("SKW102", "self-add", severity, where, f"at {where}") for severity, where in
                  [("note", "a.1"), ("error", "a.10.x"), ("warning", "b"), ("error", "a.9.y")])
    lines = render_findings(report(findings=found).to_dict()).splitlines()
    assert [line.split(":")[0] for line in lines] == ["a.9.y", "a.10.x", "b", "a.1"]


@pytest.mark.parametrize(("number", "text"), [(0, "0"), (999, "999"), (1500, "1.5 K"), (25_557_032, "25.6 M"), (8_030_261_248, "8.03 B"),
                                              (405_853_388_800, "406 B"), (2 * 10**12, "2 T")])
def test_count(number: int, text: str) -> None:
    assert count(number) == text


def test_paths() -> None:
    assert common(["a.b.c", "a.b.d"]) == "a.b" and common(["a"]) == "a" and common(["a", "b"]) == ""
    assert ranges([0, 1, 2, 5]) == "0-2,5" and ranges([0, 2, 4, 6]) == "0,2,...,6" and ranges([3]) == "3" and ranges([0, 2]) == "0,2"
    assert pattern(["l.0.x", "l.1.x", "l.3.x"]) == "l.{0-1,3}.x" and pattern(["a", "b"]) == "a, b" and pattern([""]) == "(model)"
    assert fold(["l.0", "m.0", "l.1", "l.x"]) == [[0, 2], [1], [3]]


def test_formats() -> None:
    assert {"json", "text"} <= set(formats())
    with pytest.raises(UsageError, match="got 'xml', want one of"):
        render(report().to_dict(), "xml")

"""The HTML report without a browser: what it says, that every text in it is escaped, that it asks for nothing, and how large it is."""

import base64
import copy
import hashlib
import html.parser
import itertools
import json
import linecache
import pathlib
import re
import subprocess
import sys
from typing import Any

import pytest
from typer.testing import CliRunner

from skipway.cli import app
from skipway.report import _page as shell
from skipway.report import formats, render
from skipway.report import html as page_module
from skipway.report._page import page, policy, prose
from skipway.report._page.source import LARGEST, Excerpt, Sources

from . import samples

VOID = {"meta", "input", "br", "hr", "img", "link", "path", "circle", "line", "rect", "use", "polyline", "polygon", "ellipse"}
PAINT = {"fill", "stroke", "filter", "mask", "clip-path", "marker-end", "marker-mid", "marker-start"}
LOADS = {"script", "style", "img", "link", "iframe", "object", "embed", "base", "form", "video", "audio", "source", "track", "image", "foreignobject",
         "animate", "set"}


class Tree(html.parser.HTMLParser):
    """Elements, attributes and text of a page; faults where an element is not closed, or closed where it was not open."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.faults: list[str] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(text)
        self.close()
        self.faults += [f"<{tag}> is never closed" for tag in self.open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        self.faults += [f"<{tag}> has {name} twice" for name in set(names) if names.count(name) > 1]
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID:
            return
        if not self.open or self.open[-1] != tag:
            self.faults.append(f"</{tag}> at {self.getpos()} closes {self.open[-1:]}")
        else:
            self.open.pop()

    def handle_data(self, data: str) -> None:
        for tag in set(self.open[-3:]):
            self.texts.setdefault(tag, []).append(data)

    def text(self, tag: str) -> str:
        return "".join(self.texts.get(tag, ()))

    def of(self, tag: str, **wanted: str) -> list[dict[str, str]]:
        return [attrs for name, attrs in self.elements if name == tag and all(attrs.get(k) == v for k, v in wanted.items())]


def requests(text: str) -> list[str]:
    """Everything in the page that could make a browser ask for something, run something else, or take a style of its own."""
    tree = Tree(text)
    out = [f"<{tag}>" for tag, _ in tree.elements if tag in LOADS - {"script", "style"}]
    for tag, attrs in tree.elements:
        for name, value in attrs.items():
            if name.startswith("on") or name in ("style", "src", "srcset", "srcdoc", "action", "formaction", "data", "background", "ping", "poster"):
                out.append(f"<{tag} {name}>")
            elif ((name in ("href", "xlink:href") and not re.fullmatch(r"#[a-z0-9-]+", value))
                  or ("url(" in value and "url(#" not in value and name in PAINT)
                  or (tag == "meta" and name == "http-equiv" and value != "Content-Security-Policy")):
                out.append(f"<{tag} {name}={value[:40]}>")
    out += [f"{len(tree.of(tag))} <{tag}>" for tag in ("script", "style") if len(tree.of(tag)) != 1]
    sheet, script = tree.text("style"), tree.text("script")
    out += [found for found in ("@import", "url(", "@font-face") if found in sheet]
    out += [found for found in ("fetch(", "XMLHttpRequest", "import(", "WebSocket", "EventSource", "sendBeacon", "eval(", "innerHTML", "new Function",
                                "insertAdjacentHTML", "document.write", "outerHTML") if found in script]
    bare = text.replace('xmlns="http://www.w3.org/2000/svg"', "")
    return out + re.findall(r"(?i)\b(?:https?|ftp|wss?|blob|data):(?=[/a-z])[^\s<]{0,40}", bare)


def hashes(text: str) -> tuple[set[str], set[str]]:
    """The hashes that the page's policy names, and those of its style and script."""
    named = set(re.findall(r"sha256-[A-Za-z0-9+/=]+", csp(text)))
    real = {"sha256-" + base64.b64encode(hashlib.sha256(t.encode()).digest()).decode()
            for t in re.findall(r"<(?:style|script)>(.*?)</(?:style|script)>", text, re.S)}
    return named, real


def csp(text: str) -> str:
    found = [attrs["content"] for attrs in Tree(text).of("meta") if attrs.get("http-equiv") == "Content-Security-Policy"]
    assert len(found) == 1
    return found[0]


@pytest.fixture(params=["plain", "clean", "hostile", "largest", "quotes", "none"])
def any_report(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> dict[str, Any]:
    if request.param in ("clean", "none"):
        return samples.clean() if request.param == "clean" else samples.report((), ())
    found: dict[str, Any] = getattr(samples, request.param)(tmp_path)
    return found


def test_it_is_a_format_that_is_found_by_its_name(tmp_path: pathlib.Path) -> None:
    assert "html" in formats()
    text = render(samples.plain(tmp_path), "html")
    assert text.startswith("<!doctype html>\n<html lang=\"en\">") and text.endswith("</html>\n")


def test_every_page_is_well_formed_asks_for_nothing_and_is_small(any_report: dict[str, Any]) -> None:
    text = render(any_report, "html")
    tree = Tree(text)
    assert tree.faults == [] and requests(text) == []
    ids = [attrs["id"] for _, attrs in tree.elements if "id" in attrs]
    assert len(ids) == len(set(ids)) and all(re.fullmatch(r"[a-z][a-z0-9-]*", i) for i in ids)
    links = {attrs["href"][1:] for _, attrs in tree.elements if "href" in attrs}
    assert links <= set(ids), "every link has a place to go"
    labels = {i for _, attrs in tree.elements for i in attrs.get("aria-labelledby", "").split()}
    assert labels <= set(ids)
    named, real = hashes(text)
    assert named == real and len(real) == 2
    assert len(text.encode()) < 1_000_000
    assert csp(text).startswith("default-src 'none'; style-src 'sha256-") and "unsafe" not in csp(text)


def test_it_is_equal_for_equal_reports(tmp_path: pathlib.Path) -> None:
    for report in (samples.plain(tmp_path), samples.hostile(tmp_path), samples.clean()):
        assert render(report, "html") == render(json.loads(json.dumps(report)), "html", color=True, width=60)


def test_what_it_says(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    report = samples.plain(tmp_path)
    text = render({**report, "suppressed": 3}, "html")
    tree = Tree(text)
    assert "<title>Net: 3 errors, 1 warning, 1 note - skipway</title>\n<style>" in text
    assert tree.text("h1") == "Net" and "3 suppressed" in text and "one note" in text
    for shown in ("net.py:Net", "8.03 B", "8,030,261,248", "from shapes", "no numbers were computed", "stage graph", "on 1 stream"):
        assert shown in text, shown
    cards = tree.of("article")
    assert [c["class"] for c in cards] == ["card error", "card warning", "card note"]
    assert cards[0]["data-of"] == "0 1 2" and "&times;3" in text and "net.layers.{1-3}.attn" in text
    assert tree.text("h3") == "error SKW201 normed-skipwarning SKW201 normed-skipnote SKW201 normed-skip"
    assert tree.text("dt").endswith("What it doesWhat to do") and "Keep the raw stream." in tree.text("dd")
    assert text.count(">About SKW201 normed-skip<") == 1, "a rule is explained on its first card; the others lead there"
    assert len([a for a in tree.of("a") if a["href"] == "#finding-1"]) >= 2
    assert "<code>SKW101</code>" in text and "a sublayer stands on the stream itself" in text


def test_a_rule_that_the_record_does_not_explain_has_a_hint(tmp_path: pathlib.Path) -> None:
    old = {k: v for k, v in samples.plain(tmp_path).items() if k not in ("rules", "fail_on")}
    text = render(old, "html")
    assert "<code>skipway explain SKW201</code>" in text and Tree(text).faults == []


def test_no_findings_and_no_stream() -> None:
    fine = render(samples.clean(), "html")
    assert 'class="verdict fine"' in fine and "<strong>No findings</strong>" in fine and "<article" not in fine
    empty = render(samples.report((), ()), "html")
    assert 'class="verdict note"' in empty and "no residual stream was found" in empty and "There is no stream to draw." in empty
    assert "<table" not in empty


def test_source_of_the_users_own_file(tmp_path: pathlib.Path) -> None:
    text = render(samples.plain(tmp_path), "html")
    marked = re.findall(r'<mark data-n="(\d+)">(.*?)</mark>', text, re.S)
    assert [n for n, _ in marked] == ["9", "10"]
    assert re.sub(r"<[^>]*>", "", marked[0][1]) == \
        "    x = y + self.attn(y)            # &#34;taken&#34; from &lt;the normed&gt; tensor &amp; kept\n"
    assert '<i class="m"># &#34;taken&#34; from &lt;the normed&gt; tensor &amp; kept</i>' in marked[0][1]
    assert "No source line is known for this place." in text
    report = samples.plain(tmp_path)
    (tmp_path / "net.py").unlink()
    gone = render(report, "html")
    assert "<mark" not in gone and gone.count("The source is not here: there is no such file on this machine.") == 2


def test_the_table_of_sites(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    report = samples.plain(tmp_path)
    text = render(report, "html")
    head = re.findall(r'data-key="(\w+)" aria-sort="(\w+)"', text)
    assert head[0] == ("site", "ascending") and {s for _, s in head[1:]} == {"none"}
    assert [k for k, _ in head] == ["site", "layer", "module", "branch", "computed_by", "placement", "norm", "shortcut", "gain", "findings", "source"]
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr(?: class=\"\w+\")?><td.*?</tr>", text)]
    assert len(rows) == 8 and rows[2] == ["2", "1", "net.layers.1", "self_attention", "attn", "pre", "LayerNorm", "identity", "1",
                                          '<a href="#finding-1">SKW201</a>', "net.py:9"]
    assert rows[4][-2] == rows[2][-2] and rows[3][-2] == ""
    classes = re.findall(r"<tr(?: class=\"(\w+)\")?><td", text)
    assert classes == ["", "note", "error", "", "error", "", "error", ""]
    odd = copy.deepcopy(report)
    first, second = odd["wiring"]["streams"][0]["sites"][:2]
    first.update(gain=None, scale="constant", branch_scale=0.5, parallel=True, in_place=True, norm=None, placement="none")
    second.update(gain=2.0, scale="vector", branch_scale=None, file=None, line=None)
    text = render(odd, "html")
    for cell in ("varies", "0.5", "parallel, in place", "vector"):
        assert f">{cell}</td>" in text, cell


def test_a_table_past_its_length_says_so() -> None:
    text = render(samples.report(samples.stack(700, None), ()), "html")
    assert text.count("<tr><td") == 1200 and "200 more sites are not in this table" in text
    text = render(samples.report(samples.stack(600, None), ()), "html")
    assert text.count("<tr><td") == 1200 and "more sites are not" not in text


def test_findings_past_their_number_say_so(tmp_path: pathlib.Path) -> None:
    letters = ["".join(letter) for letter in itertools.product("abcdefgh", repeat=4)][:1003]
    file = samples.written(tmp_path)
    found = tuple(samples.fault(name, file, message=name) for name in letters)
    text = render(samples.report(samples.stack(2, None), found), "html")
    assert (text.count("<article"), text.count("<mark"), text.count("<li id=\"finding-")) == (300, 250, 700)
    assert "3 more findings are not on this page" in text and "The source is quoted for the first 250 findings only." in text
    assert len(text.encode()) < 1_000_000


# Texts that may stand in the page only escaped: each would be a tag, an attribute or a control character.
FORBIDDEN = ("<script>window", "<img", "<svg onload", "onerror=window.ran=1>", "\u202e", "\u2066", "\u200f", "\u2028", "\x00", "\x1b", "\ud800", "\r",
             "{{", "49{", "n" * 1600)


def test_hostile_names_are_text(tmp_path: pathlib.Path) -> None:
    text = render(samples.hostile(tmp_path), "html")
    assert [f for f in FORBIDDEN if f in text and f != "{{"] == []
    tree = Tree(text)
    assert tree.faults == [] and requests(text) == []
    assert "&lt;script&gt;window.ran = 1&lt;/script&gt;" in text and "U+202Egnp.exe" in text and "{{ 7 * 7 }}" in text
    text.encode("utf-8")


FIELDS = [("target",), ("stage",), ("fail_on",), ("wiring", "model"), ("wiring", "how"), ("wiring", "notes", 0), ("wiring", "streams", 0, "name"),
          ("wiring", "streams", 0, "stem"), ("wiring", "streams", 0, "final_norm"), ("findings", 0, "code"), ("findings", 0, "rule"),
          ("findings", 0, "where"), ("findings", 0, "message"), ("findings", 0, "file"), ("rules_run", 0),
          ("rules", "SKW201", "rule"), ("rules", "SKW201", "summary"), ("rules", "SKW201", "help"),
          *(("wiring", "streams", 0, "sites", 0, name) for name in ("module", "file", "placement", "norm", "shortcut", "scale")),
          ("wiring", "streams", 0, "sites", 0, "norm_modules", 0), ("wiring", "streams", 0, "sites", 0, "branches", 0, "kind"),
          ("wiring", "streams", 0, "sites", 0, "branches", 0, "modules", 0)]


@pytest.mark.parametrize("field", FIELDS, ids=lambda f: ".".join(map(str, f)))
def test_every_field_is_escaped(field: tuple[Any, ...], tmp_path: pathlib.Path) -> None:
    changed = samples.plain(tmp_path)
    for nasty in samples.NASTY:
        at = changed
        for key in field[:-1]:
            at = at[key]
        at[field[-1]] = nasty
        text = render(changed, "html")
        assert [f for f in FORBIDDEN if f in text and f != "{{"] == [], nasty[:30]
        assert Tree(text).faults == [] and requests(text) == [], nasty[:30]


def test_a_planted_fault_is_seen(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = render(samples.plain(tmp_path), "html")
    planted = {
        "<b onclick='x()'>": "<b onclick>", "<img src='x.png'>": "<img>", "<a href='https://example.org'>x</a>": "https://example.org",
        "<p style='color: red'></p>": "<p style>", "<script>1</script>": "2 <script>", "<style>p{}</style>": "2 <style>",
        "<a href='javascript:1'>x</a>": "<a href=javascript:1>", "<link rel=x href='#a'>": "<link>", "<iframe></iframe>": "<iframe>",
    }
    for added, seen in planted.items():
        assert any(seen in one for one in requests(good.replace("</main>", f"{added}</main>"))), added
    assert any("is never closed" in f or "closes" in f for f in Tree(good.replace("</h1>", "", 1)).faults)
    named, real = hashes(good.replace("<script>", "<script>/* one word more */", 1))
    assert named != real


def test_without_escaping_the_tests_above_fail(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = shell._templates.__wrapped__()
    bare.autoescape = False
    monkeypatch.setattr(shell, "_templates", lambda: bare)
    text = render(samples.hostile(tmp_path), "html")
    assert "<script>window" in text and "<img>" in requests(text)


def test_without_plain_text_the_tests_above_fail(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = shell._templates.__wrapped__()
    whole.finalize = lambda value: value
    whole.filters["short"] = whole.filters["prose"] = lambda value, limit=0: value
    monkeypatch.setattr(shell, "_templates", lambda: whole)
    text = page_module._render(samples.hostile(tmp_path), page_module.DETAILS[0], [])
    assert {"\u202e", "\x1b", "n" * 1600} <= {f for f in FORBIDDEN if f in text}


def test_own_files_that_would_end_their_element_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="its own style holds '</style', which would end the element"):
        page("shell.html", extra_css="p::before { content: '</STYLE>' }")


def test_policy_and_prose() -> None:
    assert policy("a", "b") == ("default-src 'none'; style-src 'sha256-ypeBEsobvcr6wjGzmiPcTaeG7/gUfE5yuYB3ha/uSLs='; "
                                "script-src 'sha256-PiPoFgA5WUoziU9lZOGxNIu9egCI1CxKy3PurtWcAJ0='; base-uri 'none'; form-action 'none'")
    assert prose("add `x + f(x)`, not `<b>`") == "add <code>x + f(x)</code>, not <code>&lt;b&gt;</code>"
    assert prose("one ` alone <") == "one ` alone &lt;"
    assert len(prose("w" * 9000)) == 1500 and len(prose("w" * 9000, 20)) == 20


def lines_of(excerpt: Excerpt) -> list[str]:
    return ["".join(text for _, text in line.parts) for line in excerpt.lines]


def test_an_excerpt_has_the_line_its_neighbours_and_its_colours(tmp_path: pathlib.Path) -> None:
    file = samples.written(tmp_path)
    found = Sources().excerpt(file, samples.FAULT)
    assert [line.number for line in found.lines] == [5, 6, 7, 8, 9, 10] and [line.number for line in found.lines if line.marked] == [9]
    assert lines_of(found)[2:4] == ["def forward(self, x):", "    y = self.norm1(x)"], "outer indentation is taken off"
    assert found.lines[2].parts[0] == ("k", "def") and found.lines[0].parts == (("s", '"""</pre><script>window.ran = 1</script>"""'),)
    assert found.lines[-1].parts[0:2] == (("", "    "), ("k", "return"))


@pytest.mark.parametrize(("text", "line", "shown"), [
    ("x = 1\n", 1, ["x = 1"]),
    ("x = 1", 1, ["x = 1"]),
    ("\n\n\nx = 1\n\n\n\n\ny = 2\n", 4, ["x = 1"]),
    ("if x:\n\ty = 1\n\tz = 2\n", 2, ["if x:", "    y = 1", "    z = 2"]),
    ("a = 1\r\nb = 2\rc = 3\n", 3, ["a = 1", "b = 2", "c = 3"]),
    ("a = '\x0c'\x0b\u2028\nb = 2\n", 2, ["a = '\x0c'\x0b\u2028", "b = 2"]),
    ("def f(:\n  '''open\n   x\n", 3, ["def f(:", "  '''open", "   x"]),
    ("    x = (\n  1\n", 1, ["  x = (", "1"]),
    ("y = '" + "a" * 500 + "'\n", 1, ["y = '" + "a" * 235 + "…"]),
])
def test_odd_source(text: str, line: int, shown: list[str], tmp_path: pathlib.Path) -> None:
    path = tmp_path / "odd.py"
    path.write_text(text, encoding="utf-8", newline="")
    assert lines_of(Sources().excerpt(str(path), line)) == shown


def test_what_cannot_be_shown_is_said(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(file: str | None, line: int | None = 1) -> str:
        found = Sources().excerpt(file, line)
        assert found.lines == ()
        return found.missing

    (tmp_path / "secret.txt").write_text("password")
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "short.py").write_text("x = 1\n")
    (tmp_path / "bytes.py").write_bytes(b"x = '\xff'\n")
    (tmp_path / "coding.py").write_bytes(b"# coding: none-such\n")
    (tmp_path / "large.py").write_text("#" * (LARGEST + 1))
    assert missing(None) == missing(str(tmp_path / "short.py"), None) == "No source line is known for this place."
    assert missing(str(tmp_path / "gone.py")) == "The source is not here: there is no such file on this machine."
    assert missing(str(tmp_path / "secret.txt")) == "The source is not shown: this is no file of Python source."
    assert missing(str(tmp_path / "folder.py")) == "The source is not shown: this is no regular file."
    assert missing(str(tmp_path / "large.py")) == "The source is not shown: the file has more than 4 MB."
    assert missing(str(tmp_path / "short.py"), 7) == "The source has changed: line 7 was meant, and the file has 1."
    assert missing(str(tmp_path / "short.py"), 0) == "The source has changed: line 0 was meant, and the file has 1."
    for name in ("bytes.py", "coding.py"):
        assert missing(str(tmp_path / name)) == "The source cannot be read: it is not text in its declared encoding."
    assert missing("a\x00b.py") == "The source cannot be read: it is not text in its declared encoding."
    assert missing("n" * 10_000 + ".py").startswith("The source cannot be read: File name too long")
    assert missing("<string>") == "The source is gone: it was not in a file."


def test_a_cell_of_a_notebook_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("<cell-1>", "/nowhere/ipykernel_1/12.py"):
        monkeypatch.setitem(linecache.cache, name, (10, None, ["x = 1\n", "y = x\n"], name))
        assert lines_of(Sources().excerpt(name, 2)) == ["x = 1", "y = x"]


def test_the_command_line_writes_it(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    target = [f"{pathlib.Path(__file__).parents[1] / 'data' / 'left_out.py'}", "--format", "html"]
    written = CliRunner().invoke(app, ["check", *target, "--output", "report.html"])
    assert (written.exit_code, written.stdout) == (1, "")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "SKW101 missing-skip" in text and "<mark data-n=" in text and Tree(text).faults == [] and requests(text) == []
    assert CliRunner().invoke(app, ["check", *target]).stdout == text


def test_no_torch_is_needed() -> None:
    home = pathlib.Path(page_module.__file__).parents[1]
    code = "import sys; sys.modules['skipway'] = m = type(sys)('skipway'); " \
           f"m.__path__ = [{str(home)!r}]; from skipway.report import html; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "False"

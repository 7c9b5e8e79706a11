"""What a notebook shows: everything is there, nothing of it is markup that came from a model, and it follows light and dark."""

import json
from html.parser import HTMLParser
from typing import Any

import pytest
import torch
from torch import nn

import skipway
from skipway._errors import UsageError
from skipway.lab.records import Record
from skipway.report.drawing import notebook

from . import studies

HOSTILE = "<img src=x onerror=alert(1)>&\"'</style><script>"


class _Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.ffn, self.bare = nn.LayerNorm(8), nn.Linear(8, 8), nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.bare(x + self.ffn(self.norm(x)))


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.given: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.given += [name for name, _ in attrs]


def tags(text: str) -> _Tags:
    found = _Tags()
    found.feed(text)
    return found


@pytest.fixture(scope="module")
def shown() -> dict[str, Any]:
    torch.manual_seed(0)
    x = torch.randn(2, 4, 8)
    model = nn.Sequential(_Block(), _Block())
    table = skipway.probe(model, x, loss=lambda y: y.square().mean())
    return {"wiring": skipway.trace(model, x), "report": skipway.check(model, x), "table": table, "study": Record(studies.small())}


@pytest.mark.parametrize("kind", ["wiring", "report", "table", "study"])
def test_a_fragment_runs_and_loads_nothing(kind: str, shown: dict[str, Any]) -> None:
    text = shown[kind]._repr_html_()
    found = tags(text)
    assert not {"script", "link", "img", "iframe"} & set(found.seen) and not [n for n in found.given if n.startswith("on")]
    assert "@media(prefers-color-scheme:dark)" in text and text.startswith('<div class="skw">')
    assert "http" not in text.replace("http://www.w3.org/", "")


def test_each_says_what_it_is_about(shown: dict[str, Any]) -> None:
    assert "Sequential" in shown["wiring"]._repr_html_() and "2 sites on" in shown["wiring"]._repr_html_()
    report = shown["report"]._repr_html_()
    assert all(f.code in report for f in shown["report"].findings) and "SKW101" in report and "sw-badge" in report
    table = shown["table"]._repr_html_()
    assert "2 sites in numbers" in table and "grad_stream" in table and table.count("<tr>") > 4
    study = shown["study"]._repr_html_()
    assert studies.small()["comparisons"][0]["sentence"][:40] in study and all(a["name"] in study for a in studies.small()["arms"])


def test_a_study_is_still_a_plain_dictionary() -> None:
    assert Record(studies.small()) == studies.small() and json.loads(json.dumps(Record(studies.small()))) == studies.small()


@pytest.mark.parametrize("kind", ["wiring", "report", "table", "study"])
def test_no_text_of_a_model_is_markup(kind: str, shown: dict[str, Any]) -> None:
    data = json.loads(json.dumps(dict(shown[kind]) if kind == "study" else shown[kind].to_dict()))

    def planted(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {k: planted(v, k) for k, v in value.items()}
        if isinstance(value, list):
            return [planted(v, key) for v in value]
        free = {"model", "message", "where", "module", "modules", "notes", "name", "source", "arm", "variant", "sentence", "target", "inputs", "task",
                "file", "stream", "stem", "weights"}
        return HOSTILE if isinstance(value, str) and key in free else value
    clean = tags(notebook(data))
    text = notebook(planted(data))
    found = tags(text)
    assert HOSTILE not in text and "onerror" not in found.given and set(found.seen) <= set(clean.seen) | {"p", "b", "code"} and "&lt;img" in text
    assert text.count("</style>") == 1


def test_two_drawings_of_one_page_share_no_id(shown: dict[str, Any]) -> None:
    import re
    one, two = (set(re.findall(r'\bid="([^"]+)"', shown["wiring"]._repr_html_())) for _ in range(2))
    assert not one & two


def test_a_long_table_says_what_is_left_out(shown: dict[str, Any]) -> None:
    data = shown["table"].to_dict()
    data["rows"] = [{**data["rows"][0], "index": i} for i in range(100)]
    text = notebook(data)
    assert "60 more rows: Table.rows has all" in text


def test_another_dictionary_is_refused() -> None:
    with pytest.raises(UsageError, match=r"got schema 'skipway\.diff"):
        notebook({"schema": "skipway.diff/1"})

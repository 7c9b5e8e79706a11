"""The examples in the docstrings that the API page shows: each runs, and prints what it says, with a small model, its inputs and a loss at hand."""

import contextlib
import doctest
import importlib
import io
import pathlib
import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import skipway
from skipway import models, nn

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "reference" / "api.md"
NAMES = re.findall(r"^::: skipway\.(\S+)$", PAGE.read_text(encoding="utf-8"), re.M)
ILLUSTRATED = ("probe",)         # what they show are numbers of some model: the form is compared
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
SOURCES = sorted((PAGE.parents[2] / "src").rglob("*.py"))
SECTION = re.compile(r"^ *(\w+):\n(?: *\n)* *>>> ", re.M)        # a heading whose text begins with a prompt
CROWDED = re.compile(r"^ +\w+Error: .*\. \w+Error: ", re.M)        # the page has a row for each line under Raises


def member(name: str) -> Any:
    """What a name of the page stands for."""
    *way, last = name.split(".")
    home: Any = skipway
    for part in way:
        home = getattr(home, part) if hasattr(home, part) else importlib.import_module(f"skipway.{'.'.join(way[:way.index(part) + 1])}")
    return getattr(home, last)


def examples() -> Iterator[doctest.DocTest]:
    finder = doctest.DocTestFinder(recurse=False)
    for name in NAMES:
        kind = member(name)
        own = [(name, kind), *((f"{name}.{k}", v) for k, v in vars(kind).items() if isinstance(kind, type) and not k.startswith("_"))] \
            if isinstance(kind, type) else [(name, kind)]
        for called, value in own:
            yield from (t for t in finder.find(value, called, globs={}) if t.examples)


FOUND = list(examples())


def test_the_page_names_what_there_is_and_some_of_it_has_examples() -> None:
    assert len(NAMES) > 25 and len(FOUND) >= 5 and not [n for n in NAMES if not member(n).__doc__]


@pytest.mark.parametrize("test", FOUND, ids=lambda t: t.name)
def test_an_example_runs(test: doctest.DocTest, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    test.globs = given(test.name)
    failed, said = ran(test)
    assert not failed, said


def misnamed(source: str) -> list[str]:
    """Headings over examples that are not the one which the page shows as examples."""
    return [found for found in SECTION.findall(source) if found != "Examples"]


def test_examples_stand_under_the_heading_that_the_page_understands() -> None:
    assert not {p.name: found for p in SOURCES if (found := misnamed(p.read_text(encoding="utf-8")))}


def test_an_error_has_a_line_of_its_own() -> None:
    assert not {p.name: found for p in SOURCES if (found := CROWDED.findall(p.read_text(encoding="utf-8")))}
    assert CROWDED.search("    Raises:\n        TraceError: it fails. UsageError: it is none.\n")


def test_a_misnamed_heading_is_seen() -> None:
    assert misnamed("    Example:\n        >>> 1\n") == ["Example"]
    assert misnamed("    Examples:\n        >>> 1\n    Raises:\n        UsageError\n") == []


class _Faulty(torch.nn.Module):
    """Whose first block has lost the skip of its feed-forward."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList(torch.nn.ModuleDict({
            "norm": torch.nn.LayerNorm(16), "mix": nn.FeedForward(16), "norm2": torch.nn.LayerNorm(16), "ffn": nn.FeedForward(16)}) for _ in range(2))
        self.norm = torch.nn.LayerNorm(16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for number, block in enumerate(self.blocks):
            x = x + block["mix"](block["norm"](x))
            y = block["ffn"](block["norm2"](x))
            x = x + y if number else y
        return self.norm(x)


class Model:
    """Stands for a class of transformers."""

    @staticmethod
    def from_pretrained(folder: str) -> torch.nn.Module:
        torch.manual_seed(0)
        return models.build("gpt2", size="tiny")


def given(name: str) -> dict[str, Any]:
    """What an example takes as given: a model and inputs that fit it."""
    ids = torch.randint(0, 50, (2, 8))
    model: torch.nn.Module = Model.from_pretrained("")
    if name in ("Wiring.replay", "Wiring.decompose"):
        model = nn.Encoder(16, heads=2, blocks=2).eval()
    elif name in ("trace", "probe"):
        model = models.build("gpt2", size="tiny", blocks=1)
    elif name == "rewire":
        model = models.build("gpt2", size="tiny", blocks=12)
    elif name == "check":
        model = _Faulty()
    made = {"skipway": skipway, "torch": torch, "pathlib": pathlib, "nn": nn, "model": model, "ids": ids, "x": torch.randn(2, 8, 16),
            "input_ids": ids, "Model": Model, "folder": ""}
    if name == "reapply":
        made["edit"] = skipway.rewire(model, ids).sites().layer_scale().apply()
    return made


def ran(test: doctest.DocTest) -> tuple[int, str]:
    """Number of failed examples, and what is said of them. An example that shows no result may print."""
    class Checker(doctest.OutputChecker):
        def check_output(self, want: str, got: str, flags: int) -> bool:
            if test.name in ILLUSTRATED:
                want, got = (re.sub(r"\d+\.\d+", "N", text) for text in (want, got))
            return not want or super().check_output(want, got, flags)
    text = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()):
        result = doctest.DocTestRunner(Checker(), optionflags=FLAGS).run(test, out=text.write, clear_globs=False)
    return result.failed, text.getvalue()


def test_a_wrong_example_is_seen() -> None:
    parser = doctest.DocTestParser()
    for source, failed in ((">>> 1 + 1\n2\n", 0), (">>> 1 + 1\n", 0), (">>> 1 + 1\n3\n", 1), (">>> undefined\n", 1)):
        assert ran(parser.get_doctest(source, {}, "planted", None, 0))[0] == failed

"""The lessons run, assert what they say, and show every subject that docs/lessons-coverage.md names; that page covers the list of subjects."""

import ast
import json
import os
import pathlib
import re
import subprocess
import sys
from typing import Any

import pytest
from typer.main import get_command

from skipway.cli import app

ROOT = pathlib.Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "learn"
COVERAGE = ROOT / "docs" / "lessons-coverage.md"
SUBJECTS = ROOT.parent / "shared" / "LESSONS.md"
LESSONS = sorted(FOLDER.glob("[0-9][0-9]-*.py"))
NAMES = [path.stem for path in LESSONS]
ROW = re.compile(r"^\| (\d\.\d\.\d[a-z]?) \| (.+?) \| (.+?) \| (.+?) \| (.+?) \| `(.+)` \|$", re.M)


def rows(text: str) -> list[tuple[str, ...]]:
    """(item, subject, key, lesson, section, assertion)."""
    found = ROW.findall(text)
    assert len(found) == len(re.findall(r"^\| \d", text, re.M)), "a row of the table is not of its form"
    return found


def cells(text: str) -> list[tuple[str, str]]:
    """(what stands behind the marker, source) of each cell."""
    parts = re.split(r"^# %%(.*)$", text, flags=re.M)
    return list(zip((p.strip() for p in parts[1::2]), parts[2::2]))


def section(text: str, heading: str) -> str:
    """The lesson's text from a heading to the next. Raises ValueError where there is none."""
    pieces = re.split(r"^# ##? (.+)$", text, flags=re.M)
    return dict(zip(pieces[1::2], pieces[2::2]))[heading] if heading in pieces[1::2] else _missing(heading)


def _missing(heading: str) -> str:
    raise ValueError(f"no section {heading!r}")


def subjects(text: str) -> dict[str, str]:
    """Item -> its words: sections, points and sentences are counted, the parts of an enumeration have letters."""
    found = {}
    for s, block in enumerate(re.split(r"^## .+$", text, flags=re.M)[1:], 1):
        points = re.split(r"^- ", block, flags=re.M)[1:] or [block]
        for p, point in enumerate(points, 1):
            sentences = re.split(r"(?<=\.)\s+(?=[A-Z`])", " ".join(point.split()))
            for k, sentence in enumerate(sentences, 1):
                parts = _parts(sentence) if s > 2 else [sentence]
                found.update({f"{s}.{p}.{k}" + (chr(97 + i) if len(parts) > 1 else ""): part for i, part in enumerate(parts)})
    return found


def _parts(sentence: str) -> list[str]:
    bare = re.sub(r"\([^)]*\)", "", sentence.partition(":")[2] if re.match(r"[^(]*:", sentence) else sentence)
    parts = [part.strip(" .").removeprefix("and ") for part in re.split(r"[,;]", bare)]
    return [part for part in parts if not part.startswith("where ")]


def test_there_are_fourteen_lessons_in_a_row() -> None:
    assert [name[:2] for name in NAMES] == [f"{k:02}" for k in range(1, 15)]


@pytest.mark.slow
@pytest.mark.parametrize("path", LESSONS, ids=NAMES)
def test_a_lesson_runs_and_its_questions_can_be_answered(path: pathlib.Path) -> None:
    code = ("import json, runpy, sys\nfound = runpy.run_path(sys.argv[1], run_name='__main__')['questions']\n"
            "print('QUESTIONS', json.dumps(found, default=float))")
    done = subprocess.run([sys.executable, "-W", "error::UserWarning", "-c", code, str(path)], capture_output=True, text=True, cwd=FOLDER,
                          env={**os.environ, "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"})
    assert done.returncode == 0, done.stderr[-2000:]
    assert not done.stderr, done.stderr[-2000:]
    _answerable(json.loads(done.stdout.rpartition("QUESTIONS ")[2]))


def _answerable(questions: list[dict[str, Any]]) -> None:
    assert 3 <= len(questions) <= 5
    for q in questions:
        assert q["question"].endswith("?") or q["question"].endswith("...")
        if "choices" in q:
            assert 0 <= q["answer"] < len(q["choices"]) >= 2 and len(set(q["choices"])) == len(q["choices"]), q
        else:
            assert float(q["number"]) == float(q["number"]) and q["tolerance"] >= 0, q


@pytest.mark.parametrize("path", LESSONS, ids=NAMES)
def test_a_lesson_is_whole(path: pathlib.Path) -> None:
    text = path.read_text(encoding="utf-8")
    found = cells(text)
    assert found[0][0] == "[markdown]" and re.match(rf"\n# # {int(path.name[:2])}\. \S", found[0][1])
    assert [marker for marker, _ in found].count('tags=["check"]') == 1 and found[-1][0] == 'tags=["check"]'
    code = [source for marker, source in found if not marker.startswith("[markdown]")]
    last = [ast.parse(source).body[-1:] for source in code]
    assert any(isinstance(node, ast.Expr) and isinstance(node.value, ast.Name) and node.value.id == "fig" for nodes in last for node in nodes)
    assert sum(isinstance(node, ast.Assert) for source in code for node in ast.walk(ast.parse(source))) >= 4


def test_commands_in_the_lessons_are_ones_that_skipway_takes() -> None:
    count = 0
    for path in LESSONS:
        for name, rest in re.findall(r"skipway (check|compare|draw|probe) ([^`\n]*)", path.read_text(encoding="utf-8")):
            known = {o for p in get_command(app).commands[name].params for o in p.opts}     # type: ignore[attr-defined]
            given = set(re.findall(r"--[\w-]+", rest))
            assert given <= known, f"{path.name}: skipway {name} has no {given - known}"
            count += len(given)
    assert count >= 5, count


def test_every_row_of_the_coverage_leads_to_what_it_names() -> None:
    for item, _, _, lesson, heading, assertion in rows(COVERAGE.read_text(encoding="utf-8")):
        assert lesson in NAMES, f"{item}: no lesson {lesson}"
        text = (FOLDER / f"{lesson}.py").read_text(encoding="utf-8")
        assert assertion in section(text, heading), f"{item}: {assertion} is not in {lesson}, {heading}"


def test_a_row_that_leads_nowhere_is_seen() -> None:
    text = (FOLDER / "01-residual-learning.py").read_text(encoding="utf-8")
    with pytest.raises(ValueError, match="no section 'Nowhere'"):
        section(text, "Nowhere")
    assert "assert difference == 0.0" not in section(text, "What skipway sees")
    with pytest.raises(AssertionError, match="not of its form"):
        rows("| 1.1.1 | subject | key | lesson | section |\n")


@pytest.mark.skipif(not SUBJECTS.exists(), reason="the list of subjects is not beside the checkout")
def test_every_subject_is_covered() -> None:
    wanted = subjects(SUBJECTS.read_text(encoding="utf-8"))
    given = rows(COVERAGE.read_text(encoding="utf-8"))
    assert len(wanted) > 40 and list(wanted) == sorted({item for item, *_ in given}), set(wanted) ^ {item for item, *_ in given}
    for item, _, key, *_ in given:
        assert key in wanted[item], f"{item}: {key!r} is not in {wanted[item]!r}"


def test_subjects_are_told_apart() -> None:
    found = subjects("# T\n\n## A\n- One `x`. Two, more.\n  On.\n- Three.\n\n## B\n- Four.\n\n## C\n- Without: five, six. Seven.\n\n## D\n"
                     "Eight (8, a: b), nine; and ten, where it\nends.\n")
    assert found == {"1.1.1": "One `x`.", "1.1.2": "Two, more.", "1.1.3": "On.", "1.2.1": "Three.", "2.1.1": "Four.", "3.1.1a": "five",
                     "3.1.1b": "six", "3.1.2": "Seven", "4.1.1a": "Eight", "4.1.1b": "nine", "4.1.1c": "ten"}

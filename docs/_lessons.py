"""Lessons: docs/learn/NN-name.py in jupytext's percent format, run as notebooks, with their outputs written into a page.

A lesson is markdown cells (`# %% [markdown]`) and code cells (`# %%`). What a cell shows is on the page: printed text, HTML of `_repr_html_`, SVG,
figures of matplotlib (as SVG, in the colours of the page). Tags of a code cell, as in `# %% tags=["hide-input"]`:

    hide-input         the output alone is shown
    hide               the cell runs and shows nothing
    check              a knowledge check: the last line is, or names, a list of questions, see _quiz.py
    raises-exception   the cell fails on purpose, and the error is shown

A figure has a text for those who do not see it: `# %% alt="gradient norm by depth, falling without skips"`; without one, the words in the figure.
"""

import ast
import hashlib
import html
import os
import pathlib
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import _figures
import _quiz
import jupytext
import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "learn"
KEPT = ROOT / "build" / "lessons"           # executed notebooks by the hash of what they depend on
LONGEST = 300                               # seconds that one cell may take
TITLE = re.compile(r"^# # (.+)$", re.M)
ADDRESS = re.compile(r"[\w.]+ (?:object )?at 0x[0-9a-f]{6,}")
_DONE: dict[pathlib.Path, "Lesson"] = {}     # of this process


class LessonError(Exception):
    """A lesson cannot be run or shown; one line says which cell, and what to do."""


@dataclass
class Lesson:
    """A page. parts: text of outputs by the key that stands for it in the markdown."""

    name: str                                       # "01-add"
    title: str
    markdown: str
    parts: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0


def found() -> list[pathlib.Path]:
    """All lessons, in order."""
    return sorted(FOLDER.glob("[0-9][0-9]-*.py"))


def title(path: pathlib.Path) -> str:
    """The first heading of a lesson."""
    text = path.read_text(encoding="utf-8")
    match = TITLE.search(text)
    if match is None:
        raise LessonError(f"{path.name}: no heading; let its first markdown cell start with `# # Title`")
    return match[1].strip()


def run_all(paths: list[pathlib.Path], workers: int, say: Callable[[str], None]) -> list[Lesson]:
    """The lessons, several kernels at a time."""
    def one(path: pathlib.Path) -> Lesson:
        lesson = run(path)
        say(f"{path.name}: {lesson.seconds:.0f} s" if lesson.seconds else f"{path.name}: as it was run before")
        return lesson
    with ThreadPoolExecutor(max(1, workers)) as pool:
        return list(pool.map(one, paths))


def run(path: pathlib.Path) -> Lesson:
    """One lesson, run unless nothing that it depends on has changed since it was. Raises LessonError where a cell fails."""
    if path not in _DONE:
        _DONE[path] = _run(path)
    return _DONE[path]


def _run(path: pathlib.Path) -> Lesson:
    kept = KEPT / f"{path.stem}-{_key(path)}.ipynb"
    if kept.is_file():
        return page(path, nbformat.read(kept, as_version=4))
    book = jupytext.read(path, fmt="py:percent")
    _prepare(book, path)
    seconds = _execute(book, path)
    KEPT.mkdir(parents=True, exist_ok=True)
    for old in KEPT.glob(f"{path.stem}-*.ipynb"):
        old.unlink()
    nbformat.write(book, kept)
    return page(path, book, seconds)


def page(path: pathlib.Path, book: Any, seconds: float = 0.0) -> Lesson:
    """The page of an executed notebook."""
    lesson = Lesson(path.stem, title(path), "", seconds=seconds)
    blocks: list[str] = []
    for number, cell in enumerate(book.cells):
        if cell.metadata.get("site") == "setup":
            continue
        if cell.cell_type == "markdown":
            blocks.append(cell.source)
            continue
        tags = cell.metadata.get("tags", [])
        where = f"{path.name}, cell {number}"
        if "check" in tags:
            blocks.append(_kept(lesson, number, 0, _quiz.render(_questions(cell, where), cell.metadata["shown"], f"q{number}", where)))
            continue
        if "hide" not in tags and "hide-input" not in tags and cell.source.strip():
            blocks.append(f"```python\n{cell.source}\n```")
        if "hide" not in tags:
            blocks += [_kept(lesson, number, i, text) for i, text in enumerate(_outputs(cell, f"c{number}", where)) if text]
    lesson.markdown = "\n\n".join(blocks) + f"\n\n[The lesson as a Python file]({path.name}){{: download }}\n"
    return lesson


def _kept(lesson: Lesson, number: int, index: int, text: str) -> str:
    found = ADDRESS.search(text)
    if found:
        raise LessonError(f"{lesson.name}.py, cell {number}: it shows an address, {found[0]}; end the cell with `_ = ...`")
    key = f"{lesson.name}-{number}-{index}"
    lesson.parts[key] = text
    return f'<div data-output="{key}"></div>'


def _prepare(book: Any, path: pathlib.Path) -> None:
    """The cell that sets up figures, and knowledge checks made to hand over their questions."""
    for number, cell in enumerate(book.cells):
        if cell.cell_type == "code" and "check" in cell.metadata.get("tags", []):
            cell.metadata["shown"] = cell.source
            cell.source = _quiz.handed_over(cell.source, f"{path.name}, cell {number}")
        elif cell.cell_type == "code":
            try:
                ast.parse(re.sub(r"^[%!].*$", "pass", cell.source, flags=re.M))
            except SyntaxError as error:
                raise LessonError(f"{path.name}, cell {number}: line {error.lineno}: {error.msg}") from error
    setup = nbformat.v4.new_code_cell(_figures.SETUP)
    setup.metadata["site"] = "setup"
    book.cells.insert(0, setup)


def _execute(book: Any, path: pathlib.Path) -> float:
    """Runs the notebook in place; the seconds it took."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    client = NotebookClient(book, timeout=LONGEST, kernel_name="python3", resources={"metadata": {"path": str(FOLDER)}}, record_timing=False,
                            extra_arguments=["--Application.log_level=40"])     # loopback sockets are meant; no warning of them
    began = time.perf_counter()
    try:
        client.execute()
    except CellExecutionError as error:
        raise LessonError(f"{path.name}: a cell fails; mend it, or tag it raises-exception where that is meant\n{_bare(str(error))}") from error
    return time.perf_counter() - began


def _outputs(cell: Any, prefix: str, where: str) -> Iterator[str]:
    """HTML of each output of a cell; text that was printed in pieces is one."""
    printed: list[str] = []
    for output in cell.outputs:
        if output.output_type == "stream":
            if output.name == "stdout":
                printed.append(output.text)
            elif output.text.strip():
                raise LessonError(f"{where}: it wrote to stderr: {output.text.strip().splitlines()[-1]}; a page shows no warnings, mend the cause")
            continue
        if printed:
            yield _text("".join(printed))
            printed = []
        yield _rich(output, cell, prefix, where)
    if printed:
        yield _text("".join(printed))


def _rich(output: Any, cell: Any, prefix: str, where: str) -> str:
    if output.output_type == "error":
        if "raises-exception" not in cell.metadata.get("tags", []):
            raise LessonError(f"{where}: {output.ename}: {_bare(output.evalue)}")
        return _text(f"{output.ename}: {_bare(output.evalue)}", "lesson-error")
    data = output.data
    if "text/html" in data:
        return f'<div class="lesson-output" role="region" aria-label="Output" tabindex="0" data-search-exclude>{data["text/html"]}</div>'
    if "image/svg+xml" in data:
        alt = cell.metadata.get("alt") or _figures.words(data["image/svg+xml"])
        if not alt:
            raise LessonError(f'{where}: a figure without a word in it; write what it shows behind the marker: # %% alt="what the figure shows"')
        return f'<figure class="lesson-figure" data-search-exclude>{_figures.inline(data["image/svg+xml"], alt, prefix)}</figure>'
    if "text/markdown" in data:
        import markdown
        return f'<div class="lesson-output">{markdown.markdown(data["text/markdown"], extensions=["tables"])}</div>'
    if "text/plain" in data and not data["text/plain"].startswith("<Figure size"):
        return _text(data["text/plain"])
    return ""


def _questions(cell: Any, where: str) -> Any:
    for output in cell.outputs:
        if output.output_type == "display_data" and _quiz.MIME in output.data:
            return output.data[_quiz.MIME]
    raise LessonError(f"{where}: a check whose last line gave no questions")


def _text(text: str, kind: str = "") -> str:
    return f'<pre class="lesson-text {kind}"><code>{html.escape(_bare(text).rstrip())}</code></pre>'


def _bare(text: str) -> str:
    """Without the terminal's colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def _key(path: pathlib.Path) -> str:
    """Changes with the lesson, with the package, and with what the packages around it are pinned to."""
    digest = hashlib.sha256()
    for file in (path, *sorted(ROOT.glob("docs/_*.py")), *sorted((ROOT / "src").rglob("*.py")), ROOT / "constraints.txt"):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def commit() -> str:
    """The short hash of the checkout's commit, "" outside a checkout."""
    done = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return done.stdout.strip()


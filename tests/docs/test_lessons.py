"""The converter of lessons: outputs, figures, formulas and knowledge checks come onto the page, and what is wrong stops the build with its place."""

import pathlib
import sys
from typing import Any

import pytest

ROOT = pathlib.Path(__file__).parents[2]
for name in ("mkdocs", "jupytext", "nbclient", "latex2mathml"):
    pytest.importorskip(name, reason="the extra docs is not installed")
sys.path.insert(0, str(ROOT / "docs"))

import _figures  # noqa: E402
import _lessons  # noqa: E402
import _maths  # noqa: E402
import _quiz  # noqa: E402
import jupytext  # noqa: E402
import nbformat  # noqa: E402

LESSON = '''# %% [markdown]
# # Trial
#
# A stream $h + F(h)$.
# %%
print("<one>"); print("two")
# %% tags=["hide-input"] alt="a rising line"
import matplotlib.pyplot as plt
plt.plot([1, 2]); plt.show()
# %% tags=["raises-exception"]
1 / 0
# %%
class Rich:
    def _repr_html_(self): return "<b id=rich>rich</b>"
Rich()
# %% tags=["check"]
import torch
questions = [{"question": "How much is $4 \\\\times 2$?", "number": torch.tensor(4.0) * 2, "tolerance": 0},
             {"question": "Which?", "choices": ["pre", "post"], "answer": 1, "why": "So it is."}]
'''


@pytest.fixture
def kept(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.setattr(_lessons, "KEPT", tmp_path / "kept")
    monkeypatch.setattr(_lessons, "FOLDER", tmp_path)
    monkeypatch.setattr(_lessons, "_DONE", {})
    return tmp_path


def written(folder: pathlib.Path, text: str) -> pathlib.Path:
    path = folder / "01-trial.py"
    path.write_text(text)
    return path


@pytest.mark.slow
def test_a_lesson_becomes_a_page_with_what_it_printed(kept: pathlib.Path) -> None:
    lesson = _lessons.run(written(kept, LESSON))
    parts = list(lesson.parts.values())
    assert lesson.title == "Trial" and all(f'data-output="{key}"' in lesson.markdown for key in lesson.parts)
    assert "<code>&lt;one&gt;\ntwo</code>" in parts[0] and 'role="img" aria-label="a rising line"' in parts[1]
    assert "plt.plot" not in lesson.markdown and "ZeroDivisionError: division by zero" in parts[2] and "<b id=rich>rich</b>" in parts[3]
    assert 'data-answer="8.0" data-tolerance="0.0"' in parts[4] and 'data-answer="1"' in parts[4] and "<math" in parts[4] and "So it is." in parts[4]
    assert _figures.INK not in parts[1] and "currentColor" in parts[1]
    assert len(list((kept / "kept").glob("*.ipynb"))) == 1


@pytest.mark.slow
@pytest.mark.parametrize(("text", "part"), [
    ("# %% [markdown]\n# # T\n# %%\nraise ValueError('planted')\n", "planted"),
    ("# %% [markdown]\n# # T\n# %%\nimport sys; print('loud', file=sys.stderr)\n", "wrote to stderr: loud"),
    ("# %% [markdown]\n# # T\n# %% tags=[\"check\"]\n[{'question': 'q', 'choices': ['a'], 'answer': 'b'}]\n", "none of the choices"),
])
def test_a_lesson_that_fails_is_named(text: str, part: str, kept: pathlib.Path) -> None:
    with pytest.raises((_lessons.LessonError, ValueError), match=part) as caught:
        _lessons.run(written(kept, text))
    assert "01-trial.py" in str(caught.value)


@pytest.mark.parametrize(("text", "part"), [
    ("# %%\nx = 1\n", "no heading"),
    ("# %% [markdown]\n# # T\n# %%\ndef f(:\n", "cell 1: line 1"),
    ("# %% [markdown]\n# # T\n# %% tags=[\"check\"]\nfor x in (): pass\n", "a check ends with a list"),
])
def test_a_lesson_that_cannot_run_is_refused_before_it_does(text: str, part: str, kept: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_lessons, "_execute", lambda book, path: 0.0)
    with pytest.raises((_lessons.LessonError, ValueError), match=part):
        _lessons.run(written(kept, text))


def test_an_output_that_shows_an_address_is_refused(tmp_path: pathlib.Path) -> None:
    """It is another one in each build, and tells a reader nothing."""
    path = written(tmp_path, "# %% [markdown]\n# # T\n# %%\nshown\n")
    book = jupytext.read(path, fmt="py:percent")
    cell = book.cells[-1]
    for text, wrong in (("<torch._C.Generator at 0x7f02>", False), ("<torch._C.Generator at 0x7fee27944810>", True), ("0x7fee27944810", False),
                        ("<function f at 0x7fee27944810>", True), ("<a.B object at 0x7fee27944810>", True)):
        cell.outputs = [nbformat.v4.new_output("execute_result", {"text/plain": text})]
        if wrong:
            with pytest.raises(_lessons.LessonError, match=r"01-trial.py, cell 1: it shows an address"):
                _lessons.page(path, book)
        else:
            assert _lessons.page(path, book).parts


def test_a_check_is_a_form_that_the_keyboard_can_fill() -> None:
    made = _quiz.render([{"question": "Q <b>?", "choices": ["a", "b"], "answer": "b"}, {"question": "N", "number": 2.5, "unit": "times"},
                         {"question": "Why?", "answer": "Because."}], "secret < 1", "q", "here")
    assert made.count("<fieldset") == made.count("<legend>") == made.count("<summary>Show the answer") == 3
    assert made.count('type="radio"') == 2 and 'value="1"' in made and 'data-answer="1"' in made
    assert 'inputmode="decimal"' in made and "2.5 times" in made and "secret &lt; 1" in made and made.count('role="status"') == 2


@pytest.mark.parametrize(("questions", "part"), [
    ([], "not empty"), ("text", "want a list"), ([{"question": "q"}], "answer or number"),
    ([{"question": "q", "answer": 1, "odd": 2}], "it may have"), ([{"question": "q", "choices": ["a"], "answer": 3}], "position of none"),
    ([{"question": "q", "choices": ["a"], "answer": "z"}], "none of the choices"),
])
def test_a_question_that_cannot_be_asked_is_refused(questions: Any, part: str) -> None:
    with pytest.raises(ValueError, match=part):
        _quiz.render(questions, "", "q", "here")


def test_formulas_become_mathml() -> None:
    made = _maths.converted('<span class="arithmatex">\\(x &lt; y_i\\)</span><div class="arithmatex">\\[\n\\frac{a}{b}\n\\]</div>')
    assert made.count("<math") == 2 and "arithmatex" not in made and "<mfrac>" in made and 'display="block"' in made


def test_two_figures_of_a_page_share_no_id() -> None:
    svg = '<?xml?>\n<svg width="72pt" height="36pt"><metadata>x</metadata><!-- Loss by step --><!-- 12 --><g id="a" clip-path="url(#b)"/>' \
          '<use xlink:href="#a" style="stroke: #010203"/></svg>'
    one = _figures.inline(svg, 'a "line"', "c1")
    assert 'id="c1-a"' in one and "url(#c1-b)" in one and 'href="#c1-a"' in one and "xlink" not in one and "metadata" not in one
    assert "currentColor" in one and 'aria-label="a &quot;line&quot;"' in one and "max-width: 96px" in one
    assert _figures.words(svg) == "Figure: Loss by step" and _figures.words("<svg><!-- 1.5 --></svg>") == ""

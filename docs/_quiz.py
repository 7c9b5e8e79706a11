"""Knowledge checks of the lessons: questions whose answers the lesson computed, for keyboard, mouse and screen reader, with no server.

A cell tagged `check` ends with a list of dictionaries, as an expression or as `questions = [...]`:

    {"question": "Which placement is this?", "choices": ["pre", "post"], "answer": 0, "why": "The norm stands in the branch."}
    {"question": "How large is the gradient at block 1, compared with block 12?", "number": ratio, "tolerance": 0.05, "unit": "times"}
    {"question": "Why?", "answer": "free text, shown on demand"}

The answer to `choices` is a position, or one of them. A `number` is typed in; `tolerance` (0.01) is a share of it, 0 for exactly, and `unit` stands
behind the box. `why` comes with the answer. Texts are markdown with $maths$. Without script the answer stands in <details>; with it, a button judges
what was chosen.
"""

import ast
import html
from typing import Any

import _maths
import markdown

MIME = "application/vnd.skipway.check+json"
FIELDS = {"question", "choices", "answer", "number", "tolerance", "unit", "why"}


def handed_over(source: str, where: str) -> str:
    """The cell's source, whose last expression goes to the page as JSON. Raises ValueError where it ends with something else."""
    tree = ast.parse(source)
    last = tree.body[-1] if tree.body else None
    if isinstance(last, ast.Expr) or (isinstance(last, ast.Assign) and isinstance(last.targets[0], ast.Name)):
        head = "\n".join(source.splitlines()[:last.lineno - 1])
    else:
        raise ValueError(f"{where}: a check ends with a list of questions, as an expression or as `questions = [...]`")
    return (f"{head}\n__questions__ = {ast.unparse(last.value)}\n"
            "import json as __json__\nfrom IPython.display import display as __display__\n"
            "__plain__ = lambda v: v.item() if hasattr(v, 'item') else v.tolist() if hasattr(v, 'tolist') else str(v)\n"
            f"__display__({{{MIME!r}: __json__.loads(__json__.dumps(__questions__, default=__plain__))}}, raw=True)\n")


def render(questions: Any, source: str, prefix: str, where: str) -> str:
    """The check as a section. Raises ValueError for a question that cannot be asked."""
    if not isinstance(questions, list) or not questions:
        raise ValueError(f"{where}: got {type(questions).__name__}, want a list of questions that is not empty")
    asked = [_question(q, f"{prefix}-{i}", f"{where}, question {i + 1}") for i, q in enumerate(questions)]
    code = (f'<details class="check-source"><summary>How these answers were computed</summary>'
            f'<pre><code>{html.escape(source)}</code></pre></details>')
    return f'<section class="check" aria-label="Knowledge check">{"".join(asked)}{code}</section>'


def _question(q: Any, key: str, where: str) -> str:
    if not isinstance(q, dict) or "question" not in q or not {"answer", "number"} & set(q) or set(q) - FIELDS:
        raise ValueError(f"{where}: got {q!r}, want a dictionary with question and answer or number; it may have {', '.join(sorted(FIELDS))}")
    unit = inline(str(q.get("unit", "")))
    if "choices" in q:
        place = _place(q, where)
        inner = "".join(f'<label><input type="radio" name="{key}" value="{i}"> <span>{inline(str(c))}</span></label>'
                        for i, c in enumerate(q["choices"]))
        shown, data = inline(str(q["choices"][place])), f'data-answer="{place}"'
    elif "number" in q:
        answer = float(q["number"])
        inner = f'<label>Your answer <input type="text" inputmode="decimal" size="10" autocomplete="off" name="{key}"> {unit}</label>'
        shown = f"{answer:.4g} {unit}" if answer != int(answer) else f"{int(answer)} {unit}"
        data = f'data-answer="{answer!r}" data-tolerance="{float(q.get("tolerance", 0.01))!r}"'
    else:
        inner, shown, data = "", inline(str(q["answer"])), ""
    judge = '<button type="button" class="md-button" hidden>Check</button><span role="status"></span>' if inner else ""
    why = f"<p>{inline(q['why'])}</p>" if q.get("why") else ""
    return (f'<fieldset {data}><legend>{inline(str(q["question"]))}</legend>{inner}{judge}'
            f"<details><summary>Show the answer</summary><p><strong>{shown}</strong></p>{why}</details></fieldset>")


def _place(q: dict[str, Any], where: str) -> int:
    """The position of the right choice."""
    answer, choices = q["answer"], q["choices"]
    if isinstance(answer, int) and not isinstance(answer, bool) and answer not in choices:
        if not 0 <= answer < len(choices):
            raise ValueError(f"{where}: answer {answer} is the position of none of {len(choices)} choices")
        return answer
    if answer not in choices:
        raise ValueError(f"{where}: the answer {answer!r} is none of the choices {choices!r}")
    return int(choices.index(answer))


def inline(text: str) -> str:
    """Markdown of one paragraph as HTML without the paragraph, with its maths as MathML."""
    made = markdown.markdown(text, extensions=["pymdownx.arithmatex"], extension_configs={"pymdownx.arithmatex": {"generic": True}})
    return _maths.converted(made.removeprefix("<p>").removesuffix("</p>"))

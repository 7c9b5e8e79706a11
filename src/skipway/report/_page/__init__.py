"""The shell of every HTML page: one file that asks for nothing, with a theme, a verdict and tables that can be sorted, filtered and copied.

A page is a template that extends shell.html and fills its block `content`; parts.html has the macros it may use. `page` fills it in.
"""

import base64
import functools
import hashlib
import importlib.metadata
import re
from collections.abc import Sequence
from importlib import resources
from typing import Any

import jinja2
from markupsafe import Markup, escape

from skipway.report._escape import plain
from skipway.report._groups import near

_PACKAGES = re.compile(r"^.*[/\\](?:site|dist)-packages[/\\]", re.DOTALL)
NAME, TEXT = 120, 1500              # characters shown of a name, and of a sentence; the JSON report has the whole
BASE_STYLES, BASE_SCRIPTS = ("shell.css",), ("theme.js", "tables.js", "places.js")


def page(template: str, *, styles: Sequence[str] = (), scripts: Sequence[str] = (), extra_css: str = "", **values: Any) -> str:
    """The page made of `template`, ending in a newline.

    styles, scripts: names of files beside this one, after those of the shell. extra_css: further style rules that the package itself made.
    values: what the template reads. shell.html wants `heading`, `subject` (or None), `verdict` (a Verdict), `facts` (Facts), `notes`
    (texts) and `sections` (of `(id, title, number or None)`, which are the links at the top).

    Every text that a template prints is made plain and escaped. The Content-Security-Policy lets this page's own style and script
    run, by their hashes, and nothing else load or run.
    """
    css = "\n".join([*(_file(name) for name in (*BASE_STYLES, *styles)), extra_css])
    js = "\n".join(_file(name) for name in (*BASE_SCRIPTS, *scripts))
    for text, end in ((css, "</style"), (js, "</script")):
        if end in text.lower():
            raise ValueError(f"{template}: its own {end[2:]} holds {end!r}, which would end the element; write it in two parts")
    text = _templates().get_template(template).render(values, css=Markup(css), js=Markup(js), policy=policy(css, js), version=version())
    return text.rstrip("\n") + "\n"


def policy(css: str, js: str) -> str:
    """The Content-Security-Policy under which only this style and this script have an effect."""
    return f"default-src 'none'; style-src '{digest(css)}'; script-src '{digest(js)}'; base-uri 'none'; form-action 'none'"


def digest(text: str) -> str:
    """A source of a Content-Security-Policy: "sha256-" and the base64 of the hash of the element's text."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def version() -> str:
    """The version of the installed package."""
    return importlib.metadata.version("skipway")


def prose(text: str, limit: int = TEXT) -> Markup:
    """A message with what stands between backticks as code."""
    parts = plain(text, limit).split("`")
    if len(parts) % 2 == 0:
        return escape("`".join(parts))
    return Markup("").join(Markup("<code>{}</code>").format(part) if number % 2 else escape(part) for number, part in enumerate(parts))


def short(text: str, limit: int = NAME) -> str:
    """A name, or the path of a file, that fits a line or two."""
    return plain(text, limit)


def nearby(file: str) -> str:
    """The path of a file for a reader: from the current folder, or from the folder that packages are installed in."""
    return _PACKAGES.sub("", near(file))


def _printed(value: Any) -> Any:
    return plain(value, TEXT) if isinstance(value, str) and not isinstance(value, Markup) else value


@functools.cache
def _templates() -> jinja2.Environment:
    found = jinja2.Environment(loader=jinja2.FunctionLoader(_file), autoescape=True, undefined=jinja2.StrictUndefined, finalize=_printed,
                               trim_blocks=True, lstrip_blocks=True)
    found.filters.update(prose=prose, short=short)
    return found


@functools.cache
def _file(name: str) -> str:
    return resources.files(__name__).joinpath(name).read_text(encoding="utf-8")

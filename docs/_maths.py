"""Maths as MathML, made when the site is built: a page needs no script and no font for it."""

import html
import re

import latex2mathml.converter

FOUND = re.compile(r'<(span|div) class="arithmatex">(.*?)</\1>', re.S)


def converted(text: str) -> str:
    """HTML whose `arithmatex` elements are MathML. Raises ValueError for a formula that cannot be read."""
    return FOUND.sub(lambda m: _one(html.unescape(m[2]).strip(), m[1] == "div"), text)


def _one(source: str, block: bool) -> str:
    bare = source.removeprefix("\\[" if block else "\\(").removesuffix("\\]" if block else "\\)").strip()
    try:
        made = latex2mathml.converter.convert(bare, display="block" if block else "inline")
    except Exception as error:
        raise ValueError(f"the formula {bare!r} cannot be made MathML: {type(error).__name__}: {error}") from error
    return f'<div class="maths" tabindex="0">{made}</div>' if block else made

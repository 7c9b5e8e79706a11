"""Names and messages of other people's code, made safe to show: in a terminal, in XML or HTML text, and in attributes.

Nothing that comes out moves the cursor, turns the reading direction, breaks a line, closes an element or is too long to read.
"""

import unicodedata

# Categories that show no mark of their own: control, format (bidi marks and zero-width characters), surrogates, private use,
# unassigned, and the separators of lines and paragraphs.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_MARKUP = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"})
_ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"


def plain(text: str, limit: int = 400) -> str:
    r"""`text` on one line, with every character that shows no mark of its own as an escape, cut in the middle at `limit` characters.

    Line breaks and tabs become `\n`, `\r`, `\t`; other hidden characters become `U+202E`. The result has at most `limit` characters.

    >>> plain("a\nb\u202ec")
    'a\\nbU+202Ec'
    >>> plain("layers.0.feed_forward", 11)
    'layer…rward'
    """
    if len(text) > 4 * limit:                       # what is cut away anyway is not looked at
        text = text[:2 * limit] + _ELLIPSIS + text[-2 * limit:]
    elif text.isascii() and text.isprintable():
        return middle(text, limit)
    shown = "".join([_SHORT.get(c) or (f"U+{ord(c):04X}" if unicodedata.category(c) in _HIDDEN else c) for c in text])
    return middle(shown, limit)


def middle(text: str, limit: int) -> str:
    """`text` with its middle left out where it has more than `limit` characters."""
    if len(text) <= limit:
        return text
    if limit < 2:
        return _ELLIPSIS[:limit]
    tail = (limit - 1) // 2
    return text[:limit - 1 - tail] + _ELLIPSIS + text[len(text) - tail:]


def xml(text: str, limit: int = 400) -> str:
    """`plain` text as it stands in XML or HTML, between tags or inside a quoted attribute; `limit` counts the characters shown.

    >>> xml("<script>&'\\"")
    '&lt;script&gt;&amp;&#39;&quot;'
    """
    return plain(text, limit).translate(_MARKUP)

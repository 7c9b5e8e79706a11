"""Excerpts of Python source: the lines around one, with its words coloured, read when the page is made."""

import io
import keyword
import linecache
import os
import stat
import tokenize
from dataclasses import dataclass, field

BEFORE, AFTER = 4, 3
WIDTH = 240                             # characters shown of a line
LARGEST = 4_000_000                     # bytes of a file that is looked at
SUFFIXES = (".py", ".pyw", ".pyi", ".pyx")
STRINGS = {"STRING", "FSTRING_START", "FSTRING_MIDDLE", "FSTRING_END", "TSTRING_START", "TSTRING_MIDDLE", "TSTRING_END"}


@dataclass(frozen=True)
class Line:
    """One line as its parts, each with its kind: "k" a keyword, "s" a string, "m" a comment, "d" a number, "" the rest."""

    number: int
    marked: bool
    parts: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Excerpt:
    """Lines around one line of a file, or why there are none."""

    lines: tuple[Line, ...] = ()
    missing: str = ""                   # a sentence where lines is empty


@dataclass
class Sources:
    """The files that one page quotes; each is read once."""

    texts: dict[str, str | Excerpt] = field(default_factory=dict)
    made: dict[tuple[str, int], Excerpt] = field(default_factory=dict)

    def excerpt(self, file: str | None, line: int | None) -> Excerpt:
        """The lines around `file:line`, outer indentation taken off. Raises nothing: what cannot be shown is said in `missing`."""
        if not file or line is None:
            return Excerpt(missing="No source line is known for this place.")
        if (file, line) not in self.made:
            if file not in self.texts:
                self.texts[file] = _read(file)
            text = self.texts[file]
            self.made[file, line] = _cut(text, line) if isinstance(text, str) else text
        return self.made[file, line]


def _read(file: str) -> str | Excerpt:
    """The text of a file of Python source, or of a notebook's cell that ran in this process."""
    if file.startswith("<"):
        return _cell(file) or Excerpt(missing="The source is gone: it was not in a file.")
    if not file.endswith(SUFFIXES):
        return Excerpt(missing="The source is not shown: this is no file of Python source.")
    try:
        found = os.stat(file)
        if not stat.S_ISREG(found.st_mode):
            return Excerpt(missing="The source is not shown: this is no regular file.")
        if found.st_size > LARGEST:
            return Excerpt(missing=f"The source is not shown: the file has more than {LARGEST // 10**6} MB.")
        with tokenize.open(file) as opened:
            return opened.read()
    except FileNotFoundError:
        return _cell(file) or Excerpt(missing="The source is not here: there is no such file on this machine.")
    except OSError as error:
        return Excerpt(missing=f"The source cannot be read: {error.strerror}.")
    except (SyntaxError, ValueError):       # an unknown or a wrong encoding; a zero byte in the name
        return Excerpt(missing="The source cannot be read: it is not text in its declared encoding.")


def _cell(name: str) -> str:
    """The text that was run under this name without a file; "" where there is none."""
    kept = linecache.cache.get(name)
    return "".join(kept[2]) if kept is not None and len(kept) == 4 and kept[1] is None else ""


def _cut(text: str, line: int) -> Excerpt:
    text = text.expandtabs(4)
    lines = text.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    if not 1 <= line <= len(lines):
        return Excerpt(missing=f"The source has changed: line {line} was meant, and the file has {len(lines)}.")
    first, last = max(1, line - BEFORE), min(len(lines), line + AFTER)
    while first < line and not lines[first - 1].strip():
        first += 1
    while last > line and not lines[last - 1].strip():
        last -= 1
    kinds = _kinds(text, first, last)
    numbers = range(first, last + 1)
    margin = min((len(t) - len(t.lstrip()) for t in (lines[n - 1] for n in numbers) if t.strip()), default=0)
    return Excerpt(tuple(Line(n, n == line, _parts(lines[n - 1], kinds.get(n, []), margin)) for n in numbers))


def _kinds(text: str, first: int, last: int) -> dict[int, list[tuple[int, int, str]]]:
    """For each line from `first` to `last`: (start, end, kind) of what is coloured, as far as the text is Python."""
    out: dict[int, list[tuple[int, int, str]]] = {}
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            (start, left), (end, right) = token.start, token.end
            if start > last:
                break
            kind = _kind(token)
            for row in range(max(start, first), min(end, last) + 1) if kind else ():
                out.setdefault(row, []).append((left if row == start else 0, right if row == end else LARGEST, kind))
    except (tokenize.TokenError, SyntaxError):
        pass                                # unfinished source: only colours are missing
    return out


def _kind(token: tokenize.TokenInfo) -> str:
    name = tokenize.tok_name[token.type]
    if name in STRINGS:
        return "s"
    if name == "NAME":
        return "k" if keyword.iskeyword(token.string) else ""
    return {"COMMENT": "m", "NUMBER": "d"}.get(name, "")


def _parts(line: str, spans: list[tuple[int, int, str]], margin: int) -> tuple[tuple[str, str], ...]:
    parts: list[tuple[str, str]] = []
    at, stop = margin, min(len(line), margin + WIDTH)
    for left, right, kind in sorted(spans):
        left, right = max(left, at), min(right, stop)
        if left < right:
            parts += [("", line[at:left]), (kind, line[left:right])]
            at = right
    parts.append(("", line[at:stop] + ("\N{HORIZONTAL ELLIPSIS}" if stop < len(line) else "")))
    return tuple((kind, text) for kind, text in parts if text)

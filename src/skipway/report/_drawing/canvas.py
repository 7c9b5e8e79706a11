"""Lines of a terminal: characters in columns, coloured afterwards, so that colour never moves anything."""

import unicodedata

from skipway.report._drawing.measure import fit, wide

COLORS = {"error": "31", "warning": "33", "note": "36", "stream": "34", "bold": "1", "quiet": "2"}
# What stands for each mark where only ASCII can be shown; every other character becomes "?".
ASCII = str.maketrans({
    "┃": "|", "║": "H", "┣": "|", "┫": "|", "╠": "H", "╣": "H", "│": "|", "┊": ":", "─": "-", "╌": ".", "╂": "|", "╫": "H", "┼": "+", "⊕": "+",
    "◫": "#", "▣": "#", "◇": "o", "■": "X", "▼": "v", "▶": ">", "◀": "<", "╭": ".", "╮": ".", "╰": "'", "╯": "'", "┬": ".", "├": "|", "┤": "|",
    "×": "x", "…": "~", "┴": "-"})


def columns(text: str) -> int:
    """Columns that a text takes."""
    return sum(0 if unicodedata.category(c) in ("Mn", "Me") else 2 if wide(c) else 1 for c in text)


def cut(text: str, room: int) -> str:
    """The text, made safe, in at most `room` columns; its middle is left out where it is longer."""
    return fit(text, room, columns)


class Line:
    """One line. What is put later stands over what was there."""

    def __init__(self) -> None:
        self.cells: list[tuple[str, str]] = []

    def put(self, at: int, text: str, style: str = "") -> "Line":
        for char in text:
            size = columns(char)
            if not size:
                if self.cells and at:
                    self.cells[at - 1] = (self.cells[at - 1][0] + char, self.cells[at - 1][1])
                continue
            self.cells += [(" ", "")] * (at + size - len(self.cells))
            if not self.cells[at][0] and at:            # no half of a wide character stays behind
                self.cells[at - 1] = (" ", "")
            if at + size < len(self.cells) and not self.cells[at + size][0]:
                self.cells[at + size] = (" ", "")
            self.cells[at] = (char, style)
            if size == 2:
                self.cells[at + 1] = ("", style)
            at += size
        return self

    def get(self, at: int) -> str:
        return self.cells[at][0] if at < len(self.cells) else " "

    def cross(self, first: int, last: int, char: str = "─", style: str = "") -> "Line":
        """A horizontal line from one column to another, both included, that passes over what stands in its way."""
        over = {"┃": "╂", "║": "╫", "│": "┼", "┊": "┼"}
        for at in range(first, last + 1):
            there = self.get(at)
            self.put(at, over.get(there, char), self.cells[at][1] if there in over else style)
        return self

    def text(self, color: bool, ascii_only: bool) -> str:
        out, style, pending = [], "", ""
        for char, want in self.cells:
            if char == " ":                             # blanks are held back, so that no line ends in them
                pending += char
                continue
            if color and want != style:
                out.append(("\x1b[0m" if style else "") + pending + (f"\x1b[{COLORS[want]}m" if want else ""))
                pending, style = "", want
            out.append(pending + (_ascii(char) if ascii_only else char))
            pending = ""
        return "".join(out) + ("\x1b[0m" if style else "")


def _ascii(cell: str) -> str:
    """What a cell shows without other characters; it keeps its width."""
    plain_ = cell.translate(ASCII)
    return plain_ if plain_.isascii() else "?" * columns(cell)

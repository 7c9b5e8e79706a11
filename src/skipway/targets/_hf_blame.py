"""Reads what an error says about arguments and configuration fields: its message, and the lines of the model's own code where it arose."""

import linecache
import re
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any

OURS = __file__.rpartition("targets")[0]
WRAPPERS = ("utils/generic.py", "utils/output_capturing.py", "utils/deprecation.py", "configuration_utils.py", "import_utils.py")
CONDITION = re.compile(r"\s*(if|elif|else|for|while)\b")


@dataclass(frozen=True)
class Place:
    """One frame of the model's own code."""

    line: str                                   # the statement's first line
    above: tuple[str, ...]                      # lines of the function before it, nearest first
    values: dict[str, Any]                      # its local variables


def places(error: BaseException) -> list[Place]:
    """The frames of the model's own code, innermost first, of the first cause that has any."""
    for cause in reversed(list(_chain(error))):
        found = [p for p in _frames(cause.__traceback__) if p is not None]
        if found:
            return found[::-1]
    return []


def message(error: BaseException) -> str:
    """What all errors of the chain say, the first cause first."""
    return " ".join(f"{type(e).__name__}: {e}" for e in reversed(list(_chain(error))))


def cause(error: BaseException) -> BaseException:
    """The first cause."""
    return list(_chain(error))[-1]


def sources(error: BaseException) -> Iterator[str]:
    """Texts that may name what is wrong, the likeliest first: the message, then line by line outwards, with the condition of a `raise`."""
    yield str(cause(error))
    for place in places(error):
        yield place.line
        if place.line.startswith("raise"):
            yield " ".join(_conditions(place.above))


def nearby(error: BaseException) -> str:
    """The few lines above the failing one, where its values come from."""
    return " ".join(places(error)[0].above[:4]) if places(error) else ""


def placeholders(error: BaseException) -> tuple[str, int] | None:
    """("image", 64) where the message says that so many features need placeholders among the words; None otherwise."""
    found = re.search(r"(\w+) features and .*do not match.*features:? (\d+)", str(cause(error)))
    return (found[1].lower(), int(found[2])) if found else None


def sizes(error: BaseException) -> list[int]:
    """Whole numbers in the message, as sizes that something may want."""
    return [int(n) for n in re.findall(r"(?<![\w.])\d{1,6}(?![\w.]*\w)", str(cause(error))) if int(n) > 1]


def lacks_field(error: BaseException) -> bool:
    """True where a configuration has no such field: it is that of another kind of model, or of a whole instead of a part."""
    return re.search(r"'\w*Config' object has no attribute", str(cause(error))) is not None


def dimensions(error: BaseException) -> int | None:
    """The number of dimensions that the message asks for, or None."""
    found = re.search(r"to unpack \(expected (\d)|\b(\d)-?D (?:tensor|input)|(\d)-dimensional", str(cause(error)))
    return int(next(n for n in found.groups() if n)) if found else None


def needs_values(error: BaseException) -> bool:
    """True where the forward asks for numbers of a tensor that has none: the shapes may be right."""
    root = cause(error)
    return isinstance(root, NotImplementedError) or any(text in str(root) for text in ("meta tensor", "'Meta' backend", "unallocated storage"))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: list[BaseException] = []
    while error is not None and not any(error is s for s in seen):
        seen.append(error)
        yield error
        error = error.__cause__


def _frames(trace: TracebackType | None) -> Iterator[Place | None]:
    torch_home = sys.modules["torch"].__path__[0] if "torch" in sys.modules else ""
    outside = (OURS, torch_home, sysconfig.get_paths()["stdlib"] + "/", "<")
    while trace is not None:
        code = trace.tb_frame.f_code
        name = code.co_filename
        library = "site-packages" in name and not name.startswith(torch_home)
        if not name.endswith(WRAPPERS) and (library or not name.startswith(outside)):
            above = [linecache.getline(name, n).rstrip() for n in range(trace.tb_lineno - 1, max(code.co_firstlineno, trace.tb_lineno - 40), -1)]
            line = _statement(name, trace.tb_lineno) if trace.tb_next is None else linecache.getline(name, trace.tb_lineno).strip()
            yield Place(line, tuple(above), trace.tb_frame.f_locals)
        trace = trace.tb_next


def _statement(name: str, number: int) -> str:
    """The lines from the given one on to where its brackets are closed."""
    text = linecache.getline(name, number).strip()
    for further in range(number + 1, number + 10):
        if sum(text.count(c) for c in "([{") <= sum(text.count(c) for c in ")]}"):
            break
        text += " " + linecache.getline(name, further).strip()
    return text


def _conditions(above: tuple[str, ...]) -> list[str]:
    """The nearest lines that decide whether the statement below is reached."""
    found = []
    for line in above[:8]:
        if CONDITION.match(line):
            found.append(line.strip())
        elif found:
            break
    return found

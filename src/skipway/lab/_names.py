"""The one way in which tasks and variants are written: "name", "name:key=value,key=value", "file.py:attribute:key=value"."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from skipway import _registry
from skipway._errors import StudyError


class Named(NamedTuple):
    """A name and its options."""

    name: str                       # of a member, or "file.py:attribute"
    options: dict[str, Any]

    @property
    def file(self) -> bool:
        """Whether it names an object of a Python file."""
        return ":" in self.name

    def __str__(self) -> str:
        said = ",".join(f"{k}={_said(v)}" for k, v in self.options.items())
        return f"{self.name}:{said}" if said else self.name


def parse(text: str, what: str) -> Named:
    """Raises StudyError where the text has another form."""
    parts = text.strip().split(":")
    head = parts[0]
    if head.endswith(".py"):
        if len(parts) < 2 or not parts[1].isidentifier():
            raise StudyError(f"{what} {text!r}: name the object of the file, as in {head}:make")
        head, parts = f"{head}:{parts[1]}", parts[1:]
    if not head or len(parts) > 2:
        raise StudyError(f"{what} {text!r}: want name, name:key=value,key=value or file.py:attribute")
    options = {}
    for piece in parts[1].split(",") if len(parts) == 2 else ():
        key, equals, value = piece.partition("=")
        if not equals or not key.strip().isidentifier() or not value.strip():
            raise StudyError(f"{what} {text!r}: got {piece!r}, want key=value")
        options[key.strip()] = _value(value.strip())
    return Named(head, options)


def split(text: str) -> list[str]:
    """Variants of a list that commas separate; a piece with "=" belongs to the variant before it, as in "pre_norm,hyper:lanes=4,dynamic=false"."""
    found: list[str] = []
    for piece in text.split(","):
        if found and "=" in piece and ":" not in piece.partition("=")[0]:
            found[-1] += f",{piece.strip()}"
        elif piece.strip():
            found.append(piece.strip())
    return found


def _value(text: str) -> Any:
    if text.lower() in ("true", "false", "none"):
        return {"true": True, "false": False, "none": None}[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _said(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)


def near(name: str, known: Sequence[str], what: str) -> StudyError:
    """The error for a name that is not known, with the nearest ones."""
    return StudyError(f"unknown {what} {name!r}; {_registry.hint(name, known)}")

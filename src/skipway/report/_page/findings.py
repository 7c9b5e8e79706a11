"""Findings as the page shows them: one card for what is the same in many repeated blocks, with its source and what its rule says."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from skipway.report._groups import groups, places
from skipway.report._page import nearby
from skipway.report._page.source import Excerpt, Sources
from skipway.report._paths import shown as shown_path


@dataclass(frozen=True)
class Card:
    """One finding, or the same finding in many places."""

    id: str                         # of its element, and the end of every link to it
    severity: str
    code: str
    rule: str
    message: str
    place: str                      # file:line, or the module
    where: str                      # all modules, folded
    positions: tuple[int, ...]      # in the report's findings
    excerpt: Excerpt
    strip: str = ""                 # id of its place in the drawing; "" where it has none
    rule_text: "RuleText | None" = None     # on the first card of a rule
    explained: str = ""             # id of the card that has the rule's text, on the others


@dataclass(frozen=True)
class RuleText:
    """What a rule says of itself."""

    summary: str
    sections: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Shown:
    """All findings: those with cards, those as lines, and how many are in neither."""

    cards: tuple[Card, ...]
    lines: tuple[Card, ...]
    left_out: int


def shown(report: dict[str, Any], strips: Mapping[int, str], cards: int, quoted: int, lines: int) -> Shown:
    """The report's findings, the worst first: so many cards, of which so many quote their source, then so many lines.

    strips: position of a finding -> id of the piece of the drawing that has its badge.
    """
    found, sources = report["findings"], Sources()
    out: list[Card] = []
    explained: dict[str, str] = {}
    everything = groups(found)
    for number, group in enumerate(everything[:cards + lines]):
        first = found[group[0]]
        code, id = first["code"], f"finding-{number + 1}"
        if number >= cards:
            excerpt = Excerpt()
        elif number < quoted:
            excerpt = sources.excerpt(first["file"], first["line"])
        else:
            excerpt = Excerpt(missing=f"The source is quoted for the first {quoted} findings only.")
        text = rule_text(report, code) if code not in explained and number < cards else None
        if text is not None:
            explained[code] = id
        strip = next((strips[p] for p in group if p in strips), "")
        where = places([found[p]["where"] for p in group])
        out.append(Card(id, first["severity"], code, first["rule"], first["message"], _place(first), where, tuple(group), excerpt, strip, text,
                        explained.get(code, "") if text is None else ""))
    return Shown(tuple(out[:cards]), tuple(out[cards:]), sum(len(g) for g in everything[cards + lines:]))


def _place(one: dict[str, Any]) -> str:
    return f"{nearby(one['file'])}:{one['line']}" if one["file"] else shown_path(one["where"])


def rule_text(report: dict[str, Any], code: str) -> RuleText | None:
    """What the record says of a rule, or None where it has no sections of it."""
    said = report.get("rules", {}).get(code, {})
    sections = parts(said.get("help", ""))
    return RuleText(said.get("summary", ""), sections) if sections else None


def parts(text: str) -> tuple[tuple[str, str], ...]:
    """(title, paragraph) of a rule's sections: each a title on a line of its own over indented text."""
    out: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line[:1].strip():
            out.append((line.strip().rstrip(":"), []))
        elif out and line.strip():
            out[-1][1].append(line.strip())
    return tuple((title, " ".join(lines)) for title, lines in out if lines)


def by_position(cards: Sequence[Card]) -> dict[int, Card]:
    """Position in the report's findings -> its card."""
    return {position: card for card in cards for position in card.positions}


@dataclass(frozen=True)
class Flag:
    """A link from the drawing to a card. times: how many of its findings are there; said: what its message begins with."""

    card: Card
    times: int
    said: str


def flags(positions: Sequence[int], cards: Mapping[int, Card]) -> tuple[Flag, ...]:
    """A flag for each card that has some of these findings."""
    times: dict[str, int] = {}
    found: dict[str, Card] = {}
    for card in (cards[p] for p in positions if p in cards):
        found[card.id] = card
        times[card.id] = times.get(card.id, 0) + 1
    return tuple(Flag(card, times[id], beginning(card.message)) for id, card in found.items())


def beginning(message: str, limit: int = 170) -> str:
    """The first statement of a message, cut after a word: what comes after its first semicolon says what to do."""
    first = message[:4 * limit].split("; ")[0]
    if len(first) <= limit:
        return first
    cut = first[:limit].rsplit(" ", 1)[0].rstrip(" ,:(")
    return f"{cut}{'`' if cut.count('`') % 2 else ''}\N{HORIZONTAL ELLIPSIS}"

"""Where in the drawing a finding belongs: at a branch, a norm, a join, a block, a stem or an end, or as a sublayer on the stream itself."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from skipway.report._drawing.facts import Facts
from skipway.report._drawing.parts import Badge
from skipway.report._drawing.standing import RULE as STANDING
from skipway.report._groups import SEVERITIES
from skipway.report._paths import natural, shown, skeleton

UNNORMED = "missing-final-norm"     # the rule that speaks of the end of a stream


@dataclass(frozen=True)
class Spot:
    """A place in the drawing. kind: "branch", "norm", "join", "block", "stem", "end" or "standing" (a sublayer before site `at`)."""

    kind: str
    stream: int
    at: int = 0                     # a site's or a block's position on its stream
    part: str = ""                  # of a branch its number, of a norm and of what stands its module path
    block: int = 0                  # of what stands: the block it is in


@dataclass(frozen=True)
class Places:
    """Positions of findings by spot, and the findings themselves."""

    findings: Sequence[dict[str, Any]]
    spots: dict[Spot, list[int]] = field(default_factory=dict)

    def badges(self, kind: str, stream: int, at: int = 0, part: str = "") -> tuple[Badge, ...]:
        """Badges of a spot, the worst first."""
        return self.of(Spot(kind, stream, at, part))

    def of(self, spot: Spot) -> tuple[Badge, ...]:
        """Badges of a spot."""
        return badges(self.findings, self.spots.get(spot, []))

    def standing(self, stream: int, block: int) -> list[Spot]:
        """Sublayers that stand on a stream within a block."""
        found = (s for s in self._near.get((stream, block), ()) if s.kind == "standing")
        return sorted(found, key=lambda s: (s.at, natural(s.part)))

    def unmarked(self, stream: int, site: int, norms: set[str], branches: int) -> tuple[Badge, ...]:
        """Badges of norms and branches of a site that have no mark of their own: all but these."""
        here = [s for s in self._near.get((stream, site), ())
                if (s.kind == "norm" and s.part not in norms) or (s.kind == "branch" and int(s.part) >= branches)]
        return badges(self.findings, [n for s in here for n in self.spots[s]])

    @cached_property
    def _near(self) -> dict[tuple[int, int], list[Spot]]:
        """Spots by stream and site; what stands on a stream by stream and block."""
        out: dict[tuple[int, int], list[Spot]] = {}
        for spot in self.spots:
            out.setdefault((spot.stream, spot.block if spot.kind == "standing" else spot.at), []).append(spot)
        return out

    @property
    def placed(self) -> frozenset[int]:
        return frozenset(n for numbers in self.spots.values() for n in numbers)


def badges(findings: Sequence[dict[str, Any]], numbers: Sequence[int]) -> tuple[Badge, ...]:
    """One badge a rule and message, the worst first."""
    groups: dict[tuple[str, str, str], list[int]] = {}
    for n in numbers:
        one = findings[n]
        groups.setdefault((one["code"], one["severity"], skeleton(one["message"])), []).append(n)
    made = [Badge(code, severity, key, told(findings[same[0]]), tuple(same)) for (code, severity, key), same in groups.items()]
    return tuple(sorted(made, key=lambda b: (_rank(b.severity), b.code, b.key)))


def told(one: dict[str, Any]) -> str:
    """A finding as one line, with the name of its file and the line."""
    where = f"{os.path.basename(one['file'])}:{one['line']}" if one["file"] else shown(one["where"])
    mild = "" if one["severity"] == "error" else f" [{one['severity']}]"
    return f"{one['code']} {one['rule']}: {one['message']} ({where}){mild}"


def _rank(severity: str) -> int:
    return SEVERITIES.index(severity) if severity in SEVERITIES else len(SEVERITIES)


def find(facts: Facts, findings: Sequence[dict[str, Any]]) -> Places:
    """The spot of every finding that has one. A path that nothing drawn names goes to the nearest block whose path it begins with."""
    index = _Index(facts)
    spots: dict[Spot, list[int]] = {}
    for number, one in enumerate(findings):
        spot = index.spot(one)
        if spot is not None:
            spots.setdefault(spot, []).append(number)
    return Places(findings, spots)


class _Index:
    """Module paths of everything that is drawn."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.exact: dict[str, Spot] = {}
        self.joins: dict[str, list[Spot]] = {}
        self.inside: dict[str, Spot] = {}           # paths of branches: what lies in them belongs to them
        self.blocks: dict[str, list[Spot]] = {}
        for s, stream in enumerate(facts.streams):
            for i, site in enumerate(stream["sites"]):
                for path in _norms(site):
                    self.exact.setdefault(path, Spot("norm", s, i, path))
                for b, branch in enumerate(site["branches"]):
                    for path in branch["modules"]:
                        self.inside.setdefault(path, Spot("branch", s, i, str(b)))
                self.joins.setdefault(site["module"], []).append(Spot("join", s, i))
            for b, block in enumerate(facts.blocks[s]):
                self.blocks.setdefault(block.path, []).append(Spot("block", s, b))
        for s, stream in enumerate(facts.streams):
            if stream["final_norm"]:
                self.exact.setdefault(stream["final_norm"], Spot("end", s))
            if stream["stem"]:
                self.exact.setdefault(stream["stem"], Spot("stem", s))

    def spot(self, one: dict[str, Any]) -> Spot | None:
        where = one["where"]
        if one["rule"] == STANDING:
            return self._standing(one)
        if one["rule"] == UNNORMED:
            ends = [Spot("end", s) for s, stream in enumerate(self.facts.streams) if stream["final_norm"] is None]
            return ends[-1] if ends else None
        if where in self.exact:
            return self.exact[where]
        if where in self.inside:
            return self.inside[where]
        if where in self.joins:
            return self._join(one, self.joins[where])
        for path in _outer(where):
            if path in self.inside:
                return self.inside[path]
            if path in self.blocks:
                here = [s for s in self.joins.get(path, ()) if one["line"] is not None and self._line(s) == (one["file"], one["line"])]
                return here[0] if here else self.blocks[path][0]
        under = [spots[0] for path, spots in self.blocks.items() if where and path.startswith(where + ".")]
        return min(under, key=lambda s: (s.stream, s.at), default=None)

    def _join(self, one: dict[str, Any], joins: list[Spot]) -> Spot | None:
        """The join on the finding's own line; else the one join of the module, or its block."""
        here = [s for s in joins if self._line(s) == (one["file"], one["line"])] or joins
        if len(here) == 1 or (one["line"] is not None and here is not joins):
            return here[0]
        if one["where"] == "":
            return None
        first = here[0]
        return next(Spot("block", first.stream, b) for b, block in enumerate(self.facts.blocks[first.stream]) if block.first <= first.at < block.last)

    def _line(self, spot: Spot) -> tuple[str | None, int | None]:
        site = self.facts.streams[spot.stream]["sites"][spot.at]
        return site["file"], site["line"]

    def _standing(self, one: dict[str, Any]) -> Spot | None:
        """A sublayer on the stream: where the next stream begins with it, else in its block, before the sites of later lines."""
        where = one["where"]
        if not where:
            return None
        for (stream, at), (stands, _) in self.facts.stands.items():
            if stands == where:
                block = next((b for b, block in enumerate(self.facts.blocks[stream]) if block.first < at <= block.last), 0)
                return Spot("standing", stream, at, where, block)
        for s, record in enumerate(self.facts.streams):
            if record["stem"] == where or record["stem"].startswith(where + "."):
                return Spot("stem", s)
        home = next((self.blocks[path] for path in (*_outer(where), "") if path in self.blocks), None)
        if home is None:
            return self._beside(where)
        number = home[0].stream
        span = self.facts.blocks[number][home[0].at]
        at = span.last
        for i in range(span.last - 1, span.first - 1, -1):
            site = self.facts.streams[number]["sites"][i]
            if site["file"] == one["file"] and site["line"] is not None and one["line"] is not None and site["line"] > one["line"]:
                at = i
        return Spot("standing", number, at, where, home[0].at)

    def _beside(self, where: str) -> Spot | None:
        """A block without a site: after the last of its siblings that comes before it."""
        like = [(natural(path), spots) for path, spots in self.blocks.items() for part in _outer(where) if skeleton(part) == skeleton(path)]
        before = [spots for key, spots in like if key < natural(where)]
        if not like:
            return None
        spot = max(before, key=lambda spots: (spots[-1].stream, spots[-1].at))[-1] if before else like[0][1][0]
        return Spot("standing", spot.stream, self.facts.blocks[spot.stream][spot.at].last, where, spot.at)


def _norms(site: dict[str, Any]) -> list[str]:
    return [*site["norm_modules"], *[path for b in site["branches"] for path in (*b.get("in_norms", ()), *b.get("out_norms", ()))]]


def _outer(path: str) -> list[str]:
    """The path and those around it, longest first, without the model itself."""
    parts = path.split(".")
    return [".".join(parts[:n]) for n in range(len(parts), 0, -1) if parts[0] or n > 1]

"""Streams that a missing skip has cut in two, drawn as one line with the sublayer that nothing bypasses on it."""

from collections.abc import Sequence
from typing import Any

RULE = "missing-skip"           # the rule that speaks of a sublayer which is no site


class Mended:
    """Main streams with the cut ones put together. `at` maps (old stream, sites before) to the new place."""

    def __init__(self, streams: Sequence[dict[str, Any]], follows: Sequence[tuple[int, int]], findings: Sequence[dict[str, Any]]) -> None:
        """`follows`: (stream, the stream that its first state is made of the end of)."""
        stands = {one["where"] for one in findings if one["rule"] == RULE and one["where"]}
        before: dict[int, int] = {}
        named: dict[int, str] = {}
        for new, old in follows:
            where = next((w for w in _around(streams[new]["stem"]) if w in stands), None)
            if where is not None and new not in before and old not in before.values() and new != old:
                before[new], named[new] = old, where
        self.streams: list[dict[str, Any]] = []
        self.stands: dict[tuple[int, int], tuple[str, str | None]] = {}     # (stream, sites before) -> the sublayer, the norm before it
        self._moved: dict[int, tuple[int, int]] = {}
        for n, stream in enumerate(streams):
            if n not in before:
                self._chain(n, stream, streams, {old: new for new, old in before.items()}, named)
        for n, stream in enumerate(streams):                                # streams that follow each other in a circle
            if n not in self._moved:
                self._moved[n] = (len(self.streams), 0)
                self.streams.append(stream)

    def _chain(self, n: int, stream: dict[str, Any], streams: Sequence[dict[str, Any]], after: dict[int, int], named: dict[int, str]) -> None:
        number, sites, last = len(self.streams), list(stream["sites"]), stream
        self._moved[n] = (number, 0)
        while n in after:
            n = after[n]
            self.stands[number, len(sites)] = (named[n], last["final_norm"])
            self._moved[n] = (number, len(sites))
            last = streams[n]
            sites += _renumbered(sites, last["sites"])
        self.streams.append({**stream, "sites": sites, "final_norm": last["final_norm"]})

    def at(self, stream: int, sites: int) -> tuple[int, int]:
        number, moved = self._moved[stream]
        return number, sites + moved


def _renumbered(before: list[dict[str, Any]], sites: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sites whose layers and earlier sites are counted on; the first ones belong to the last block before where their module does."""
    if not before or not sites:
        return list(sites)
    last = before[-1]
    home = last["module"].rpartition(".")[0] if not last["module"].rpartition(".")[2].isdigit() else last["module"]
    same = bool(home) and (sites[0]["module"] + ".").startswith(home + ".")
    moved = last["layer"] + (0 if same else 1) - sites[0]["layer"]
    out = []
    for site in sites:
        back = {name: value + len(before) for name in ("shortcut_from", "read_from") if isinstance(value := site.get(name), int)}
        out.append({**site, "layer": site["layer"] + moved, **back})
    return out


def _around(path: str) -> list[str]:
    """The path and those around it, longest first."""
    parts = path.split(".")
    return [".".join(parts[:n]) for n in range(len(parts), 0, -1)]

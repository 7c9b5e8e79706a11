"""Choosing sites: a selection is a value that can be printed, counted and acted on."""

import fnmatch
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from skipway._errors import RewireError
from skipway.surgery import actions
from skipway.surgery._spot import Spot
from skipway.wiring.structure import KINDS, PLACEMENTS, Site

if TYPE_CHECKING:
    from skipway.surgery.rewire import Plan, Rewiring

Numbers = int | slice | Iterable[int] | None


class Selection:
    """Sites of a model that are to be changed. Each action is a method and gives a `Plan`: `skipway.surgery.actions.names()` lists them.

    Examples:
        >>> selection = skipway.rewire(model, ids).sites(kind="ffn", layers=slice(4, 12))
        >>> print(selection)
        >>> edit = selection.to("rezero").apply()
    """

    def __init__(self, rewiring: "Rewiring", plan: "Plan | None", chosen: tuple["Spot | RewireError", ...]) -> None:
        self._rewiring, self._plan, self.places = rewiring, plan, chosen

    def __len__(self) -> int:
        return len(self.places)

    def __iter__(self) -> Iterator[Site]:
        return iter([s.site for s in self.spots()])

    def spots(self) -> tuple[Spot, ...]:
        """Where the code performs the sites. Raises RewireError for the first that no edit can reach."""
        for spot in self.places:
            if isinstance(spot, RewireError):
                raise spot
        return tuple(s for s in self.places if isinstance(s, Spot))

    def insist(self, count: int) -> "Selection":
        """This selection, where it has so many sites. Raises RewireError otherwise."""
        if len(self) != count:
            raise RewireError(f"rewire: {len(self)} sites were chosen where {count} were wanted; print the selection to see which")
        return self

    def __getattr__(self, name: str) -> Callable[..., "Plan"]:
        if name.startswith("_"):
            raise AttributeError(name)
        action = actions.load(name)

        def act(*args: Any, **options: Any) -> "Plan":
            return self._rewiring.planned(self._plan, action, self, args, options)
        act.__name__, act.__doc__ = name, f"{actions.describe(name)}\n\nGives a Plan; `.apply()` carries it out."
        return act

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *actions.names()})

    def __str__(self) -> str:
        return table([(s, "") for s in self.places], "site")


def choose(spots: Iterable["Spot | RewireError"], sites: Iterable[tuple[str, bool, Site]], *, index: Numbers, layers: Numbers, module: str | None,
           kind: str | None, stream: str | None, placement: str | None, where: Callable[[Site], bool] | None) -> tuple["Spot | RewireError", ...]:
    """The sites that meet every condition."""
    for value, known, what in ((kind, KINDS, "kind"), (placement, PLACEMENTS, "placement")):
        if value is not None and value not in known:
            raise RewireError(f"rewire: sites({what}={value!r}): there are {', '.join(known)}")
    named = [(*s, spot) for s, spot in zip(sites, spots, strict=True)]
    streams = tuple(dict.fromkeys(n for n, _, _, _ in named))
    if stream is not None and stream not in streams:
        raise RewireError(f"rewire: sites(stream={stream!r}): the model has {', '.join(streams) or 'no stream'}")
    total = {n: sum(1 for m, _, _, _ in named if m == n) for n in streams}
    depth = {n: 1 + max(s.layer for m, _, s, _ in named if m == n) for n in streams}
    return tuple(
        spot for name, main, site, spot in named
        if (main if stream is None else name == stream) and _in(site.index, index, total[name]) and _in(site.layer, layers, depth[name])
        and (module is None or any(fnmatch.fnmatchcase(m, module) for m in (site.module, *(m for b in site.branches for m in b.modules))))
        and (kind is None or any(b.kind == kind for b in site.branches)) and (placement is None or site.placement == placement)
        and (where is None or where(site)))


def _in(number: int, wanted: Numbers, length: int) -> bool:
    if wanted is None:
        return True
    if isinstance(wanted, slice):
        return number in range(*wanted.indices(length))
    if isinstance(wanted, int):
        return number == (wanted if wanted >= 0 else length + wanted)
    return number in {w if w >= 0 else length + w for w in wanted}


def table(rows: Iterable[tuple["Spot | RewireError", str]], what: str) -> str:
    """Sites and what happens to them, a line each."""
    lines = []
    for spot, does in rows:
        if isinstance(spot, RewireError):
            lines.append(("-", "", "", "", str(spot), does))
            continue
        site = spot.site
        kinds = "+".join(b.kind for b in site.branches)
        lines.append((f"{spot.stream} {site.index}", f"layer {site.layer}", kinds, site.placement, site.module or "(model)", does))
    widths = [max((len(line[k]) for line in lines), default=0) for k in range(6)]
    body = ["  ".join(c.ljust(w) for c, w in zip(line, widths)).rstrip() for line in lines]
    return "\n".join([*body, f"{len(lines)} {what}{'' if len(lines) == 1 else 's'}"])

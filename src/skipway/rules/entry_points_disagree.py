"""entry-points-disagree: two entry points of one model wire the same sublayer differently.

What it does
    Recovers the wiring of `forward` and of every method given as `entry_points`, and reports a sublayer that has a
    skip, a placement or a gain in one of them and not in the other.
Why it matters
    The model that was trained is not the one that is served. In lucidrains/audiolm-pytorch#104 decoding added a skip
    around an attention that training did not have, and the audio was worse than the training loss promised.
Fires on
    `forward` computing `x + mix(x)` and `step` computing `mix(x)`; one path with the norm before the sublayer and the
    other with the norm after it.
Quiet on
    Entry points that run different parts of a model (an encoder and a decoder), or the same parts the same way with a
    cache, another length or another batch. Sublayers that only one entry point runs. Without `entry_points` there is
    nothing to compare.
What to do
    Put the shared steps into one method that every entry point calls.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from skipway.rules._base import Example, Facts, Hit
from skipway.wiring import Wiring
from skipway.wiring.sites import Place
from skipway.wiring.streams import ancestors

CODE = "SKW109"
STAGE = "graph"
SEVERITY = "error"


def check(facts: Facts) -> Iterator[Hit]:
    own = _skips(facts.wiring)
    for name, wiring in facts.entries.items():
        other = _skips(wiring)
        for path in sorted(own.keys() & other.keys()):
            mine, theirs = own[path], other[path]
            if mine is not None and theirs is not None and mine[1] != theirs[1]:
                text = f"`forward` wires `{path}` as {mine[1]} and `{name}` wires it as {theirs[1]}; wire both alike"
                yield Hit(path, text, None, theirs[0], {"forward": mine[1], name: theirs[1]})
                break
            if (mine is None) == (theirs is None):
                continue
            has, lacks = ("forward", name) if mine is not None else (name, "forward")
            found = mine or theirs
            text = f"`{has}` adds a skip around `{path}` and `{lacks}` does not; wire both alike"
            yield Hit(path, text, None, found[0] if found else None, {"with_skip": has, "without_skip": lacks})


def _gain(place: Place) -> float | None:
    """The gain of a join, twice as much where its shortcut was added to itself before."""
    gain, state = place.join.gain, place.join.before
    return gain if gain is None or state.via != "self_add" else 2 * gain


def _skips(wiring: Wiring) -> dict[str, tuple[tuple[str, int] | None, str] | None]:
    """Modules with learned operations of their own that are live, and line and placement of the join around each, or None."""
    recovered = wiring.facts
    g, calls = recovered.graph, recovered.record.calls
    live = ancestors(g, recovered.record.outputs)
    found: dict[str, tuple[tuple[str, int] | None, str] | None] = {}
    for n in live:
        if g.learned[n]:
            found.setdefault(calls[g.nodes[n].call].path, None)
    for place in recovered.places:
        if place.join.node in live:
            for n in place.join.region.nodes:
                if g.learned[n]:
                    total = _gain(place)
                    gain = "" if total in (1.0, None) else f", gain {total:g}"
                    found[calls[g.nodes[n].call].path] = g.nodes[place.join.node].where, place.placement + gain
    return found


class _Tagger(nn.Module):
    def __init__(self, dim: int = 16) -> None:
        super().__init__()
        self.embed = nn.Linear(4, dim)
        self.norm1, self.norm2, self.norm = nn.LayerNorm(dim), nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.mix = nn.MultiheadAttention(dim, 2, batch_first=True)
        self.ffn = nn.Sequential(nn.Linear(dim, 32), nn.GELU(), nn.Linear(32, dim))
        self.head = nn.Linear(dim, 3)

    def attend(self, h: Tensor) -> Tensor:
        n = self.norm1(h)
        return self.mix(n, n, n, need_weights=False)[0]

    def finish(self, h: Tensor) -> Tensor:
        return self.head(self.norm(h + self.ffn(self.norm2(h))))

    def forward(self, x: Tensor) -> Tensor:
        h: Tensor = self.embed(x)
        return self.finish(h + self.attend(h))


def _example(model: type[nn.Module]) -> Example:
    torch.manual_seed(0)
    x = torch.randn(2, 6, 4)
    return Example(model().eval(), (x,), where="mix", options={"entry_points": {"predict": (x,)}})


def bad() -> Example:
    """`predict` leaves the skip around the attention out; `forward` has it."""

    class Tagger(_Tagger):
        def predict(self, x: Tensor) -> Tensor:
            return self.finish(self.attend(self.embed(x)))

    return _example(Tagger)


def good() -> Example:
    """`predict` wires the attention as `forward` does."""

    class Tagger(_Tagger):
        def predict(self, x: Tensor) -> Tensor:
            h: Tensor = self.embed(x)
            return self.finish(h + self.attend(h))

    return _example(Tagger)

"""What differs between two wirings: each field, sites more or less, other names, several streams, links."""

import time
from dataclasses import replace
from typing import Any

import pytest

from skipway.wiring.compare import FIELDS, Difference, compare
from skipway.wiring.structure import Branch, Link, Site, Stream, Wiring


def site(index: int, path: str = "layers", kind: str = "ffn", layer: int | None = None, **other: Any) -> Site:
    layer = index // 2 if layer is None else layer
    plain = Site(index, layer, f"{path}.{layer}", "net.py", index, "pre", "LayerNorm", (f"{path}.{layer}.norm",), "identity", 1.0, "none", 1.0, False,
                 False, (Branch(kind, (f"{path}.{layer}.{kind}",)),))
    return replace(plain, **other)


def stack(depth: int, path: str = "layers", **other: Any) -> tuple[Site, ...]:
    return tuple(site(n, path, ("self_attention", "ffn")[n % 2], **other) for n in range(2 * depth))


def numbered(sites: "list[Site]") -> tuple[Site, ...]:
    return tuple(replace(s, index=n) for n, s in enumerate(sites))


def wiring(*sites: Site, stream: dict[str, Any] | None = None, **other: Any) -> Wiring:
    return Wiring((Stream(**{"name": "net", "main": True, "lanes": 1, "stem": "embed", "final_norm": "norm", "sites": sites, **(stream or {})}),),
                  "Net", **other)


def told(first: Wiring, second: Wiring, **options: Any) -> list[tuple[Any, ...]]:
    return [(d.field, d.first, d.second, d.site, d.other_site) for d in compare(first, second, **options)]


CHANGES: dict[str, tuple[dict[str, Any], Any, Any]] = {
    "branches": ({"branches": (Branch("moe", ()),)}, ("ffn",), ("moe",)),
    "placement": ({"placement": "post"}, "pre", "post"),
    "norm": ({"norm": "RMSNorm"}, "LayerNorm", "RMSNorm"),
    "shortcut": ({"shortcut": "projection"}, "identity", "projection"),
    "gain": ({"gain": 2.0}, 1.0, 2.0),
    "scale": ({"scale": "constant", "branch_scale": 0.5}, "none", 0.5),
    "parallel": ({"parallel": True}, False, True),
    "drop": ({"branches": (Branch("ffn", (), drop="path"),)}, "none", "path"),
    "shortcut_from": ({"shortcut_from": 1}, None, 1),
    "read_from": ({"read_from": 2}, None, 2),
}


@pytest.mark.parametrize("field", CHANGES)
def test_one_field_of_one_site(field: str) -> None:
    other, was, now = CHANGES[field]
    before = stack(4)
    after = tuple(replace(s, **other) if s.index == 5 else s for s in before)
    assert told(wiring(*before), wiring(*after)) == [(field, was, now, 5, 5)]
    assert told(wiring(*after), wiring(*before)) == [(field, now, was, 5, 5)]
    assert field in FIELDS


def test_every_field_of_a_site_is_changed_above() -> None:
    from skipway.wiring.compare import SITE_FIELDS
    assert set(CHANGES) == set(SITE_FIELDS) - {"site", "start"}


@pytest.mark.parametrize(("field", "other", "was", "now"), [
    ("lanes", {"lanes": 4}, 1, 4), ("final_norm", {"final_norm": None}, True, False), ("main", {"main": False}, True, False)])
def test_one_field_of_a_stream(field: str, other: dict[str, Any], was: Any, now: Any) -> None:
    assert told(wiring(*stack(2)), wiring(*stack(2), stream=other)) == [(field, was, now, None, None)]


def test_names_are_no_differences_unless_asked_for() -> None:
    ours, port = wiring(*stack(3)), wiring(*stack(3, "model.h"), stream={"name": "h", "stem": "wte", "final_norm": "ln_f"}, parameters=7)
    assert told(ours, port) == [] and told(ours, ours, names=True) == []
    fields = {row[0] for row in told(ours, port, names=True)}
    assert fields == {"name", "stem", "final_norm_module", "module", "norm_modules", "branch_modules"} <= set(FIELDS)
    assert ours.diff(port) == () and len(ours.diff(port, names=True)) == 3 + 6 * 3


def test_what_is_not_wiring_is_not_compared() -> None:
    moved = tuple(replace(s, file="other.py", line=99, in_place=True, layer=s.layer + 7,
                          branches=tuple(replace(b, drop="dropout") for b in s.branches)) for s in stack(3))
    assert told(wiring(*stack(3)), wiring(*moved)) == []


def test_constants_that_differ_in_rounding_are_equal() -> None:
    a, b = (wiring(site(0, gain=g, scale="constant", branch_scale=s)) for g, s in ((0.70710678, 0.1), (0.70710677, 0.10000000149)))
    assert told(a, b) == []


@pytest.mark.parametrize("path", ["layers", "model.h"])
@pytest.mark.parametrize("at", [0, 5, 20])
def test_one_site_more_does_not_shift_the_rest(path: str, at: int) -> None:
    before = list(stack(10, path))
    after = numbered([*before[:at], site(0, path, "conv", layer=at // 2), *before[at:]])
    assert told(wiring(*stack(10)), wiring(*after)) == [("site", None, "pre LayerNorm conv", None, at)]
    assert told(wiring(*after), wiring(*stack(10))) == [("site", "pre LayerNorm conv", None, at, None)]


def test_a_site_less_among_equal_ones_is_found_by_its_name() -> None:
    before = tuple(site(n, kind="conv", layer=n) for n in range(10))
    after = numbered([s for s in before if s.layer != 4])
    assert [(d.field, d.site, d.module, d.other_module) for d in compare(wiring(*before), wiring(*after))] == [("site", 4, "layers.4", None)]
    ends = {0: {"placement": "post"}, 9: {"placement": "post"}}                 # now no equal ends lead to it
    changed = numbered([replace(s, **ends.get(s.layer, {})) for s in before if s.layer != 4])
    assert [(d.field, d.module) for d in compare(wiring(*before), wiring(*changed))] == [
        ("placement", "layers.0"), ("site", "layers.4"), ("placement", "layers.9")]


def test_a_missing_skip_and_another_placement_at_once() -> None:
    before = stack(4)
    after = numbered([replace(s, placement="post") for s in stack(4, "h") if s.index != 3])
    rows = told(wiring(*before), wiring(*after))
    assert [r for r in rows if r[0] == "site"] == [("site", "pre LayerNorm ffn", None, 3, None)]
    assert [r[3:] for r in rows if r[0] == "placement"] == [(0, 0), (1, 1), (2, 2), (4, 3), (5, 4), (6, 5), (7, 6)]


def test_other_places_of_everything_are_pairs_and_not_two_halves() -> None:
    before, after = stack(3), tuple(replace(s, placement="post", norm="RMSNorm", shortcut="normed", gain=0.5, scale="vector", parallel=True,
                                            branches=(Branch("conv", ()),)) for s in stack(3, "h"))
    assert {row[0] for row in told(wiring(*before), wiring(*after))} == {"branches", "placement", "norm", "shortcut", "gain", "scale", "parallel"}


def streams(*given: tuple[str, bool, tuple[Site, ...]], **other: Any) -> Wiring:
    return Wiring(tuple(Stream(name, main, 1, "", None, sites) for name, main, sites in given), **other)


def test_streams_are_paired_by_what_is_on_them() -> None:
    encoder = ("encoder", True, stack(3, "encoder"))
    crossed = ("decoder", True, tuple(replace(s, branches=(Branch("cross_attention", ()),)) if s.index == 2 else s for s in stack(3, "decoder")))
    both, one = streams(encoder, crossed), streams(("d", True, crossed[2]))
    assert told(both, one) == [("stream", "6 sites", None, None, None)]
    assert compare(both, one)[0].stream == "encoder" and compare(one, both)[0] == Difference("stream", None, "6 sites", "encoder")
    side = ("side", False, (site(0, "x", "ssm"),))
    assert [(d.field, d.stream) for d in compare(streams(encoder), streams(encoder, side))] == [("stream", "side")]


def test_a_stream_that_breaks_off() -> None:
    sites = [s for s in stack(4) if s.index != 5]
    parts = Stream("a", True, 1, "embed", "layers.2.norm", tuple(sites[:5])), Stream("b", True, 1, "layers.2.ffn", "norm", tuple(sites[5:]))
    broken = Wiring(parts, links=(Link("follows", "a", 5, "b", 0),))
    assert told(wiring(*stack(4)), broken) == [("site", "pre LayerNorm ffn", None, 5, None), ("start", False, True, 6, 5)]
    assert told(broken, wiring(*stack(4))) == [("site", None, "pre LayerNorm ffn", None, 5), ("start", True, False, 5, 6)]
    assert told(broken, broken) == []


def linked(names: tuple[str, str], *places: tuple[int, int], sites: tuple[Site, ...] = stack(3)) -> Wiring:
    links = tuple(Link("reads", names[0], at, names[1], to) for at, to in places)
    return streams((names[0], True, stack(3)), (names[1], True, sites), links=links)


def test_links() -> None:
    ours = linked(("encoder", "decoder"), (6, 1), (6, 3))
    assert told(ours, linked(("enc", "dec"), (6, 1), (6, 3))) == []
    assert told(ours, linked(("enc", "dec"), (6, 1))) == [("link", "reads encoder@6 -> decoder@3", None, None, None)]
    assert told(linked(("enc", "dec"), (6, 1)), ours) == [("link", None, "reads encoder@6 -> decoder@3", None, None)]
    deeper = linked(("enc", "dec"), (8, 1), (8, 3), (8, 7), sites=stack(4))
    deeper = replace(deeper, streams=(replace(deeper.streams[0], sites=stack(4)), deeper.streams[1]))
    assert {row[0] for row in told(ours, deeper)} == {row[0] for row in told(deeper, ours)} == {"site"}
    more = numbered([site(0, kind="conv", layer=0), *stack(3)])
    assert [row[0] for row in told(ours, linked(("enc", "dec"), (6, 2), (6, 4), sites=more))] == ["site"]


def test_large_ones_are_fast() -> None:
    ours = wiring(*stack(126))
    port = numbered([s for s in stack(126, "h", placement="post") if s.index not in (7, 100)])
    start = time.perf_counter()
    rows = told(ours, wiring(*port))
    assert [row[3] for row in rows if row[0] == "site"] == [7, 100] and len(rows) == 252
    assert time.perf_counter() - start < 5

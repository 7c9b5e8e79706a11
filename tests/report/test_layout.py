"""The drawing as data: order, tracks, folds, and where findings are."""

from typing import Any

import pytest

from skipway._errors import UsageError
from skipway.report._drawing.facts import read
from skipway.report._drawing.layout import layout, opened
from skipway.report._drawing.order import events
from skipway.report._drawing.parts import Band, End, Joint, Layout, Row, Run, Stem
from skipway.report._drawing.runs import runs
from skipway.report.drawing import render
from skipway.wiring.structure import Branch, Link

from .drawn import Random, encoder_decoder, finding, report, site, stack, stream, unet, wiring


def told(made: Layout) -> list[str]:
    """One line a band."""
    words = []
    for band in made.bands:
        body = band.body
        if isinstance(body, Stem):
            words.append(f"stem {body.name}")
        elif isinstance(body, Run):
            words.append(f"x{body.count} {' '.join(body.labels)}")
        elif isinstance(body, Joint):
            words.append("joint " + " ".join(e.kind for e in body.entries) if body.entries else "leave")
        else:
            words.append("end" if isinstance(body, End) else "caption")
    return words


def run_of(made: Layout, number: int = 0) -> Run:
    return [band.body for band in made.bands if isinstance(band.body, Run)][number]


def rows(made: Layout, number: int = 0) -> tuple[Row, ...]:
    return run_of(made, number).views[0].rows


def test_repeats_are_folded() -> None:
    made = layout(wiring(stream("net", stack(32))))
    assert told(made) == ["stem net", "x32 layers.{0-31}", "end"]
    assert [box.kind for row in rows(made) for box in row.boxes] == ["self_attention", "ffn"]
    assert [track.wide for track in made.tracks] == [True]


@pytest.mark.parametrize(("kinds", "paths", "found"), [
    ([1, 1, 1], ["a.0", "a.1", "a.2"], [(0, 1, 3)]),
    ([1, 2, 1, 2], ["a.0", "a.1", "a.2", "a.3"], [(0, 2, 2)]),
    ([1, 1, 1, 2] * 3, [f"a.{n}" for n in range(12)], [(0, 4, 3)]),
    ([1, 2, 2, 2], ["a.0", "a.1", "a.2", "a.3"], [(0, 1, 1), (1, 1, 3)]),
    ([1, 1], ["a.0", "b.0"], [(0, 1, 1), (1, 1, 1)]),
    ([1, 1, 1, 1], ["a.0.x.0", "a.0.x.1", "a.1.x.0", "a.1.x.1"], [(0, 1, 2), (2, 1, 2)]),
    ([1, 1, 1], ["a", "a", "a"], [(0, 1, 3)]),
    ([], [], [])])
def test_runs(kinds: list[int], paths: list[str], found: list[tuple[int, int, int]]) -> None:
    assert runs(kinds, paths) == found


def test_groups_that_repeat_in_turn_are_one_fold() -> None:
    sites = tuple(site(n, n, f"layers.{n}", "self_attention" if n % 3 == 2 else "ssm") for n in range(12))
    made = layout(wiring(stream("net", sites)))
    assert told(made) == ["stem net", "x4 layers.{0,3,...,9} layers.{1,4,...,10} layers.{2,5,...,11}", "end"]


def test_parts_of_one_block_are_one_block() -> None:
    sites = tuple(site(2 * n + p, 2 * n + p, f"block.{n}.layer.{p}", kind) for n in range(3) for p, kind in enumerate(("self_attention", "ffn")))
    made = layout(wiring(stream("net", sites)))
    assert told(made) == ["stem net", "x3 block.{0-2}", "end"]
    assert [box.path for row in rows(made) for box in row.boxes] == ["layer.0.self_attention", "layer.1.ffn"]


def test_a_block_that_a_finding_tells_apart_is_not_folded() -> None:
    made = layout(wiring(stream("net", stack(6))), [finding("layers.3.ffn")])
    assert told(made) == ["stem net", "x3 layers.{0-2}", "x1 layers.3", "x2 layers.{4-5}", "end"]
    (badge,) = rows(made, 1)[1].boxes[0].badges
    assert (badge.code, badge.severity, badge.numbers) == ("SKW201", "error", (0,)) and badge.text.startswith("SKW201 normed-skip: `layers.3.ffn`")


def test_the_same_finding_in_every_block_stays_folded() -> None:
    found = [finding(f"layers.{n}.ffn") for n in range(6)]
    made = layout(wiring(stream("net", stack(6))), found)
    assert told(made) == ["stem net", "x6 layers.{0-5}", "end"] and run_of(made).numbers() == (0, 1, 2, 3, 4, 5)
    blocks = opened(made.bands[1])
    assert [b.body.numbers() for b in blocks if isinstance(b.body, Run)] == [(n,) for n in range(6)]
    assert len(made.legend) == 1 and made.legend[0].numbers == (0, 1, 2, 3, 4, 5)


@pytest.mark.parametrize(("where", "line", "place"), [
    ("layers.1.ffn", None, "branch ffn"), ("layers.1.ffn.0.weight", None, "branch ffn"), ("layers.1.norm_ffn", None, "norm"),
    ("layers.1", 8, "join ffn"),
    ("layers.1", 7, "join self_attention"), ("layers.1", None, "block"), ("layers.1.gamma", None, "block"), ("layers.1.other", 8, "join ffn"),
    ("net.embed", None, "stem"), ("net.norm", None, "end"), ("layers", None, "block"), ("", None, None), ("head", None, None)])
def test_where_a_finding_belongs(where: str, line: int | None, place: str | None) -> None:
    made = layout(wiring(stream("net", stack(3))), [finding(where, line=line)])
    found = []
    for band in made.bands:
        body = band.body
        if isinstance(body, (Stem, End)) and body.badges:
            found.append(type(body).__name__.lower())
        for view in body.views if isinstance(body, Run) else ():
            found += ["block"] if view.badges else []
            for row in view.rows:
                found += [f"join {row.boxes[0].kind}"] if row.badges else []
                found += [f"branch {box.kind}" for box in row.boxes if box.badges] + ["norm" for mark in row.reads if mark.badges]
    assert found == ([] if place is None else [place]) and made.placed == (frozenset() if place is None else {0})
    assert [badge.code for badge in made.legend] == ["SKW201"]


def test_a_missing_skip_stands_on_the_stream_of_its_block() -> None:
    missing = [finding(f"layers.{n}.ffn", "missing-skip", "SKW101", line=9, message="no path") for n in range(3)]
    made = layout(wiring(stream("net", stack(3, kinds=("self_attention",)))), missing)
    assert told(made) == ["stem net", "x3 layers.{0-2}", "end"]
    assert [(row.standing, row.boxes[0].path) for row in rows(made)] == [(False, "self_attention"), (True, "ffn")]
    before = layout(wiring(stream("net", stack(3, kinds=("self_attention",)))), [{**missing[0], "line": 3}])
    assert [row.standing for row in rows(before)] == [True, False]


def test_a_stream_that_a_missing_skip_cuts_is_drawn_as_one() -> None:
    parts = [stream(f"net {n}", (site(0, 0, f"layers.{n}", "self_attention"),), stem=f"layers.{n - 1}.ffn.2" if n else "embed",
                    final_norm=f"layers.{n}.norm2") for n in range(3)]
    links = tuple(Link("follows", f"net {n}", 1, f"net {n + 1}", 0) for n in range(2))
    missing = [finding(f"layers.{n}.ffn", "missing-skip", "SKW101", message="no path") for n in range(2)]
    made = layout(wiring(*parts, links=links), missing)
    assert told(made) == ["stem net 0", "x2 layers.{0-1}", "x1 layers.2", "end"]
    standing = rows(made)[1]
    assert standing.standing and standing.boxes[0].path == "ffn" and standing.boxes[0].inside[0].title == "norm2"
    assert told(layout(wiring(*parts, links=links))) == [
        "stem net 0", "x1 layers.0", "end", "stem net 1", "x1 layers.1", "end", "stem net 2", "x1 layers.2", "end"]


def test_a_missing_final_norm_belongs_to_the_end() -> None:
    made = layout(wiring(stream("net", stack(3), final_norm=None)), [finding("head", "missing-final-norm", "SKW204")])
    end = made.bands[-1].body
    assert isinstance(end, End) and [b.code for b in end.badges] == ["SKW204"] and end.norm is None


# tracks


def test_a_memory_runs_beside_its_readers() -> None:
    made = layout(encoder_decoder())
    assert told(made) == ["stem encoder", "x3 encoder.block.{0-2}", "end", "stem decoder", "x3 decoder.block.{0-2}", "end"]
    assert [track.wide for track in made.tracks] == [True, True]
    assert [(band.track, [(r.track, r.kind, r.ends) for r in band.rails]) for band in made.bands] == [
        (0, []), (0, []), (0, []), (1, [(0, "memory", False)]), (1, [(0, "memory", True)]), (1, [])]
    assert made.bands[4].feeds == (("encoder", 0),) and rows(made, 1)[1].boxes[0].memories == ("encoder",)
    encoder_end = made.bands[2].body
    assert isinstance(encoder_end, End) and not encoder_end.output


def test_the_memory_ends_in_the_last_block_of_an_open_fold() -> None:
    made = layout(encoder_decoder(), open="all")
    decoder = [band for band in made.bands if isinstance(band.body, Run)][3:]
    assert [[(r.track, r.ends) for r in band.rails] for band in decoder] == [[(0, False)], [(0, False)], [(0, True)]]


def test_one_stream_alone() -> None:
    made = layout(encoder_decoder(), only="decoder")
    assert told(made) == ["stem decoder", "x3 decoder.block.{0-2}", "end"] and len(made.tracks) == 1
    assert rows(made)[1].boxes[0].memories == ("encoder",)
    with pytest.raises(UsageError, match="stream 'vision' is no main stream of this wiring; it has encoder, decoder"):
        layout(encoder_decoder(), only="vision")


def test_long_skips_are_nested() -> None:
    made = layout(unet())
    assert told(made) == ["stem one", "x1 down.0", "end", "stem two", "x1 down.1", "end", "stem three", "x1 mid", "joint concat", "x1 up.0",
                          "joint concat", "x1 up.1", "end"]
    assert [track.wide for track in made.tracks] == [False, False, True]
    joints = [band.body for band in made.bands if isinstance(band.body, Joint)]
    assert [e.track for j in joints for e in j.entries] == [1, 0]                   # the inner skip is beside the stream, the outer one outside
    assert [band.leaves for band in made.bands if band.leaves] == [((0, "skip"),), ((1, "skip"),)]
    stems = [band.body for band in made.bands if isinstance(band.body, Stem)]
    assert [s.continues for s in stems] == [False, True, True]


def test_a_skip_over_a_folded_run() -> None:
    links = (Link("add", "net", 0, "net", 8),)
    made = layout(wiring(stream("net", stack(4)), links=links))
    assert told(made) == ["stem net", "x4 layers.{0-3}", "joint add", "end"]
    assert made.bands[0].leaves == ((0, "skip"),) and [(r.track, r.ends) for r in made.bands[2].rails] == [(0, True)]


def test_a_shortcut_from_an_earlier_block_comes_on_a_rail() -> None:
    sites = (*stack(3, kinds=("conv",)), site(3, 3, "body", "conv", shortcut_from=0))
    made = layout(wiring(stream("net", sites)))
    last = made.bands[-2]
    assert told(made) == ["stem net", "x3 layers.{0-2}", "x1 body", "end"]
    assert rows(made, 1)[0].carried and last.feeds == ((rows(made, 1)[0].carried, 0),) and [r.ends for r in last.rails] == [True]
    inside = layout(wiring(stream("net", (site(0, 0, "layers.0"), site(1, 0, "layers.0", shortcut_from=0)))))
    assert (rows(inside)[1].shortcut_back, rows(inside)[1].carried) == (1, "")


def test_streams_wait_for_what_they_are_made_of() -> None:
    """The outer stream goes on after the inner one, which is made of its first half and is added to it."""
    links = (Link("follows", "outer", 2, "inner", 0), Link("add", "inner", 2, "outer", 2))
    whole = wiring(stream("outer", stack(2, kinds=("a", "b"))), stream("inner", stack(1, "deep")), links=links)
    order = [(e.kind, e.stream) for e in events(read(whole))]
    assert order == [("stem", 0), ("block", 0), ("stem", 1), ("block", 1), ("end", 1), ("joint", 0), ("block", 0), ("end", 0)]
    made = layout(whole)
    tracks = [band.track for band in made.bands]
    assert len(set(tracks)) == 2 and all(r.track not in (tracks[i], -1) for i, band in enumerate(made.bands) for r in band.rails)


def test_streams_apart_stand_side_by_side() -> None:
    made = layout(wiring(*(stream(name, stack(2, name)) for name in ("vision", "text"))))
    assert [band.track for band in made.bands] == [0, 0, 0, 1, 1, 1]


def test_links_in_a_circle_and_against_the_order() -> None:
    links = (Link("follows", "b", 2, "a", 0), Link("follows", "a", 2, "b", 0), Link("add", "b", 1, "a", 1), Link("reads", "a", 0, "a", 1))
    made = layout(wiring(stream("a", stack(1, "a")), stream("b", stack(1, "b")), links=links))
    assert sorted(w for w in told(made) if w.startswith("stem")) == ["stem a", "stem b"]
    many = tuple(Link("follows", f"s{n + 1}", 1, f"s{n}", 0) for n in range(1499))
    assert len(layout(wiring(*(stream(f"s{n}", stack(1, kinds=("ffn",))) for n in range(1500)), links=many)).bands) >= 3 * 1500


def test_more_long_skips_than_rails_are_told_in_words() -> None:
    links = tuple(Link("add", "net", n, "net", 40 - n) for n in range(15))
    made = layout(wiring(stream("net", stack(40, kinds=("ffn",))), links=links))
    entries = [e for band in made.bands if isinstance(band.body, Joint) for e in band.body.entries]
    assert sorted(e.track for e in entries).count(-1) == 3 and sum(not t.wide for t in made.tracks) == 12
    text = render(report(wiring(stream("net", stack(40, kinds=("ffn",))), links=links)))
    assert text.count("long skip") == 12 and text.count("add of stream net") == 3


# rows


@pytest.mark.parametrize(("other", "want"), [
    ({}, {"reads": ["LayerNorm"]}),
    ({"placement": "output", "branches": (Branch("ffn", ("layers.0.f",), (), ("n",)),)}, {"writes": ["LayerNorm"]}),
    ({"placement": "sandwich", "branches": (Branch("ffn", (), ("n",), ("m",)),)}, {"reads": ["LayerNorm"], "writes": ["LayerNorm"]}),
    ({"placement": "post", "branches": (Branch("ffn", ()),)}, {"after": ["LayerNorm"]}),
    ({"placement": "inner", "branches": (Branch("ffn", ()),)}, {"inside": ["LayerNorm"]}),
    ({"placement": "none", "norm": None, "norm_modules": (), "branches": (Branch("ffn", ()),)}, {}),
    ({"scale": "vector"}, {"reads": ["LayerNorm"], "writes": ["× vector"]}),
    ({"scale": "input_dependent"}, {"reads": ["LayerNorm"], "writes": ["× gate"]}),
    ({"scale": "constant", "branch_scale": 0.5}, {"reads": ["LayerNorm"], "writes": ["× 0.5"]}),
    ({"branches": (Branch("ffn", (), ("n",), (), "path"),)}, {"reads": ["LayerNorm"], "writes": ["drop path"]}),
    ({"shortcut": "projection"}, {"reads": ["LayerNorm"], "shortcut": ["projection"]}),
    ({"shortcut": "normed", "placement": "post", "branches": (Branch("ffn", ()),)}, {"after": ["LayerNorm"]}),
    ({"gain": 2.0}, {"reads": ["LayerNorm"], "gain": ["×2"]}),
    ({"gain": None}, {"reads": ["LayerNorm"], "gain": ["varies"]})])
def test_marks_of_a_site(other: dict[str, Any], want: dict[str, list[str]]) -> None:
    (row,) = rows(layout(wiring(stream("net", (site(0, 0, "layers.0", **other),)))))
    found = {"reads": [m.text for m in row.reads], "writes": [m.text for m in row.writes], "after": [m.text for m in row.after],
             "inside": [m.text for m in row.boxes[0].inside], "shortcut": [row.shortcut.text] if row.shortcut else [],
             "gain": [row.gain] if row.gain else []}
    assert {k: v for k, v in found.items() if v} == want


def test_parallel_branches_are_boxes_of_one_row() -> None:
    (row,) = rows(layout(wiring(stream("net", (site(0, 0, "layers.0", "self_attention+ffn", parallel=True),)))))
    assert [(b.kind, [m.title for m in b.reads]) for b in row.boxes] == [
        ("self_attention", ["LayerNorm norm_self_attention"]), ("ffn", ["LayerNorm norm_ffn"])] and row.reads == ()
    shared = tuple(Branch(k, (), ("layers.0.norm",)) for k in ("self_attention", "ffn"))
    (row,) = rows(layout(wiring(stream("net", (site(0, 0, "layers.0", branches=shared),)))))
    assert [m.title for m in row.reads] == ["LayerNorm norm"] and all(b.reads == () for b in row.boxes)


def test_side_streams_are_told_where_they_live() -> None:
    links = (Link("inside", "inner", 0, "net", 1), Link("inside", "innermost", 0, "inner", 0))
    sides = [stream(name, stack(1, f"layers.0.ffn.{name}"), main=False) for name in ("inner", "innermost", "pooler")]
    made = layout(wiring(stream("net", stack(2)), *sides, links=links))
    assert [box.inner for row in rows(made) for box in row.boxes] == [0, 4]
    assert made.bands[-1].body.text == "beside the streams above: 1 side stream with 2 sites (ffn, self_attention)"  # type: ignore[union-attr]


def test_a_wiring_without_streams() -> None:
    made = layout(wiring(), [finding("x")])
    assert told(made) == ["caption"] and made.placed == frozenset() and len(made.legend) == 1


@pytest.mark.parametrize("links", [
    [{"kind": "reads"}], ["x"], [{"kind": "jumps", "source": "net", "source_at": 0, "target": "net", "target_at": 0}],
    [{"kind": "reads", "source": "net", "source_at": True, "target": "net", "target_at": 0}],
    [{"kind": "reads", "source": "other", "source_at": 0, "target": "net", "target_at": 0}], {}])
def test_links_that_are_none(links: Any) -> None:
    with pytest.raises(UsageError, match=r"wiring\.links"):
        layout({**wiring(stream("net", stack(1))), "links": links})


def test_a_record_without_the_newer_fields() -> None:
    whole = wiring(stream("net", stack(3)))
    del whole["links"]
    for one in whole["streams"][0]["sites"]:
        del one["shortcut_from"], one["read_from"]
        for branch in one["branches"]:
            del branch["in_norms"], branch["out_norms"], branch["drop"]
    made = layout(whole)
    assert told(made) == ["stem net", "x3 layers.{0-2}", "end"] and [m.text for m in rows(made)[0].reads] == ["LayerNorm"]


# invariants over random wirings


def bands_of(made: Layout) -> list[Band]:
    return [b for band in made.bands for b in ([band] if not isinstance(band.body, Run) or band.body.count == 1 else opened(band))]


@pytest.mark.parametrize("seed", range(120))
def test_lines_never_meet(seed: int) -> None:
    whole = Random(seed).report()
    made = layout(whole["wiring"], whole["findings"])
    sites = [s for one in whole["wiring"]["streams"] if one["main"] for s in one["sites"]]
    drawn = [row for band in bands_of(made) if isinstance(band.body, Run) for view in band.body.views for row in view.rows if not row.standing]
    assert len(drawn) == len(sites)
    live: dict[int, str] = {}
    for band in bands_of(made):
        tracks = [rail.track for rail in band.rails]
        assert band.track not in tracks and len(set(tracks)) == len(tracks)
        assert set(tracks) <= live.keys()                                           # a rail comes from somewhere
        assert not {track for track, _ in band.leaves} & set(tracks)                # and nothing begins on a track that is taken
        ended = {rail.track for rail in band.rails if rail.ends}
        live = {rail.track: rail.kind for rail in band.rails if rail.track not in ended}
        live |= dict(band.leaves) | ({band.track: "stream"} if band.track >= 0 else {})


def test_a_layout_that_forgets_a_link_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skipway.report._drawing.layout._Maker._feeds", lambda *_: ())
    with pytest.raises(AssertionError):
        test_a_memory_runs_beside_its_readers()

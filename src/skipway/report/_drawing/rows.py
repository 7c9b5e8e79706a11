"""What is drawn at a site, from its plain record; equal for sites of repeated blocks that are wired alike."""

import os
from collections.abc import Sequence
from typing import Any

from skipway.report._drawing.facts import Block, Facts, Link
from skipway.report._drawing.parts import Box, Mark, Row, View
from skipway.report._drawing.places import Places
from skipway.report._paths import common
from skipway.report.text import label

SCALES = {"scalar": "\N{MULTIPLICATION SIGN} scalar", "vector": "\N{MULTIPLICATION SIGN} vector", "input_dependent": "\N{MULTIPLICATION SIGN} gate"}
SCALE_TITLES = {"scalar": "the branch is multiplied by one learned number", "vector": "the branch is multiplied by a learned vector (LayerScale)",
                "input_dependent": "the branch is multiplied by a gate that depends on the input"}
DROPS = {"dropout": ("dropout", "parts of the branch are dropped in training"), "path": ("drop path", "the whole branch is dropped in training")}
SHORTCUTS = {"projection": "the shortcut is a learned linear map of the stream", "normed": "the shortcut carries the normed stream",
             "pooled": "the shortcut carries the pooled stream", "mixed": "the shortcut is mixed: a gate, or a matrix over lanes"}


def view(facts: Facts, places: Places, stream: int, number: int) -> View:
    """A block of a stream."""
    block = facts.blocks[stream][number]
    rows = {float(i): row(facts, places, stream, i, block) for i in range(block.first, block.last)}
    for k, spot in enumerate(places.standing(stream, number)):
        norm = facts.stands.get((stream, spot.at), ("", None))[1]
        marks = (Mark("norm", "norm", relative(norm, block.path)),) if norm else ()
        box = Box("standing", relative(spot.part, block.path), inside=marks)
        rows[spot.at - 0.5 + k * 1e-6] = Row((box,), standing=True, badges=places.of(spot), title=f"{box.path}: no skip around it")
    return View(tuple(rows[at] for at in sorted(rows)), places.badges("block", stream, number))


def row(facts: Facts, places: Places, stream: int, index: int, block: Block) -> Row:
    """One site of a stream as it is drawn within its block."""
    site = facts.streams[stream]["sites"][index]
    read, inside, written, after = (norms(places, stream, index, site, paths, block) for paths in _placed(site))
    several = len(site["branches"]) > 1
    own = several and len({tuple(b.get("in_norms", ())) for b in site["branches"]}) > 1
    boxes = []
    for number, branch in enumerate(site["branches"] or [{"kind": "other", "modules": []}]):
        reads = norms(places, stream, index, site, list(branch.get("in_norms", ())), block) if own else ()
        boxes.append(Box(branch["kind"], named(branch["modules"], block.path), reads, inside if not number else (),
                         tuple(_memories(facts, stream, index, branch, site)), facts.inner.get((stream, index), 0) if not number else 0,
                         places.badges("branch", stream, index, str(number))))
    marked = {p for paths in _placed(site) for p in paths} | {p for b in site["branches"] for p in b.get("in_norms", ()) if own}
    found = [*places.badges("join", stream, index), *places.unmarked(stream, index, marked, len(boxes))]
    from_before = next((carried(x) for x in facts.into.get((stream, index), ()) if x.kind == "carries"), "")
    return Row(tuple(boxes), () if own else read, (*written, *_scale(site), *_drops(site)), _shortcut(site), gain(site), after,
               facts.streams[stream]["lanes"], _back(site, "read_from", index, block), _back(site, "shortcut_from", index, block), from_before,
               title=_title(site), badges=tuple(found))


def _placed(site: dict[str, Any]) -> tuple[list[str], list[str], list[str], list[str]]:
    """Norms on the way in, inside, on the way out, and of the sum."""
    listed, placement = list(site["norm_modules"]), site["placement"]
    inward = list(dict.fromkeys(p for b in site["branches"] for p in b.get("in_norms", ())))
    outward = list(dict.fromkeys(p for b in site["branches"] for p in b.get("out_norms", ())))
    nameless = listed or [""]
    if placement == "pre":
        return inward or nameless, [], [], []
    if placement == "output":
        return [], [], outward or nameless, []
    if placement == "sandwich":                     # a record without the norms of each branch: the last one is the one on the way out
        return inward or nameless[:-1] or nameless, [], outward or nameless[-1:], []
    if placement == "post":
        return [], [], [], nameless[:1]
    return ([], nameless, [], []) if placement == "inner" else ([], [], [], [])


def norms(places: Places, stream: int, index: int, site: dict[str, Any], paths: Sequence[str], block: Block) -> tuple[Mark, ...]:
    """One mark for norms that stand at one point."""
    if not paths:
        return ()
    found = [b for p in dict.fromkeys(paths) for b in places.badges("norm", stream, index, p)]
    title = f"{site['norm'] or 'norm'} " + ", ".join(relative(p, block.path) for p in paths if p)
    return (Mark("norm", site["norm"] or "norm", title.rstrip(), tuple(found)),)


def _drops(site: dict[str, Any]) -> list[Mark]:
    kinds = dict.fromkeys(b.get("drop", "none") for b in site["branches"])
    return [Mark("drop", *DROPS[k]) for k in kinds if k in DROPS]


def _scale(site: dict[str, Any]) -> list[Mark]:
    if site["scale"] in SCALES:
        return [Mark("scale", SCALES[site["scale"]], SCALE_TITLES[site["scale"]])]
    if site["scale"] == "constant" and site["branch_scale"] is not None:
        return [Mark("scale", f"\N{MULTIPLICATION SIGN} {site['branch_scale']:.4g}", "the branch is multiplied by a constant")]
    return []


def _shortcut(site: dict[str, Any]) -> Mark | None:
    kind = site["shortcut"]
    if kind == "identity" or (kind, site["placement"]) == ("normed", "post"):       # post-norm means a normed shortcut
        return None
    return Mark("shortcut", kind, SHORTCUTS.get(kind, kind))


def gain(site: dict[str, Any]) -> str:
    """The shortcut's gain where it is not 1."""
    if site["gain"] is None:
        return "varies"
    return "" if site["gain"] == 1 else f"\N{MULTIPLICATION SIGN}{site['gain']:.4g}"


def _memories(facts: Facts, stream: int, index: int, branch: dict[str, Any], site: dict[str, Any]) -> list[str]:
    """Names of the other streams that a branch reads; of several branches the cross-attention reads them."""
    names = [facts.streams[x.source[0]]["name"] for x in facts.into.get((stream, index), ()) if x.kind == "reads"]
    names += facts.outside.get((stream, index), ())
    crossing = [b for b in site["branches"] if b["kind"] == "cross_attention"] or site["branches"]
    return list(dict.fromkeys(names)) if any(b is branch for b in crossing) else []


def carried(link: Link) -> str:
    """The name of the feed that brings a shortcut from an earlier block; no stream has it."""
    return f"\0{link.source[0]}.{link.source[1]}"


def _back(site: dict[str, Any], field: str, index: int, block: Block) -> int:
    """How many sites earlier something begins within the block."""
    value = site.get(field)
    return index - value if isinstance(value, int) and block.first <= value < index else 0


def _title(site: dict[str, Any]) -> str:
    line = f" ({os.path.basename(site['file'])}:{site['line']})" if site["file"] else ""
    begins = site.get("shortcut_from")
    earlier = f", the shortcut is the state before site {begins}" if isinstance(begins, int) else ""
    return f"{label(site)}{line}" + (", in place" if site["in_place"] else "") + earlier


def named(modules: Sequence[str], block: str) -> str:
    """What computes a branch: the module that holds all others, else all of them."""
    if not modules:
        return ""
    owner = common(modules)
    if owner and owner != block and not block.startswith(owner + "."):
        return relative(owner, block)
    return ", ".join(relative(m, block) for m in modules)


def relative(path: str, block: str) -> str:
    """A path as seen from its block."""
    return path.removeprefix(block + ".") if block and path != block else path

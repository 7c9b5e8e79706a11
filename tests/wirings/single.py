"""One wiring a feature: a plain pre-norm net of two blocks that differs in one thing. A miss here has a name."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from . import images, lanes, pairs
from .blocks import BlockPlan, StackPlan
from .chooser import seeded
from .faults import BROADCASTING, FAULTS
from .generate import RandomWiring, TokenPlan, build_images, build_lanes, build_pairs, build_tokens
from .norms import TOKEN_NORMS
from .sites import HIGHWAYS, SCALES, SitePlan
from .spellings import MORE, PLAIN
from .sublayers import VARIANTS

Made = tuple[str, Callable[[], RandomWiring]]
ATTENTION, FFN = ("self_attention", "plain"), ("ffn", "plain")
PAIR = ((ATTENTION, FFN), (ATTENTION, FFN))


def singles() -> Iterator[Made]:
    """(name, maker) of each."""
    yield from token_singles()
    yield from fault_singles()
    yield from lane_singles()
    for form in images.FORMS:
        for down in ("no", "projection", "projection with norm", "pooled projection", "pooled"):
            for norm in ("batch", "group"):
                for at in range(3):
                    blocks = tuple(images.ImageBlock(form, down=down if i == at else "no") for i in range(3))
                    net = images.ImagePlan(blocks, norm, form == "preact")
                    yield f"image {form}, shortcut {down} in block {at} of 3, {norm}", lambda p=net: build_images(p, seeded(0))  # type: ignore[misc]
    for norm in TOKEN_NORMS:
        pair = pairs.PairPlan(PAIR, norm)
        yield f"pair {norm}", lambda p=pair: build_pairs(p)  # type: ignore[misc]


def tokens(name: str, site: SitePlan, final: bool = True, **changes: object) -> Made:
    """Two blocks of attention and feed-forward, each made like `site`."""
    kinds = [site.branches] if len(site.branches) > 1 else [(ATTENTION,), site.branches]
    sites = tuple(replace(site, branches=b, spelling=site.spelling if b == site.branches else "x + y") for b in kinds)
    if site.scale == "deepnorm" or site.spelling.startswith("torch.lerp(x, y, 0.5"):
        sites = (sites[-1],)
    final = final and site.placement in ("pre", "sandwich", "output")
    block = {k: v for k, v in changes.items() if k in BlockPlan.__dataclass_fields__}
    stack = {k: v for k, v in changes.items() if k in StackPlan.__dataclass_fields__}
    rest = {k: v for k, v in changes.items() if k in TokenPlan.__dataclass_fields__}
    plan = StackPlan((BlockPlan(sites, **block),) * 2, **{"final_norm": site.norm if final else None, **stack})  # type: ignore[arg-type]
    whole = TokenPlan(plan, **rest)  # type: ignore[arg-type]
    return name, lambda: build_tokens(whole, seeded(0))


def token_singles() -> Iterator[Made]:
    """Spellings, branches, placements with norms, scales, wrappers, stems, heads, parallel forms."""
    plain = SitePlan((FFN,))
    for spelling in (*PLAIN, *MORE):
        site = replace(plain, branches=(("ffn", "no_bias"),), spelling=spelling)
        yield tokens(f"spelling {spelling}", site)
        yield tokens(f"spelling {spelling} in post-norm", replace(site, placement="post"))
    for kind, variants in VARIANTS.items():
        for variant in variants:
            yield tokens(f"branch {kind}/{variant}", replace(plain, branches=((kind, variant),)))
            if variant != "inner_normed":
                yield tokens(f"branch {kind}/{variant} without norm", replace(plain, branches=((kind, variant),), placement="none"))
            if kind == "self_attention":
                yield tokens(f"branch {kind}/{variant} with a mask given", replace(plain, branches=((kind, variant),)), mask=True)
    for placement in ("pre", "post", "sandwich", "output", "none"):
        for norm in TOKEN_NORMS:
            yield tokens(f"placement {placement}, {norm}", replace(plain, placement=placement, norm=norm))
        yield tokens(f"parallel, one add, {placement}", replace(plain, branches=(ATTENTION, FFN), placement=placement))
        if placement != "post":
            yield tokens(f"parallel, two adds, {placement}", replace(plain, placement=placement), chain=True)
        for scale in SCALES:
            if (scale == "deepnorm" and placement != "post") or (scale == "highway" and placement not in ("pre", "none")):
                continue
            for spelling in HIGHWAYS if scale == "highway" else ("x + y", "x - (-y)"):
                yield tokens(f"scale {scale} {spelling}, {placement}", replace(plain, placement=placement, scale=scale, spelling=spelling))
        for wrapper in ("residual", "nested"):
            yield tokens(f"wrapper {wrapper}, {placement}", replace(plain, wrapper=wrapper, placement=placement))
        yield tokens(f"repeated, {placement}", replace(plain, placement=placement), repeat=2)
    for stem in ("embedding", "positions", "linear", "none"):
        yield tokens(f"stem {stem}", plain, stem=stem)
        yield tokens(f"stem {stem} and a norm", plain, stem=stem, stem_norm="layer_norm")
        yield tokens(f"stem {stem} and a norm, post", replace(plain, placement="post"), stem=stem, stem_norm="layer_norm")
    for head in ("none", "linear", "tied", "biased", "pooled"):
        yield tokens(f"head {head}", plain, head=head)
    yield tokens("parallel, two norms", replace(plain, branches=(ATTENTION, FFN), two_norms=True))
    yield tokens("parallel, two adds, one norm", plain, chain=True, one_norm=True)
    yield tokens("one norm", plain, one_norm=True)
    yield tokens("dropout", replace(plain, dropout=True))
    yield tokens("container", plain, container=2)
    yield tokens("checkpointed", plain, checkpointed=True)
    yield tokens("bfloat16", replace(plain, norm="hand_rms"), bfloat16=True)
    crossed = BlockPlan((SitePlan((ATTENTION,)), SitePlan((("cross_attention", "plain"),)), plain))
    pre = StackPlan((BlockPlan((SitePlan((ATTENTION,)), plain)),) * 2, final_norm="layer_norm")
    both = TokenPlan(replace(pre, blocks=(crossed, crossed)), pre, "linear")
    yield "encoder and decoder", lambda: build_tokens(both, seeded(0))


def fault_singles() -> Iterator[Made]:
    """Each fault in each of its placements, in the second of three blocks and in every block."""
    for fault, kind in FAULTS.items():
        for placement in kind.placements if fault != "unmixed_lanes" else ():
            for every in (False, True):
                yield fault_single(fault, placement, every)


def fault_single(fault: str, placement: str, every: bool) -> Made:
    """Three blocks; the fault sits in the feed-forward, or in the cross-attention."""
    kinds = (ATTENTION, ("cross_attention", "plain"), FFN) if fault == "memory_shortcut" else (ATTENTION, FFN)
    spelling = BROADCASTING[0] if fault.startswith("broadcast") else "x + y"
    sound = BlockPlan(tuple(SitePlan((k,), placement, spelling=spelling) for k in kinds))
    bad = replace(sound, stale=True) if fault == "stale_shortcut" else replace(sound, fault=fault, fault_at=1)
    broken = () if fault == "missing_final_norm" else (0, 1, 2) if every else (1,)
    final = "layer_norm" if placement == "pre" else None
    stack = StackPlan(tuple(bad if i in broken else sound for i in range(3)), final_norm=final, final_unused=fault == "missing_final_norm")
    batch, length = {"broadcast_rows": (4, 4), "broadcast_growing": (3, 1)}.get(fault, (2, 5))
    plan = TokenPlan(stack, None, "linear" if fault == "missing_final_norm" else "none", batch, length, 8, fault=fault, fault_blocks=broken)
    return f"fault {fault}, {placement}, {'every block' if every else 'one block'}", lambda: build_tokens(plan, seeded(0))


def lane_singles() -> Iterator[Made]:
    """Lane axis, spellings, mixers, birth and end, number of lanes; and unmixed lanes."""
    for axis in (2, 1):
        for mixer in lanes.MIXERS:
            for spelling in lanes.SPELLINGS:
                plan = lanes.LanePlan(3, PAIR, axis, spelling, mixer=mixer)
                yield f"lanes axis {axis}, {mixer} by {spelling}", lambda p=plan: build_lanes(p, seeded(0))  # type: ignore[misc]
                if mixer != "identity":
                    lost = replace(plan, unmixed=True)
                    yield f"fault unmixed_lanes axis {axis}, {mixer} by {spelling}", lambda p=lost: build_lanes(p, seeded(0))  # type: ignore[misc]
        for birth in lanes.BIRTHS:
            for leave in ("sum", "mean"):
                plan = lanes.LanePlan(2, PAIR, axis, birth=birth, leave=leave)
                yield f"lanes axis {axis}, born by {birth}, left by {leave}", lambda p=plan: build_lanes(p, seeded(0))  # type: ignore[misc]
        for norm in TOKEN_NORMS:
            for spelling in lanes.SPELLINGS:
                plan = lanes.LanePlan(4, PAIR, axis, spelling, mixer="softmax", norm=norm)
                yield f"lanes axis {axis}, by {spelling}, {norm}", lambda p=plan: build_lanes(p, seeded(0))  # type: ignore[misc]
        for add in lanes.PLAIN_ON_LANES:
            plan = lanes.LanePlan(4, PAIR, axis, add=add, head=True)
            yield f"lanes axis {axis}, added by {add}", lambda p=plan: build_lanes(p, seeded(0))  # type: ignore[misc]

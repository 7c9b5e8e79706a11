"""Random wirings: choices -> plan -> (model, inputs, truth). The truth is written from the plan, never from the model."""

from dataclasses import dataclass, fields, is_dataclass, replace

import torch
from torch import Tensor, nn

from . import images, lanes, pairs
from .blocks import BlockPlan, EncoderDecoder, Model, StackPlan, block_path, inner_joins, owner, stack_sites
from .chooser import Chooser, seeded
from .faults import BROADCASTING, FAULTS
from .norms import TOKEN_NORMS
from .sites import ALPHA, HIGHWAYS, SitePlan
from .spellings import MORE, PLAIN
from .sublayers import FUSABLE, VARIANTS
from .truth import Fault, Truth

RandomWiring = tuple[nn.Module, tuple[Tensor, ...], Truth]
FUSED = tuple(s.name for s in MORE.values() if s.fused)


@dataclass(frozen=True)
class TokenPlan:
    """A stack with a head, or an encoder and a decoder."""

    stack: StackPlan
    encoder: StackPlan | None = None
    head: str = "none"
    batch: int = 2
    tokens: int = 5
    dim: int = 8
    bfloat16: bool = False
    mask: bool = False                  # an additive mask is an input of its own
    fault: str | None = None
    fault_blocks: tuple[int, ...] = ()


def random_wiring(source: int | Chooser) -> RandomWiring:
    """A model in evaluation mode, its inputs and what is true of its wiring; `source` is a seed or a chooser."""
    choose = seeded(source) if isinstance(source, int) else source
    torch.manual_seed(choose.number(0, 3))
    family = choose.one(("tokens",) * 6 + ("faults",) * 5 + ("lanes", "lanes", "images", "images", "pairs", "encoder and decoder"))
    if family == "lanes":
        return build_lanes(lane_plan(choose), choose)
    if family == "images":
        return build_images(image_plan(choose), choose)
    if family == "pairs":
        return build_pairs(pair_plan(choose))
    if family == "faults":
        return faulty(choose)
    return build_tokens(token_plan(choose, with_encoder=family == "encoder and decoder"), choose)


# --- plans of sound token models ---------------------------------------------------------------------------------------------------------

def style_of(choose: Chooser) -> str:
    """Which placements meet in a stack. A norm's neighbours decide what it is, so only settled neighbours are mixed."""
    return choose.one(("pre", "pre", "post", "post", "mixed", "mixed", "post and pre"))


def placement_of(choose: Chooser, style: str) -> str:
    """A placement for one sublayer (or, in "post and pre", for one block)."""
    options = {"pre": ("pre",), "post": ("post",), "mixed": ("pre", "sandwich", "output", "none"), "post and pre": ("pre", "post")}
    return choose.one(options[style])


def site_plan(choose: Chooser, kind: str, placement: str, norm: str, common: SitePlan | None) -> SitePlan:
    """One sublayer; `common` fixes what a declared skip scale makes equal in the whole model."""
    plan = SitePlan((branch_of(choose, kind, placement),), placement, norm, dropout=choose.rarely(3))
    plan = replace(plan, wrapper=choose.one(("block", "residual", "nested")))
    if common is not None and common.scale == "deepnorm":
        return replace(plan, scale="deepnorm", spelling=choose.one(tuple(PLAIN)))
    if common is not None:
        return replace(plan, spelling=common.spelling)
    scales = ("none",) * 6 + ("constant", "rezero", "zero_tanh", "layer_scale", "gate") + (("highway",) if placement in ("pre", "none") else ())
    plan = replace(plan, scale=choose.one(scales))
    if plan.scale == "highway":
        return replace(plan, spelling=choose.one(HIGHWAYS))
    if plan.scale != "none":
        return replace(plan, spelling=choose.one(tuple(PLAIN)))
    fused = FUSED if placement in ("pre", "post", "none") and kind != "moe" else ()
    spelling = choose.one((*PLAIN, "torch.add(x, y, alpha=c)", "torch.addcmul(x, gamma, y)", *fused))
    if spelling in FUSED:
        variant = choose.one([v for k, v in sorted(FUSABLE) if k == kind])
        return replace(plan, branches=((kind, variant),), dropout=False, spelling=spelling)
    return replace(plan, spelling=spelling)


def branch_of(choose: Chooser, kind: str, place: str = "pre", plain: bool = False) -> tuple[str, str]:
    """A branch of this kind; `plain` leaves out those that hold a stream of their own."""
    # A norm in the middle of a branch is a placement of its own where the branch has no other norm.
    left_out = ("inner", "inner_normed") if plain else () if place in ("pre", "sandwich", "output") else ("inner_normed",)
    return kind, choose.one([v for v in VARIANTS[kind] if v not in left_out])


def block_plan(choose: Chooser, style: str, norm: str, common: SitePlan | None, memory: bool) -> BlockPlan:
    """A block: sequential, parallel with one add, or parallel with two."""
    form = choose.one(("sequential",) * 4 + ("one add", "two adds"))
    if form == "two adds" and (style == "post" or common is not None):
        form = "one add"                # N(x + a + f) leaves open which add the norm belongs to; two factors would multiply
    place = placement_of(choose, style)
    container = choose.one((0, 0, 0, 1, 2))
    if form == "one add":
        kinds = ("self_attention", choose.one(("ffn", "moe", *(("cross_attention",) if memory else ()))))
        one = replace(site_plan(choose, "ffn", place, norm, common), branches=tuple(branch_of(choose, k, place) for k in kinds))
        one = one if one.spelling not in FUSED else replace(one, spelling="x + y")
        return BlockPlan((replace(one, two_norms=place == "pre" and choose.rarely(2)),), container=container)
    if form == "two adds":
        place = "pre" if place == "post" else place
        kinds = ("self_attention", choose.one(("ffn", "moe")))
        # The second add's identity factors would fall on the first branch too, so these two adds are plain.
        sites = tuple(replace(site_plan(choose, k, place, norm, common), wrapper="block") for k in kinds)
        return BlockPlan(tuple(plain_gain(s) for s in sites), chain=True, one_norm=place == "pre" and choose.rarely(2), container=container)
    kinds = choose.one((("ffn",), ("self_attention", "ffn"), ("self_attention", "moe"), ("ffn", "self_attention", "ffn"),
                        *(((("self_attention", "cross_attention", "ffn")),) * 3 if memory else ())))
    places = [place if style != "mixed" else placement_of(choose, style) for _ in kinds]
    sites = tuple(site_plan(choose, k, p, norm, common) for k, p in zip(kinds, places, strict=True))
    return BlockPlan(sites, one_norm=set(places) <= {"pre"} and choose.rarely(4), container=container)


def plain_gain(site: SitePlan) -> SitePlan:
    """The site without a factor on its shortcut."""
    return replace(site, scale="none", spelling="x + y") if site.gain() != 1.0 else site


def stack_plan(choose: Chooser, memory: bool, common: SitePlan | None, style: str, stem: str) -> StackPlan:
    """One to five blocks, equal or each its own."""
    norm = choose.one(tuple(TOKEN_NORMS))
    count = choose.number(1, 5)
    if choose.rarely(2):
        blocks = (block_plan(choose, style, norm, common, memory),) * count
    else:
        blocks = tuple(block_plan(choose, style, norm, common, memory) for _ in range(count))
    first, last = blocks[0].sites[0].placement, blocks[-1].sites[-1].placement
    stem_norm = norm if first in ("pre", "sandwich", "post") and choose.rarely(4) else None
    repeat = choose.one((1, 1, 1, 1, 2, 3)) if style != "post and pre" else 1
    # After a join without norm, a norm at the end would make it post-norm; after a post-norm it would be a norm on a norm.
    final = norm if last in ("pre", "sandwich") or (last == "output" and choose.rarely(2)) else None
    return StackPlan(blocks, stem, stem_norm, final, repeat=repeat, checkpointed=choose.rarely(10))


def token_plan(choose: Chooser, with_encoder: bool) -> TokenPlan:
    """A sound model over tokens."""
    style = style_of(choose)
    memory = with_encoder or choose.rarely(4)
    common = None
    if style == "post" and choose.rarely(3):
        common = SitePlan((), scale="deepnorm")
    elif style in ("pre", "mixed") and choose.rarely(10):
        common = SitePlan((), spelling="torch.lerp(x, y, 0.5)")
    if common is not None and style == "mixed":
        style = "pre"
    stem = choose.one(("embedding", "positions", "linear", "none"))
    stack = stack_plan(choose, memory, common, style, stem)
    encoder = stack_plan(choose, False, common, style, choose.one(("embedding", "linear"))) if with_encoder else None
    if with_encoder and not reads_memory(stack):        # or the encoder would run for nothing
        first = stack.blocks[0].sites[0]
        stack = replace(stack, blocks=(BlockPlan((site_plan(choose, "cross_attention", first.placement, first.norm, common),)), *stack.blocks))
    heads = ("none", "linear", "pooled", "biased", *(("tied",) if stem in ("embedding", "positions") else ()))
    reads = {s.placement for b in stack.blocks for s in b.sites} & {"pre", "sandwich"}
    ends_normed = stack.final_norm is not None or stack.blocks[-1].sites[-1].placement == "post"
    head = choose.one(heads) if ends_normed or not reads else "none"
    mask = choose.rarely(6) and not with_encoder
    return TokenPlan(stack, encoder, head, tokens=choose.number(4, 6), dim=choose.one((8, 12)), bfloat16=choose.rarely(8), mask=mask)


def reads_memory(stack: StackPlan) -> bool:
    """Whether a branch of the stack is a cross-attention."""
    return any(k == "cross_attention" for b in stack.blocks for s in b.sites for k, _ in s.branches)


def lane_plan(choose: Chooser) -> lanes.LanePlan:
    """A sound model of two to four lanes."""
    head = choose.rarely(2)
    return lanes.LanePlan(
        choose.number(2, 4), sublayer_pairs(choose), choose.one((2, 1)), choose.one(lanes.SPELLINGS), choose.one(lanes.PLAIN_ON_LANES),
        choose.one(lanes.MIXERS), choose.one(lanes.BIRTHS), choose.one(("sum", "mean")), choose.one(tuple(TOKEN_NORMS)),
        head or choose.rarely(2), head)


def sublayer_pairs(choose: Chooser) -> tuple[tuple[tuple[str, str], ...], ...]:
    """One to four blocks of attention and feed-forward."""
    kinds = [choose.one((("ffn",), ("self_attention", "ffn"), ("self_attention", "moe"))) for _ in range(choose.number(1, 4))]
    return tuple(tuple(branch_of(choose, k, plain=True) for k in block) for block in kinds)


def image_plan(choose: Chooser) -> images.ImagePlan:
    """A sound net over images."""
    preact, downs = choose.rarely(4), 0
    blocks = []
    for _ in range(choose.number(1, 5)):
        form = "preact" if preact else choose.one(("resnet", "bottleneck", "inverted", "convnext", "bare"))
        down = choose.one(("no", "no", "projection", "projection with norm", "pooled projection", "pooled")) if downs < 2 else "no"
        downs += down != "no"
        blocks.append(images.ImageBlock(form, choose.one(tuple(PLAIN)), down))
    return images.ImagePlan(tuple(blocks), choose.one(("batch", "group")), preact, choose.rarely(2))


def pair_plan(choose: Chooser) -> pairs.PairPlan:
    """A sound stack of (hidden, residual) blocks."""
    return pairs.PairPlan(sublayer_pairs(choose), choose.one(tuple(TOKEN_NORMS)), choose.one(tuple(PLAIN)), choose.rarely(2))


# --- plans of broken models ----------------------------------------------------------------------------------------------------------------

def faulty(choose: Chooser) -> RandomWiring:
    """A model with one planted fault, in one block or in every block."""
    fault = choose.one(tuple(FAULTS))
    if fault == "unmixed_lanes":
        plan = lane_plan(choose)
        return build_lanes(replace(plan, mixer=plan.mixer if plan.mixer != "identity" else "static", unmixed=True), choose)
    if fault == "mutated_shortcut" and choose.rarely(2):
        blocks = tuple(images.ImageBlock("bare", choose.one(tuple(PLAIN))) for _ in range(choose.number(2, 4)))
        at = choose.number(0, len(blocks) - 1)
        return build_images(images.ImagePlan(tuple(replace(b, mutated=i == at) for i, b in enumerate(blocks))), choose)
    return build_tokens(faulty_tokens(choose, fault), choose)


def faulty_tokens(choose: Chooser, fault: str) -> TokenPlan:
    """Blocks of attention and feed-forward, all of one placement, one sublayer of them wired wrong."""
    place, norm = choose.one(FAULTS[fault].placements), choose.one(tuple(TOKEN_NORMS))
    spelling = choose.one(BROADCASTING if fault.startswith("broadcast") else tuple(PLAIN))
    kinds = ("self_attention", "cross_attention", "ffn") if fault == "memory_shortcut" else ("self_attention", choose.one(("ffn", "moe")))
    at = 1 if fault in ("memory_shortcut", "stale_shortcut") else len(kinds) - 1 if fault == "mutated_shortcut" else choose.number(0, len(kinds) - 1)
    wrapper = "block" if fault == "stale_shortcut" else choose.one(("block", "residual", "nested"))
    # With one token, scores written as an einsum fold to a product: nothing in the data flow says attention any more.
    branches = [(k, "plain" if (fault, v) == ("broadcast_growing", "einsum") else v) for k, v in (branch_of(choose, k, plain=True) for k in kinds)]
    sites = tuple(SitePlan((b,), place, norm, spelling, wrapper=wrapper) for b in branches)
    sound = BlockPlan(sites, container=choose.one((0, 0, 1)))
    count = choose.number(2, 4)
    if fault == "missing_skip":         # what stands before the first join or after the last may be a stem or a head
        count, at = choose.number(3, 5), choose.number(0, len(kinds) - 1)
    broken: tuple[int, ...] = ()
    if fault != "missing_final_norm":
        inside = range(1, count - 1) if fault == "missing_skip" else range(count)
        broken = tuple(range(count)) if choose.rarely(3) else (choose.one(inside),)
    bad = replace(sound, stale=True) if fault == "stale_shortcut" else replace(sound, fault=fault, fault_at=at)
    ends = norm if place == "pre" else None
    blocks = tuple(bad if i in broken else sound for i in range(count))
    stack = StackPlan(blocks, choose.one(("embedding", "positions")), None, ends, final_unused=fault == "missing_final_norm")
    head = choose.one(("linear", "tied", "biased") if fault == "missing_final_norm" else ("none", "linear", "pooled"))
    batch, tokens = {"broadcast_rows": (4, 4), "broadcast_growing": (3, 1)}.get(fault, (2, 5))
    return TokenPlan(stack, None, head, batch, tokens, 8, fault=fault, fault_blocks=broken)


def fault_truth(plan: TokenPlan) -> Fault | None:
    """Which rule must name the planted fault, and where."""
    if plan.fault is None:
        return None
    kind, places, touched = FAULTS[plan.fault], [], []
    for i in plan.fault_blocks:
        block = plan.stack.blocks[i]
        path, at = block_path("", i, block), 1 if block.stale else block.fault_at
        places += [owner(path, at, block.sites[at].wrapper), f"{path}.sub.{at}.*"]
        touched.append(f"{path}.*")
    if plan.fault == "memory_shortcut":                 # the memory becomes the stream, so later blocks attend to their own stream
        touched = [f"{block_path('', i, b)}.*" for i, b in enumerate(plan.stack.blocks) if i >= min(plan.fault_blocks)]
    # A normed shortcut before any join is also a norm behind the stem and a sublayer without its norm: either name is right.
    first = plan.fault == "normed_shortcut" and plan.fault_blocks == (0,) and plan.stack.blocks[0].fault_at == 0
    return Fault(plan.fault, kind.codes + (("SKW203",) if first else ()), tuple(places) or ("*",), kind.also, tuple(touched))


# --- plans to models -----------------------------------------------------------------------------------------------------------------------

def shown(plan: object, indent: str = "") -> str:
    """The plan for a person: what differs from the plainest one, a block or sublayer a line."""
    if isinstance(plan, tuple) and plan and is_dataclass(plan[0]):
        return "".join(f"\n{indent}  {shown(p, indent + '  ')}" for p in plan)
    if not is_dataclass(plan) or isinstance(plan, type):
        return repr(plan)
    told = [f"{f.name}={shown(getattr(plan, f.name), indent + '  ')}" for f in fields(plan) if getattr(plan, f.name) != f.default]
    return f"{type(plan).__name__} " + ", ".join(told)


def build_tokens(plan: TokenPlan, choose: Chooser) -> RandomWiring:
    """Model, inputs and truth of a token plan."""
    stacks = [plan.stack] if plan.encoder is None else [plan.encoder, plan.stack]
    takes_memory = reads_memory(plan.stack)
    model: nn.Module
    if plan.encoder is None:
        reads = (("memory",) if takes_memory else ()) + (("mask",) if plan.mask else ())
        model = Model(plan.stack, plan.dim, plan.tokens, plan.head, reads)
        prefixes = [""]
        times: list[tuple[nn.Module, int]] = [(model, plan.stack.repeat)]
    else:
        model = EncoderDecoder(plan.encoder, plan.stack, plan.dim, plan.tokens, plan.head)
        times, prefixes = [(model.encoder, plan.encoder.repeat), (model.decoder, plan.stack.repeat)], ["encoder.", "decoder."]
    inputs = [stem_input(s.stem, plan) for s in stacks]
    if plan.encoder is None and takes_memory:
        inputs.append(torch.randn(plan.batch, plan.tokens if plan.fault else 7, plan.dim))
    if plan.mask:
        inputs.append(torch.full((plan.tokens, plan.tokens), -1e4).triu(1))
    if plan.bfloat16:
        model, inputs = model.to(torch.bfloat16), [x.to(torch.bfloat16) if x.is_floating_point() else x for x in inputs]
    gains = {s.gain() for stack in stacks for b in stack.blocks for s in b.sites}
    expect: dict[str, object] = {"skip_scale": gains.pop()} if gains <= {ALPHA} or gains <= {0.5} else {}
    expect = {"placement": "pre"} if plan.fault == "normed_shortcut" else expect
    sites = [site for stack, prefix in zip(stacks, prefixes, strict=True) for site in stack_sites(stack, prefix)]
    final = tuple(s.final_norm is not None and not s.final_unused for s in stacks)
    truth = Truth(tuple(sites), 1, final, inner_joins(model, times), expect, fault_truth(plan), token_features(plan, stacks), shown(plan))
    return model.eval(), tuple(inputs), truth


def token_features(plan: TokenPlan, stacks: list[StackPlan]) -> tuple[str, ...]:
    """What a table of misses is grouped by."""
    if plan.fault:
        return (f"fault {plan.fault}", f"fault {plan.fault} in {plan.stack.blocks[0].sites[0].placement}")
    own = ["family tokens" if plan.encoder is None else "family encoder and decoder", f"head {plan.head}"]
    own += (["bfloat16"] if plan.bfloat16 else []) + (["mask given"] if plan.mask else [])
    for stack in stacks:
        own += [f"stem {stack.stem}"] + (["stem norm"] if stack.stem_norm else []) + (["checkpointed"] if stack.checkpointed else [])
        own += ["block shared"] if stack.repeat > 1 else []
        for block in stack.blocks:
            own += [f for s in block.sites for f in s.features()] + (["block parallel, two adds"] if block.chain else [])
            own += (["norm shared"] if block.one_norm else []) + ([f"container {block.container}"] if block.container else [])
    return tuple(sorted(set(own)))


def stem_input(stem: str, plan: TokenPlan) -> Tensor:
    """What the stem reads."""
    if stem in ("embedding", "positions"):
        return torch.randint(0, 20, (plan.batch, plan.tokens))
    return torch.randn(plan.batch, plan.tokens, 6 if stem == "linear" else plan.dim)


def build_lanes(plan: lanes.LanePlan, choose: Chooser) -> RandomWiring:
    """Model, inputs and truth of a lane plan."""
    fault, features = None, ("family lanes", *plan.features())
    if plan.unmixed:
        paths = tuple(s.module for s in plan.sites())
        fault, features = Fault("unmixed_lanes", FAULTS["unmixed_lanes"].codes, tuple(f"{p}.*" for p in paths)), ("fault unmixed_lanes",)
    truth = Truth(tuple(plan.sites()), plan.lanes, (plan.final_norm,), 0, {}, fault, tuple(sorted(set(features))), shown(plan))
    return lanes.LaneModel(plan, 8).eval(), (torch.randint(0, 20, (2, choose.number(4, 6))),), truth


def build_images(plan: images.ImagePlan, choose: Chooser) -> RandomWiring:
    """Model, inputs and truth of an image plan."""
    broken = [i for i, b in enumerate(plan.blocks) if b.mutated]
    fault, features = None, ("family images", *plan.features())
    if broken:
        kind, places = FAULTS["mutated_shortcut"], tuple(f"blocks.{i}.*" for i in broken)
        fault = Fault("mutated_shortcut", kind.codes, places, kind.also, places)
        features = ("fault mutated_shortcut", "fault mutated_shortcut in image")
    truth = Truth(tuple(plan.sites()), 1, (plan.final_norm,), 0, {}, fault, tuple(sorted(set(features))), shown(plan))
    return images.ImageModel(plan).eval(), (torch.randn(choose.number(1, 2), 3, 16, 16),), truth


def build_pairs(plan: pairs.PairPlan) -> RandomWiring:
    """Model, inputs and truth of a (hidden, residual) plan."""
    features = ("family pairs", *plan.features())
    truth = Truth(tuple(plan.sites()), 1, (True,), 0, {}, None, tuple(sorted(set(features))), shown(plan))
    return pairs.PairModel(plan, 8).eval(), (torch.randint(0, 20, (2, 5)),), truth

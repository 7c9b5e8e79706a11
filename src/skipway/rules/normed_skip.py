"""normed-skip: the shortcut is taken from the normed tensor where the raw stream was meant.

What it does
    Reports a join whose shortcut is the output of the norm that its branch reads: `n = norm(x); n + F(n)`.
Why it matters
    In a pre-norm model the identity path is then cut by a norm at every sublayer, which is what pre-norm is there to
    avoid, and checkpoints give other numbers than the code they came from. The commonest wiring fault in public
    reports: pytorch/pytorch#61165, Howuhh/faster-trajectory-transformer#3, allenai/OLMo#680, tracel-ai/burn#1056,
    lbcb-sci/RiNALMo#9, d2l-ai/d2l-en#2283, Project-MONAI/MONAI#9011; in one sublayer of a block only,
    SHI-Labs/Compact-Transformers#25.
Fires on
    As an error: `x = norm(x); x = x + F(x)` where pre-norm is declared (`expect=Expect(placement="pre")`, `norm_first`,
    `do_layer_norm_before`); and, with no declaration, a block in which one sublayer skips the raw stream and another
    the normed one. As a note: the same wiring throughout, with no declaration. Its graph is that of a post-norm stack
    whose block boundaries are moved by one norm, so nobody can tell from the graph alone.
Quiet on
    Post-norm stacks, also with a norm on the embeddings (false alarms of this kind:
    LiyuanLucasLiu/Transformer-Clinic#27, karpathy/minGPT#52, lucidrains/perceiver-pytorch#42). Pre-norm with the raw
    shortcut (harvardnlp/annotated-transformer#110). A norm once before the whole stack. A declared
    `apply_residual_connection_post_layernorm`.
What to do
    Keep the raw stream: `x = x + F(norm(x))`. Where the normed shortcut is meant, declare it.
"""

from collections import OrderedDict
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from skipway.rules._base import Example, Facts, Hit, Spot
from skipway.wiring.sites import Place
from skipway.wiring.states import Norm

CODE = "SKW201"
STAGE = "graph"
SEVERITY = "error"


def check(facts: Facts) -> Iterator[Hit]:
    blocks: dict[tuple[str, int], list[Spot]] = {}
    for spot in facts.spots:
        blocks.setdefault(facts.group(spot.flow, spot.place), []).append(spot)
    for spots in blocks.values():
        raw = [s for s in spots if s.place.join.before.norm is None and s.site.placement in ("pre", "sandwich")]
        for spot in spots:
            clean = any(s.site.branches != spot.site.branches for s in raw)
            if spot.place.join.before.norm is not None and not facts.declared(spot.place.module, "apply_residual_connection_post_layernorm"):
                yield from _judge(facts, spot, clean, spot is spots[0])


def _judge(facts: Facts, spot: Spot, clean: bool, first: bool) -> Iterator[Hit]:
    place, site = spot.place, spot.site
    state = place.join.before
    norm = facts.record.calls[state.norm.call].path if state.norm is not None else ""
    where = facts.sublayer(place)
    if site.placement in ("pre", "sandwich"):
        return
    declared = facts.placement_declared(place.module) in ("pre", "sandwich")
    alone = site.index == 0 and sum(s.place.join.before.norm is not None for s in facts.spots) == 1
    stem = alone and not _own_norm(facts, place, state.norm)
    if (declared and not stem) or (clean and site.shortcut == "normed" and _same_forward(facts, place, state.norm)):
        why = "declared is pre-norm" if declared else "the other sublayer of this block adds the raw stream"
        text = (f"`{where}` adds the output of `{norm}` instead of the raw stream, and {why}; keep the raw stream for the add and "
                "give the normed copy to the branch only")
        yield Hit(where, text, None, facts.line(place.join.node), {"norm": norm})
    elif first and not stem and _own_norm(facts, place, state.norm):
        text = (f"`{where}` adds the output of `{norm}`: the identity path is interrupted by a norm at every sublayer; declare "
                "placement=\"pre\" if the raw stream was meant")
        yield Hit(where, text, "note", facts.line(place.join.node), {"norm": norm})


def _same_forward(facts: Facts, place: Place, norm: Norm | None) -> bool:
    """Whether one forward calls the norm and adds, itself or through modules side by side."""
    calls = facts.record.calls
    return norm is not None and bool({norm.call, calls[norm.call].parent} & {place.call, calls[place.call].parent})


def _own_norm(facts: Facts, place: Place, norm: Norm | None) -> bool:
    """Whether the norm that made the shortcut runs at the head of the same block: a post-norm stack has it at the end of the one before."""
    path = facts.block(place)[0]
    return norm is not None and bool(path) and facts.record.calls[norm.call].path.startswith(path + ".")


class _Mixer(nn.Module):
    def __init__(self, tokens: int = 6, dim: int = 16) -> None:
        super().__init__()
        self.token_norm, self.channel_norm = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.tokens = nn.Sequential(nn.Linear(tokens, 12), nn.GELU(), nn.Linear(12, tokens))
        self.channels = nn.Sequential(nn.Linear(dim, 32), nn.GELU(), nn.Linear(32, dim))

    def across(self, x: Tensor) -> Tensor:
        return self.tokens(x.transpose(1, 2)).transpose(1, 2)


def _example(block: type[nn.Module]) -> Example:
    torch.manual_seed(0)
    net = OrderedDict(patches=nn.Linear(4, 16), mixers=nn.Sequential(block(), block()), norm=nn.LayerNorm(16), head=nn.Linear(16, 3))
    return Example(nn.Sequential(net).eval(), (torch.randn(2, 6, 4),), where="mixers.0", options={"expect": {"placement": "pre"}})


def bad() -> Example:
    """Declared pre-norm, but each norm overwrites the stream before the sum is formed."""

    class Block(_Mixer):
        def forward(self, x: Tensor) -> Tensor:
            x = self.token_norm(x)
            x = x + self.across(x)
            x = self.channel_norm(x)
            return x + self.channels(x)

    return _example(Block)


def good() -> Example:
    """Declared pre-norm; the norms feed the branches only."""

    class Block(_Mixer):
        def forward(self, x: Tensor) -> Tensor:
            x = x + self.across(self.token_norm(x))
            return x + self.channels(self.channel_norm(x))

    return _example(Block)

"""shared-block: one residual block module is used at several depths and nothing declares the sharing.

What it does
    Notes a module with a join on the main stream that one forward calls at several depths, and how many distinct
    modules the stack has.
Why it matters
    `[Block()] * n` holds one block n times: the model is as deep as configured and as large as one layer. Reported in
    zalandoresearch/pytorch-vq-vae#2, linkedin/Liger-Kernel#269, yaoppeng/U-Net_v2#10, acids-ircam/ddsp_pytorch#37 and
    habla-liaa/encodecmae#3 (one FFN for all layers).
Fires on
    A list or Sequential with repeated entries; one attention or feed-forward object given to every block; a loop that
    calls one block several times. Always a note: sharing across depth is also a design.
Quiet on
    Declared sharing, as in ALBERT: a configuration with a number of groups below the number of layers, or an attribute
    that says that layers are shared. A block called for several inputs at one depth (siamese encoders). Modules without
    parameters. Recurrence over time steps.
What to do
    Build the blocks one by one (`[Block() for _ in range(n)]`), or declare the sharing.
"""

from collections import OrderedDict
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from skipway.rules._base import Example, Facts, Hit
from skipway.wiring.record import Call
from skipway.wiring.streams import ancestors

CODE = "SKW607"
STAGE = "graph"
SEVERITY = "note"

_DECLARED = ("share", "tie", "recur", "num_hidden_groups", "loop", "ut_steps", "repeat")


def check(facts: Facts) -> Iterator[Hit]:
    calls = facts.record.calls
    runs: dict[int, list[Call]] = {}
    held = {c for s in facts.spots for c in _around(facts, s.place.call)}
    for call in calls[1:]:
        if call.id in held:
            runs.setdefault(id(call.module), []).append(call)
    by_path: dict[str, list[Call]] = {}
    for call in calls[1:]:
        by_path.setdefault(call.path, []).append(call)
    for spot in facts.spots:                        # a sublayer without a join of its own, used in several blocks
        end = spot.place.join.region.nodes[-1]
        owner = next((c for c in by_path.get(facts.sublayer(spot.place), []) if c.first <= end < c.last), None)
        if owner is not None and next(owner.module.parameters(), None) is not None:
            same = runs.setdefault(id(owner.module), [])
            same.extend([owner] if owner not in same else [])
    told: list[str] = []
    for same in runs.values():
        path = same[0].path
        if len(same) < 2 or not _chained(facts, same) or any(path.startswith(t) for t in told) or _said(facts, path):
            continue
        told.append(path + ".")
        text = (f"`{path}` runs {len(same)} times on this stream with one set of weights; "
                f"make one for each depth, or declare the sharing in the configuration")
        yield Hit(path, text, None, same[1].where, {"calls": len(same)})


def _around(facts: Facts, call: int) -> list[int]:
    found = []
    while call > 0:
        found.append(call)
        call = facts.record.calls[call].parent
    return found


def _chained(facts: Facts, same: list[Call]) -> bool:
    """Whether a later call reads what an earlier one made: twin towers share a block without being deeper for it."""
    first = {n for _, n in same[0].outs}
    return bool(first & ancestors(facts.graph, tuple(n for _, n in same[-1].ins)))


def _said(facts: Facts, path: str) -> bool:
    config = getattr(facts.record.model, "config", None)
    return any(any(d in name.lower() for d in _DECLARED) and value for name, value in vars(config).items() if isinstance(value, (bool, int))) \
        if hasattr(config, "__dict__") and not hasattr(config, "model_type") else bool(getattr(config, "num_hidden_groups", 0))


class _Block(nn.Module):
    def __init__(self, dim: int = 16) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(dim), nn.Linear(dim, 32), nn.Linear(32, dim)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(torch.tanh(self.up(self.norm(x))))


def _example(blocks: list[nn.Module]) -> Example:
    net = OrderedDict(stem=nn.Linear(4, 16), blocks=nn.Sequential(*blocks), norm=nn.LayerNorm(16), head=nn.Linear(16, 3))
    return Example(nn.Sequential(net).eval(), (torch.randn(2, 4),), where="blocks")


def bad() -> Example:
    """Four entries, one block."""
    torch.manual_seed(0)
    return _example([_Block()] * 4)


def good() -> Example:
    """Four entries, four blocks."""
    torch.manual_seed(0)
    return _example([_Block() for _ in range(4)])

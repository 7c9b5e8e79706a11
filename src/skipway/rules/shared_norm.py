"""shared-norm: one norm module is used on different states of the stream.

What it does
    Notes a norm with learned weights that is called more than once in a forward, on different states of one stream.
Why it matters
    The sublayers share one gain where each needs its own, and checkpoints with two norms do not fit. In
    allenai/OLMo#222 the feed-forward of a sequential block used attention's norm; it was filed as a bug.
Fires on
    `x = x + attn(norm(x)); x = x + ffn(norm(x))` with one `norm`; one norm object put into every block. Always a note:
    the model is consistent, and some share on purpose.
Quiet on
    Parallel blocks, where one norm output feeds both branches (GPT-J, Falcon-7B). Norms without weights. A whole block
    that is used several times: `shared-block` speaks of that. An encoder that is called for two inputs. One norm used
    by several entry points.
What to do
    Give each sublayer a norm of its own.
"""

from collections import OrderedDict
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from skipway.rules._base import Example, Facts, Hit
from skipway.wiring.states import State

CODE = "SKW207"
STAGE = "graph"
SEVERITY = "note"


def check(facts: Facts) -> Iterator[Hit]:
    g, calls = facts.graph, facts.record.calls
    used: dict[tuple[int, int], dict[State, int]] = {}
    for spot in facts.spots:
        for norm in spot.place.norms:
            call = calls[norm.call]
            state = g.state[norm.source]
            if state is not None and call.module is not facts.record.model and not any(True for _ in call.module.children()):
                used.setdefault((id(call.module), call.parent), {}).setdefault(state, norm.call)
    for states in used.values():
        numbers = sorted(states.values())
        if len(numbers) > 1:
            path = calls[numbers[0]].path
            text = (f"`{path}` norms {len(numbers)} different states of the stream with one set of weights; give each sublayer a "
                    "norm of its own, or declare the sharing")
            yield Hit(path, text, None, calls[numbers[-1]].where, {"calls": len(numbers)})


class _Block(nn.Module):
    def __init__(self, dim: int = 16) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.attn = nn.MultiheadAttention(dim, 2, batch_first=True)
        self.ffn = nn.Sequential(nn.Linear(dim, 32), nn.GELU(), nn.Linear(32, dim))


def _example(block: type[nn.Module]) -> Example:
    torch.manual_seed(0)
    net = OrderedDict(stem=nn.Linear(4, 16), blocks=nn.Sequential(block(), block()), norm=nn.LayerNorm(16), head=nn.Linear(16, 3))
    return Example(nn.Sequential(net).eval(), (torch.randn(2, 6, 4),), where="blocks.0.norm")


def bad() -> Example:
    """A sequential block norms two different states with one module."""

    class Block(_Block):
        def forward(self, x: Tensor) -> Tensor:
            n = self.norm(x)
            x = x + self.attn(n, n, n, need_weights=False)[0]
            return x + self.ffn(self.norm(x))

    return _example(Block)


def good() -> Example:
    """A parallel block: both branches read one output of the norm."""

    class Block(_Block):
        def forward(self, x: Tensor) -> Tensor:
            n = self.norm(x)
            return x + self.attn(n, n, n, need_weights=False)[0] + self.ffn(n)

    return _example(Block)

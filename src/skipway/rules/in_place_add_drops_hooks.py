"""in-place-add-drops-hooks: an in-place residual add into a view drops the backward hooks on it.

What it does
    Looks at one forward with gradients and reports an in-place add at a site that writes to what a module returned, where that
    tensor is a view of another one.
Why it matters
    An in-place write to a view gives the view a new place in the autograd graph. Hooks that stand on the tensor from before, as those
    of FSDP2 and of tools that read gradients at module outputs do, are dropped without a word; a full backward hook on the module
    raises. On a tensor that is no view they stay.
Fires on
    `out = self.proj(x); out += x` where proj is a Linear with a bias and x has three axes (its output is a view of a matrix product); the
    same behind a module that returns `y.transpose(1, 2)`.
Quiet on
    In-place adds to what is no view: the output of a convolution, of a norm, of a Linear without a bias or on two axes. Views that no
    module returned.
What to do
    Write `out = out + x`.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from skipway.rules._base import Example, Facts, Hit
from skipway.rules._real import Real
from skipway.wiring.record import Call

CODE = "SKW608"
STAGE = "train"
SEVERITY = "note"


def check(facts: Facts) -> Iterator[Hit]:
    real = facts.train
    told: set[str] = set()
    for spot in real.spots:
        node = real.graph.nodes[spot.place.join.node]
        if not node.write or not node.ins or node.ins[0] not in real.run.tracked:
            continue
        versions = _versions(real, node.ins[0])
        call = _returned_by(real, versions, node.id) if _is_view(real, versions[-1]) else None
        if call is None:
            continue
        below = call.path.startswith(spot.place.module + ".") or not spot.place.module
        where = call.path if below else spot.place.module
        if where not in told:
            told.add(where)
            text = (f"the in-place add at `{where}` writes to the output of `{call.path}`, which is a view: backward hooks on that tensor are "
                    "dropped; write `y = y + x`")
            yield Hit(where, text, None, real.line(node.id), {"written": call.path, "view": real.graph.nodes[versions[-1]].op})


def _versions(real: Real, n: int) -> list[int]:
    """A tensor's versions, newest first, back to the operation that made it."""
    found = [n]
    while True:
        node = real.graph.nodes[found[-1]]
        if not (node.write or node.op in ("reread", "patch")) or not node.ins:
            return found
        found.append(node.ins[0])


def _is_view(real: Real, made: int) -> bool:
    node = real.graph.nodes[made]
    return node.group != made and node.overload is not None and node.op != "detach"


def _returned_by(real: Real, versions: list[int], write: int) -> Call | None:
    """The outermost module that returned one of these versions before the write."""
    own = set(versions)
    found = [c for c in real.record.calls[1:] if c.last <= write and own & {n for _, n in c.outs} and not own & {n for _, n in c.ins}]
    return min(found, key=lambda c: c.id) if found else None


class _Block(nn.Module):
    def __init__(self, dim: int = 16) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(dim), nn.Linear(dim, 32), nn.Linear(32, dim)


def _example(block: type[nn.Module]) -> Example:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 16), block(), block(), nn.LayerNorm(16), nn.Linear(16, 3))
    return Example(net.eval(), (torch.randn(2, 6, 4),), where="1.down", options={"stage": "train"})


def bad() -> Example:
    """The output of a Linear on three axes is written to."""

    class Block(_Block):
        def forward(self, x: Tensor) -> Tensor:
            y = self.down(torch.relu(self.up(self.norm(x))))
            y += x
            return y

    return _example(Block)


def good() -> Example:
    """The sum is a new tensor."""

    class Block(_Block):
        def forward(self, x: Tensor) -> Tensor:
            return x + self.down(torch.relu(self.up(self.norm(x))))

    return _example(Block)

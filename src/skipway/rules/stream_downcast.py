"""stream-downcast: the shortcut is cast to a narrower dtype on its way to the add.

What it does
    Reports a cast on the identity path from a wider to a narrower floating dtype (float32 to bfloat16 or float16), and
    a stream whose dtype is not the declared one (`residual_in_fp32`, `fp32_residual_connection`,
    `expect=Expect(stream_dtype="float32")`).
Why it matters
    A stream is kept in float32 so that small branch values survive the add in deep models. One cast at a join undoes it
    from there on, and the option that asks for it has no effect. In NVIDIA/Megatron-LM#3504 the helper of bias, dropout
    and add cast the shortcut to the branch's dtype; related are fla-org/flash-linear-attention#137 and, the other way
    round, NVIDIA/Megatron-LM#4469.
Fires on
    `shortcut.to(branch.dtype) + branch` with a float32 stream and a bfloat16 branch; `(x + y).to(torch.bfloat16)`
    handed on as the stream.
Quiet on
    Casts of the branch's input (the norm's output, `x.to(weight.dtype)`), and of the branch up to the stream. Streams
    of one dtype throughout, narrow as it may be. The last cast before the head. Casts under autocast that do not touch
    the shortcut.
What to do
    Cast the branch up to the stream's dtype: `shortcut + branch.to(shortcut.dtype)`.
"""

from collections import OrderedDict
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from skipway.rules._base import Example, Facts, Hit
from skipway.wiring.states import NARROWED

CODE = "SKW702"
STAGE = "graph"
SEVERITY = "warning"


def check(facts: Facts) -> Iterator[Hit]:
    g = facts.graph
    for spot in facts.spots:
        join = spot.place.join
        if not g.marks[join.shortcut] & NARROWED:
            continue
        n = join.shortcut
        cast, wide = n, g.nodes[join.before.node].dtype
        for _ in range(64):
            source = next((i for i in g.nodes[n].ins if g.state[i] is join.before), None)
            if source is None:
                break
            if g.nodes[n].dtype != g.nodes[source].dtype and g.nodes[n].dtype.itemsize < g.nodes[source].dtype.itemsize:
                cast, wide = n, g.nodes[source].dtype
                break
            n = source
        narrow = str(g.nodes[cast].dtype).removeprefix("torch.")
        was = str(wide).removeprefix("torch.")
        where = spot.place.module
        text = (f"the shortcut is cast {was} -> {narrow} on its way to the add: what the stream gained in {was} is rounded away; "
                f"cast the branch to {was} instead")
        yield Hit(where, text, None, facts.line(join.node), {"from": was, "to": narrow})


class _Block(nn.Module):
    residual_in_fp32 = True

    def __init__(self, dim: int = 16) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.up, self.down = nn.Linear(dim, 32, dtype=torch.bfloat16), nn.Linear(32, dim, dtype=torch.bfloat16)

    def branch(self, x: Tensor) -> Tensor:
        return self.down(torch.relu(self.up(self.norm(x.float()).bfloat16())))


def _example(block: type[nn.Module]) -> Example:
    torch.manual_seed(0)
    net = OrderedDict(stem=nn.Linear(4, 16), blocks=nn.Sequential(block(), block(), block()))
    return Example(nn.Sequential(net).eval(), (torch.randn(2, 6, 4),), where="blocks.0")


def bad() -> Example:
    """The float32 stream is cast to the branch's bfloat16."""

    class Block(_Block):
        def forward(self, x: Tensor) -> Tensor:
            y = self.branch(x)
            return x.to(y.dtype) + y

    return _example(Block)


def good() -> Example:
    """The branch is cast to the stream's float32."""

    class Block(_Block):
        def forward(self, x: Tensor) -> Tensor:
            return x + self.branch(x).to(x.dtype)

    return _example(Block)

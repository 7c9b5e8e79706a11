"""reversible: two lanes that add to each other in turn, so that the stream before a sublayer follows from the one after it.

    enter(x) = (x, x)          even sublayers: y1 = x1 + F(N(x2))          odd sublayers: y2 = x2 + G(N(y1))          leave = (y1 + y2) / 2

    undo: x2 = y2 - G(N(y1)), x1 = y1 - F(N(x2))

The stream is kept as (older, newer): a sublayer reads the newer lane and adds to the older one, which becomes the newer. `nn.Stack` keeps no
activation of it: memory is flat in depth, at the price of one more forward. Undoing is exact up to rounding of the adds, which 16 bits are too few
for: give stream_dtype=torch.float32 there, and the branches stay in bfloat16.
Parameters: one norm a sublayer. Cost a token: reads 3 dim, writes 2 dim; the stream is 2 dim wide.
Source: Gomez, Ren, Urtasun, Grosse, The Reversible Residual Network, 2017, arXiv 1707.04585; both lanes of full width and started as copies:
Kitaev, Kaiser, Levskaya, Reformer, 2020, arXiv 2001.04451.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from skipway._errors import SchemeError
from skipway.schemes._base import Scheme, Traffic

State = tuple[Tensor, Tensor]           # the lane that was written earlier, the one that was written last


class Reversible(Scheme):
    """Each lane adds what it reads of the other. Option: merge ("mean" or "sum") of the lanes at the end."""

    placement = "pre"
    final_norm = True
    reversible = True
    traffic = Traffic(3, 2)

    def build(self, merge: str = "mean") -> None:
        if merge not in ("mean", "sum"):
            raise SchemeError(f"scheme reversible: merge is {merge!r}; wanted mean or sum")
        self.norm = self.make_norm(self.dim)
        self.share = 0.5 if merge == "mean" else 1.0

    def enter(self, x: Tensor) -> State:
        return x, x

    def read(self, stream: State) -> tuple[Tensor, None]:
        return self.norm(stream[1]), None

    def write(self, stream: State, y: Tensor, memo: Any) -> State:
        older, newer = stream
        return newer, older + y

    def leave(self, stream: State) -> Tensor:
        total = stream[0] + stream[1]
        return total if self.share == 1.0 else total * self.share

    def undo(self, stream: State, branch: Callable[[Any], Tensor]) -> State:
        newer, written = stream
        return written - branch(self.norm(newer)), newer

"""read_from: the branch reads the state after an earlier site instead of the newest one: a long skip."""

import torch
from torch import Tensor

from skipway._errors import RewireError
from skipway.surgery._action import Action
from skipway.surgery._keep import Kept


class ReadFrom(Action):
    """Options: site (the index of an earlier site of the same stream).

    The earlier state is kept from its join to the read, so both have to run in one forward: where activation checkpointing runs the read again
    without the join, it raises.
    """

    kept = False

    def build(self, site: int) -> None:
        if self.spot.site.index == 0:
            raise RewireError(f"rewire: {self.spot}: read_from wants an earlier site of the stream, and this is its first")
        if not 0 <= site < self.spot.site.index:
            raise RewireError(f"rewire: {self.spot}: read_from wants an earlier site of the stream, 0 to {self.spot.site.index - 1}, got {site}")
        self.exact = site == self.spot.site.index - 1
        self.source = [Kept(self.spot)]         # in a list: it is registered at its own site

    def beside(self) -> dict[int, Action]:
        return {self.options["site"]: self.source[0]}

    def read(self, x: Tensor) -> Tensor:
        if not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1:
            raise RewireError(f"rewire: {self.spot} reads from site {self.options['site']}, and activation checkpointing runs it again without "
                              "that site; checkpoint both together, or neither")
        return self.source[0].state

"""lanes: a whole pre-norm stream gets n lanes that a scheme reads and writes, and starts exactly as the model that it was.

Between the joins the lanes travel as one tensor, lane by lane along the first axis, (n batch, token, dim), so that whatever passes the stream on,
activation checkpointing too, passes them all. A site whose branch reads outside the call that joins reads its lanes again there.
At the start the lanes are n copies; what a branch reads of them is the state, each write is the branch once, and the stream is left as their mean.
"""

from typing import Any

import torch
from torch import Tensor, nn

from skipway import schemes
from skipway._errors import RewireError
from skipway.schemes import Scheme
from skipway.surgery._action import Action
from skipway.surgery._lane_starts import STARTS


class Lanes(Action):
    """Options: n, scheme (hyper, mhc, identity_hyper, gated_residual), and those of the scheme."""

    near = True
    whole = True

    def build(self, n: int = 4, scheme: str = "hyper", **options: Any) -> None:
        spot, site = self.spot, self.spot.site
        start = STARTS.get(scheme)
        if start is None:
            raise RewireError(f"rewire: lanes knows how to start {', '.join(STARTS)} at the function of a trained model, not {scheme!r}")
        fits = site.placement == "pre" and site.shortcut == "identity" and site.gain in (None, 1) and site.shortcut_from is None
        if not fits or site.read_from is not None or spot.axis != -1:
            raise RewireError(f"rewire: {spot}: lanes are for pre-norm streams that each branch reads at its newest state; this site is "
                              f"{site.placement}, its shortcut "
                              f"{site.shortcut}" + (", and its branch reads an older state" if site.read_from is not None else ""))
        if spot.written:
            raise RewireError(f"rewire: {spot} writes into its operand by a call, which cannot take another shape; write it as x = x + y")
        self.n = n
        last = spot.sites + 1                   # none is the scheme's last sublayer: the stream is left as the mean of its lanes
        self.scheme: Scheme = schemes.load(scheme)(spot.dim, depth=last, index=site.index, norm=nn.Identity, lanes=n, **{**start.options, **options})
        with torch.no_grad():
            start.put(self.scheme)
        self.normed = start.normed
        self.norm_of = start.norm_of

    def adopt(self, norm: nn.Module) -> None:
        """Take over what the branch's own norm holds, where the scheme norms in its place."""
        if self.norm_of is not None:
            self.norm_of(self.scheme, norm, str(self.spot))

    def _read(self, x: Tensor) -> tuple[Tensor, Tensor, Any]:
        """The lanes, what the branch gets of them, and the memo."""
        stream: Tensor = self.scheme.enter(x) if self.spot.site.index == 0 else x.unflatten(0, (self.n, -1))
        return stream, *self.scheme.read(stream)

    def read(self, x: Tensor) -> Tensor:
        inputs: Tensor = self.once(x, self._read)[1]
        return inputs

    def join(self, shortcut: Tensor, branch: Tensor) -> Tensor:
        stream, _, memo = self.once(shortcut, self._read)
        stream = self.scheme.write(stream, branch, memo)
        return stream.mean(0) if self.spot.site.index == self.spot.sites - 1 else stream.flatten(0, 1)

    def extra_repr(self) -> str:
        return f"{self.n}"

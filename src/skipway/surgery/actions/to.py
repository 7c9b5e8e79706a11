"""to: the join becomes that of a scheme, `y = write(x, F(read(x)))`. The branch F is what it was, its own norms included.

Schemes that read and write one lane fit: `skipway.schemes.names()` lists all of them. Constants that count depth take the sublayers of the stream.
"""

from typing import Any

import torch
from torch import Tensor, nn

from skipway import schemes
from skipway._errors import RewireError, SchemeError
from skipway.schemes import Scheme
from skipway.surgery._action import Action


class To(Action):
    """Options: scheme (a name), and those of the scheme."""

    def build(self, scheme: str, **options: Any) -> None:
        spot = self.spot
        norm = getattr(nn, spot.norm)
        role = spot.site.branches[0].kind if spot.site.branches else "other"
        kind = schemes.load(scheme)
        if any(getattr(kind, method) is not getattr(Scheme, method) for method in ("enter", "leave")):
            whole = "use .lanes(n, name) for lanes" if "lanes" in kind.defaults() else "it does something of its own where a stack begins or ends"
            raise RewireError(f"rewire: scheme {scheme} is more than a read and a write of one lane, so it cannot stand at a single site; {whole}")
        try:
            self.scheme = kind(spot.dim, depth=spot.sites, index=spot.site.index, role=role, norm=norm, **options)
        except SchemeError as error:
            raise RewireError(f"rewire: {spot}: {error}") from error
        with torch.no_grad():
            x = torch.ones(1, spot.dim)
            self._reads = self.scheme.read(x)[0] is not x
        self.exact = scheme == "plain"
        self.passes = scheme == "plain"

    def _read(self, x: Tensor) -> tuple[Tensor, Any, Any]:
        """The state with its channels last, what the branch gets of it, and the memo."""
        h = self.last(x)
        return h, *self.scheme.read(h)

    def read(self, x: Tensor) -> Tensor:
        inputs = self.once(x, self._read)[1]
        if not isinstance(inputs, Tensor):
            raise RewireError(f"rewire: scheme {self.options['scheme']} gives {self.spot} several inputs, and the branch of the model takes one")
        return self.back(inputs)

    def join(self, shortcut: Tensor, branch: Tensor) -> Tensor:
        h, _, memo = self.once(shortcut, self._read)
        return self.back(self.scheme.write(h, self.last(branch), memo))

    @property
    def reads(self) -> bool:
        return self._reads

    def extra_repr(self) -> str:
        return ""

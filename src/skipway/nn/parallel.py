"""Several branches that read the same and are joined once."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

from torch import Tensor, nn

from skipway._errors import SchemeError, ShapeMismatch
from skipway.nn._initial import Exposes
from skipway.nn._paths import path
from skipway.nn._routing import chosen, gives, refuse_unknown, takes


class Parallel(nn.Module):
    """F(x) = F_1(x) + F_2(x) + ...: a branch whose parts share one site.

    branches        modules; a keyword argument goes to each that takes it
    norm, dim       norm(dim) makes one norm for each branch, which reads through it; None: all read the same. With the scheme pre_norm and
                    no norms here a block is h + F_1(N(h)) + F_2(N(h)) (GPT-J, PaLM); with the scheme plain and norms here
                    h + F_1(N_1(h)) + F_2(N_2(h)) (GPT-NeoX), and the stack gets final_norm=True.
    dropout         of what each of them adds

    Returns the sum, and behind it what the branches returned besides. Raises ShapeMismatch where two of them differ in shape.
    """

    role: ClassVar[str] = "other"

    def __init__(self, branches: Iterable[nn.Module], *, norm: Callable[[int], nn.Module] | None = None, dim: int | None = None,
                 dropout: float = 0.0) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)
        if not len(self.branches) or (norm is not None and dim is None):
            raise SchemeError(f"{len(self.branches)} parallel branches of width {dim}; wanted at least one, and the width where they have norms")
        self.norms = None if norm is None or dim is None else nn.ModuleList(norm(dim) for _ in self.branches)
        self.dropout = nn.Dropout(dropout) if dropout else None
        self.routes = [takes(b) for b in self.branches]
        self.gives = tuple(name for b in self.branches for name in gives(b))
        per_sample: dict[str, int] = {}
        for branch in self.branches:
            per_sample |= getattr(branch, "per_sample", {})
        self.per_sample: Mapping[str, int] = per_sample

    @property
    def takes(self) -> frozenset[str] | None:
        """The keyword arguments that any of them takes."""
        known = [names for names in self.routes if names is not None]
        return frozenset().union(*known) if len(known) == len(self.routes) else None

    def weights(self, kind: str) -> Iterable[Tensor]:
        """Those of all branches."""
        return [w for b in self.branches if isinstance(b, Exposes) for w in b.weights(kind)]

    def forward(self, x: Tensor, **kwargs: Any) -> Any:
        """(..., dim) -> (..., dim)."""
        refuse_unknown(kwargs, self.routes)
        total: Tensor | None = None
        named: list[Any] = []
        others: list[Any] = []
        for k, (branch, names) in enumerate(zip(self.branches, self.routes)):
            out = branch(x if self.norms is None else self.norms[k](x), **chosen(kwargs, names))
            y, *more = out if isinstance(out, tuple) else (out,)
            if y is None or (total is not None and y.shape != total.shape):
                raise ShapeMismatch(f"{path(branch)} returned {None if y is None else tuple(y.shape)}; wanted the shape {tuple(x.shape)} of its "
                                    "input, like the branches beside it")
            if self.dropout is not None:
                y = self.dropout(y)
            total = y if total is None else total + y
            own = len(gives(branch))
            named += more[:own]
            others += more[own:]
        return (total, *named, *others) if named or others else total

"""What every residual rule is: a pair (read, write) on a stream, built for one sublayer.

    stream = first.enter(x)                                  # once, before the stack
    inputs, memo = scheme.read(stream)                       # at every sublayer
    stream = scheme.write(stream, branch(inputs), memo)
    y = last.leave(stream)                                   # once, after the stack

Legend of shapes: x, y, inputs and single-lane streams are (..., dim), usually (batch, token, dim). Streams of n lanes are
(n, ..., dim), lanes first. Streams that remember are tuples of such tensors.
"""

import difflib
import inspect
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from skipway._errors import SchemeError

ROLES = ("self_attention", "cross_attention", "ffn", "moe", "conv", "ssm", "other")     # the kinds of branch of a wiring


class Init(NamedTuple):
    """A wish for the start of one kind of weight of a branch: what `nn.Stack` does to it when it is built."""

    kind: str                   # "scale": times gain; "xavier", "he": such a normal with this gain; "normal": its spread is gain; "zero"
    gain: float = 1.0


class Traffic(NamedTuple):
    """Elements of the stream that a sublayer reads and writes a token, in units of dim; the plain add reads 2 and writes 1."""

    reads: float
    writes: float


class Tuning(NamedTuple):
    """Factors on the settings of AdamW for what a stack holds, beside those that were tuned on the stack of the base size."""

    matrix: float = 1.0         # learning rate of weights of two dimensions and more
    vector: float = 1.0         # learning rate of biases and gains
    eps: float = 1.0
    decay: float = 1.0          # weight decay of the matrices


class Scheme(nn.Module):
    """Base of all schemes.

    dim         width of one lane
    depth       number of sublayers of the whole stack, or None where it is not known
    index       which of them this one is, from 0
    role        kind of the branch, one of ROLES
    per_block   sublayers a block: depths of papers that count blocks are depth / per_block
    norm        called with a width, gives a norm module
    options     the keyword arguments of the subclass's `build`

    Raises SchemeError, when it is built, where an option is unknown, the depth is missing or the width does not divide.

    A subclass is a leaf: it gives `build`, `read`, `write`, and where it needs them `enter` and `leave`, which only run on the first and
    the last sublayer of a stack; what only they need is built where `self.first` or `self.last` is true.
    """

    beside: ClassVar[tuple[str, ...]] = ()      # placements on the further streams that every sublayer writes
    placement: str = "none"                     # pre, post, sandwich, output, inner or none, as a wiring says it
    at_start: ClassVar[str | None] = None       # the scheme that it equals at its start: "identity", "plain", "pre_norm", "post_norm"
    final_norm: ClassVar[bool] = False          # whether a stack wants a norm after leave
    needs_depth: ClassVar[bool] = False
    inner_norm: ClassVar[bool] = False          # whether the branch is asked for a norm before its output projection
    reversible: ClassVar[bool] = False          # whether `undo` gives the stream before a write back
    undo_growth: float = 1.0                    # what undoing one write multiplies a rounding error of the stream by
    joins: bool = True                          # whether its write is a join on the main stream: in a block joined as one, only the last is
    traffic: Traffic = Traffic(2, 1)
    lanes: int = 1

    def __init__(self, dim: int, *, depth: int | None = None, index: int = 0, role: str = "other", per_block: int = 2,
                 norm: Callable[[int], nn.Module] = nn.LayerNorm, **options: Any) -> None:
        super().__init__()
        self.dim, self.depth, self.index, self.role, self.per_block, self.make_norm = dim, depth, index, role, per_block, norm
        self._check(options)
        self.first = index == 0
        self.last = index == (1 if depth is None else depth) - 1
        self.options = options
        self.build(**options)

    @classmethod
    def name(cls) -> str:
        """The name in the registry."""
        return cls.__module__.rpartition(".")[2]

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """The options and their default values."""
        parameters = inspect.signature(cls.build).parameters
        return {k: p.default for k, p in parameters.items() if k != "self"}

    def _check(self, options: Mapping[str, Any]) -> None:
        known = self.defaults()
        for key in options:
            if key not in known:
                near = difflib.get_close_matches(key, known, n=1)
                has = f"did you mean {near[0]}?" if near else f"it has {', '.join(known) or 'none'}"
                raise SchemeError(f"scheme {self.name()} has no option {key!r}; {has}")
        if self.dim < 1:
            raise SchemeError(f"scheme {self.name()}: dim is {self.dim}; wanted a positive width")
        if self.role not in ROLES:
            raise SchemeError(f"scheme {self.name()}: role is {self.role!r}; wanted one of {', '.join(ROLES)}")
        if self.depth is None and self.needs_depth:
            raise SchemeError(f"scheme {self.name()} needs the depth of the stack for its constants; give depth=, the number of sublayers")
        if self.per_block < 1 or not 0 <= self.index < (self.depth or self.index + 1):
            raise SchemeError(f"scheme {self.name()}: index {self.index} of depth {self.depth} with {self.per_block} sublayers a block; "
                              "wanted 0 <= index < depth")

    @property
    def block(self) -> int:
        """Which block the sublayer stands in, from 0."""
        return self.index // self.per_block

    @property
    def blocks(self) -> int:
        """Number of blocks of the stack. Raises SchemeError where the depth is not known."""
        if self.depth is None:
            raise SchemeError(f"scheme {self.name()} needs the depth of the stack; give depth=, the number of sublayers")
        return -(-self.depth // self.per_block)

    def build(self) -> None:
        """Makes parameters and norms; its keyword arguments are the scheme's options."""

    def enter(self, x: Tensor) -> Any:
        """The stream that a stack begins with."""
        return x

    def read(self, stream: Any) -> tuple[Any, Any]:
        """What the branch gets, a tensor or a tuple of them (query, key, value), and what `write` needs of it."""
        raise NotImplementedError

    def write(self, stream: Any, y: Tensor, memo: Any) -> Any:
        """The stream after the branch's result y."""
        raise NotImplementedError

    def leave(self, stream: Any) -> Tensor:
        """What a stack gives to its head."""
        return stream

    def undo(self, stream: Any, branch: Callable[[Any], Tensor]) -> Any:
        """The stream before a write, from the one after it. Only where `reversible`."""
        raise SchemeError(f"scheme {self.name()} cannot be undone")

    def norms(self) -> tuple[str, ...]:
        """Paths of the norm modules that the scheme owns."""
        kind = type(self.make_norm(1))
        return tuple(name for name, m in self.named_modules() if name and isinstance(m, (nn.LayerNorm, nn.RMSNorm, kind)))

    def initial(self) -> dict[str, Init]:
        """What the scheme asks of the branch's weights at the start, by kind of weight: input, output, query, key, value, gate, inner."""
        return {}

    def no_decay(self) -> tuple[str, ...]:
        """Paths of the parameters that want no weight decay: all of the scheme's own that are no matrix, unless a subclass says otherwise."""
        return tuple(name for name, p in self.named_parameters() if p.ndim < 2)

    def rates(self) -> dict[str, float]:
        """Factors on the learning rate, by path of parameter, where they are not 1."""
        return {}

    def tuning(self) -> Tuning:
        """Factors on the optimizer's settings for the weights of the branch."""
        return Tuning()

    def advance(self, steps: int = 1) -> None:
        """Tells a scheme that changes over training that the optimizer has made steps; the others have no use for it."""

    def param_groups(self, lr: float | None = None) -> list[dict[str, Any]]:
        """Groups for a torch optimizer: {"params", "weight_decay": 0.0 where none is wanted, "lr" (with `lr` given) or "lr_scale"}."""
        quiet, rates = set(self.no_decay()), self.rates()
        groups: dict[tuple[bool, float], list[nn.Parameter]] = {}
        for name, parameter in self.named_parameters():
            groups.setdefault((name in quiet, rates.get(name, 1.0)), []).append(parameter)
        made = []
        for (still, factor), parameters in groups.items():
            group: dict[str, Any] = {"params": parameters}
            if still:
                group["weight_decay"] = 0.0
            if factor != 1.0:
                group |= {"lr_scale": factor} if lr is None else {"lr": lr * factor}
            made.append(group)
        return made

    def extra_repr(self) -> str:
        """dim, the place in the stack, and the options that were given."""
        place = "" if self.depth is None else f", {self.index} of {self.depth}"
        return f"{self.dim}{place}" + "".join(f", {k}={v}" for k, v in self.options.items())

    def divided(self, parts: int, what: str) -> int:
        """dim / parts. Raises SchemeError where it does not divide."""
        if parts < 1 or self.dim % parts:
            raise SchemeError(f"scheme {self.name()}: a width of {self.dim} does not divide into {parts} {what}; choose a divisor of {self.dim}")
        return self.dim // parts

    def vector(self, value: float | Tensor, *shape: int) -> nn.Parameter:
        """A parameter of this shape (default: dim) that starts at a value."""
        return nn.Parameter(torch.ones(shape or (self.dim,)) * value)

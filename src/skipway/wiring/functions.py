"""Which functions of torch add two tensors, and how one call of them is told from another.

A `Kind` holds what does not change with batch, length and device: the name, the rank, the width (to rank 3, where the last axis is that of the
channels) and whether both operands have one shape, the number of samples left aside. A join is the n-th call of its kind within one call of one
module.
"""

import dis
import sys
from dataclasses import dataclass
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from skipway.wiring.record import Recorder

# Function -> (name, whether it writes into its first operand).
ADDS: dict[Any, tuple[str, bool]] = {
    torch.add: ("add", False), Tensor.add: ("add", False), Tensor.__add__: ("add", False), Tensor.__radd__: ("add", False),
    Tensor.add_: ("add", True), Tensor.__iadd__: ("add", True),
    torch.sub: ("sub", False), torch.subtract: ("sub", False), Tensor.sub: ("sub", False), Tensor.__sub__: ("sub", False),
    Tensor.sub_: ("sub", True), Tensor.__isub__: ("sub", True),
}


class Kind(NamedTuple):
    """What calls that could be taken for one another have in common."""

    name: str
    rank: int
    width: int              # 0 from rank 4 on: any axis may be that of the channels
    equal: bool             # both operands have one shape behind the first axis


def kind_of(name: str, a: Any, b: Any) -> Kind | None:
    """The kind of one call; None where it does not add two floating tensors."""
    if not (isinstance(a, Tensor) and isinstance(b, Tensor) and a.is_floating_point() and b.is_floating_point()):
        return None
    rank = max(a.dim(), b.dim())
    return Kind(name, rank, a.shape[-1] if 0 < rank < 4 and a.dim() else 0, a.dim() == b.dim() and a.shape[1:] == b.shape[1:])


def operands(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any, float]:
    """Both operands of a call and the factor on the second."""
    first = args[0] if args else kwargs["input"]
    second = args[1] if len(args) > 1 else kwargs["other"]
    return first, second, kwargs.get("alpha", 1)


@dataclass(frozen=True)
class Added:
    """One call of a function that adds: its kind, the nodes it made, the module calls it ran in, outermost first, the factor on its second
    operand, and whether it is written `x += y`, so that what it returns is what goes on."""

    kind: Kind
    first: int
    last: int
    stack: tuple[int, ...]
    alpha: float
    rebinds: bool


class FunctionLog(TorchFunctionMode):
    """Notes the functions that add while a recorder records operations."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder
        self.added: list[Added] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        known = ADDS.get(func)
        kind, alpha = None, 1.0
        if known is not None:
            a, b, alpha = operands(args, kwargs)
            kind = kind_of(known[0], a, b)
        first = len(self.recorder.nodes)
        out = func(*args, **kwargs)
        if kind is not None:
            self.added.append(Added(kind, first, len(self.recorder.nodes), tuple(self.recorder.stack), alpha,
                                    func in ADDS and ADDS[func][1] and _augmented(sys._getframe(1))))
        return out


def _augmented(frame: FrameType) -> bool:
    """Whether a frame is at an augmented assignment."""
    now = next((i for i in dis.get_instructions(frame.f_code) if i.offset == frame.f_lasti), None)
    return now is not None and (now.opname.startswith("INPLACE_") or (now.opname == "BINARY_OP" and now.argrepr.endswith("=")))

"""The source lines of operations that the record keeps none for: the forward is run once more, and each is met where it is performed."""

import pathlib
import sys
from typing import Any

import torch
from torch import nn

from skipway.wiring.address import Address, addresses
from skipway.wiring.record import LEAVES, Record
from skipway.wiring.watch import watch

OURS = (str(pathlib.Path(torch.__file__).parent), str(pathlib.Path(__file__).parents[1]))


def lines_of(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], record: Record, nodes: list[int]) -> dict[int, tuple[str, int]]:
    """Node -> (file, line) of the innermost statement outside torch that performed it; one that is met nowhere is left out."""
    known = addresses(record, [n for n in nodes if record.nodes[n].op not in LEAVES])
    found: dict[Address, tuple[str, int]] = {}

    def at(address: Address) -> Any:
        def meet(func: Any, args: Any, kwargs: Any) -> Any:
            line = _users_line()
            if line is not None:
                found[address] = line
            return func(*args, **kwargs)
        return meet

    if known:
        watch(model, args, kwargs, {address: at(address) for address in known.values()})
    return {n: found[address] for n, address in known.items() if address in found}


def _users_line() -> tuple[str, int] | None:
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(OURS) and not name.startswith("<"):
            return name, frame.f_lineno
        frame = frame.f_back                                        # type: ignore[assignment]
    return None

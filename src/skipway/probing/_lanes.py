"""Streams of several lanes: how much of the stream each lane holds, and what the mixer of each site does to them.

n lanes; a mixer is an (n, n) matrix whose rows make the new lanes, averaged over batch and tokens where it depends on them.
"""

from typing import Any

import torch
from torch import Tensor

from skipway.probing._plan import Plan
from skipway.wiring import operations as ops
from skipway.wiring.address import addresses
from skipway.wiring.graph import Graph
from skipway.wiring.record import tensors_in
from skipway.wiring.states import MIXED


class Lanes:
    """Collects what the lanes of every site hold while the forward runs."""

    def __init__(self, g: Graph, plans: list[Plan]) -> None:
        self.g, self.plans = g, plans
        self.energy: dict[int, Tensor] = {}
        self.matrices: dict[int, Tensor] = {}

    def meetings(self) -> dict[Any, Any]:
        """Meetings at the mixers, which read their matrix."""
        found = {k: m for k, plan in enumerate(self.plans) for m in [_mixer(self.g, plan)] if m is not None}
        known = addresses(self.g.record, [n for n, _ in found.values()])
        return {known[n]: self._meet(k, position) for k, (n, position) in found.items() if n in known}

    def _meet(self, k: int, position: int) -> Any:
        def meet(func: Any, args: Any, kwargs: Any) -> Any:
            matrix = list(tensors_in((args, kwargs), depth=2))[position].detach()
            if matrix.dim() >= 2 and matrix.shape[-1] == matrix.shape[-2]:
                self.matrices[k] = matrix.double().reshape(-1, *matrix.shape[-2:]).mean(0)
            return func(*args, **kwargs)
        return meet

    def state(self, k: int, y: Tensor) -> None:
        """The state after join k: the share of its mean square that each lane holds."""
        lane = self.g.lane.get(self.plans[k].place.join.node)
        if lane is not None and y.numel() % (lane[0] * lane[1]) == 0:
            energy = y.detach().double().reshape(-1, lane[1], lane[0]).square().mean((0, 2))
            self.energy[k] = energy / energy.sum().clamp_min(1e-300)

    def read(self) -> dict[int, dict[str, Any]]:
        """The lanes column: use; and of the mixer row sums, column sums, second singular value, and the composite's gains.

        gain_from_start: largest absolute row sum of the product of all mixers up to this site; gain_to_end: largest absolute column sum
        of the product of the mixers from this site on.
        """
        found: dict[int, dict[str, Any]] = {k: {"use": energy.tolist()} for k, energy in self.energy.items()}
        streams: dict[str, list[int]] = {}
        for k in sorted(self.matrices):
            streams.setdefault(self.plans[k].stream, []).append(k)
        for members in streams.values():
            first: Tensor | None = None
            for k in members:
                m = self.matrices[k].cpu()
                first = m if first is None or first.shape != m.shape else m @ first
                second = float(torch.linalg.svdvals(m)[1]) if len(m) > 1 else None
                found.setdefault(k, {}).update(row_sums=m.sum(1).tolist(), column_sums=m.sum(0).tolist(), second_singular_value=second,
                                               gain_from_start=float(first.abs().sum(1).max()))
            last: Tensor | None = None
            for k in reversed(members):
                m = self.matrices[k].cpu()
                last = m if last is None or last.shape != m.shape else last @ m
                found[k]["gain_to_end"] = float(last.abs().sum(0).max())
        return found


def _mixer(g: Graph, plan: Plan) -> tuple[int, int] | None:
    """The product that mixes the lanes on the way to a join's shortcut, and the position of its matrix; None where there is none."""
    n = plan.place.join.shortcut
    for _ in range(24):
        node = g.nodes[n]
        if not g.marks[n] & MIXED:
            return None
        if node.op in ops.MATMULS:
            other = [p for p, i in enumerate(node.ins) if i not in g.lane or g.state[i] is not g.state[n]]
            return (n, other[0]) if len(other) == 1 else None
        carried = [i for i in node.ins if g.signal[i] and g.state[i] is g.state[n]]
        if not carried:
            return None
        n = carried[0]
    return None

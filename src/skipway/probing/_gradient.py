"""Gradients at the joins while the backward runs: their size, and the part that came down the identity path alone.

The part i at the end of a stream is the whole gradient g there; on the way from one state to the one before, it goes through what
stands on the identity path and through nothing else: a coefficient where the shortcut is the plain state, else the
vector-Jacobian product of the norms, projections and scales between, worked out anew from the state that was measured.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from skipway.probing._plan import Plan
from skipway.wiring.evaluate import evaluate
from skipway.wiring.record import Record


class _Stored(Mapping[int, Tensor]):
    """Values of the parameters and buffers of a record; nothing else of it has one."""

    def __init__(self, model: nn.Module, record: Record) -> None:
        self.record = record
        self.named = {**dict(model.named_parameters()), **dict(model.named_buffers())}

    def __getitem__(self, n: int) -> Tensor:
        node = self.record.nodes[n]
        if node.op not in ("param", "buffer") or node.name not in self.named:
            raise KeyError(n)
        return self.named[node.name].detach()

    def __iter__(self) -> Iterator[int]:
        return (n.id for n in self.record.nodes if n.op in ("param", "buffer"))

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Identity:
    """Follows the identity path of every stream backwards."""

    def __init__(self, plans: list[Plan], model: nn.Module, record: Record) -> None:
        self.plans, self.model, self.record = plans, model, record
        self.part: dict[str, tuple[int, Tensor | None]] = {}        # stream -> the newest state reached, and i there
        self.sizes: dict[int, Tensor] = {}
        self.branches: dict[int, Tensor] = {}
        self.shares: dict[int, Tensor] = {}
        self.starts: dict[str, Tensor] = {}
        self.handles: list[Any] = []                                # of the hooks, which a stored tensor would keep
        self.states: dict[int, Tensor] = {}                         # kept where the path from it is not plain

    def operands(self, k: int, start: Tensor | None, branch: Tensor | None) -> None:
        """Hook the branch of join k, and the start of its stream where it is the first."""
        if branch is not None and branch.requires_grad:
            self.handles.append(branch.register_hook(lambda g: self._branch(k, g)))
        if start is not None and start.requires_grad:
            self.handles.append(start.register_hook(lambda g: self._start(k, g)))

    def state(self, k: int, y: Tensor) -> None:
        """Hook the state after join k."""
        after = self._next(k)
        if after is not None and not after.plain:
            self.states[k] = y.detach()
        if y.requires_grad:
            self.handles.append(y.register_hook(lambda g: self._state(k, g)))

    def _next(self, k: int) -> Plan | None:
        return self.plans[k + 1] if k + 1 < len(self.plans) and self.plans[k + 1].stream == self.plans[k].stream else None

    def _branch(self, k: int, g: Tensor) -> None:
        self.branches[k] = _size(g)

    def _state(self, k: int, g: Tensor) -> None:
        g = g.detach()
        self.sizes[k] = _size(g)
        stream = self.plans[k].stream
        after = self._next(k)
        if after is None:
            part: Tensor | None = g.clone()
        else:
            reached, held = self.part.get(stream, (-1, None))
            part = self._down(k, after, held) if held is not None and reached == k + 1 else None
        self.part[stream] = (k, part)
        if part is not None:
            self.shares[k] = _share(part, g)

    def _down(self, k: int, after: Plan, part: Tensor) -> Tensor | None:
        """i on the state after join k, of i on the state after join k + 1."""
        if after.coefficient is None:
            return None
        at_shortcut = part if after.coefficient == 1 else part * after.coefficient
        if after.plain:
            return at_shortcut
        state = self.states.pop(k, None)
        before = self.plans[k].place.join.node
        if state is None:
            return None
        with torch.enable_grad():
            leaf = state.requires_grad_()
            try:
                shortcut = evaluate(self.record, _Stored(self.model, self.record), [after.place.join.shortcut], {before: leaf})
            except KeyError:                            # the path needs a number that was not measured: a gate, a mask
                return None
            made = shortcut[after.place.join.shortcut]
            if not made.requires_grad:
                return None
            return torch.autograd.grad(made, leaf, at_shortcut.reshape(made.shape).to(made.dtype))[0]

    def _start(self, k: int, g: Tensor) -> None:
        plan = self.plans[k]
        reached, held = self.part.get(plan.stream, (-1, None))
        if held is not None and reached == k and plan.coefficient is not None and held.numel() == g.numel():
            self.starts[plan.stream] = _share(held.reshape(g.shape) * plan.coefficient, g.detach())

    def unhook(self) -> None:
        """Take the hooks off again."""
        for handle in self.handles:
            handle.remove()

    def read(self) -> dict[int, dict[str, Any]]:
        """The gradient columns of each row."""
        found: dict[int, dict[str, Any]] = {}
        for name, values in (("grad_stream", self.sizes), ("grad_branch", self.branches), ("identity", self.shares)):
            if values:
                numbers = torch.stack([values[k] for k in sorted(values)]).tolist()
                for k, number in zip(sorted(values), numbers, strict=True):
                    found.setdefault(k, {})[name] = number
        return found

    def stems(self) -> dict[str, float]:
        """Stream -> share of the gradient at its start that came by the identity path alone."""
        return {stream: float(value) for stream, value in self.starts.items()}


def _size(g: Tensor) -> Tensor:
    return g.detach().double().square().mean().sqrt()


def _share(part: Tensor, g: Tensor) -> Tensor:
    a, b = part.double().flatten(), g.double().flatten()
    return (a @ b) / (b @ b)

"""What rules of the stages values and train read: one real forward with its numbers (`Real`), and the two that a check makes (`Runs`)."""

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from skipway.rules._base import Facts
from skipway.wiring import Wiring
from skipway.wiring.evaluate import evaluate
from skipway.wiring.sites import Place
from skipway.wiring.streams import ancestors
from skipway.wiring.values import Run, run

HALF = (torch.float16, torch.bfloat16)


class Real(Facts):
    """The structure of one real forward, as `Facts` of it, and the numbers: values of nodes, gradients, and the graph as a function."""

    def __init__(self, found: Run, expect: Any) -> None:
        model = found.record.model
        streams = tuple(f.stream for f in found.facts.flows if f.stream is not None)
        count = sum(p.numel() for p in model.parameters())
        super().__init__(Wiring(streams, type(model).__name__, count, "real", (), found.facts), expect)
        self.run = found
        self.values = found.values
        self.grads = found.grads            # node -> gradient; only nodes whose tensor is part of the backward graph
        self.weights = found.weights        # name of a trainable parameter -> its gradient, None where none arrived
        self.training = found.record.training

    def value(self, node: int) -> Tensor:
        """What a node held."""
        return self.values[node].detach()

    def evaluate(self, targets: Iterable[int], given: Mapping[int, Tensor], pinned: Iterable[int] = ()) -> dict[int, Tensor]:
        """The target nodes where the nodes `given` have other values and those in `pinned` keep theirs; differentiable."""
        return evaluate(self.record, self.values, targets, given, pinned)

    def leaf(self, name: str) -> int | None:
        """The node of a parameter or buffer, by its name; None where the forward did not read it."""
        return next((n.id for n in self.record.nodes if n.op in ("param", "buffer") and n.name == name), None)

    def stored(self, node: int) -> list[int]:
        """Parameters and buffers that a node without signal was computed from: what stands behind a scale, a gate or a mixer."""
        found: list[int] = []
        seen, stack = {node}, [node]
        while stack:
            n = self.graph.nodes[stack.pop()]
            if n.op in ("param", "buffer"):
                found.append(n.id)
            for i in n.ins:
                if i not in seen and not self.graph.signal[i]:
                    seen.add(i)
                    stack.append(i)
        return sorted(found)

    @cached_property
    def other_sample(self) -> tuple[int, dict[int, Tensor]]:
        """The size of the batch (0 where it cannot be told), and the inputs with their first sample changed."""
        nodes = self.graph.nodes
        inputs = [n.id for n in self.record.nodes if n.op == "input" and n.shape]
        carried = ancestors(self.graph, tuple(f.root.node for f in self.flows if f.main))     # a mask has no samples
        sizes = {nodes[n].shape[0] for n in inputs if n in carried and len(nodes[n].shape) > 1} or {nodes[n].shape[0] for n in inputs if n in carried}
        several = sizes - {1}
        if len(several) != 1:                               # one sample, or inputs that have no axis in common
            return (1 if sizes == {1} else 0), {}
        batch = several.pop()
        return batch, {n: _other_sample(self.value(n)) for n in inputs if self.graph.nodes[n].shape[0] == batch}

    @property
    def batch(self) -> int:
        """The size of the batch: of the first axis of the inputs that the main streams start from; 0 where they have none in common."""
        return self.other_sample[0]

    def sample_axis(self, place: Place) -> int | None:
        """The axis of the stream at a join along which the samples of the batch lie; None where it cannot be told.

        Found by changing the first sample of the inputs: along that axis exactly the first place of the state changes. Where an
        earlier branch has let samples mix, the stream's start is asked.
        """
        batch, given = self.other_sample
        if not given:
            return None
        shape = self.graph.nodes[place.join.before.node].shape
        for n in (place.join.before.root.node, place.join.before.node):
            if self.graph.nodes[n].shape == shape:
                axis = only_first(self.value(n), self.evaluate([n], given)[n].detach(), batch)
                if axis is not None:
                    return axis
        return None


def _other_sample(value: Tensor) -> Tensor:
    """The input with its first sample replaced by the second one, rolled along what is left where the two are equal."""
    other = value.clone()
    other[0] = value[1]
    if torch.equal(other, value):
        other[0] = value[1].flip(0) if value.dim() > 1 else value[1]
    if torch.equal(other, value) and value.is_floating_point():
        other[0] = value[1] + 1
    return other


def only_first(before: Tensor, after: Tensor, batch: int) -> int | None:
    """The one axis of size `batch` along which exactly the first place differs."""
    moved = (before != after) & ~(before.isnan() & after.isnan())
    if not bool(moved.any()):
        return None
    fits = [d for d in range(moved.dim()) if moved.shape[d] == batch and not bool(moved.narrow(d, 1, batch - 1).any())]
    return fits[0] if len(fits) == 1 else None


class Runs:
    """The real forwards of one check, each made once where a rule asks for it."""

    def __init__(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], dtype: torch.dtype | None, expect: Any) -> None:
        self.model, self.args, self.kwargs, self.expect = model, args, kwargs, expect
        kinds = {p.dtype for p in model.parameters() if p.is_floating_point()}
        self.own = dtype is not None and bool(kinds) and kinds <= set(HALF)     # 16-bit weights already run in the type they are deployed in
        self.dtype = None if self.own else dtype

    @cached_property
    def real(self) -> Real:
        """One forward in evaluation mode. Raises TraceError where it fails."""
        return Real(run(self.model, self.args, self.kwargs, dtype=self.dtype, training=False), self.expect)

    @cached_property
    def train(self) -> Real:
        """One forward and backward in training mode. Raises TraceError where the forward fails."""
        return Real(run(self.model, self.args, self.kwargs, dtype=self.dtype, training=True, backward=True), self.expect)

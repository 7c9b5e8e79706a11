"""The public function `trace`."""

import contextlib
import gc
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from skipway.wiring import depth, fractions
from skipway.wiring.forward import How, record
from skipway.wiring.graph import Graph
from skipway.wiring.links import links
from skipway.wiring.record import Record
from skipway.wiring.sites import Place, describe
from skipway.wiring.stems import next_stem
from skipway.wiring.streams import Flow, assemble, real
from skipway.wiring.structure import Wiring


def label(found: Record) -> Graph:
    """The labelled graph of a record, with tables that turn out to be streams counted as inputs, and reads over depth as such."""
    graph = Graph(found)
    for _ in range(8):
        stem = next_stem(graph)
        if stem is None or stem in graph.stems:
            break
        graph = Graph(found, graph.stems | {stem})
    reads = depth.find(graph)
    graph = Graph(found, graph.stems, reads) if reads else graph
    cuts = fractions.find(graph)
    if cuts:
        tried = Graph(found, graph.stems, reads, cuts)
        kept = fractions.kept(tried)
        graph = tried if kept == cuts else Graph(found, graph.stems, reads, kept) if kept else graph
    return graph


class Recovery:
    """The recorded graph behind a `Wiring`, for rules, probes and surgery."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.record = graph.record
        self.places: list[Place] = real(graph, describe(graph))
        self.flows: list[Flow] = assemble(graph, self.places)


def trace(model: nn.Module, *args: Any, **kwargs: Any) -> Wiring:
    """The residual wiring of a model, recovered from the data flow of one forward.

    The forward runs without numbers (on the meta device) where the model allows it, else once on real data; `Wiring.how` and
    `Wiring.notes` say which. The model, its buffers and the random state are left as they were. Deterministic: equal models and
    input shapes give equal dictionaries.

    Args:
        model: any `torch.nn.Module`, with real or meta weights, in the mode that is to be looked at.
        *args, **kwargs: what its forward takes; integer inputs should be valid indices.

    Raises:
        TraceError: the forward fails.
        NeedsDataError: it needs values and the weights are on the meta device.
        UsageError: `model` is no module, or no input is a tensor.

    Examples:
        >>> wiring = skipway.trace(model, input_ids=torch.zeros(1, 8, dtype=torch.long))
        >>> [site.placement for site in wiring.streams[0].sites]
        ['pre', 'pre']
    """
    return trace_method(model, None, args, kwargs)


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """No garbage collection: many small objects are made, all of them alive, and collecting would only cost time."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def trace_method(model: nn.Module, method: str | None, args: tuple[Any, ...], kwargs: dict[str, Any], dtype: torch.dtype | None = None) -> Wiring:
    """`trace` of a call of `method` (None: of the model itself), with floating tensors in `dtype` (None: as they are)."""
    with uncollected():
        facts = Recovery(label(record(model, args, kwargs, How(method, dtype))))
    streams = tuple(f.stream for f in facts.flows if f.stream is not None)
    count = sum(p.numel() for p in model.parameters())
    return Wiring(streams, type(model).__name__, count, facts.record.how, tuple(facts.record.notes), facts,
                  links(facts.graph, facts.flows, facts.places))

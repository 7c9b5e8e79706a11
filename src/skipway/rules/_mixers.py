"""The small square matrices that mix the lanes of a stream, static ones and those that are made for each token."""

import inspect
import re

from skipway.rules._real import Real
from skipway.wiring import operations as ops
from skipway.wiring.labels.learned import score_product
from skipway.wiring.record import Node
from skipway.wiring.values import SMALL

DECLARED = re.compile(r"sinkhorn|birkhoff|doubly|bistochastic|mhc", re.IGNORECASE)
LANES = re.compile(r"hyper_?connection|(?<![a-z])(lanes?|streams?|h_?res|hc)(?![a-z])", re.IGNORECASE)
VIEWS = ops.IDENTITY - ops.DROPS - {"masked_fill", "clamp", "clamp_min", "clamp_max", "nan_to_num", "tril", "triu"}


def mixers(real: Real) -> dict[int, int]:
    """Square matrices that are multiplied onto lanes -> number of lanes."""
    g = real.graph
    found: dict[int, int] = {}
    single = {flow.root for flow in real.flows if flow.stream is not None and flow.stream.lanes == 1}
    for node in g.nodes:
        if node.id not in real.live or (node.op not in ops.MATMULS and node.op != "mul") or len(node.ins) < 2:
            continue
        for i, other in ((node.ins[-1], node.ins[-2]), (node.ins[-2], node.ins[-1])):
            state = g.state[other]
            alone = state is not None and state.root in single and not _listed(real, node, i)     # states of one lane, summed: a read over depth
            if alone or not g.signal[other]:
                continue
            n = _square(real, i, node.op == "mul")
            if n is None or n in found or not _plausible(real, n):
                continue
            lanes = g.nodes[n].shape[-1]
            if g.lane.get(other, (0, 0))[1] == lanes or _listed(real, node, i) or _named(real, n, node):
                found[n] = lanes
    return found


def words(real: Real, n: int) -> str:
    """Names around a matrix: functions that made it, what it is made of, its module's path, class, attributes and arguments."""
    call = real.record.calls[real.graph.nodes[n].call]
    stored = [real.graph.nodes[s].name for s in real.stored(n)]
    try:
        arguments = list(inspect.signature(call.module.forward).parameters)
    except (TypeError, ValueError):
        arguments = []
    attributes = [a for a in vars(call.module) if not a.startswith("_")]
    return " ".join([*real.run.makers.get(n, ()), *stored, call.path, type(call.module).__name__, *attributes, *arguments])


def _square(real: Real, i: int, product: bool) -> int | None:
    """The small square matrix that an operand is a view of, or in a product an element of."""
    g = real.graph
    found = None
    while True:
        node = g.nodes[i]
        if len(node.shape) > 1 and node.shape[-1] == node.shape[-2] and 2 <= node.shape[-1] <= SMALL and node.dtype.is_floating_point:
            found = i
        if not node.ins or not (node.op in VIEWS or (product and node.op in ops.PARTS)):
            return found
        i = node.ins[0]


def _plausible(real: Real, n: int) -> bool:
    """Whether a matrix may be a mixer: it is made of stored numbers, or for each token, and is no attention map and no mask."""
    g = real.graph
    if not real.stored(n) and not g.signal[n]:
        return False
    return bool(real.value(n).isfinite().all()) and not (g.signal[n] and score_product(g, n)[0]) and g.nodes[n].op != "input"


def _listed(real: Real, node: Node, i: int) -> bool:
    """Whether one element of a matrix multiplies a signal: lanes in a list."""
    return node.op == "mul" and max(real.graph.nodes[i].shape, default=1) == 1


def _named(real: Real, n: int, node: Node) -> bool:
    """Whether names say that a matrix mixes lanes, where the lanes come from outside of what is looked at."""
    return bool(DECLARED.search(words(real, n)) or LANES.search(words(real, n))) and len(node.shape) > 1

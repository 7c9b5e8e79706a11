"""What each operation does to the labels of a value: one function an operation, found by the operation's name."""

from collections.abc import Callable
from typing import Any

from skipway.wiring import operations as ops
from skipway.wiring.labels import keeps, learned, norms, sums
from skipway.wiring.record import Node

Handler = Callable[[Any, Node, list[int]], None]        # graph, node, its operands that carry signal
HANDLERS: dict[str, Handler] = {
    **dict.fromkeys(ops.IDENTITY | ops.PARTS, keeps.identity),
    **dict.fromkeys(ops.POOLS | ops.STATISTICS, norms.reduce),
    **dict.fromkeys(ops.ACTS, norms.act),
    **dict.fromkeys(ops.NORMS, norms.norm),
    **dict.fromkeys(ops.MATMULS, learned.matmul),
    **dict.fromkeys(ops.CONVOLUTIONS, learned.convolution),
    **dict.fromkeys(ops.ATTENTIONS, learned.attention),
    **dict.fromkeys(ops.RECURRENCES | ops.LOOKUPS | ops.MIXERS, learned.learned),
    **dict.fromkeys(ops.ADDS, sums.add),
    **dict.fromkeys(ops.SCATTERS, keeps.scatter),
    "mul": keeps.mul, "div": keeps.div, "neg": sums.neg, "addcmul": sums.addc, "addcdiv": sums.addc, "lerp": sums.lerp,
    "where": keeps.where, "patch": keeps.patch, "cat": keeps.cat, "stack": keeps.cat,
    **dict.fromkeys(("grid_sampler", "grid_sampler_2d", "grid_sampler_3d"), learned.sampled),
    "norm": norms.norm_vector, "linalg_vector_norm": norms.norm_vector,
}

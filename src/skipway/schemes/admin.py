"""admin: post-norm whose shortcut has a learned factor a channel, measured before training.

    read(h) = h          write(h, y) = N(w h + y)

Initial values: w = 1, which is post_norm; `profile` then brings it to the size of what a pre-norm stream would hold there. With sublayers from 1,

    w_1 = 1          w_(i+1)^2 = Var[w_i x_(i-1)] + Var[F_i(x_(i-1))]

x_(i-1) being what sublayer i reads: after a norm its variance is 1, so w_i^2 is 1 and the sum of the variances of all earlier branches. The paper
writes the sum alone; its first term must be the input's, or w_1 = 0 would cut the stack from its input. Depth is counted in sublayers.
Parameters: one norm and dim a sublayer. Cost a token: reads 3 dim, writes 2 dim.
Source: Liu et al., Understanding the Difficulty of Training Transformers, 2020, arXiv 2004.08249.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from skipway._errors import SchemeError
from skipway.schemes._base import Scheme, Traffic


class Admin(Scheme):
    """N(w h + F(h)). `profile` sets w."""

    placement = "post"
    at_start = "post_norm"
    traffic = Traffic(3, 2)

    def build(self) -> None:
        self.omega = self.vector(1.0)
        self.norm = self.make_norm(self.dim)

    def read(self, stream: Tensor) -> tuple[Tensor, None]:
        return stream, None

    def write(self, stream: Tensor, y: Tensor, memo: Any) -> Tensor:
        return self.norm(self.omega * stream + y)


@torch.no_grad()
def profile(stack: nn.Module, *inputs: Any, **kwargs: Any) -> list[float]:
    """Runs the stack, or a model that holds it, once and sets w of every sublayer from the variances in that run; gives w, in the order of the run.

    inputs and kwargs are those of a call; take a batch of real data, and training mode where dropout will be on. Raises SchemeError where the
    model has no sublayer of this scheme, or calls one twice.
    """
    schemes = [m for m in stack.modules() if isinstance(m, Admin)]
    if not schemes:
        raise SchemeError(f"{type(stack).__name__} has no sublayer of the scheme admin; build it with scheme='admin' before it is profiled")
    done: dict[Admin, float] = {}
    held = [1.0]                            # the variance that the next shortcut stands for

    def measured(scheme: Admin) -> Callable[[Tensor, Tensor, Any], Tensor]:
        def write(stream: Tensor, y: Tensor, memo: Any) -> Tensor:
            if scheme in done:
                raise SchemeError("a sublayer of the scheme admin runs twice in one call; its w cannot be set from both")
            done[scheme] = held[-1] ** 0.5
            scheme.omega.fill_(done[scheme])
            held.append(float((done[scheme] * stream).double().var(correction=0) + y.double().var(correction=0)))
            return Admin.write(scheme, stream, y, memo)
        return write

    try:
        for scheme in schemes:
            scheme.write = measured(scheme)             # type: ignore[method-assign, assignment]
        stack(*inputs, **kwargs)
    finally:
        for scheme in schemes:
            del scheme.write
    return list(done.values())

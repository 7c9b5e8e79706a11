"""altup: alternating updates. One lane of K runs through the block, the others are predicted and then corrected by what the block did to that one.

    before the block    P_i = sum_j p_ij X_j                        i, j = 0..K-1
    the block           Z = P_a, then Z <- Z + F(N(Z)) at each sublayer
    after the block     X_i <- P_i + g_i (Z - P_a)

    static      p = I, g = 1 at the start, learned
    dynamic     p + mat(V m(X_a)), g + G m(Z), with m(x) = tanh(R x / (dim rms(x))), V = G = 0 at the start

a is the active lane: block k mod K (active=None), or one that is fixed. Lanes are born as copies and left as their mean (birth="copy"), or born
and left by K - 1 learned matrices each whose results are scaled to the RMS of lane 0 (birth="project"). Gemma 3n: dynamic=True, active=0,
birth="project", with p and g held at their start, and the norm in m gained. Start: pre_norm, up to rounding.
Parameters: K^2 + K a block, dynamic also K^3 + K^2 + K dim + dim; one norm a sublayer. Cost a token: of a block, reads about 2 K + 2 dim and
writes 2 K more than pre_norm. Depth is counted in blocks.
Source: Baykal et al., Alternating Updates for Efficient Transformers, 2023, arXiv 2301.13310, algorithm 1; dynamic: transformers 5.24,
models/gemma3n.
"""

from typing import Any

import torch
from torch import Tensor, nn

from skipway._errors import SchemeError
from skipway.ops._autocast import product
from skipway.ops.mix import mix
from skipway.ops.rms_linear import rms_linear
from skipway.ops.write_lanes import write_lanes
from skipway.schemes._base import Scheme, Traffic
from skipway.schemes._lanes import born, one_of, several

State = tuple[Tensor, Any]              # the lanes (between blocks X, within one P), and Z - P_a within a block, what was written so far


class AltUp(Scheme):
    """Alternating updates. Options: lanes, active, dynamic, birth ("copy" or "project"), eps of the norm in m."""

    placement = "pre"
    final_norm = True

    def build(self, lanes: int = 4, active: int | None = None, dynamic: bool = False, birth: str = "copy", eps: float = 1e-6) -> None:
        k = self.lanes = several(self, lanes)
        self.active = self.block % k if active is None else active
        if not 0 <= self.active < k:
            raise SchemeError(f"scheme altup: active is {active}; wanted a lane from 0 to {k - 1}")
        self.begins = self.index % self.per_block == 0
        self.ends = (self.index + 1) % self.per_block == 0 or (self.depth is not None and self.last)
        self.joins = self.ends
        self.norm, self.dynamic, self.eps = self.make_norm(self.dim), dynamic, eps
        if self.begins:
            self.predict = nn.Parameter(torch.eye(k))       # to lane i from lane j
        if self.ends:
            self.correct = self.vector(1.0, k)
        if dynamic and self.begins:
            self.predict_gate = self.vector(0.0, k, k, k)   # to lane i, from lane j, by m
        if dynamic and self.ends:
            self.correct_gate = self.vector(0.0, k, k)
        if dynamic and (self.begins or self.ends):
            self.router, self.router_gain = nn.Parameter(self.dim ** -0.5 * torch.randn(k, self.dim)), self.vector(1.0)
        self.project = one_of(self, "birth", birth, "copy", "project") == "project"
        if self.project and self.first:
            self.enter_maps = nn.Parameter(self.dim ** -0.5 * torch.randn(k - 1, self.dim, self.dim))
        if self.project and self.last:
            self.leave_maps = nn.Parameter(self.dim ** -0.5 * torch.randn(k - 1, self.dim, self.dim))
        self.traffic = Traffic(3 + k * self.begins + (k + 1) * self.ends, 2 + k * self.begins + k * self.ends)

    def router_of(self, x: Tensor) -> Tensor:
        """m(x), (..., K)."""
        return rms_linear(x, self.router * (self.router_gain / self.dim), self.eps).tanh()

    def enter(self, x: Tensor) -> State:
        if not self.project:
            return born(x, self.lanes, shared=not self.dynamic), None
        others = product(x.unsqueeze(0).flatten(1, -2), self.enter_maps.to(x.dtype).mT).view(-1, *x.shape)
        return torch.cat([x.unsqueeze(0), _sized(others, x)]), None

    def read(self, stream: State) -> tuple[Tensor, State]:
        lanes, written = stream
        if self.begins:
            p: Tensor = self.predict
            if self.dynamic:
                m = self.router_of(lanes[self.active])
                p = p + product(m, self.predict_gate.to(m.dtype).flatten(0, 1).mT).unflatten(-1, (self.lanes, self.lanes))
            lanes = mix(lanes, p)
        z = lanes[self.active]
        return self.norm(z if written is None else z + written), (lanes, written)

    def write(self, stream: State, y: Tensor, memo: Any) -> State:
        lanes, written = memo
        written = y if written is None else written + y
        if not self.ends:
            return lanes, written
        g: Tensor = self.correct
        if self.dynamic:
            m = self.router_of(lanes[self.active] + written)
            g = g + product(m, self.correct_gate.to(m.dtype).mT)
        return write_lanes(lanes, written, g), None

    def leave(self, stream: State) -> Tensor:
        lanes, _ = stream
        if not self.project:
            return lanes.mean(0)
        others = torch.stack([product(lane, w.to(lane.dtype).mT) for lane, w in zip(lanes[1:], self.leave_maps)])
        return torch.cat([lanes[:1], _sized(others, lanes[0])]).mean(0)

    def no_decay(self) -> tuple[str, ...]:
        return tuple(name for name, p in self.named_parameters() if p.ndim < 2 or name == "predict")


def _sized(lanes: Tensor, like: Tensor) -> Tensor:
    """Lanes scaled to the RMS of one."""
    size = lanes.square().mean(-1, keepdim=True).clamp(min=1e-5).sqrt()
    return lanes * like.square().mean(-1, keepdim=True).sqrt() / size

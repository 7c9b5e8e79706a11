"""attention_residual: each sublayer reads a softmax-weighted mean of all that earlier ones made; nothing is added up along the way.

    read of sublayer l:     N(sum_{i < l} a_i v_i)          a = softmax_i(w_l . u_i)          u_i = v_i / rms(v_i)
    write(y):               v_l = y

with v_0 the input of the stack; the stack is left by one more read with a query of its own, and a final norm follows. The first sublayer has one
source and no query. Queries start at zero: the read is then the plain mean, whose RMS falls as 1 / sqrt(l), so the branch needs its norm.
scale multiplies the scores; normed=True sums u_i in place of v_i (Inkling-2: normed=True, scale=dim^-0.5); split=True gives self-attention three
reads with a query each, for its queries, keys and values. No weight decay on the queries.
Parameters: dim a sublayer and one norm. Cost a token at sublayer l: reads 2 l + 1 dim, writes 2 dim; all v_i are kept.
Source: Kimi Team, Attention Residuals, 2026, arXiv 2603.15031.
"""

from typing import Any

from torch import Tensor, nn

from skipway.ops.depth_attention import depth_attention
from skipway.schemes._base import Scheme, Traffic

State = tuple[Tensor, ...]              # v_0, v_1, ...


class AttentionResidual(Scheme):
    """Softmax over depth. Options: normed, scale, split, eps of the keys' norm."""

    placement = "pre"
    final_norm = True

    def build(self, normed: bool = False, scale: float = 1.0, split: bool = False, eps: float = 1e-6) -> None:
        self.normed, self.scale, self.eps = normed, scale, eps
        self.ways = 3 if split and self.role == "self_attention" else 1
        self.norm = nn.ModuleList(self.make_norm(self.dim) for _ in range(self.ways))
        if self.index:
            self.query = self.vector(0.0, self.ways, self.dim)
        if self.last:
            self.leave_query = self.vector(0.0, self.dim)
        self.traffic = Traffic(2 * self.ways * (self.index + 1) + self.ways, 2 * self.ways)

    def enter(self, x: Tensor) -> State:
        return (x,)

    def attend(self, sources: State, query: Tensor) -> Tensor:
        """The weighted mean of the sources, (..., dim)."""
        return depth_attention(sources, query, self.eps, self.scale, self.normed)

    def read(self, stream: State) -> tuple[Any, None]:
        inputs = [norm(self.attend(stream, self.query[k]) if self.index else stream[0]) for k, norm in enumerate(self.norm)]
        return (inputs[0] if self.ways == 1 else tuple(inputs)), None

    def write(self, stream: State, y: Tensor, memo: Any) -> State:
        return *stream, y.to(stream[0].dtype)

    def leave(self, stream: State) -> Tensor:
        return self.attend(stream, self.leave_query)

    def no_decay(self) -> tuple[str, ...]:
        return tuple(name for name, p in self.named_parameters() if p.ndim < 2 or name == "query")

"""block_attention_residual: attention_residual whose sources are sums over parts of the stack, so that few of them are kept.

    read:       N(sum_i a_i b_i)          a = softmax_i(w . u_i)          u_i = b_i / rms(b_i)
    write(y):   the sum of the current part grows by y, and at the end of a part it is kept

The sources b_i are the input of the stack, the sums of all finished parts, and the sum of the current part once something was written to it. The
stack is left by one more read with a query of its own, and a final norm follows. A part holds `every` blocks (default: an eighth of the stack,
rounded up). Queries start at zero; the first sublayer has one source and no query. Options as in attention_residual (Inkling-2: every=6,
normed=True, scale=dim^-0.5, split=True). No weight decay on the queries.
Parameters: dim a sublayer and one norm. Cost a token with s sources: reads 2 s + 3 dim, writes 3 dim; at most 10 sources by default.
Source: Kimi Team, Attention Residuals, 2026, arXiv 2603.15031, section on blocks.
"""

from typing import Any

from torch import Tensor, nn

from skipway._errors import SchemeError
from skipway.ops.depth_attention import depth_attention
from skipway.schemes._base import Scheme, Traffic

State = tuple[Tensor, ...]              # the input of the stack, the sums of finished parts, the sum of the current part


class BlockAttentionResidual(Scheme):
    """Softmax over parts of the depth. Options: every, normed, scale, split, eps of the keys' norm."""

    placement = "pre"
    final_norm = True

    def build(self, every: int | None = None, normed: bool = False, scale: float = 1.0, split: bool = False, eps: float = 1e-6) -> None:
        every = -(-self.blocks // 8) if every is None else every
        if every < 1:
            raise SchemeError(f"scheme block_attention_residual: every is {every}; wanted 1 or more blocks a part")
        self.normed, self.scale, self.eps = normed, scale, eps
        self.begins = self.index % (every * self.per_block) == 0
        self.ways = 3 if split and self.role == "self_attention" else 1
        self.norm = nn.ModuleList(self.make_norm(self.dim) for _ in range(self.ways))
        if self.index:
            self.query = self.vector(0.0, self.ways, self.dim)
        if self.last:
            self.leave_query = self.vector(0.0, self.dim)
        sources = 1 + self.index // (every * self.per_block) + (not self.begins)
        self.traffic = Traffic(2 * self.ways * sources + self.ways + 2 * (not self.begins), 2 * self.ways + (not self.begins))

    def enter(self, x: Tensor) -> State:
        return (x,)

    def attend(self, sources: State, query: Tensor) -> Tensor:
        """The weighted mean of the sources, (..., dim)."""
        return depth_attention(sources, query, self.eps, self.scale, self.normed)

    def read(self, stream: State) -> tuple[Any, None]:
        inputs = [norm(self.attend(stream, self.query[k]) if self.index else stream[0]) for k, norm in enumerate(self.norm)]
        return (inputs[0] if self.ways == 1 else tuple(inputs)), None

    def write(self, stream: State, y: Tensor, memo: Any) -> State:
        if self.begins:
            return *stream, y.to(stream[0].dtype)
        return *stream[:-1], stream[-1] + y

    def leave(self, stream: State) -> Tensor:
        return self.attend(stream, self.leave_query)

    def no_decay(self) -> tuple[str, ...]:
        return tuple(name for name, p in self.named_parameters() if p.ndim < 2 or name == "query")

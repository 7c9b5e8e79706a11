"""A feed-forward made of many experts, of which each token takes a few."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from skipway._errors import ShapeMismatch, UsageError
from skipway.nn.feed_forward import Activation, FeedForward, activation, gated
from skipway.ops.grouped_linear import grouped_linear

SCORES: dict[str, Activation] = {"softmax": partial(torch.softmax, dim=-1), "sigmoid": torch.sigmoid, "sqrt_softplus": lambda x: F.softplus(x).sqrt()}


class MoE(nn.Module):
    """y = sum over the chosen experts e of w_e E_e(x), plus the shared expert: a branch that returns (y, router logits).

    dim, hidden     width of the stream; width of one expert
    experts, top_k  number of experts; how many of them a token takes
    kind, bias, limit, shift        of the experts, as in `FeedForward`
    shared          width of an expert that every token takes, or None; shared_gate multiplies it by sigmoid(g x)
    scores          "softmax", "sigmoid" or "sqrt_softplus" of the router's logits; normalise divides the chosen by their sum; scale multiplies them
    correction      a vector (buffer `correction`, 0 at the start) that is added to the scores for the choice alone: balance without a loss
    router_dtype    the router multiplies in this dtype, whatever that of the stream; score_dtype: scores are made in it. None: float32 at least
    groups          experts stand in so many groups, and only those of the `top_groups` best are chosen from; a group's score is the sum of
                    its `group_best` best

    table           number of kinds of tokens: which experts a token takes is looked up by its kind, `ids` of the call, in a buffer `table`,
                    (table, top_k), and not learned; it starts as experts in turn (Roller et al., Hash Layers, 2021, arXiv 2106.04426)

    x is (..., dim); the logits are (tokens, experts). For their loss see `load_balance_loss`. The scores are computed in float32 at least.
    Raises UsageError where the numbers do not fit. Source: Shazeer et al., 2017, arXiv 1701.06538; the shared expert: DeepSeekMoE, 2024,
    arXiv 2401.06066; groups: DeepSeek-V2, 2024, arXiv 2405.04434; the correction: Wang et al., 2024, arXiv 2408.15664.
    """

    role: ClassVar[str] = "moe"
    per_sample: ClassVar[Mapping[str, int]] = {"ids": 2}
    correction: Tensor | None
    table: Tensor | None

    def __init__(self, dim: int, hidden: int, experts: int, top_k: int = 2, *, kind: str = "swiglu", bias: bool = False,
                 shared: int | None = None, shared_gate: bool = False, scores: str = "softmax", normalise: bool = True, scale: float = 1.0,
                 correction: bool = False, router_bias: bool = False, groups: int = 1, top_groups: int = 1, group_best: int = 2,
                 router_dtype: torch.dtype | None = None, score_dtype: torch.dtype | None = None, limit: float | None = None,
                 shift: float = 0.0, table: int | None = None) -> None:
        super().__init__()
        if not 1 <= top_k <= experts or experts % groups or not 1 <= top_groups <= groups or top_k > top_groups * (experts // groups):
            raise UsageError(f"{experts} experts in {groups} groups, {top_groups} of them, {top_k} a token; wanted equal groups that hold top_k")
        if scores not in SCORES or (shared_gate and shared is None):
            raise UsageError(f"a mixture with scores={scores!r}, shared={shared}, shared_gate={shared_gate}; wanted {', '.join(SCORES)}, "
                             "and a gate only on a shared expert")
        self.function, gates = activation(kind)
        self.router_dtype, self.score_dtype, self.limit, self.shift = router_dtype, score_dtype, limit, shift
        self.kind, self.experts, self.top_k, self.scores, self.normalise, self.scale = kind, experts, top_k, scores, normalise, scale
        self.groups, self.top_groups, self.group_best = groups, top_groups, min(group_best, experts // groups)
        self.router = nn.Linear(dim, experts, router_bias)
        self.input = _matrices(experts, hidden, dim)
        self.gate = _matrices(experts, hidden, dim) if gates else None
        self.output = _matrices(experts, dim, hidden)
        self.input_bias = nn.Parameter(torch.zeros(experts, hidden)) if bias else None
        self.gate_bias = nn.Parameter(torch.zeros(experts, hidden)) if bias and gates else None
        self.output_bias = nn.Parameter(torch.zeros(experts, dim)) if bias else None
        self.shared = None if shared is None else FeedForward(dim, shared, kind, bias=bias, limit=limit, shift=shift)
        self.shared_gate = nn.Linear(dim, 1, False) if shared_gate else None
        self.register_buffer("correction", torch.zeros(experts) if correction else None)
        self.register_buffer("table", None if table is None else torch.arange(table * top_k).view(table, top_k) % experts)

    def weights(self, kind: str) -> Iterable[Tensor]:
        """The matrices of each expert by kind: input, gate, output."""
        found = getattr(self, kind) if kind in ("input", "gate", "output") else None
        return [] if found is None else [*found, *(() if self.shared is None else self.shared.weights(kind))]

    @property
    def takes(self) -> frozenset[str]:
        """The keyword arguments that a stack passes."""
        return frozenset(() if self.table is None else ("ids",))

    def forward(self, x: Tensor, *, ids: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """y like x, and the router's logits, (tokens, experts). ids: the kind of each token, (...), where experts are looked up by it."""
        flat = x.reshape(-1, x.shape[-1])
        logits = self.router(flat) if self.router_dtype is None else self._routed(flat)
        if self.table is not None and ids is None:
            raise ShapeMismatch("a mixture that looks its experts up got no ids; give ids=, one number for each token")
        weights, chosen = self.choose(logits, None if self.table is None or ids is None else self.table[ids.flatten()])
        order = chosen.flatten().argsort(stable=True)       # the pairs (token, expert), expert by expert
        rows = order // self.top_k
        counts = torch.zeros(self.experts, dtype=torch.long, device=x.device).scatter_add(0, chosen.flatten(), torch.ones_like(order))
        made = self._experts(flat[rows], counts) * weights.flatten()[order].to(x.dtype)[:, None]
        y = torch.zeros_like(flat, dtype=made.dtype).index_add(0, rows, made)
        if self.shared is not None:
            more = self.shared(flat)
            y = y + (more if self.shared_gate is None else torch.sigmoid(self.shared_gate(flat)) * more)
        return y.view_as(x), logits

    def _routed(self, x: Tensor) -> Tensor:
        weight, bias = self.router.weight, self.router.bias
        return F.linear(x.to(self.router_dtype), weight.to(self.router_dtype), None if bias is None else bias.to(self.router_dtype))

    def choose(self, logits: Tensor, chosen: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Weight and number of the experts of each token, both (tokens, top_k); the numbers as they are where they are given."""
        wide = logits.to(self.score_dtype or torch.promote_types(logits.dtype, torch.float32))
        scores = SCORES[self.scores](wide)
        chosen = self._best(scores) if chosen is None else chosen
        weights = scores.gather(-1, chosen)
        if self.normalise:
            weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
        return weights * self.scale, chosen

    def _best(self, scores: Tensor) -> Tensor:
        judged = scores.detach() if self.correction is None else scores.detach() + self.correction
        if self.top_groups < self.groups:
            grouped = judged.unflatten(-1, (self.groups, -1))
            best = grouped.topk(self.group_best, -1).values.sum(-1).topk(self.top_groups, -1).indices
            out = torch.ones_like(grouped[..., 0], dtype=torch.bool).scatter(-1, best, torch.zeros_like(best, dtype=torch.bool))
            judged = grouped.masked_fill(out[..., None], float("-inf")).flatten(-2)
        return judged.topk(self.top_k, -1).indices

    def _experts(self, x: Tensor, counts: Tensor) -> Tensor:
        """Every pair's expert on its token. x is (pairs, dim), sorted by expert, counts[e] pairs for expert e."""
        def linear(v: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
            y = grouped_linear(v, weight, counts)
            return y if bias is None else y + bias.repeat_interleave(counts, 0, output_size=len(v))
        y = linear(x, self.input, self.input_bias)
        y = self.function(y) if self.gate is None else gated(self.function, linear(x, self.gate, self.gate_bias), y, self.limit, self.shift)
        return linear(y, self.output, self.output_bias)

    def extra_repr(self) -> str:
        """Experts and kind."""
        return f"{self.experts} experts, {self.top_k} a token, {self.kind}"


def load_balance_loss(logits: Tensor, top_k: int) -> Tensor:
    """E sum_e f_e P_e: f_e the share of the choices that fell on expert e, P_e its mean probability; 1 where all is even, E at worst.

    logits (tokens, experts). Source: Fedus, Zoph, Shazeer, Switch Transformers, 2021, arXiv 2101.03961.
    """
    experts = logits.shape[-1]
    probabilities = logits.float().softmax(-1)
    chosen = probabilities.topk(top_k, -1).indices.flatten()
    share = torch.bincount(chosen, minlength=experts).to(probabilities) / chosen.numel()
    return experts * (share * probabilities.mean(0)).sum()


def _matrices(experts: int, out: int, inside: int) -> nn.Parameter:
    """(experts, out, in), each started as nn.Linear starts its own."""
    return nn.Parameter(torch.empty(experts, out, inside).uniform_(-1, 1) / inside ** 0.5)

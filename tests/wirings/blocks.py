"""Blocks and stacks over tokens: sequential, parallel, nested in wrappers, shared."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from .faults import FaultyParts
from .norms import token_norm
from .sites import SiteParts, SitePlan
from .sublayers import Side
from .truth import SiteTruth


@dataclass(frozen=True)
class BlockPlan:
    """A block of one to three sublayers."""

    sites: tuple[SitePlan, ...]
    chain: bool = False                 # parallel, written as two adds in a row: x + a(x) + f(x)
    one_norm: bool = False              # one norm module serves all sublayers
    container: int = 0                  # how many containers stand around the block
    stale: bool = False                 # fault: the second shortcut is the block's input
    fault: str | None = None            # fault of the last sublayer (see faults.py)
    fault_at: int = 0


@dataclass(frozen=True)
class StackPlan:
    """Stem, blocks, norm at the end."""

    blocks: tuple[BlockPlan, ...]
    stem: str = "embedding"             # "embedding", "positions", "linear", "none"
    stem_norm: str | None = None
    final_norm: str | None = None
    final_unused: bool = False          # fault: the final norm is registered and never called
    repeat: int = 1                     # each block is called this many times
    checkpointed: bool = False


class Container(nn.Module):
    """Calls what it holds; adds nothing."""

    def __init__(self, fn: nn.Module) -> None:
        super().__init__()
        self.fn = fn

    def forward(self, x: Tensor, side: Side | None = None) -> Tensor:
        out: Tensor = self.fn(x, side)
        return out


class Residual(nn.Module):
    """A wrapper that owns the join."""

    def __init__(self, site: SiteParts) -> None:
        super().__init__()
        self.site = site

    def forward(self, x: Tensor, side: Side | None = None) -> Tensor:
        return self.site.run(x, side)


class Block(nn.Module):
    """Runs its sublayers in order; joins those that no wrapper joins."""

    def __init__(self, plan: BlockPlan, dim: int) -> None:
        super().__init__()
        self.plan, self.sub = plan, nn.ModuleList()
        shared = token_norm(plan.sites[0].norm, dim) if plan.one_norm else None
        for i, site in enumerate(plan.sites):
            broken = plan.fault is not None and i == plan.fault_at
            parts = FaultyParts(site, dim, plan.fault) if broken and plan.fault else SiteParts(site, dim, shared)
            self.sub.append(wrap(parts, site.wrapper))

    def forward(self, x: Tensor, side: Side | None = None) -> Tensor:
        entered, state = x, x
        for i, sub in enumerate(self.sub):
            if not isinstance(sub, SiteParts):
                state = sub(state, side)
            elif self.plan.chain:
                state = sub.run(state, side, read=entered)
            elif self.plan.stale and i == 1:
                state = sub.run(entered, side, read=state)
            else:
                state = sub.run(state, side)
        return state

    @property
    def inner(self) -> int:
        """Joins of streams that live inside branches."""
        return sum(m.inner for m in self.modules() if isinstance(m, SiteParts))


def wrap(parts: SiteParts, wrapper: str) -> nn.Module:
    """The parts as they are, or in a wrapper that owns the join."""
    if wrapper == "block":
        return parts
    return Residual(parts) if wrapper == "residual" else Container(Container(Residual(parts)))


def owner(block: str, i: int, wrapper: str) -> str:
    """Path of the module whose forward joins sublayer `i`."""
    return {"block": block, "residual": f"{block}.sub.{i}", "nested": f"{block}.sub.{i}.fn.fn"}[wrapper]


def block_path(prefix: str, i: int, plan: BlockPlan) -> str:
    """Path of the block itself, inside its containers."""
    return f"{prefix}blocks.{i}" + ".fn" * plan.container


def stack_sites(plan: StackPlan, prefix: str) -> list[SiteTruth]:
    """The sites of a stack in order of use."""
    sites: list[SiteTruth] = []
    for i, block in enumerate(plan.blocks):
        path = block_path(prefix, i, block)
        once = [s.truth(owner(path, j, s.wrapper)) for j, s in enumerate(block.sites)]
        if block.chain:
            once = [SiteTruth(**{**vars(s), "parallel": None}) for s in once]
        sites += once * plan.repeat
    return sites


class Stack(nn.Module):
    """Stem, blocks and final norm; makes the first state itself."""

    def __init__(self, plan: StackPlan, dim: int, tokens: int) -> None:
        super().__init__()
        self.plan = plan
        words = plan.stem in ("embedding", "positions")
        self.stem = nn.Embedding(20, dim) if words else nn.Linear(6, dim) if plan.stem == "linear" else None
        self.positions = nn.Parameter(torch.randn(tokens + 3, dim) * 0.02) if plan.stem == "positions" else None
        self.stem_norm = token_norm(plan.stem_norm, dim) if plan.stem_norm else None
        self.blocks = nn.ModuleList([contain(Block(b, dim), b.container) for b in plan.blocks])
        self.final_norm = token_norm(plan.final_norm, dim) if plan.final_norm else None

    def forward(self, x: Tensor) -> Tensor:
        return self.states(x, None)

    def states(self, x: Tensor, side: Side | None) -> Tensor:
        """The last state."""
        x = x if self.stem is None else self.stem(x)
        if self.positions is not None:
            x = x + self.positions[: x.shape[1]]
        x = x if self.stem_norm is None else self.stem_norm(x)
        for block in self.blocks:
            for _ in range(self.plan.repeat):
                x = checkpoint(block, x, side, use_reentrant=False) if self.plan.checkpointed else block(x, side)
        return x if self.final_norm is None or self.plan.final_unused else self.final_norm(x)


def contain(block: nn.Module, depth: int) -> nn.Module:
    """The block inside `depth` containers."""
    for _ in range(depth):
        block = Container(block)
    return block


class Model(Stack):
    """A stack and a head: "none", "linear", "tied", "biased" (a bias on the logits) or "pooled" (mean, then linear).

    `reads` names what forward takes besides the first input: "memory", "mask".
    """

    def __init__(self, plan: StackPlan, dim: int, tokens: int, head: str, reads: tuple[str, ...] = ()) -> None:
        super().__init__(plan, dim, tokens)
        self.kind, self.reads = head, reads
        self.head = nn.Linear(dim, 20, bias=False) if head in ("linear", "biased", "pooled") else None
        self.logit_bias = nn.Parameter(torch.zeros(20)) if head == "biased" else None

    def forward(self, x: Tensor, *more: Tensor) -> Tensor:
        given = dict(zip(self.reads, more, strict=True))
        x = self.states(x, Side(given.get("memory"), given.get("mask")))
        if self.kind == "tied":
            assert isinstance(self.stem, nn.Embedding)
            return x @ self.stem.weight.t()
        if self.head is None:
            return x
        logits: Tensor = self.head(x.mean(1) if self.kind == "pooled" else x)
        return logits if self.logit_bias is None else logits + self.logit_bias


class EncoderDecoder(nn.Module):
    """Two stacks; the decoder's cross-attention reads what the encoder gives."""

    def __init__(self, encoder: StackPlan, decoder: StackPlan, dim: int, tokens: int, head: str) -> None:
        super().__init__()
        self.encoder, self.decoder = Stack(encoder, dim, tokens), Model(decoder, dim, tokens, head, ("memory",))

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        out: Tensor = self.decoder(target, self.encoder(source))
        return out


def inner_joins(model: nn.Module, repeats: Sequence[tuple[nn.Module, int]]) -> int:
    """Joins of inner streams in one forward; `repeats` says how often the blocks of a stack are called."""
    return sum(m.inner * times for stack, times in repeats for m in stack.modules() if isinstance(m, SiteParts))

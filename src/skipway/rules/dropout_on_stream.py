"""dropout-on-stream: drop-out acts on the stream after the add, not on the branch before it.

What it does
    Looks at one forward in training mode and reports a random mask with zeros on the identity path between two joins: the
    shortcut of a join, or the sum that the next sublayers read, is dropped.
Why it matters
    Drop-out on the branch leaves the identity whole. On the stream it takes a share p of every identity path away at every
    sublayer, (1 - p) to the power of the number of sublayers by the end, and the gradient loses the same share: deep models
    train slowly or not at all. He et al. 2016 measured it (110 layers: 6.6 % error with a clean shortcut, more than 20 %
    with drop-out on it). Reported in hyunwoongko/transformer#8 and codertimo/BERT-pytorch#85.
Fires on
    `x = drop(norm(x + attn(x)))`; `x = drop(x + f(norm(x)))`; `drop(x) + f(x)`; stochastic depth around a whole residual
    block, `x = drop_path(x + f(x))`, which sets samples to zero instead of skipping a branch.
Quiet on
    Drop-out on a branch, before its add; on the embedding, before the first block, also behind a convolutional position
    embedding; before the head, after the last join; between two stacks of blocks. Noise without zeros. Models of which no
    parameter is trained.
What to do
    Drop the branch: `x = norm(x + drop(attn(x)))`.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from skipway.rules._base import Example, Facts, Hit
from skipway.rules._drops import Drop, applied, identity_path, mean_of
from skipway.rules._real import Real
from skipway.wiring.evaluate import depends
from skipway.wiring.sites import Place
from skipway.wiring.streams import Flow

CODE = "SKW401"
STAGE = "train"
SEVERITY = "error"


def check(facts: Facts) -> Iterator[Hit]:
    real = facts.train
    told: set[str] = set()
    for flow in real.flows if real.weights else ():     # a model that is frozen as a whole is never run in training mode
        if flow.main:
            for hit in _on_stream(real, flow):
                if hit.where not in told:
                    told.add(hit.where)
                    yield hit


def _on_stream(real: Real, flow: Flow) -> Iterator[Hit]:
    first = _first(real, flow)
    stops = {p.join.node for p in flow.places}
    told = False
    for k, place in enumerate(flow.places):
        for drop in _drops(real, identity_path(real, place, stops)):
            alone = not depends(real.record, place.join.branch, drop.node)
            if alone or (k > first and _same_stack(real, flow.places[k - 1], place, drop)):
                told = True
                yield _hit(real, drop, "the shortcut" if alone else "the stream", place)
    last = flow.places[-1]
    for drop in _drops(real, _after(real, last)):
        if _in_block(real, last, drop) or (_call_of(real, drop) == last.call and (told or _returned(real, drop))):
            yield _hit(real, drop, "the stream", last)


def _first(real: Real, flow: Flow) -> int:
    """The first join of the blocks: joins before, outside of all numbered modules, belong to the stem, as a convolutional position embedding does."""
    numbered = [real.block(p)[0].rpartition(".")[2].isdigit() for p in flow.places]
    return numbered.index(True) if True in numbered else 0


def _drops(real: Real, nodes: list[int]) -> Iterator[Drop]:
    for n in nodes:
        drop = applied(real, n)
        if drop is not None and _share(real, drop) > 0:
            yield drop


def _share(real: Real, drop: Drop) -> float:
    """The share of the value that a drop sets to zero."""
    mean = mean_of(real, drop)
    return mean.zeros if mean is not None else float((real.value(drop.mask) == 0).double().mean())


def _call_of(real: Real, drop: Drop) -> int:
    """The call whose forward applies a drop: the one around, where a module does nothing else."""
    call = real.record.calls[real.graph.nodes[drop.node].call]
    return call.id if _learns(real, call.first, call.last) or call.parent < 0 else call.parent


def _learns(real: Real, first: int, last: int) -> bool:
    return any(real.graph.learned[n] for n in range(first, last))


def _same_stack(real: Real, before: Place, after: Place, drop: Drop) -> bool:
    """Whether a drop lies between joins of one forward, or of blocks of one kind, and not between two stacks."""
    if before.call == after.call or _in_block(real, before, drop) or _in_block(real, after, drop):
        return True
    first, second = real.block(before)[0], real.block(after)[0]
    return _alike(first) == _alike(second) or type(real.modules.get(first)) is type(real.modules.get(second))


def _in_block(real: Real, place: Place, drop: Drop) -> bool:
    """Whether a drop is applied inside the numbered block of a join."""
    path, where = real.block(place)[0], real.path(drop.node)
    return path.rpartition(".")[2].isdigit() and (where == path or where.startswith(path + "."))


def _alike(path: str) -> str:
    return "".join(c for c in path if not c.isdigit())


def _after(real: Real, last: Place) -> list[int]:
    """Nodes that carry the last state of a stream on, or its norm."""
    g = real.graph
    found = []
    for n in range(last.join.node + 1, len(g.nodes)):
        state = g.state[n]
        while state is not None and state is not last.join.after and state.via in ("norm", "centred", "act"):
            state = state.prev
        if state is last.join.after:
            found.append(n)
    return found


def _returned(real: Real, drop: Drop) -> bool:
    """Whether the model returns what was dropped."""
    state = real.graph.state[drop.node]
    return bool(real.record.outputs) and state is not None and real.graph.state[real.record.outputs[0]] is state


def _hit(real: Real, drop: Drop, what: str, place: Place) -> Hit:
    rate = round(_share(real, drop), 4)
    nodes = real.graph.nodes
    mask, size = nodes[drop.mask].shape, nodes[drop.source].shape
    whole = mask == size
    where = real.path(drop.node) or real.sublayer(place)
    text = (f"`{where}` drops {what} itself, not the branch: {rate:.0%} of its {'elements' if whole else 'samples'} are zero in training, at every "
            "pass through this place; drop the branch before the add")
    return Hit(where, text, None, real.line(drop.node), {"rate": rate, "per": "element" if whole else "sample"})


class _Block(nn.Module):
    def __init__(self, dim: int = 16, rate: float = 0.2) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.mix = nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.Linear(dim, dim))
        self.ffn = nn.Sequential(nn.Linear(dim, 32), nn.GELU(), nn.Linear(32, dim))
        self.drop1, self.drop2 = nn.Dropout(rate), nn.Dropout(rate)


class _Net(nn.Module):
    def __init__(self, block: type[nn.Module]) -> None:
        super().__init__()
        self.stem, self.drop = nn.Linear(4, 16), nn.Dropout(0.2)
        self.layers = nn.ModuleList([block() for _ in range(3)])
        self.head = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.drop(self.stem(x))
        for layer in self.layers:
            x = layer(x)
        return self.head(self.drop(x))


def _example(block: type[nn.Module]) -> Example:
    torch.manual_seed(0)
    return Example(_Net(block).eval(), (torch.randn(2, 6, 4),), where="layers.0.drop1", options={"stage": "train"})


def bad() -> Example:
    """Post-norm blocks that drop the normed sum."""

    class Block(_Block):
        def forward(self, x: Tensor) -> Tensor:
            x = self.drop1(self.norm1(x + self.mix(x)))
            return self.drop2(self.norm2(x + self.ffn(x)))

    return _example(Block)


def good() -> Example:
    """The same blocks with the drop-out on the branches."""

    class Block(_Block):
        def forward(self, x: Tensor) -> Tensor:
            x = self.norm1(x + self.drop1(self.mix(x)))
            return self.norm2(x + self.drop2(self.ffn(x)))

    return _example(Block)

"""missing-final-norm: a pre-norm stream reaches the head without a norm.

What it does
    Reports a main stream of pre-norm sites whose last state goes into a learned head with no norm on the way, and names
    a norm that is registered for it and never called.
Why it matters
    The pre-norm stream grows with every sublayer, and only the final norm brings it back to the scale the head was made
    for. Logits are wrong by a factor that depends on depth. It happens on one path of a model (inference, a draft head)
    while training is right: awslabs/keys_values#139, NVIDIA-NeMo/Speech#2197, vllm-project/speculators#313.
Fires on
    As an error: a pre-norm stack into `lm_head` with `ln_f` registered and not called, and a deep pre-norm stack with
    no norm at all before its head. As a note: a shallow stack with no norm registered for the purpose, and a stack that
    ends in a neck, a convolution or a map that is normed itself.
Quiet on
    Post-norm and output-norm stacks; a norm behind pooling or token selection (`head(norm(x.mean(1)))`); a head that
    begins with a norm; models that return the stream itself and have no head; batch-normalised convolutional nets,
    which end with pooling.
What to do
    Call the final norm between the last block and the head, on every path.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from skipway.rules._base import Example, Facts, Hit
from skipway.wiring import operations as ops
from skipway.wiring.states import State

CODE = "SKW204"
STAGE = "graph"
SEVERITY = "error"

DEEP = 16           # sites from where on a stream without any final norm is an error


def check(facts: Facts) -> Iterator[Hit]:
    g = facts.graph
    for flow in facts.flows:
        stream = flow.stream
        if not flow.main or stream is None or stream.final_norm is not None or not stream.sites:
            continue
        pre = sum(s.placement == "pre" for s in stream.sites)
        if pre * 2 <= len(stream.sites) or stream.sites[-1].placement != "pre":
            continue
        after = flow.places[-1].join.after
        heads = [n for n in range(after.node + 1, len(g.nodes)) if g.learned[n] and n in facts.live
                 and any(_raw(g.state[i], after) for i in g.nodes[n].ins)]
        if not heads or _joins_after(facts, heads[0]):
            continue
        head = facts.path(heads[0])
        around = (head, stream.sites[-1].module)
        unused = [p for p in facts.uncalled_norms() if not _in_block(p) and _beside(p, around)]
        joins = _since_norm(after)
        values = {"sites": joins, "uncalled": unused[:3]}
        if unused:
            text = f"the pre-norm stream reaches `{head}` without a norm, and `{unused[0]}` is registered but never called; call it before `{head}`"
            yield Hit(head, text, None, facts.line(heads[0]), values)
        else:
            normed = any(s.norm is not None and s.prev is g.state[heads[0]] for s in g.state[heads[0]:] if s is not None)
            neck = normed or g.nodes[heads[0]].op in ops.CONVOLUTIONS
            severity = None if joins >= DEEP and not neck else "note"
            text = f"the pre-norm stream reaches `{head}` without a norm after {joins} joins: its size grows with depth; norm it before `{head}`"
            yield Hit(head, text, severity, facts.line(heads[0]), values)


def _raw(state: State | None, after: State) -> bool:
    """Whether a state is the last one, or a pooling of it."""
    while state is not None and state.via == "pool":
        state = state.prev
    return state is after


def _in_block(path: str) -> bool:
    return any(part.isdigit() for part in path.split("."))


def _beside(norm: str, around: tuple[str, str]) -> bool:
    """Whether a norm belongs to a module around the head or the last block: only such a one can have been meant for this stream."""
    owner = norm.rpartition(".")[0]
    return not owner or any(path == owner or path.startswith(owner + ".") for path in around)


def _since_norm(state: State | None) -> int:
    """Joins since the stream itself was last normed."""
    count = 0
    while state is not None and state.norm is None:
        count += state.via == "join"
        state = state.prev
    return count


def _joins_after(facts: Facts, head: int) -> bool:
    """Whether the next learned operation only makes the first state of another stream."""
    return any(f.main and f.root.node == head for f in facts.flows)


class _Block(nn.Module):
    def __init__(self, dim: int = 16) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = nn.MultiheadAttention(dim, 2, batch_first=True)
        self.ffn = nn.Sequential(nn.Linear(dim, 32), nn.GELU(), nn.Linear(32, dim))

    def forward(self, x: Tensor) -> Tensor:
        n = self.norm1(x)
        x = x + self.attn(n, n, n, need_weights=False)[0]
        return x + self.ffn(self.norm2(x))


class _Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 16, 4, stride=4)
        self.blocks = nn.Sequential(*[_Block() for _ in range(6)])
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 5)

    def features(self, image: Tensor) -> Tensor:
        return self.blocks(self.patch(image).flatten(2).transpose(1, 2))


def _example(model: type[nn.Module]) -> Example:
    torch.manual_seed(0)
    return Example(model().eval(), (torch.randn(2, 3, 8, 8),), where="head")


def bad() -> Example:
    """`norm` is registered and never called: the head reads the raw stream."""

    class Classifier(_Classifier):
        def forward(self, image: Tensor) -> Tensor:
            return self.head(self.features(image).mean(1))

    return _example(Classifier)


def good() -> Example:
    """The norm stands behind the pooling, which serves as well as before it."""

    class Classifier(_Classifier):
        def forward(self, image: Tensor) -> Tensor:
            return self.head(self.norm(self.features(image).mean(1)))

    return _example(Classifier)

"""depth-init-missing: branch output projections lack the declared depth-scaled initial spread.

What it does
    Compares the spread of the weights by which each branch writes to the stream with the spread that
    `expect=Expect(branch_init=...)` declares for them: "gpt2" (that of the branch's other projections over sqrt(2 L), L
    blocks; Megatron's scaled init is the same), "zero" (Fixup, zero-initialised projections), "deepnorm" (Xavier times
    (8 L)^(-1/4)) or "t_fixup" (Xavier times 0.67 L^(-1/4), or (9 L)^(-1/4) in a decoder). What lies beyond the geometric
    mean of the declared spread and the plain one is reported.
Why it matters
    With N joins of full spread the stream's variance grows N-fold before the first step; the scaled projections are what
    keeps deep models stable early on. The usual fault is silent: the hook that rescales compares a full parameter path with
    a bare name and never matches (huggingface/transformers#47458, where GPT-2 started 3 to 7 times too large).
Fires on
    Eight blocks with every weight at 0.02 where "gpt2" is declared: want 0.005; projections that still hold torch's own
    default; non-zero output projections where "zero" is declared.
Quiet on
    Models that declare no such scheme, and trained models (norm gains that have moved). Output projections of zero or of
    less than declared. Branches that end in a norm, which undoes the spread, or that have no output projection.
What to do
    Rescale the output projections after the general initialisation, by module and not by a name compared in full.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from skipway.rules._base import Example, Facts, Hit
from skipway.rules._real import Real
from skipway.rules._scales import untrained
from skipway.wiring import operations as ops
from skipway.wiring.sites import Place, Term

CODE = "SKW304"
STAGE = "values"
SEVERITY = "warning"

CLOSE = 1.1         # what is no further off is the declared spread, wherever it comes from
BASES = ("initializer_range", "init_std", "initializer_std", "init_method_std")


@dataclass(frozen=True)
class Weight:
    """A stored matrix of a branch; `fans` are its numbers of inputs and outputs."""

    name: str
    value: Tensor
    fans: tuple[int, int]

    @property
    def std(self) -> float:
        return float(self.value.double().std()) if self.value.numel() > 1 else 0.0

    @property
    def default(self) -> bool:
        """Whether it holds what torch's own linear and convolution start with: uniform up to 1 / sqrt(inputs)."""
        bound, largest = 1 / math.sqrt(self.fans[0]), float(self.value.abs().max())
        return 0.97 * bound <= largest <= bound * 1.01 and abs(self.std * math.sqrt(3) / bound - 1) < 0.1


def check(facts: Facts) -> Iterator[Hit]:
    scheme = facts.expect.branch_init
    if not isinstance(scheme, str):
        return
    real = facts.real
    if not untrained(real):
        return
    told: set[str] = set()
    for spot in real.spots:
        layers = len({s.layer for s in spot.flow.stream.sites}) if spot.flow.stream else 1
        crossed = any(b.kind == "cross_attention" for s in (spot.flow.stream.sites if spot.flow.stream else ()) for b in s.branches)
        for term in spot.place.terms:
            ends = [] if term.out_norm is not None else _ends(real, spot.place, term)
            base = _base(real, term, {w.name for w in ends})
            for weight in ends:
                want, plain = _spreads(scheme, weight, base, layers, crossed)
                if weight.name in told or plain is None or weight.std <= max(math.sqrt(max(want, plain / 1e4) * plain), CLOSE * want):
                    continue
                told.add(weight.name)
                yield _hit(real, spot.place, weight, want, scheme, layers)


def _hit(real: Real, place: Place, weight: Weight, want: float, scheme: str, layers: int) -> Hit:
    where = weight.name.rpartition(".")[0] or weight.name
    text = (f"the weight of `{where}` writes to the stream with a spread of {weight.std:.3g}, want {want:.3g} ({scheme} at {layers} "
            f"block{'s' if layers > 1 else ''}); rescale it after the general initialisation")
    return Hit(where, text, None, real.line(place.join.node), {"std": weight.std, "want": want, "layers": layers})


def _spreads(scheme: str, weight: Weight, base: float | None, layers: int, crossed: bool) -> tuple[float, float | None]:
    """The spread that the scheme wants and the one without it (None: cannot be told)."""
    if scheme == "zero":
        return 0.0, base if base else weight.std
    if scheme == "gpt2":
        if weight.default and weight.std:
            plain = weight.std if base is None else min(base, weight.std)
            return (base or weight.std) / math.sqrt(2 * layers), plain
        return (base or 0.0) / math.sqrt(2 * layers), base
    xavier = math.sqrt(2 / sum(weight.fans))
    if scheme == "deepnorm":
        return xavier * (8 * layers) ** -0.25, xavier
    return xavier * ((9 * layers) ** -0.25 if crossed else 0.67 * layers ** -0.25), xavier


def _base(real: Real, term: Term, ends: set[str]) -> float | None:
    """The spread of the branch's other projections, else the declared one; None where there is neither."""
    found = [w.std for n in term.region.nodes if real.graph.learned[n] for w in _weights(real, n) if w.name not in ends]
    spreads = sorted(s for s in found if s > 0)
    if spreads:
        return spreads[len(spreads) // 2]
    stated = real.declared(term.modules[0] if term.modules else "", *BASES)
    return float(stated) if isinstance(stated, (int, float)) and stated > 0 else None


def _ends(real: Real, place: Place, term: Term) -> list[Weight]:
    """The matrices behind which nothing learned stands between the branch and the join."""
    g = real.graph
    inside = set(term.region.nodes)
    start = term.end.node if term.end.node in inside else place.join.branch
    seen, stack, found = {start}, [start], []
    while stack:
        n = stack.pop()
        if g.learned[n]:
            found += _weights(real, n)
            continue
        for i in g.nodes[n].ins:
            if i not in seen and i in inside:
                seen.add(i)
                stack.append(i)
    return list({w.name: w for w in found}.values())


def _weights(real: Real, n: int) -> list[Weight]:
    """The stored matrix that a learned operation multiplies by."""
    g = real.graph
    node = g.nodes[n]
    signals = [i for i in node.ins if g.signal[i]]
    if len(signals) != 1:
        return []
    found = []
    for i in node.ins:
        names = [] if i in signals else [s for s in real.stored(i) if g.nodes[s].op == "param" and len(g.nodes[s].shape) >= 2]
        if len(names) != 1:
            continue
        value = real.value(names[0])
        inputs = value[0].numel() if node.op in ops.CONVOLUTIONS else _width(g.nodes[signals[0]].shape, value)
        if inputs:
            found.append(Weight(g.nodes[names[0]].name, value.float(), (inputs, value.numel() // inputs)))
    return found


def _width(signal: tuple[int, ...], weight: Tensor) -> int | None:
    """How many numbers each output is a sum over: the width of the signal, as the matrix has it."""
    return next((s for s in (signal[-1], *signal) if s in weight.shape), None)


class _Block(nn.Module):
    def __init__(self, dim: int = 32) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(dim), nn.Linear(dim, 64), nn.Linear(64, dim)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class _Net(nn.Module):
    def __init__(self, layers: int = 8) -> None:
        super().__init__()
        self.stem, self.blocks = nn.Linear(4, 32), nn.Sequential(*[_Block() for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(32), nn.Linear(32, 3)
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02)
        self.rescale(0.02 / math.sqrt(2 * layers))

    def rescale(self, std: float) -> None:
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.stem(x))))


def _example(net: type[nn.Module]) -> Example:
    torch.manual_seed(0)
    return Example(net().eval(), (torch.randn(2, 6, 4),), where="blocks.0.down", options={"stage": "values", "expect": {"branch_init": "gpt2"}})


def bad() -> Example:
    """The pass that rescales compares full names with a bare one and matches nothing."""

    class Net(_Net):
        def rescale(self, std: float) -> None:
            for name, p in self.named_parameters():
                if name == "down.weight":
                    nn.init.normal_(p, std=std)

    return _example(Net)


def good() -> Example:
    """It goes by the end of the name."""

    class Net(_Net):
        def rescale(self, std: float) -> None:
            for name, p in self.named_parameters():
                if name.endswith("down.weight"):
                    nn.init.normal_(p, std=std)

    return _example(Net)

"""drop-path-scale: the branch's expected gain differs between training and evaluation.

What it does
    Takes, for every site, what multiplies the branch on its way to the add: constants, and the mean of the random masks, worked out
    from the operations that make them. Reports a branch whose factor in training is not, on average, the one in
    evaluation. Masks that are drawn by the interpreter (`if random.random() < p: return x`) are judged over many forwards.
Why it matters
    A branch that is kept with probability q must be divided by q in training or multiplied by q in evaluation. Where
    neither is done, every branch is 1/q times stronger in evaluation than it was trained to be, and the later ones see
    inputs that they never saw; where both are, it is q times weaker. Asked in huggingface/pytorch-image-models#887 and #2118,
    facebookresearch/dinov2#442 and microsoft/Swin-Transformer#366.
Fires on
    A drop-path that multiplies by its mask and returns its input unchanged in evaluation; one that divides by the keep
    probability twice, or by the drop probability; one that rescales in training and in evaluation. Ordinary drop-out that is
    written by hand, too.
Quiet on
    Both conventions: rescaling in training, or a factor in evaluation. LayerDrop, which skips whole layers and never
    rescales (its layers are meant to be left out). Masks whose mean cannot be told.
What to do
    `x * mask / keep` in training and `x` in evaluation.
"""

import itertools
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from skipway.rules._base import Example, Facts, Hit
from skipway.rules._drops import rate_of, stochastic_depth
from skipway.rules._gains import TOLERANCE, Gain, gains, more
from skipway.rules._real import Real

CODE = "SKW403"
STAGE = "train"
SEVERITY = "error"

FEW, MANY = 8, 64       # forwards in training mode, where the numbers of one do not settle it
UNLIKELY = 1e-3         # what is as rare as this under right code is a fault


def check(facts: Facts) -> Iterator[Hit]:
    train, plain = gains(facts.train), gains(facts.real)
    if not facts.train.weights or not any(_suspect(facts.real, gain, train.get(key)) for key, gain in plain.items()):
        return                                          # a model that is frozen as a whole is never run in training mode
    runs = more(facts, plain)
    drawn = list(itertools.islice(runs, FEW))
    if any(_open(facts.real, gain, [run.get(key) for run in (train, *drawn)]) for key, gain in plain.items()):
        drawn += itertools.islice(runs, MANY - FEW)
    told: set[str] = set()
    for key, gain in sorted(plain.items(), key=lambda item: item[1].node):
        seen = [run.get(key) for run in drawn]
        held = next((g for g in (train.get(key), *seen) if g is not None), None)
        left_out = None in seen and held is not None and gain.agrees(held)
        mean = _mean(gain, held, seen) if not left_out or _drops_paths(facts.real, gain) else None
        if held is None or mean is None:
            continue
        where = held.where or _sublayer(facts.real, gain)
        if where not in told:
            told.add(where)
            yield _hit(where, mean, gain, held)


def _sublayer(real: Real, gain: Gain) -> str:
    """The module that joins at a site, or in the model's own forward the sublayer that is joined."""
    return next(s.site.module or real.sublayer(s.place) for s in real.spots if s.place.join.node == gain.node)


def _suspect(real: Real, plain: Gain, held: Gain | None) -> bool:
    """Whether one run in training mode does not settle a site: another factor, no site, or a stochastic depth of which nothing is seen."""
    if held is not None and not plain.agrees(held):
        return True
    return (held is None or not held.masked) and _drops_paths(real, plain)


def _drops_paths(real: Real, gain: Gain) -> bool:
    """Whether the module around a site, or one inside, says that it drops paths (LayerDrop leaves whole layers out and never rescales)."""
    call = real.record.calls[gain.call]
    inside = [(f"{call.path}.{p}" if call.path and p else p or call.path, m) for p, m in call.module.named_modules()]
    rates = [name for name, value in vars(call.module).items() if isinstance(value, float) and 0 < value < 1]
    called = {id(c.module) for c in real.record.calls}
    named = any(stochastic_depth(m, path) and id(m) in called and 0 < (0.5 if rate_of(m) is None else rate_of(m) or 0.0) < 1 for path, m in inside)
    return named or any(stochastic_depth(call.module, name) for name in rates)


def _open(real: Real, plain: Gain, seen: list[Gain | None]) -> bool:
    """Whether a few runs do not settle a site: its factor is drawn by the interpreter, or may be."""
    held = next((g for g in seen if g is not None), None)
    factors = [0.0 if g is None else g.factor for g in seen]
    return held is None or max(factors) - min(factors) > 1e-9 or (not held.masked and _suspect(real, plain, held))


def _mean(plain: Gain, held: Gain | None, drawn: list[Gain | None]) -> float | None:
    """The mean factor in training where it is certainly not the one in evaluation; None where it may be.

    Runs that lack the site count as factor 0. Where all runs agree on a factor above the wanted one, a coin may just not have fallen,
    unless the mask is seen in the numbers.
    """
    if held is None or not plain.comparable(held):
        return None
    values = torch.tensor([0.0 if g is None else g.factor for g in drawn], dtype=torch.float64)
    mean, spread = float(values.mean()), float(values.std())
    if spread < 1e-9:
        share = plain.factor / mean if mean else 0.0
        coin = not held.masked and 0 < share < 1 and share ** len(drawn) > UNLIKELY
        return None if coin or held.agrees(plain) else mean
    far = abs(mean - plain.factor) > max(4 * spread / len(drawn) ** 0.5, 2 * TOLERANCE * abs(plain.factor))
    return mean if far else None


def _hit(where: str, mean: float, plain: Gain, held: Gain) -> Hit:
    text = (f"`{where}` multiplies the branch by {mean:.3g} on average in training and by {plain.factor:.3g} in evaluation; "
            "divide by the keep probability in training, or multiply by it in evaluation, and not both")
    return Hit(where, text, None, held.line, {"training": round(mean, 4), "evaluation": round(plain.factor, 4)})


class _DropPath(nn.Module):
    def __init__(self, rate: float, rescale: bool) -> None:
        super().__init__()
        self.rate, self.rescale = rate, rescale

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        keep = 1 - self.rate
        mask = (torch.rand(x.size(0), 1, 1) < keep).to(x.dtype)
        return x * mask / keep if self.rescale else x * mask


class _Block(nn.Module):
    def __init__(self, rate: float, rescale: bool, dim: int = 16) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(dim), nn.Linear(dim, 32), nn.Linear(32, dim)
        self.drop_path = _DropPath(rate, rescale)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.drop_path(self.down(torch.relu(self.up(self.norm(x)))))


def _example(rescale: bool) -> Example:
    torch.manual_seed(0)
    blocks = nn.Sequential(*[_Block(0.1 * i, rescale) for i in range(1, 4)])
    return Example(blocks.eval(), (torch.randn(4, 5, 16),), where="1.drop_path", options={"stage": "train"})


def bad() -> Example:
    """A drop-path that never divides by its keep probability."""
    return _example(False)


def good() -> Example:
    """The same one, rescaled in training."""
    return _example(True)

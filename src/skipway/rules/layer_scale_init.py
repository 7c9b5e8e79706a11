"""layer-scale-init: a LayerScale vector does not hold its declared initial value in an untrained model.

What it does
    Finds the stored vectors and numbers that multiply a branch before its join, and the initial value that is declared for
    them: `init_values`, `layer_scale_init_value`, `layerscale_value` and the like, on the module that holds the vector, one
    around it or their configuration, or `expect=Expect(branch_init=1e-5)`. Reports a vector of an untrained model that
    holds something else.
Why it matters
    LayerScale works by its start: 0.1 up to 18 blocks, 1e-5 at 24, 1e-6 beyond (CaiT). A later initialisation pass that sets
    every vector to one, or a value that is passed and never used, gives a deep model without the very thing it was built
    with; it trains worse or diverges, and nothing in its shape or its configuration shows it.
Fires on
    `gamma = nn.Parameter(torch.ones(dim))` in a module with `init_values = 1e-5`; a configuration with
    `layer_scale_init_value = 1e-6` whose vectors are 1, 0.1 or drawn at random; a vector that was zeroed.
Quiet on
    Trained models: vectors that are not constant beside norms whose gains have moved. Values that equal the declared one up
    to the rounding of their dtype. Models that declare nothing, or no number. Norm gains, which are no LayerScale.
What to do
    Fill the vector with the declared value after all other initialisation (`nn.init.constant_(self.gamma, init_values)`), or
    correct the declaration.
"""

from collections import OrderedDict
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from skipway.rules._base import Example, Facts, Hit, Spot
from skipway.rules._real import Real
from skipway.rules._scales import on_branch, untrained

CODE = "SKW303"
STAGE = "values"
SEVERITY = "warning"

NAMES = ("init_values", "layer_scale_init_value", "layer_scale_init_values", "layer_scale_initial_scale", "layer_scale_init", "layerscale_value",
         "layerscale_init", "layerscale_init_value", "layer_scale_value", "ls_init_value", "ls_init_values", "ls_init", "init_value",
         "gamma_init", "gamma_init_value", "res_scale_init_value", "res_scale_init_values", "scale_init", "scale_init_value")


def check(facts: Facts) -> Iterator[Hit]:
    real = facts.real
    fresh = untrained(real)
    told: set[str] = set()
    for spot in real.spots:
        for name in (n for scale in on_branch(real, spot.place) for n in scale.names):
            leaf = real.leaf(name)
            want = _declared(real, name)
            if name in told or leaf is None or want is None:
                continue
            told.add(name)
            hit = _judged(real, spot, name, real.value(leaf), want, fresh)
            if hit is not None:
                yield hit


def _declared(real: Real, name: str) -> float | None:
    """The declared initial value of a parameter, where one is declared."""
    stated = real.expect.branch_init
    if isinstance(stated, (int, float)) and not isinstance(stated, bool):
        return float(stated)
    value = real.declared(name.rpartition(".")[0], *NAMES)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _judged(real: Real, spot: Spot, name: str, held: Tensor, want: float, fresh: bool) -> Hit | None:
    v = held.double()
    low, high = float(v.min()), float(v.max())
    if not (v.isfinite().all() and (low == high or fresh)):
        return None
    stored = float(torch.tensor(want, dtype=held.dtype))        # 1e-6 is no normal number of float16
    allowed = max(1e-6, torch.finfo(held.dtype).eps) * abs(want)
    if max(abs(low - stored), abs(high - stored)) <= allowed:
        return None
    have = f"{low:g}" if low == high else f"between {low:.3g} and {high:.3g}"
    text = (f"`{name}` scales the branch of `{real.sublayer(spot.place)}` and holds {have} in an untrained model, declared is {want:g}; fill it with "
            "the declared value after all other initialisation")
    return Hit(name, text, None, real.line(spot.place.join.node), {"value": float(v.mean()), "want": want})


class _Block(nn.Module):
    def __init__(self, start: float, init_values: float = 1e-5, dim: int = 16) -> None:
        super().__init__()
        self.init_values = init_values
        self.norm, self.up, self.down = nn.LayerNorm(dim), nn.Linear(dim, 32), nn.Linear(32, dim)
        self.gamma = nn.Parameter(torch.full((dim,), start))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.gamma * self.down(torch.relu(self.up(self.norm(x))))


def _example(start: float) -> Example:
    torch.manual_seed(0)
    net = OrderedDict(stem=nn.Linear(4, 16), blocks=nn.Sequential(_Block(start), _Block(start)), norm=nn.LayerNorm(16), head=nn.Linear(16, 3))
    return Example(nn.Sequential(net).eval(), (torch.randn(2, 6, 4),), where="blocks.0.gamma", options={"stage": "values"})


def bad() -> Example:
    """The vector starts at one; the module declares 1e-5."""
    return _example(1.0)


def good() -> Example:
    """The vector starts at the declared value."""
    return _example(1e-5)

"""mixer-frozen: the parameters of a lane mixer get no gradient.

What it does
    Takes every matrix that mixes the lanes of a stream and, from its own operations in one forward in training mode, its derivative by
    all trainable parameters that it is made of. Reports a mixer that does not move with any of them: saturated, clamped, rounded,
    or computed without a gradient.
Why it matters
    A mixer at a corner of a softmax or of Sinkhorn's iteration stays there: logits of 0 and -8 over a temperature of 0.05 make entries of
    e^-160 and gradients of the same size, and the lanes of a hyper-connection never mix, however long it is trained. The loss
    says nothing, as the other parameters learn.
Fires on
    `softmax(logits / 0.05)` or `sinkhorn(logits / 0.05)` at logits of 0 and -8; `sigmoid(40 * eye)`; `h.clamp(0, 1)` where all of h is
    outside; `with torch.no_grad(): h = sinkhorn(logits)`.
Quiet on
    A mixer whose gradient is zero only because all lanes are equal at the start, or the scale of its input-dependent part is: it is the
    matrix as a whole that is judged, not the loss. Mixers without trainable parameters.
What to do
    Start nearer the middle (logits of 0 and -2 at temperature 1), raise the temperature, or make the mixer the identity plus a
    small trainable part.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from skipway.rules._base import Example, Facts, Hit
from skipway.rules._gradients import Gradients
from skipway.rules._mixers import mixers
from skipway.rules._real import Real
from skipway.wiring.evaluate import evaluate

CODE = "SKW802"
STAGE = "train"
SEVERITY = "error"

STILL = 1e-6        # the largest derivative of a mixer by a parameter that counts as none


def check(facts: Facts) -> Iterator[Hit]:
    real = facts.train
    found = mixers(real)
    if not found:
        return
    alive = Gradients(real).alive
    told: set[str] = set()
    for n, lanes in found.items():
        behind = _behind(real, n)
        leaves = [i for i in behind if real.graph.nodes[i].op == "param" and real.graph.nodes[i].name in real.weights]
        if not leaves:
            continue
        size = _derivative(real, n, behind, leaves) if n in alive else 0.0
        where = _name(real, n, leaves)
        if size is None or size > STILL or where in told:
            continue
        told.add(where)
        why = "it is computed without a gradient" if n not in alive else f"its largest derivative by them is {size:.1g}"
        text = (f"the mixer of {lanes} lanes does not move with its parameters, such as `{where}`: {why}; they will never learn")
        yield Hit(where, text, None, real.line(n) or real.line(leaves[0]),
                  {"derivative": size, "lanes": lanes, "parameters": [real.graph.nodes[i].name for i in leaves]})


def _behind(real: Real, n: int) -> set[int]:
    """What a mixer is made of, back to parameters and to states of streams."""
    g = real.graph
    stems = {flow.root for flow in real.flows}
    seen, stack = {n}, [n]
    while stack:
        for i in g.nodes[stack.pop()].ins:
            state = g.state[i]
            if i not in seen and not (state is not None and (state.root in stems or i in g.lane)):
                seen.add(i)
                stack.append(i)
    return seen


def _derivative(real: Real, n: int, behind: set[int], leaves: list[int]) -> float | None:
    """The largest derivative of random sums of a matrix's entries by any of the parameters, in float64; None where torch knows none."""
    wide = {i: v.detach().double() if v.is_floating_point() else v.detach() for i in _read(real, behind) for v in [real.values[i]]}
    for values in (wide, real.values):
        given = {i: values[i].detach().clone().requires_grad_() for i in leaves}
        try:
            with torch.enable_grad():
                made = evaluate(real.record, values, [n], given)[n]
                return max(_largest(made, list(given.values()), seed) for seed in range(2))
        except RuntimeError:                            # an operation that is tied to the dtype of the run
            continue
    return None


def _largest(made: Tensor, leaves: list[Tensor], seed: int) -> float:
    if not made.requires_grad:
        return 0.0
    probe = torch.randn(made.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(made.device, made.dtype)
    grads = torch.autograd.grad((made * probe).sum(), leaves, retain_graph=True, allow_unused=True)
    return max((float(g.abs().max()) for g in grads if g is not None and g.numel()), default=0.0)


def _read(real: Real, behind: set[int]) -> set[int]:
    """The nodes themselves and what they read."""
    return behind | {i for n in behind for i in real.graph.nodes[n].ins}


def _name(real: Real, n: int, leaves: list[int]) -> str:
    """The parameter that is shaped as the mixer, else the first one."""
    nodes, lanes = real.graph.nodes, real.graph.nodes[n].shape[-1]
    like = [i for i in leaves if nodes[i].shape[-2:] == (lanes, lanes)]
    return nodes[(like or leaves)[0]].name


def _sinkhorn(logits: Tensor) -> Tensor:
    mixer = (logits - logits.amax()).exp()
    for _ in range(20):
        mixer = mixer / mixer.sum(-1, keepdim=True)
        mixer = mixer / mixer.sum(-2, keepdim=True)
    return mixer


class _Layer(nn.Module):
    """Lanes are (batch, lane, token, channel)."""

    def __init__(self, temperature: float, dim: int = 16, lanes: int = 4) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(dim), nn.Linear(dim, 32), nn.Linear(32, dim)
        self.logits = nn.Parameter(torch.eye(lanes) * 8 - 8)
        self.write, self.temperature = nn.Parameter(torch.ones(lanes)), temperature

    def forward(self, lanes: Tensor) -> Tensor:
        y = self.down(torch.relu(self.up(self.norm(lanes.mean(1)))))
        mixed = torch.einsum("ij,bjtc->bitc", _sinkhorn(self.logits / self.temperature), lanes)
        return mixed + self.write[:, None, None] * y[:, None]


class _Lanes(nn.Module):
    def __init__(self, temperature: float, lanes: int = 4) -> None:
        super().__init__()
        self.lanes, self.stem, self.layers = lanes, nn.Linear(4, 16), nn.Sequential(_Layer(temperature), _Layer(temperature))
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        lanes = self.stem(x)[:, None].repeat(1, self.lanes, 1, 1)
        return self.head(self.norm(self.layers(lanes).mean(1)))


def _example(temperature: float) -> Example:
    torch.manual_seed(0)
    return Example(_Lanes(temperature).eval(), (torch.randn(2, 6, 4),), where="layers.0.logits", options={"stage": "train"})


def bad() -> Example:
    """Logits of 0 and -8 over a temperature of 0.05."""
    return _example(0.05)


def good() -> Example:
    """The same logits at temperature 1: entries of e^-8, which move."""
    return _example(1.0)

"""gate-on-skip: stored scales near zero on the shortcut, in every spelling; none on the branch, on both, or near one."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import skipway

from .values import DIM, Residual, data, found, net, parameter, places

CODE = "SKW301"
Run = Callable[[Any, Tensor], Tensor]


class Scale(nn.Module):
    def __init__(self, start: float) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.full((DIM,), start))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gamma


def projected(m: Any, x: Tensor) -> Tensor:
    return m.a * m.p(x.transpose(1, 2)).transpose(1, 2) + m.ffn(x)


def highway(m: Any, x: Tensor) -> Tensor:
    gate = torch.sigmoid(m.g(x))
    return gate * m.ffn(x) + (1 - gate) * x


def whole(m: Any, x: Tensor) -> Tensor:
    x = m.a * x
    return x + m.ffn(x)


FAULTS: dict[str, tuple[Run, dict[str, Any], float]] = {
    "scalar": (lambda m, x: m.a * x + m.ffn(x), {"a": parameter(0.0)}, 0.0),
    "vector": (lambda m, x: m.a * x + m.ffn(m.norm(x)), {"a": nn.Parameter(torch.full((DIM,), 1e-5))}, 1e-5),
    "tanh": (lambda m, x: x * m.a.tanh() + m.ffn(m.norm(x)), {"a": parameter(0.0)}, 0.0),
    "sigmoid": (lambda m, x: x * torch.sigmoid(m.a) + m.ffn(m.norm(x)), {"a": parameter(-4.0)}, 0.01799),
    "sigmoid at its start": (lambda m, x: x * torch.sigmoid(m.a) + m.ffn(m.norm(x)), {"a": parameter(0.0)}, 0.5),
    "exponential": (lambda m, x: m.a.exp() * x + m.ffn(x), {"a": parameter(-6.0)}, 0.002479),
    "division": (lambda m, x: x / m.a + m.ffn(x), {"a": parameter(8.0)}, 0.125),
    "addcmul": (lambda m, x: torch.addcmul(m.ffn(x), m.a, x), {"a": parameter(0.0)}, 0.0),
    "in place": (lambda m, x: (x * m.a).add_(m.ffn(x)), {"a": parameter(0.0)}, 0.0),
    "buffer": (lambda m, x: m.a * x + m.ffn(x), {"a": torch.tensor(0.1)}, 0.1),
    "post-norm": (lambda m, x: m.norm(m.a * x + m.ffn(x)), {"a": parameter(0.0)}, 0.0),
    "one of several": (lambda m, x: m.a[0] * x + m.ffn(x), {"a": parameter(0.0, 1.0)}, 0.0),
    "activation behind": (lambda m, x: torch.relu(m.a * x + m.ffn(x)), {"a": parameter(0.0)}, 0.0),
    "projection": (projected, {"a": parameter(0.0), "p": nn.Conv1d(DIM, DIM, 1)}, 0.0),
}
QUIET: dict[str, tuple[Run, dict[str, Any]]] = {
    "on the branch": (lambda m, x: x + m.a * m.ffn(x), {"a": parameter(0.0)}),
    "addcmul on the branch": (lambda m, x: torch.addcmul(x, m.a, m.ffn(x)), {"a": parameter(0.0)}),
    "a pair": (lambda m, x: m.a * x + m.b * m.ffn(x), {"a": parameter(0.0), "b": parameter(1.0)}),
    "a convex pair": (lambda m, x: (1 - m.a) * x + m.a * m.ffn(x), {"a": parameter(0.9)}),
    "lerp": (lambda m, x: torch.lerp(x, m.ffn(x), m.a), {"a": parameter(0.9)}),
    "highway": (highway, {"g": nn.Linear(DIM, DIM)}),
    "a gate of the input": (lambda m, x: torch.sigmoid(m.g(x)) * x + m.ffn(x), {"g": nn.Linear(DIM, DIM)}),
    "the whole stream": (whole, {"a": parameter(0.3)}),
    "near one": (lambda m, x: m.a * x + m.ffn(x), {"a": parameter(0.9)}),
    "above one": (lambda m, x: m.norm(m.a * x + m.ffn(x)), {"a": torch.tensor(2.2)}),
    "open sigmoid": (lambda m, x: x * torch.sigmoid(m.a) + m.ffn(m.norm(x)), {"a": parameter(3.0)}),
    "inside the branch": (lambda m, x: x + m.ffn(m.norm(x) * m.a), {"a": parameter(0.1)}),
}


@pytest.mark.parametrize("name", FAULTS)
def test_fires_on(name: str) -> None:
    run, parts, mean = FAULTS[name]
    hits = found(CODE, net(Residual(run, **parts)), data())
    assert [f.where for f in hits] == ["1.a"]
    assert hits[0].values["identity_gain"] == pytest.approx(mean, rel=1e-3)
    assert hits[0].severity == "error"


@pytest.mark.parametrize("name", QUIET)
def test_quiet_on(name: str) -> None:
    run, parts = QUIET[name]
    assert places(CODE, net(Residual(run, **parts)), data()) == []


def test_a_scale_in_a_module_is_named_by_its_parameter() -> None:
    model = net(Residual(lambda m, x: m.scale(x) + m.ffn(m.norm(x)), scale=Scale(1e-6)))
    assert places(CODE, model, data()) == ["1.scale.gamma"]


def test_every_block_is_named_and_a_shared_scale_once() -> None:
    run: Run = lambda m, x: m.a * x + m.ffn(x)          # noqa: E731
    assert places(CODE, net(Residual(run, a=parameter(0.0)), Residual(run, a=parameter(0.0))), data()) == ["1.a", "2.a"]
    block = Residual(run, a=parameter(0.0))
    assert places(CODE, net(block, block), data()) == ["1.a"]


def test_a_decay_of_a_recurrence_is_no_gate() -> None:
    class Leaky(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.read, self.recur, self.decay = nn.Linear(4, DIM), nn.Linear(DIM, DIM), nn.Parameter(torch.tensor(0.3))

        def forward(self, x: Tensor) -> Tensor:
            h = torch.tanh(self.read(x[:, 0]))
            for t in range(1, x.shape[1]):
                h = self.decay * h + torch.tanh(self.read(x[:, t]) + self.recur(h))
            return h

    assert skipway.check(Leaky().eval(), data(), stage="values", select=[CODE]).findings == ()

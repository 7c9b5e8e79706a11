"""mixer-not-doubly-stochastic: sums of every mixer of lanes, however it is made and applied; other row-stochastic matrices are quiet."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import skipway

from .values import DIM, data, found, net, places

CODE = "SKW803"


def sinkhorn(logits: Tensor, steps: int) -> Tensor:
    mixer = logits.exp()
    for _ in range(steps):
        mixer = mixer / mixer.sum(-1, keepdim=True)
        mixer = mixer / mixer.sum(-2, keepdim=True)
    return mixer


def normed(logits: Tensor, steps: int) -> Tensor:
    return sinkhorn(logits, steps) if steps else logits.softmax(-1)


class Layer(nn.Module):
    """Lanes are (batch, token, lane, channel). `steps` of Sinkhorn; 0 is one softmax over rows."""

    def __init__(self, steps: int, lanes: int = 4) -> None:
        super().__init__()
        self.steps, self.lanes = steps, lanes
        self.norm, self.ffn = nn.LayerNorm(DIM), nn.Sequential(nn.Linear(DIM, 2 * DIM), nn.GELU(), nn.Linear(2 * DIM, DIM))
        self.logits, self.to_logits = nn.Parameter(torch.randn(lanes, lanes)), nn.Linear(lanes * DIM, lanes * lanes)
        self.write = nn.Parameter(torch.ones(lanes))

    def written(self, lanes: Tensor) -> Tensor:
        return self.write[:, None] * self.ffn(self.norm(lanes.mean(-2))).unsqueeze(-2)


class Matmul(Layer):
    def forward(self, lanes: Tensor) -> Tensor:
        return normed(self.logits, self.steps) @ lanes + self.written(lanes)


class Transposed(Layer):
    def forward(self, lanes: Tensor) -> Tensor:
        return normed(self.logits, self.steps).T @ lanes + self.written(lanes)


class Einsum(Layer):
    def h_res(self) -> Tensor:
        return self.normalised(self.logits)

    def normalised(self, logits: Tensor) -> Tensor:
        return normed(logits, self.steps)

    def forward(self, lanes: Tensor) -> Tensor:
        return torch.einsum("ij,btjc->btic", self.h_res(), lanes) + self.written(lanes)


class Products(Layer):
    def forward(self, lanes: Tensor) -> Tensor:
        return (normed(self.logits, self.steps)[..., None] * lanes.unsqueeze(-3)).sum(-2) + self.written(lanes)


class Dynamic(Layer):
    def forward(self, lanes: Tensor) -> Tensor:
        whole = lanes.flatten(-2)
        logits = self.to_logits(F.rms_norm(whole, whole.shape[-1:])).unflatten(-1, (self.lanes, self.lanes))
        return torch.einsum("btij,btjc->btic", normed(logits, self.steps), lanes) + self.written(lanes)


class Listed(Layer):
    def forward(self, lanes: list[Tensor]) -> list[Tensor]:
        mixer, y = normed(self.logits, self.steps), self.ffn(self.norm(sum(lanes[1:], lanes[0])))
        return [sum((mixer[i, j] * lane for j, lane in enumerate(lanes)), y) for i in range(self.lanes)]


class Lanes(nn.Module):
    def __init__(self, kind: type[Layer], steps: int, lanes: int = 4) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.lanes, self.stem, self.layers = lanes, nn.Linear(4, DIM), nn.ModuleList([kind(steps, lanes) for _ in range(2)])
        self.norm, self.head = nn.LayerNorm(DIM), nn.Linear(DIM, 3)
        self.listed = kind is Listed

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        lanes: Any = [x] * self.lanes if self.listed else x.unsqueeze(-2).expand(-1, -1, self.lanes, -1)
        for layer in self.layers:
            lanes = layer(lanes)
        return self.head(self.norm(sum(lanes[1:], lanes[0]) if self.listed else lanes.sum(-2)))


KINDS = {Matmul: "logits", Transposed: "logits", Einsum: "h_res", Products: "logits", Dynamic: "", Listed: "logits"}


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.__name__)
def test_one_softmax_is_named_and_sinkhorn_is_not(kind: type[Layer]) -> None:
    hits = found(CODE, Lanes(kind, 0).eval(), data())
    assert [f.where for f in hits] == [f"layers.{k}.{KINDS[kind]}".rstrip(".") for k in (0, 1)]
    assert all(f.severity == "error" and f.values["row_off"] < 1e-5 and f.values["column_off"] > 0.1 and f.values["lanes"] == 4 for f in hits)
    assert places(CODE, Lanes(kind, 20).eval(), data()) == []


def test_the_sums_are_those_of_the_matrix() -> None:
    model: Any = Lanes(Matmul, 1).eval()
    mixer = sinkhorn(model.layers[0].logits.detach(), 1).double()
    hit = found(CODE, model, data())[0]
    assert hit.values["row_off"] == pytest.approx(float((mixer.sum(-1) - 1).abs().max()), rel=1e-6)
    assert hit.values["column_off"] == pytest.approx(float((mixer.sum(-2) - 1).abs().max()), abs=1e-6)


@pytest.mark.parametrize("lanes", [2, 3, 8])
def test_any_number_of_lanes(lanes: int) -> None:
    assert len(places(CODE, Lanes(Einsum, 0, lanes).eval(), data())) == 2
    assert places(CODE, Lanes(Einsum, 30, lanes).eval(), data()) == []


def test_in_the_deployed_dtype_its_rounding_counts_for_nothing() -> None:
    assert places(CODE, Lanes(Dynamic, 20).eval(), data(), dtype="bfloat16") == []
    assert len(places(CODE, Lanes(Dynamic, 0).eval(), data(), dtype="bfloat16")) == 2


@pytest.mark.parametrize("held", [torch.eye(4), torch.eye(4)[[2, 0, 3, 1]], torch.full((4, 4), 0.25), torch.eye(4) + 0.1])
def test_quiet_on_matrices_that_are_right_or_not_normalised(held: Tensor) -> None:
    class Fixed(Layer):
        def forward(self, lanes: Tensor) -> Tensor:
            return self.logits @ lanes + self.written(lanes)

    model: Any = Lanes(Fixed, 0).eval()
    with torch.no_grad():
        for layer in model.layers:
            layer.logits.copy_(held)
    assert places(CODE, model, data()) == []
    declared = places(CODE, model, data(), expect=skipway.Expect(scheme="mhc"))
    assert declared == ([] if float(held.sum()) == 4 else ["layers.0.logits", "layers.1.logits"])


class Mixing(nn.Module):
    """Tokens are mixed by a row-stochastic matrix that is no mixer of lanes."""

    def __init__(self, how: str, tokens: int = 6) -> None:
        super().__init__()
        self.how, self.norm, self.v, self.o = how, nn.LayerNorm(DIM), nn.Linear(DIM, DIM), nn.Linear(DIM, DIM)
        self.q, self.k, self.free = nn.Linear(DIM, DIM), nn.Linear(DIM, DIM), nn.Parameter(torch.randn(tokens, tokens))
        self.left, self.right = nn.Parameter(torch.randn(tokens, 3)), nn.Parameter(torch.randn(3, tokens))
        self.adjacency: Tensor
        self.register_buffer("adjacency", torch.rand(tokens, tokens).softmax(-1))

    def forward(self, x: Tensor) -> Tensor:
        n = self.norm(x)
        weights = {"attention": (self.q(n) @ self.k(n).transpose(-1, -2)).softmax(-1), "synthesizer": self.free.softmax(-1),
                   "adjacency": self.adjacency, "adaptive": torch.relu(self.left @ self.right).softmax(-1)}[self.how]
        return x + self.o(weights @ self.v(n))


@pytest.mark.parametrize("how", ["attention", "synthesizer", "adjacency", "adaptive"])
def test_quiet_on_other_row_stochastic_matrices(how: str) -> None:
    torch.manual_seed(0)
    assert places(CODE, net(Mixing(how)), data()) == []


def test_a_mixer_alone_is_known_by_what_it_is_called() -> None:
    class Mix(nn.Module):
        def __init__(self, steps: int) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.steps, self.logits = steps, nn.Parameter(2 * torch.randn(4, 4))

        def h(self) -> Tensor:
            return sinkhorn(self.logits, self.steps) if self.steps else self.logits.softmax(-1)

        def forward(self, streams: Tensor) -> Tensor:
            return torch.einsum("st,btld->bsld", self.h(), streams)

    assert places(CODE, Mix(0).eval(), torch.randn(2, 4, 5, 8)) == ["h"]
    assert places(CODE, Mix(40).eval(), torch.randn(2, 4, 5, 8)) == []

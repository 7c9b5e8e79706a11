"""The proof: what can be rebuilt is rebuilt to the last bit, and what was changed behind the record's back is not."""

import json
import pathlib
import random
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import skipway
from skipway._errors import TraceError

from ..benches import bench
from ..probing.nets import PLACEMENTS, net

TRUTH = pathlib.Path(__file__).resolve().parents[3] / "shared" / "truth"


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_states_are_rebuilt_to_the_last_bit(placement: str, dtype: torch.dtype, training: bool) -> None:
    model, ids = net(placement)
    model.to(dtype).train(training)
    proof = skipway.trace(model, ids).replay(model, ids)
    assert len(proof.sites) == (3 if placement == "parallel" else 6)
    assert [s.ulp for s in proof.sites] == [0] * len(proof.sites)
    assert proof.ok and proof.failed() == ()


class Spellings(nn.Module):
    """Joins in many spellings, some of several operations."""

    def __init__(self) -> None:
        super().__init__()
        self.f = nn.ModuleList([nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8)) for _ in range(8)])
        self.gate, self.scale, self.norm = nn.Linear(8, 8), nn.Parameter(torch.rand(8)), nn.LayerNorm(8)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.add(x, self.f[0](x), alpha=0.5)
        x = self.norm(2.0 * x + self.f[1](x))
        t = torch.sigmoid(self.gate(x))
        x = t * self.f[2](x) + (1 - t) * x
        x = torch.addcmul(x, self.scale, self.f[3](x))
        x = torch.stack([x, self.f[4](x)]).sum(0)
        y = self.f[5](x)
        x = x.clone()
        x += y
        x = F.dropout(self.f[6](x), 0.2, self.training) + x
        flat = x.clone().view(-1, 8)
        flat.add_(self.f[7](x).view(-1, 8))
        return flat.view_as(x)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_spelling(dtype: torch.dtype, training: bool) -> None:
    torch.manual_seed(0)
    model, x = Spellings().to(dtype).train(training), torch.randn(2, 5, 8).to(dtype)
    wiring = skipway.trace(model, x)
    proof = wiring.replay(model, x)
    assert len(proof.sites) == 8
    assert proof.worst == 0, proof
    stream = wiring.decompose(model, x).streams[0]
    for k, state in enumerate(stream.states[1:]):
        assert torch.equal(stream.write(k, stream.states[k], stream.branches[k]), state)
    assert not stream.additive


@pytest.mark.parametrize("placement", ["pre", "parallel"])
def test_a_pre_norm_stream_is_the_sum_of_its_writes(placement: str) -> None:
    model, ids = net(placement)
    stream = skipway.trace(model, ids).decompose(model, ids).streams[0]
    off, bound = stream.identity() or (1.0, 0.0)
    assert off <= bound == 0.5 * len(stream.writes) * (2 if placement == "parallel" else 1)
    with torch.no_grad():
        assert torch.equal(stream.states[0], model.embed(ids))
    kept = stream.named()
    assert torch.equal(kept["blocks.start"], stream.states[0])
    assert torch.equal(kept["blocks.0.write"] + kept["blocks.start"], kept["blocks.0.state"])


def test_a_write_is_a_function_of_state_and_branch() -> None:
    """With another state and another branch it gives what the block would make of them."""
    model, ids = net("post")
    stream = skipway.trace(model, ids).decompose(model, ids).streams[0]
    state, branch = torch.randn_like(stream.states[1]), torch.randn_like(stream.branches[1])
    with torch.no_grad():
        assert torch.equal(stream.write(1, state, branch), model.blocks[0].norm1(state) + branch)
    assert stream.identity() is None


def test_memory_that_is_changed_where_no_operation_is_seen_is_not_understood() -> None:
    class Behind(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.f = nn.ModuleList([nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8)) for _ in range(3)])
            self.norm = nn.LayerNorm(8)

        def forward(self, x: Tensor) -> Tensor:
            for i, f in enumerate(self.f):
                x = x + f(x)
                if i == 1 and not x.is_meta:
                    x.detach().numpy()[:] *= 1.5
            return self.norm(x)

    torch.manual_seed(0)
    model, x = Behind().eval(), torch.randn(2, 4, 8)
    proof = skipway.trace(model, x).replay(model, x)
    assert [s.ok for s in proof.sites] == [True, False, True] or [s.ok for s in proof.sites] == [True, False, False]
    assert proof.sites[1].ulp > 2
    report = skipway.check(model, x, stage="values")
    assert report.not_understood and not report.ok
    assert any("is not understood: the state after site 1" in note for note in report.wiring.notes)


def test_another_model_is_refused() -> None:
    wiring = skipway.trace(*net("pre"))
    model, ids = net("post")
    with pytest.raises(TraceError, match="is not what this model does with these inputs"):
        wiring.replay(model, ids)


def test_the_graph_as_a_function_is_differentiable() -> None:
    """Gradients through the recorded operations equal autograd's, and a hand-written backward plays no part."""
    from skipway.wiring.evaluate import evaluate
    from skipway.wiring.values import run

    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
            return x + y

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Any:
            return g * 0, g

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.f = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))

        def forward(self, x: Tensor) -> Tensor:
            return Wrong.apply(x, self.f(x))

    torch.manual_seed(0)
    model, x = Block().double(), torch.randn(3, 4, dtype=torch.double)
    found = run(model, (x,))
    source = next(n.id for n in found.record.nodes if n.op == "input")
    leaf = x.clone().requires_grad_()
    target = found.record.outputs[0]
    out = evaluate(found.record, found.values, [target], {source: leaf})[target]
    assert torch.equal(out.detach(), found.values[target])
    (grad,) = torch.autograd.grad(out.sum(), leaf)
    right = x.clone().requires_grad_()
    (want,) = torch.autograd.grad((right + model.f(right)).sum(), right)
    torch.testing.assert_close(grad, want, rtol=1e-12, atol=0)


@pytest.mark.skipif(not TRUTH.is_dir(), reason="the hand-read wirings do not lie beside this checkout")
@pytest.mark.parametrize("number", range(8))
def test_a_sample_of_hand_read_models(number: int) -> None:
    replay = bench("replay")
    entries = json.loads((TRUTH / "wirings.json").read_text())
    entry = random.Random(0).sample([e for e in entries if e["id"] != "cvt"], 8)[number]
    dtype, training = replay.RUNS[number % 4]
    found = replay.replayed(replay.builder(TRUTH), entry, dtype, training)
    assert found["wrong"] == []
    assert found["worst"] == 0
    assert found["sites"] > 0

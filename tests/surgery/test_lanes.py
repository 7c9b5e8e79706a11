"""Lanes for trained models: the same function at the start, other than that the scheme's own, and trainable."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import skipway
from skipway._errors import RewireError
from skipway.surgery import Edit
from skipway.surgery._lane_starts import STARTS

from .conftest import Small

transformers = pytest.importorskip("transformers")

TINY = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4}
MODELS: dict[str, dict[str, Any]] = {
    "gpt2": {"vocab_size": 99, "n_embd": 32, "n_layer": 3, "n_head": 4, "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0},
    "llama": {**TINY, "intermediate_size": 48},
    "mistral": {**TINY, "intermediate_size": 48, "num_key_value_heads": 2},
    "qwen2": {**TINY, "intermediate_size": 48, "num_key_value_heads": 2},
    "qwen3": {**TINY, "intermediate_size": 48, "num_key_value_heads": 2, "head_dim": 8},
    "gemma": {**TINY, "intermediate_size": 48, "head_dim": 8, "num_key_value_heads": 4},
    "olmo": {**TINY, "intermediate_size": 48},
    "stablelm": {**TINY, "intermediate_size": 48, "num_key_value_heads": 4},
    "starcoder2": {**TINY, "intermediate_size": 48, "num_key_value_heads": 2},
    "gpt_neox": {**TINY, "intermediate_size": 48, "use_parallel_residual": False},
    "phi": {**TINY, "intermediate_size": 48},
}


def build(name: str) -> nn.Module:
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(name, **MODELS[name], pad_token_id=0, bos_token_id=1, eos_token_id=2)
    model: nn.Module = transformers.AutoModelForCausalLM.from_config(config)
    return model.train()


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["hyper", "mhc", "identity_hyper"])
@pytest.mark.parametrize("name", MODELS)
def test_a_transformers_model_starts_as_it_was_and_trains(name: str, scheme: str) -> None:
    model = build(name)
    ids = torch.randint(0, 99, (2, 8), generator=torch.Generator().manual_seed(1))
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    edit = skipway.rewire(model, ids).sites().lanes(4, scheme).apply()
    proof = edit.verify(ids)
    assert proof.ok and proof.stated == "near" and proof.relative <= 1e-6
    falls(model, edit, ids)


def falls(model: nn.Module, edit: Edit, ids: Tensor) -> None:
    """The loss falls over 20 steps, every new parameter moves, and the lanes part."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    first = [p.detach().clone() for p in edit.parameters()]
    losses = []
    for _ in range(20):
        out = model(ids)
        logits = out if isinstance(out, Tensor) else out.logits
        loss = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    assert losses[-1] < losses[0] - 0.5
    assert sum(not torch.equal(a, b) for a, b in zip(first, edit.parameters(), strict=True)) >= 0.8 * len(first)
    states: list[Tensor] = []
    last = edit.rules[-1].actions[0]
    inner = last.join
    last.join = lambda x, y: (states.append(x.detach()), inner(x, y))[1]    # type: ignore[method-assign]
    model(ids)
    lanes = states[0].unflatten(0, (4, -1))
    assert float((lanes - lanes.mean(0)).square().mean().sqrt() / lanes.square().mean().sqrt()) > 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama", "mistral", "gemma"])
def test_gated_residual_stands_in_for_the_norm(name: str) -> None:
    model, ids = build(name), torch.randint(0, 99, (2, 8), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        for n, p in model.named_parameters():
            if "norm" in n:
                p.add_(torch.randn_like(p) * 0.3)
    edit = skipway.rewire(model, ids).sites().lanes(4, "gated_residual").apply()
    proof = edit.verify(ids)
    assert proof.ok and proof.relative <= 1e-6
    falls(model, edit, ids)


def test_gated_residual_refuses_a_layer_norm(small: Small, ids: Tensor) -> None:
    plan = skipway.rewire(small, ids).sites().lanes(2, "gated_residual")
    with pytest.raises(RewireError, match="gated_residual norms its lanes by RMS with a gain, and the branch's norm is LayerNorm"):
        plan.apply()
    assert all("forward" not in vars(m) for m in small.modules())


@pytest.mark.parametrize("scheme", [s for s in STARTS if s != "gated_residual"])
@pytest.mark.parametrize("n", [2, 4])
def test_a_stream_of_lanes_is_what_the_scheme_makes_of_it(scheme: str, n: int, small: Small, ids: Tensor) -> None:
    edit = skipway.rewire(small, ids).sites().lanes(n, scheme).apply()
    assert edit.verify(ids).ok
    torch.manual_seed(1)
    with torch.no_grad():
        for p in edit.parameters():
            p.add_(torch.randn_like(p) * 0.3)
    got = small(ids)
    schemes: list[Any] = [r.actions[0].scheme for r in edit.rules]
    edit.undo()
    stream = schemes[0].enter(small.embed(ids))
    branches = [f for b in small.blocks for f in (
        lambda x, b=b: b.mix(b.norm1(x)), lambda x, b=b: b.down(torch.relu(b.up(b.norm2(x)))))]
    for made, branch in zip(schemes, branches, strict=True):
        inputs, memo = made.read(stream)
        stream = made.write(stream, branch(inputs), memo)
    torch.testing.assert_close(got, small.head(small.norm(stream.mean(0))))


@pytest.mark.parametrize("scheme", [s for s in STARTS if s != "gated_residual"])
def test_a_rewired_stack_is_checked_as_one_that_was_built_so(scheme: str, small: Small, ids: Tensor) -> None:
    """No finding, all joins on one stream of lanes; and the lanes of a site are read once, for the branch and for its write."""
    edit = skipway.rewire(small, ids).sites().lanes(4, scheme).apply()
    report = skipway.check(small, ids)
    assert report.findings == () and [(s.lanes, len(s.sites)) for s in report.wiring.streams if s.main] == [(4, 6)]
    assert len(skipway.probe(small, ids).rows) == 6
    reads: list[int] = []
    for rule in edit.rules:
        made: Any = rule.actions[0].scheme
        made.read = lambda stream, made=made, inner=made.read: (reads.append(made.index), inner(stream))[1]
    small(ids)
    assert reads == [0, 1, 2, 3, 4, 5]


def test_lanes_are_for_pre_norm_streams() -> None:
    class Post(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.maps = nn.Linear(8, 8), nn.ModuleList(nn.Linear(8, 8) for _ in range(2))
            self.norms = nn.ModuleList(nn.LayerNorm(8) for _ in range(2))

        def forward(self, x: Tensor) -> Tensor:
            x = self.stem(x)
            for m, n in zip(self.maps, self.norms, strict=True):
                x = n(x + m(x))
            return x
    rewiring = skipway.rewire(Post(), torch.randn(2, 3, 8))
    with pytest.raises(RewireError, match="lanes are for pre-norm streams that each branch reads at its newest state; this site is post"):
        rewiring.sites().lanes(4)
    with pytest.raises(RewireError, match="lanes knows how to start hyper, mhc, identity_hyper, gated_residual at the function"):
        rewiring.sites().lanes(4, "frac")


def test_a_fault_in_the_start_is_seen(small: Small, ids: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    from skipway.surgery import _lane_starts as starts

    def wrong(scheme: Any) -> None:
        starts._identity_hyper(scheme)
        scheme.bias += 0.01
    monkeypatch.setitem(starts.STARTS, "identity_hyper", starts.Start(wrong, {"leave": "mean"}))
    assert not skipway.rewire(small, ids).sites().lanes(4, "identity_hyper").apply().verify(ids).ok

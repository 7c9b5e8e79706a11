"""`probe` against measurements made by hand: plain hooks, float64 autograd, networks that were edited."""

import copy
import random
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import skipway
from skipway._errors import TraceError, UsageError
from skipway.probing.lesion import lesion
from skipway.probing.table import Table

from .nets import PLACEMENTS, Net, loss, net

placements = pytest.mark.parametrize("placement", PLACEMENTS)


def by_hand(model: Net, ids: Tensor) -> list[dict[str, float]]:
    """Each join's numbers from what the blocks kept while they ran."""
    for block in model.blocks:
        block.measure = True
        block.kept.clear()
    with torch.no_grad():
        model(ids)
    found = []
    for x, b, y in [join for block in model.blocks for join in block.kept]:
        cos = torch.cosine_similarity(x, y, dim=-1)
        singular = torch.linalg.svdvals(y.reshape(-1, y.shape[-1]).double())
        share = singular / singular.sum()
        found.append({
            "before": x.square().mean().sqrt(), "branch": b.square().mean().sqrt(), "after": y.square().mean().sqrt(),
            "ratio": b.square().mean().sqrt() / x.square().mean().sqrt(), "cosine": torch.cosine_similarity(x, b, dim=-1).mean(),
            "influence": (1 - cos).mean(), "angle": (cos.clamp(-1, 1).arccos() / torch.pi).mean(), "largest": y.abs().max(),
            "channel": y.abs().amax((0, 1)).argmax(), "rank": (-(share * share.log()).sum()).exp(),
            "rounded": ((y == x) & (b != 0)).sum() / (b != 0).sum()})
    for block in model.blocks:
        block.measure = False
        block.kept.clear()
    return [{k: float(v) for k, v in row.items()} for row in found]


@placements
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_equal_plain_hooks(placement: str, dtype: torch.dtype) -> None:
    model, ids = net(placement)
    model.to(dtype)
    table = skipway.probe(model, ids)
    want = by_hand(model, ids)
    assert len(table.rows) == len(want) == (3 if placement == "parallel" else 6)
    for row, hand in zip(table.rows, want, strict=True):
        for name, value in hand.items():
            least = 1e-6 if name in ("influence", "cosine", "angle") else 1e-12      # these are differences of numbers near one
            assert getattr(row, name) == pytest.approx(value, rel=1e-6, abs=least), (row.index, name)


def gradients(model: Net, ids: Tensor) -> list[Tensor]:
    """Gradient of the loss on the first shortcut and on every state, by autograd; with `cut` blocks only the identity path carries one."""
    for block in model.blocks:
        block.measure = True
        block.kept.clear()
    out = loss(model(ids))
    joins = [join for block in model.blocks for join in block.kept]
    states = [joins[0][0], *[after for _, _, after in joins]]
    found = torch.autograd.grad(out, states, allow_unused=True)
    for block in model.blocks:
        block.measure = False
        block.kept.clear()
    return [g if g is not None else torch.zeros_like(s) for g, s in zip(found, states, strict=True)]


@placements
def test_gradient_shares_equal_float64_autograd(placement: str) -> None:
    model, ids = net(placement)
    model.double()
    table = skipway.probe(model, ids, loss=loss)
    whole = gradients(model, ids)
    for block in model.blocks:
        block.cut = True
    alone = gradients(model, ids)
    shares = [float((i * g).sum() / (g * g).sum()) for i, g in zip(alone, whole, strict=True)]
    assert table.summary[0].stem_identity == pytest.approx(shares[0], rel=1e-10)
    for row, g, share in zip(table.rows, whole[1:], shares[1:], strict=True):
        assert row.grad_stream == pytest.approx(float(g.square().mean().sqrt()), rel=1e-10)
        assert row.grad_branch == pytest.approx(float(g.square().mean().sqrt()), rel=1e-10)
        assert row.identity == pytest.approx(share, rel=1e-10)
    assert not all(share == pytest.approx(1.0) for share in shares)


def test_a_cut_gradient_is_seen() -> None:
    """The share is not one by construction: it falls where branches carry gradient."""
    model, ids = net("pre")
    model.double()
    plain = skipway.probe(model, ids, loss=loss).summary[0].stem_identity
    with torch.no_grad():
        for block in model.blocks:
            block.ffn.down.weight.mul_(4)
    assert skipway.probe(model, ids, loss=loss).summary[0].stem_identity != pytest.approx(plain, rel=1e-2)


@placements
def test_lesion_equals_an_edited_model(placement: str) -> None:
    model, ids = net(placement)
    table = lesion(model, skipway.probe(model, ids), ids, loss=loss)
    joins = [(i, j) for i in range(len(model.blocks)) for j in range(1 if placement == "parallel" else 2)]
    with torch.no_grad():
        whole = float(loss(model(ids)))
        for row, (i, j) in zip(table.rows, joins, strict=True):
            edited = copy.deepcopy(model)
            edited.blocks[i].left_out = {j}
            assert row.lesion == float(loss(edited(ids))) - whole
            assert row.lesion != 0
    assert table.loss == whole


def test_each_of_two_parallel_branches() -> None:
    model, ids = net("parallel")
    table = lesion(model, skipway.probe(model, ids), ids, loss=loss)
    with torch.no_grad():
        whole = float(loss(model(ids)))
        for row, number in zip(table.rows, range(3), strict=True):
            for name in ("attn", "ffn"):
                edited = copy.deepcopy(model)
                branch = getattr(edited.blocks[number], name)
                branch.register_forward_hook(lambda module, args, out: torch.zeros_like(out))
                assert row.lesions is not None
                assert row.lesions["self_attention" if name == "attn" else "ffn"] == float(loss(edited(ids))) - whole
    model, ids = net("pre", layers=1)
    assert [row.lesions for row in lesion(model, skipway.probe(model, ids), ids, loss=loss).rows] == [None, None]


def state(model: nn.Module) -> dict[str, Any]:
    """Everything a run may leave behind."""
    return {
        "stored": {n: t.detach().clone() for n, t in model.state_dict().items()}, "grads": {n: p.grad for n, p in model.named_parameters()},
        "versions": {n: t._version for n, t in model.named_parameters()}, "needs": {n: p.requires_grad for n, p in model.named_parameters()},
        "training": [m.training for m in model.modules()], "rng": torch.get_rng_state(), "python": random.getstate(),
        "hooks": [len(m._forward_hooks) + len(m._forward_pre_hooks) + len(m._backward_hooks) for m in model.modules()],
        "tensor hooks": [len(p._backward_hooks or {}) for p in model.parameters()], "call": nn.Module.__call__, "enabled": torch.is_grad_enabled()}


def same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    return a is b or bool(a == b)


class Noisy(Net):
    """Has everything that a run may disturb: dropout, a buffer that counts, and a forward that may raise."""

    def __init__(self) -> None:
        super().__init__("pre")
        self.drop, self.bn = nn.Dropout(0.1), nn.BatchNorm1d(16)
        self.register_buffer("calls", torch.zeros(()))
        self.fails = False

    def forward(self, ids: Tensor) -> Tensor:
        self.calls += 1
        x = self.drop(self.bn(self.embed(ids).transpose(1, 2)).transpose(1, 2)) + random.random()
        for block in self.blocks:
            x = block(x)
        if self.fails:
            raise RuntimeError("on purpose")
        return self.head(self.norm(x))


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("what", ["probe", "loss", "lesion", "values", "train", "replay", "nonfinite"])
def test_the_model_is_left_as_it_was(what: str, fails: bool) -> None:
    from skipway.probing.nonfinite import find_nonfinite
    torch.manual_seed(0)
    model, ids = Noisy().train(), torch.randint(0, 32, (2, 7))
    loss(model(ids)).backward()
    table = skipway.probe(model, ids)
    wiring = skipway.trace(model, ids)
    model.fails = fails
    before = state(model)
    runs: dict[str, Any] = {
        "probe": lambda: skipway.probe(model, ids), "loss": lambda: skipway.probe(model, ids, loss=loss),
        "lesion": lambda: lesion(model, table, ids, loss=loss), "values": lambda: skipway.check(model, ids, stage="values"),
        "train": lambda: skipway.check(model, ids, stage="train"), "replay": lambda: wiring.replay(model, ids),
        "nonfinite": lambda: find_nonfinite(model, ids)}
    if fails:
        with pytest.raises(TraceError, match="on purpose"):
            runs[what]()
    else:
        runs[what]()
    after = state(model)
    assert [k for k in before if not same(before[k], after[k])] == []


@pytest.mark.parametrize(("bad", "says"), [
    (lambda out: out, r"the loss returned a tensor of shape \(2, 7, 32\), want one number"),
    (lambda out: 3.0, "the loss returned float, want one number")])
def test_a_loss_that_is_no_number(bad: Any, says: str) -> None:
    model, ids = net("pre")
    with pytest.raises(UsageError, match=says):
        skipway.probe(model, ids, loss=bad)


def test_inputs_with_a_nan() -> None:
    model = nn.Sequential(nn.Linear(4, 4))
    with pytest.raises(UsageError, match=r"input '0' of shape \(2, 4\) holds a NaN"):
        skipway.probe(model, torch.full((2, 4), float("nan")))


def test_a_model_without_a_stream() -> None:
    with pytest.raises(TraceError, match="no residual stream"):
        skipway.probe(nn.Sequential(nn.Linear(4, 4)), torch.randn(2, 4))


def test_a_table_survives_its_dictionary() -> None:
    import json
    model, ids = net("pre")
    table = skipway.probe(model, ids, loss=loss)
    assert Table.from_dict(json.loads(json.dumps(table.to_dict()))) == table
    with pytest.raises(ValueError, match="got schema 'other'"):
        Table.from_dict({"schema": "other"})


def test_a_forward_that_takes_another_path_is_told() -> None:
    """Data decides here whether the second block runs; the trace saw it run."""

    class Sometimes(Net):
        runs = 0

        def forward(self, ids: Tensor) -> Tensor:
            Sometimes.runs += 1
            x = self.embed(ids)
            for block in self.blocks[: 3 if Sometimes.runs < 2 else 2]:
                x = block(x)
            return self.head(self.norm(x))

    torch.manual_seed(0)
    with pytest.raises(TraceError, match="took another path than when it was traced"):
        skipway.probe(Sometimes("pre").eval(), torch.randint(0, 32, (2, 7)))

"""The residual networks and the vision transformer: shortcuts, orders, schemes, and what check reads in them."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import skipway
from skipway._errors import ShapeMismatch, UsageError
from skipway.nn import ResNet, VisionTransformer


def small(**options: Any) -> ResNet:
    torch.manual_seed(0)
    return ResNet((2, 2), width=4, stem="small", classes=3, **options).double()


def image(batch: int = 2, side: int = 8) -> Tensor:
    return torch.randn(batch, 3, side, side, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def through(block: Any, x: Tensor, last: bool) -> Tensor:
    """A basic branch by its formula."""
    (one, two), (a, b) = block.branch.convolutions, block.branch.norms
    if block.branch.before:
        return two(F.relu(b(one(F.relu(a(x))))))
    return b(two(F.relu(a(one(x)))))


@pytest.mark.parametrize("kind", ["basic", "pre_activation"])
@pytest.mark.parametrize("shortcut", ["A", "B", "C"])
def test_blocks_by_their_formulas(kind: str, shortcut: str) -> None:
    model = small(kind=kind, shortcut=shortcut).eval()
    x = image()
    h = model.stem(x)
    h = h if model.stem_norm is None else F.relu(model.stem_norm(h))
    for k, block in enumerate(model.blocks):
        grows = k == 2                                      # the first block of the second stage: four channels to eight, half the side
        if shortcut == "C" or (shortcut == "B" and grows):
            short = block.shortcut(F.relu(block.branch.norms[0](h)) if block.branch.before else h)
        elif grows:
            short = torch.zeros(2, 8, 4, 4, dtype=h.dtype)
            short[:, 2:6] = h[:, :, ::2, ::2]
        else:
            short = h
        h = short + through(block, h, True)
        h = h if block.branch.before else F.relu(h)
    h = h if model.final_norm is None else F.relu(model.final_norm(h))
    torch.testing.assert_close(model(x), model.head(h.mean((-2, -1))))
    projections = sum(block.shortcut is not None for block in model.blocks)
    assert projections == {"A": 0, "B": 1, "C": 4}[shortcut]


@pytest.mark.parametrize("kind", ["basic", "bottleneck", "pre_activation", "pre_bottleneck"])
def test_check_reads_every_block(kind: str) -> None:
    """One site a block; a projection where the shape changes, an identity elsewhere."""
    torch.manual_seed(0)
    model = ResNet((2, 2), kind, width=8, stem="small", classes=3)
    report = skipway.check(model, torch.randn(2, 3, 8, 8), stage="train")
    assert [f for f in report.findings if f.severity != "note"] == []
    shortcuts = [site.shortcut for s in report.wiring.streams if s.main for site in s.sites]
    first = "projection" if kind.endswith("bottleneck") else "identity"
    assert shortcuts == [first, "identity", "projection", "identity"]
    assert {b.kind for s in report.wiring.streams if s.main for site in s.sites for b in site.branches} == {"conv"}


def test_a_zero_start_is_the_shortcut() -> None:
    model = small(zero_init=True).eval()
    h = F.relu(torch.randn(2, 4, 8, 8, dtype=torch.float64))
    assert torch.equal(model.blocks[0](h), h)


@pytest.mark.parametrize(("scheme", "options"), [("rezero", {}), ("skip_init", {}), ("scaled", {}), ("none", {})])
def test_schemes_that_read_the_stream_as_it_is(scheme: str, options: dict[str, Any]) -> None:
    model = small(scheme=scheme, **options).eval()
    h = torch.randn(2, 4, 8, 8, dtype=torch.float64)
    block = model.blocks[1]
    want = block.scheme.write(h.movedim(1, -1), through(block, h, False).movedim(1, -1), None).movedim(-1, 1)
    torch.testing.assert_close(block(h), F.relu(want))
    assert model(image()).shape == (2, 3)


@pytest.mark.parametrize("scheme", ["pre_norm", "hyper", "dense_former", "reversible"])
def test_other_schemes_stand_on_the_stack_of_a_stage(scheme: str) -> None:
    """Two blocks of the first stage on one stream, the block that changes the width joined plainly, the last block on a stream of its own."""
    model = small(scheme=scheme).eval()
    one, change, two = model.blocks
    assert [len(stage.stack.layers) for stage in (one, two)] == [2, 1] and change.scheme.name() == "plain"
    h = torch.randn(2, 4, 8, 8, dtype=torch.float64)
    torch.testing.assert_close(one(h), F.relu(one.stack(h.movedim(1, -1)).movedim(-1, 1)))
    if scheme == "pre_norm":
        first, second = one.stack.layers
        s = h + first.branch.convolutions(first.scheme.norm(h.movedim(1, -1)).movedim(-1, 1))
        s = s + second.branch.convolutions(second.scheme.norm(s.movedim(1, -1)).movedim(-1, 1))
        torch.testing.assert_close(one(h), F.relu(s))
    assert model(image()).shape == (2, 3)


def test_stochastic_depth_grows_over_the_blocks_and_drops_samples() -> None:
    model = small(drop_path=0.4)
    assert [block.drop_path.p for block in model.blocks] == pytest.approx([0.1, 0.2, 0.3, 0.4])
    block = model.blocks[3]
    h = F.relu(torch.randn(16, 8, 4, 4, dtype=torch.float64))
    torch.manual_seed(0)
    kept = torch.empty(16).bernoulli_(0.6).bool()
    torch.manual_seed(0)
    y = block(h)
    assert torch.equal(y[~kept], h[~kept]) and not kept.all()
    block.branch.eval()
    model.eval()
    assert torch.equal(block(h), F.relu(h + block.branch(h)))


def test_wrong_use_is_refused() -> None:
    with pytest.raises(UsageError, match="kind='wide', shortcut='B', stem='image'; wanted one of basic"):
        ResNet(kind="wide")
    model = small()
    model.blocks[0].branch = nn.Conv2d(4, 4, 3).double()
    model.blocks[0].branch.before = False
    with pytest.raises(ShapeMismatch, match=r"blocks\.0\.branch returned the shape \(2, 4, 6, 6\) beside a shortcut of \(2, 4, 8, 8\)"):
        model(image())
    with pytest.raises(UsageError, match="images of 30 pixels in patches of 16"):
        VisionTransformer(image=30)
    with pytest.raises(ShapeMismatch, match=r"wanted \(batch, channels, 32, 32\)"):
        VisionTransformer(8, 2, 1, image=32)(torch.randn(1, 3, 16, 16))


def test_a_residual_network_in_one_graph() -> None:
    model = small(scheme="rezero", kind="bottleneck").eval()
    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(model, fullgraph=True, backend="aot_eager")(image()), model(image()))


@pytest.mark.parametrize("pool", ["class", "mean", "none"])
def test_what_the_head_of_a_vision_transformer_reads(pool: str) -> None:
    torch.manual_seed(0)
    model = VisionTransformer(8, 2, 2, image=8, patch=4, classes=3, pool=pool, registers=2)
    x = torch.randn(2, 3, 8, 8)
    front = 2 + (pool == "class")
    tokens = torch.cat([model.front.expand(2, front, 8), model.patches(x).flatten(2).transpose(1, 2)], 1) + model.positions
    tokens = model.encoder(tokens)
    read = {"class": tokens[:, 0], "mean": tokens[:, 2:].mean(1), "none": tokens}[pool]
    torch.testing.assert_close(model(x), model.head(read))


@pytest.mark.parametrize("scheme", ["pre_norm", "post_norm", "layer_scale", "hyper"])
def test_check_reads_a_vision_transformer(scheme: str) -> None:
    torch.manual_seed(0)
    model = VisionTransformer(16, 2, 2, scheme=scheme, image=16, patch=4, classes=3, drop_path=0.1)
    report = skipway.check(model, torch.randn(2, 3, 16, 16), stage="train")
    assert [f for f in report.findings if f.severity != "note"] == []
    assert [len(s.sites) for s in report.wiring.streams if s.main] == [4]

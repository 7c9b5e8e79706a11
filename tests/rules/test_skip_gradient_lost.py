"""skip-gradient-lost: hand-written backwards against the derivative of their own forwards."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from .training import DIM, Block, Net, data, ffn, found, places, plain

CODE = "SKW604"


class AddNorm(torch.autograd.Function):
    """(layer_norm(x + stream) * w + b, x + stream)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, stream: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        s = x + stream
        r = torch.rsqrt(s.var(-1, unbiased=False, keepdim=True) + 1e-5)
        h = (s - s.mean(-1, keepdim=True)) * r
        ctx.save_for_backward(h, r, w)
        return h * w + b, s

    @staticmethod
    def normed(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        h, r, w = ctx.saved_tensors
        gw = grad * w
        d = r * (gw - gw.mean(-1, keepdim=True) - h * (gw * h).mean(-1, keepdim=True))
        return d, (grad * h).flatten(0, -2).sum(0), grad.flatten(0, -2).sum(0)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        d, dw, db = AddNorm.normed(ctx, grads[0])
        return d + grads[1], d + grads[1], dw, db


class Dropped(AddNorm):
    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        d, dw, db = AddNorm.normed(ctx, grads[0])
        return d, d, dw, db


class ThroughTheNorm(AddNorm):
    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        d, dw, db = AddNorm.normed(ctx, grads[0] + grads[1])
        return d, d, dw, db


class ForTheBranchAlone(AddNorm):
    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        d, dw, db = AddNorm.normed(ctx, grads[0])
        return d + grads[1], None, dw, db


class FusedBlock(nn.Module):
    def __init__(self, fused: type[torch.autograd.Function]) -> None:
        super().__init__()
        self.fused, self.norm, self.ffn = fused, nn.LayerNorm(DIM), ffn()

    def forward(self, x: Tensor, stream: Tensor) -> tuple[Tensor, Tensor]:
        y, stream = self.fused.apply(x, stream, self.norm.weight, self.norm.bias)
        return self.ffn(y), stream


class Fused(nn.Module):
    def __init__(self, fused: type[torch.autograd.Function], stem: bool = True) -> None:
        super().__init__()
        self.stem = nn.Linear(4, DIM) if stem else nn.Identity()
        self.blocks = nn.ModuleList([FusedBlock(fused) for _ in range(3)])

    def forward(self, x: Tensor) -> Tensor:
        stream = self.stem(x)
        y = torch.zeros_like(stream)
        for block in self.blocks:
            y, stream = block(y, stream)
        return y + stream


@pytest.mark.parametrize("fused", [Dropped, ThroughTheNorm, ForTheBranchAlone], ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_fused_add_and_norm(fused: type[torch.autograd.Function], dtype: torch.dtype) -> None:
    hits = found(CODE, Fused(fused).to(dtype), data().to(dtype))
    assert [h.where for h in hits] == ["blocks.0", "blocks.1", "blocks.2"]
    assert all(h.severity == "error" and h.values["function"] == fused.__name__ and h.values["operand"] == "stream" for h in hits)
    assert all(h.values["lost"] is (fused is ForTheBranchAlone) for h in hits)
    if fused is ForTheBranchAlone:
        assert all(h.values["error"] == pytest.approx(1.0) for h in hits)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_right_backward_is_quiet(dtype: torch.dtype) -> None:
    assert places(CODE, Fused(AddNorm).to(dtype), data().to(dtype)) == []


def test_the_first_block_is_judged_where_no_input_requires_a_gradient() -> None:
    assert places(CODE, Fused(ThroughTheNorm, stem=False), data(width=DIM))[0] == "blocks.0"


def test_a_gradient_that_is_zero_hides_nothing() -> None:
    model = Fused(ThroughTheNorm)
    for block in model.blocks:
        for p in block.ffn[2].parameters():
            nn.init.zeros_(p)
    assert places(CODE, model, data()) == ["blocks.0", "blocks.1", "blocks.2"]


class Sublayer(torch.autograd.Function):
    """x + relu(x u) d in one function."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, u: Tensor, d: Tensor) -> Tensor:
        h = x @ u
        ctx.save_for_backward(x, u, d, h)
        return x + h.relu() @ d

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, u, d, h = ctx.saved_tensors
        dh = (grads[0] @ d.t()) * (h > 0)
        return dh @ u.t(), x.flatten(0, -2).t() @ dh.flatten(0, -2), h.relu().flatten(0, -2).t() @ grads[0].flatten(0, -2)


class RightSublayer(Sublayer):
    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        dx, du, dd = Sublayer.backward(ctx, *grads)
        assert dx is not None
        return dx + grads[0], du, dd


class Add(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        return x + y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return None, grads[0]


class RightAdd(Add):
    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return grads[0], grads[0]


class AddInPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        y.add_(x)
        ctx.mark_dirty(y)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return grads[0] * 0, grads[0]


class RightAddInPlace(AddInPlace):
    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return grads[0], grads[0]


class NormAndPass(torch.autograd.Function):
    """(rms_norm(x) * w, x)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        r = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        ctx.save_for_backward(x, r, w)
        return x * r * w, x

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, r, w = ctx.saved_tensors
        gw = grads[0] * w
        return r * (gw - x * r.pow(2) * (gw * x).mean(-1, keepdim=True)), (grads[0] * x * r).flatten(0, -2).sum(0)


class RightNormAndPass(NormAndPass):
    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        d, dw = NormAndPass.backward(ctx, *grads)
        assert d is not None
        return d + grads[1], dw


def sublayer(fused: Any) -> Callable[[], nn.Module]:
    def run(m: Any, x: Tensor) -> Tensor:
        made: Tensor = fused.apply(x, m.up, m.down)
        return made
    return lambda: Block(run, up=nn.Parameter(torch.randn(DIM, 32) / 4), down=nn.Parameter(torch.randn(32, DIM) / 6))


def adding(fused: Any) -> Callable[[], nn.Module]:
    def run(m: Any, x: Tensor) -> Tensor:
        made: Tensor = fused.apply(x, m.ffn(m.norm1(x)) * 1)
        return made
    return lambda: Block(run)


def passing(fused: Any) -> Callable[[], nn.Module]:
    def run(m: Any, x: Tensor) -> Tensor:
        y, x = fused.apply(x, m.norm1.weight)
        return x + m.ffn(y)
    return lambda: Block(run)


PAIRS: dict[str, tuple[Callable[[Any], Callable[[], nn.Module]], Any, Any]] = {
    "a whole sublayer": (sublayer, Sublayer, RightSublayer),
    "an add": (adding, Add, RightAdd),
    "an add in place": (adding, AddInPlace, RightAddInPlace),
    "a norm that passes the stream on": (passing, NormAndPass, RightNormAndPass),
}


@pytest.mark.parametrize("name", PAIRS)
def test_pairs(name: str) -> None:
    make, wrong, right = PAIRS[name]
    hits = found(CODE, Net(make(wrong), 2), data())
    assert [(h.where, h.values["operand"]) for h in hits] == [("blocks.0", "stream"), ("blocks.1", "stream")]
    assert places(CODE, Net(make(right), 2), data()) == []


# on purpose

class Rounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return torch.round(x * 8) / 8

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return grads[0]


class RoundedSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        return torch.round((x + y) * 8) / 8

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        return grads[0], grads[0]


class Turned(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return -0.1 * grads[0]


def apply(function: Any, *args: Tensor) -> Tensor:
    made: Tensor = function.apply(*args)
    return made


PURPOSE: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "a rounded branch": lambda m, x: x + apply(Rounded, m.ffn(m.norm1(x))),
    "a rounded stream": lambda m, x: apply(Rounded, x + m.ffn(m.norm1(x))),
    "a rounded sum": lambda m, x: apply(RoundedSum, x, m.ffn(m.norm1(x))),
    "a turned gradient": lambda m, x: plain(m, apply(Turned, x)),
    "a scaled gradient on the shortcut": lambda m, x: apply(Turned, x.clone()) + m.ffn(m.norm1(x)),
}


@pytest.mark.parametrize("name", PURPOSE)
def test_what_is_done_on_purpose_is_quiet(name: str) -> None:
    assert places(CODE, Net(lambda: Block(PURPOSE[name]), 2), data()) == []


class Reversible(torch.autograd.Function):
    """Two half streams, a + f(b) and b + g(of that), whose inputs are worked out anew in the backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, f: nn.Module, g: nn.Module, *weights: Tensor) -> Tensor:
        a, b = x.chunk(2, -1)
        a = a + f(b)
        b = b + g(a)
        ctx.f, ctx.g = f, g
        y = torch.cat([a, b], -1)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        a, b = ctx.saved_tensors[0].chunk(2, -1)
        da, db = grads[0].chunk(2, -1)
        with torch.enable_grad():
            a = a.detach().requires_grad_()
            made = ctx.g(a)
            own, *of_g = torch.autograd.grad(made, [a, *ctx.g.parameters()], db)
        da, b = da + own, (b - made).detach()
        with torch.enable_grad():
            b = b.requires_grad_()
            own, *of_f = torch.autograd.grad(ctx.f(b), [b, *ctx.f.parameters()], da)
        return torch.cat([da, db + own], -1), None, None, *of_f, *of_g


def test_reversible_blocks_are_quiet() -> None:
    def run(m: Any, x: Tensor) -> Tensor:
        return apply(Reversible, x, m.f, m.g, *m.f.parameters(), *m.g.parameters())

    assert places(CODE, Net(lambda: Block(run, f=ffn(DIM // 2), g=ffn(DIM // 2)), 2), data()) == []


def test_reentrant_checkpoints_are_quiet() -> None:
    def through(m: Any, x: Tensor) -> Tensor:
        for block in m.blocks:
            x = checkpoint(block, x, use_reentrant=True)
        return x

    def run(m: Any, x: Tensor) -> Tensor:
        return x + m.drop(m.ffn(m.norm1(x)))

    assert places(CODE, Net(lambda: Block(run, drop=nn.Dropout(0.2)), 2, through), data()) == []


def test_a_backward_that_cannot_be_run_alone_is_not_judged() -> None:
    class Once(Add):
        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
            raise ValueError("not now")

    model = Net(adding(Once), 2)
    assert places(CODE, model, data()) == []

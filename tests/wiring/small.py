"""Small models and readings that the tests of the wiring share. Sequences are (batch, token, channel)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

import skipway
from skipway.wiring import forward as runs
from skipway.wiring.forward import How
from skipway.wiring.record import Record
from skipway.wiring.structure import Site, Stream
from skipway.wiring.trace import Recovery, label

DIM = 16


class Calls(nn.Module):
    """A module whose forward is `run(self, *inputs)`, with `parts` as attributes."""

    def __init__(self, run: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        self.run = run
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *inputs: Any, **named: Any) -> Any:
        return self.run(self, *inputs, **named)


class Branch(nn.Module):
    """norm -> up -> gelu -> down, as a module of its own."""

    def __init__(self, dim: int = DIM, out: int | None = None) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(dim), nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, out or dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(nn.functional.gelu(self.up(self.norm(x))))


class Joined(nn.Module):
    """stem -> join(x, branch(x)) -> head: one place where `join` says how the two meet."""

    def __init__(self, join: Callable[[Tensor, Tensor], Tensor], dim: int = DIM) -> None:
        super().__init__()
        self.join, self.stem, self.branch, self.head = join, nn.Linear(dim, dim), Branch(dim), nn.Linear(dim, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        return self.head(self.join(x, self.branch(x)))


class Block(nn.Module):
    """Pre-norm attention and feed-forward of torch's own parts."""

    def __init__(self, dim: int = DIM) -> None:
        super().__init__()
        self.norm, self.attn, self.ffn = nn.LayerNorm(dim), nn.MultiheadAttention(dim, 2, batch_first=True), Branch(dim)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        x = x + self.attn(y, y, y, need_weights=False)[0]
        return x + self.ffn(x)


class Tower(nn.Module):
    """stem -> blocks -> norm -> head."""

    def __init__(self, *blocks: nn.Module, dim: int = DIM) -> None:
        super().__init__()
        self.stem, self.blocks, self.norm, self.head = nn.Linear(dim, dim), nn.Sequential(*blocks), nn.LayerNorm(dim), nn.Linear(dim, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.stem(x))))


def tokens(batch: int = 2, length: int = 5, dim: int = DIM) -> Tensor:
    return torch.randn(batch, length, dim, generator=torch.Generator().manual_seed(1))


def recorded(model: nn.Module, *args: Any, **kwargs: Any) -> Record:
    return runs.record(model, args, kwargs, How())


def run_for_real(model: nn.Module, *args: Any, **kwargs: Any) -> Record:
    """A record of a run with numbers, whether or not the model needs one."""
    return runs._run(model, args, kwargs, False, How())


def recovered(record: Record) -> tuple[Stream, ...]:
    """The streams behind a record."""
    return tuple(f.stream for f in Recovery(label(record)).flows if f.stream is not None)


def streams(model: nn.Module, *args: Any, **kwargs: Any) -> tuple[Stream, ...]:
    return skipway.trace(model, *args, **kwargs).streams


def all_sites(model: nn.Module, *args: Any, **kwargs: Any) -> list[Site]:
    """Sites of every stream, main or not."""
    return [site for stream in streams(model, *args, **kwargs) for site in stream.sites]


def only_site(model: nn.Module, *args: Any, **kwargs: Any) -> Site:
    """The one site of a model that has one."""
    found = all_sites(model, *args, **kwargs)
    assert len(found) == 1, f"want one site, found {[(s.module, s.line, s.gain) for s in found]}"
    return found[0]


def facts_of(site: Site) -> tuple[Any, ...]:
    """What a site is, apart from where it stands."""
    kinds = tuple(b.kind for b in site.branches)
    return kinds, site.placement, site.norm, site.shortcut, site.gain, site.scale, site.branch_scale, site.parallel, site.in_place


def unplaced(found: tuple[Stream, ...]) -> list[Stream]:
    """Streams without source lines."""
    return [replace(s, sites=tuple(replace(site, file=None, line=None) for site in s.sites)) for s in found]


def structure(found: tuple[Stream, ...]) -> list[Any]:
    """Streams without module paths and lines: equal for a model and a wrapped model."""
    return [(s.main, s.lanes, s.final_norm is not None, [(site.layer, facts_of(site)) for site in s.sites]) for s in found]

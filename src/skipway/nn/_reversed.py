"""Runs a stack of invertible sublayers without keeping their activations: in backward each is undone and run again, last one first.

The graph that autograd builds is the usual one; only what it would save is left out (saved-tensor hooks), so that gradients of parameters,
of keyword arguments and of extra results, shards, replicas and hooks work as ever. A sublayer's branch runs once more in backward: its
result serves both to undo the write and to give the tensors that were not kept.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.func import functional_call
from torch.utils.checkpoint import get_device_states, set_device_states

from skipway._errors import SchemeError
from skipway.nn._join import Join

OFF = 1e-4              # share of the stream that rounding may move it by, on the way back through all sublayers


class Tape:
    """The sublayers of one pass and the last stream. Raises SchemeError where rounding would spoil the way back through `depth` of them."""

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.turns: list[_Turn] = []
        self.end: Any = None
        self.stream: Any = None                             # what stood behind sublayer `self.at`
        self.at = -1
        self.made: dict[int, list[Tensor]] = {}

    def step(self, layer: Join, stream: Any, compute: torch.dtype, kwargs: dict[str, Any]) -> tuple[Any, tuple[Any, ...]]:
        """One sublayer, forward."""
        if not self.turns:
            _exact(layer, next(_tensors(stream)).dtype, self.depth)
        turn = _Turn(self, len(self.turns), layer, stream, compute, kwargs)
        self.turns.append(turn)
        with saved_tensors_hooks(turn.pack, turn.unpack):
            stream, extras = layer(stream, compute, **kwargs)
        self.end = _like(stream)
        return stream, extras

    def saved(self, k: int, place: int) -> Tensor:
        """A tensor that sublayer k did not keep."""
        if torch.is_grad_enabled():
            raise RuntimeError('a stack that is run backwards keeps no graph for gradients of gradients; build it with activations="stored"')
        if k not in self.made:
            if self.at < k:                                 # a second backward pass begins again at the end
                self.at, self.stream = len(self.turns) - 1, self.end
            while self.at >= k:
                kept = {self.at + 1: self.made[self.at + 1]} if self.at + 1 in self.made else {}
                self.stream, tensors = self.turns[self.at].again(self.stream)
                self.made = {self.at: tensors, **kept}
                self.at -= 1
        return self.made[k][place]


class _Turn:
    """One sublayer's pass: what it takes to make it again."""

    def __init__(self, tape: Tape, k: int, layer: Join, stream: Any, compute: torch.dtype, kwargs: dict[str, Any]) -> None:
        self.tape, self.k, self.layer, self.compute = tape, k, layer, compute
        # Without their graph, which would hold this object while this object held it.
        self.kwargs = {name: _like(value) for name, value in kwargs.items()}
        self.wants = _flags(stream)
        self.parameters = dict(layer.named_parameters())
        self.count = 0
        first = next(_tensors(stream))
        self.device = first.device.type
        self.random = (torch.get_rng_state(), *get_device_states(*_tensors(stream))) if layer.training else None
        casts = torch.amp.is_autocast_available(self.device)
        self.cast = (torch.is_autocast_enabled(self.device), torch.get_autocast_dtype(self.device)) if casts else None

    def pack(self, tensor: Tensor) -> int:
        self.count += 1
        return self.count - 1

    def unpack(self, place: int) -> Tensor:
        return self.tape.saved(self.k, place)

    def again(self, after: Any) -> tuple[Any, list[Tensor]]:
        """The stream before this sublayer, and what its forward would have saved, in the same order."""
        with ExitStack() as entered:
            if self.random is not None:
                cpu, devices, states = self.random
                entered.enter_context(torch.random.fork_rng(devices, device_type=self.device if devices else "cuda"))
                torch.set_rng_state(cpu)
                set_device_states(devices, states, device_type=self.device if devices else None)
            if self.cast is not None:
                entered.enter_context(torch.autocast(self.device, enabled=self.cast[0], dtype=self.cast[1]))
            before, tensors = self._with_parameters(lambda: self._again(after))
        if len(tensors) != self.count:
            raise RuntimeError(f"sublayer {self.k}, {type(self.layer.branch).__name__}, saved {self.count} tensors in forward and {len(tensors)} "
                               'when it ran again; it must do the same both times, or the stack be built with activations="stored"')
        return before, tensors

    def _again(self, after: Any) -> tuple[Any, list[Tensor]]:
        scheme = self.layer.scheme
        ran: list[Tensor] = []
        result: list[Tensor] = []

        def branch(inputs: Any) -> Tensor:
            given = _leaves(inputs, True)
            with torch.enable_grad(), _kept(ran):
                y, _ = self.layer.run(given, self.compute, (), self.kwargs)
            result.append(y)
            return y.detach()

        with torch.no_grad():
            before = scheme.undo(after, branch)
        with torch.enable_grad():
            read: list[Tensor] = []
            written: list[Tensor] = []
            stream = _wanted(before, self.wants)
            with _kept(read):
                _, memo = scheme.read(stream)
            with _kept(written):
                scheme.write(stream, _leaves(result[0], result[0].requires_grad), memo)
        return before, [*read, *ran, *written]

    def _with_parameters(self, run: Callable[[], Any]) -> Any:
        """Runs with the parameters of the forward pass, where a functional call had put others in. Shards are brought in by their own hooks."""
        now = dict(self.layer.named_parameters())
        other: dict[str, Tensor] = {f"layer.{n}": p for n, p in self.parameters.items()
                                    if p is not now[n] and not _sharded(p) and not _sharded(now[n])}
        return functional_call(_Held(self.layer), other, (run,)) if other else run()


class _Held(nn.Module):
    """Runs a function while its layer's parameters are replaced."""

    def __init__(self, layer: Join) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, run: Callable[[], Any]) -> Any:
        return run()


def _exact(layer: Join, dtype: torch.dtype, depth: int) -> None:
    off = torch.finfo(dtype).eps * layer.scheme.undo_growth ** depth
    if off > OFF:
        wider = torch.float32 if torch.finfo(torch.float32).eps * layer.scheme.undo_growth ** depth <= OFF else torch.float64
        raise SchemeError(f"undoing {depth} sublayers of {layer.scheme.name()} in {dtype} is off by about {off:.0e} of the stream, and so would "
                          f'gradients be; give stream_dtype={wider}, or activations="stored"')


def _sharded(parameter: Tensor) -> bool:
    return hasattr(parameter, "device_mesh")


@contextmanager
def _kept(into: list[Tensor]) -> Iterator[None]:
    """Collects what autograd saves."""
    def pack(tensor: Tensor) -> int:
        into.append(tensor.detach())
        return len(into) - 1

    with saved_tensors_hooks(pack, lambda place: into[place]):
        yield


def _map(value: Any, do: Callable[[Tensor], Any]) -> Any:
    if isinstance(value, Tensor):
        return do(value)
    if isinstance(value, (tuple, list)):
        return type(value)(_map(v, do) for v in value)
    return {k: _map(v, do) for k, v in value.items()} if isinstance(value, dict) else value


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for v in value:
            yield from _tensors(v)


def _like(value: Any) -> Any:
    """The same values without a graph, which still ask for gradients where they did."""
    return _map(value, lambda t: t.detach().requires_grad_(t.requires_grad))


def _leaves(value: Any, wants: bool) -> Any:
    return _map(value, lambda t: t.detach().requires_grad_(wants and t.is_floating_point()))


def _flags(stream: Any) -> list[bool]:
    return [t.requires_grad for t in _tensors(stream)]


def _wanted(stream: Any, wants: list[bool]) -> Any:
    flags = iter(wants)
    return _map(stream, lambda t: t.detach().requires_grad_(next(flags)))

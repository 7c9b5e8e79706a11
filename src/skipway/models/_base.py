"""What every architecture is: a configuration, a module over `skipway.nn`, and how its checkpoints name things."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeVar

from torch import Tensor, nn

from skipway.models._fields import Fields
from skipway.nn import Stack
from skipway.nn.resnet import ConvBlock
from skipway.nn.sublayer import Sublayer

C = TypeVar("C", bound="Config")


class Output(NamedTuple):
    """What a model returns."""

    logits: Tensor | None               # (batch, tokens, vocabulary) or (batch, classes); None where the checkpoint has no head
    hidden: Tensor                      # (batch, tokens, dim), behind the final norm
    states: tuple[Any, ...] = ()        # with states=True: the stream after every sublayer, in order; lanes lead
    extras: tuple[Any, ...] = ()        # what branches returned besides: router logits


@dataclass(frozen=True, kw_only=True)
class Config:
    """Numbers of an architecture. Every subclass has at least these."""

    dim: int
    blocks: int
    heads: int
    head: bool = True                   # whether there is a head on top of the last state


class Row(NamedTuple):
    """How one tensor of ours stands in a checkpoint.

    ours, theirs    names; several of ours in one of theirs, or one of ours in several of theirs
    how             "same"; "turned", theirs is ours transposed; "rows", theirs is all of ours above each other; "rows turned", that transposed;
                    "stacked", ours is all of theirs along a new first axis; "led", theirs has one more axis of length 1 before ours;
                    "each turned", "each rows", "each rows turned": so for every entry of a first axis, that of experts
    turns           with "rows": theirs begins with a part of each of ours, then come the next parts, so many times (heads; 1: one after another)
    """

    ours: str | tuple[str, ...]
    theirs: str | tuple[str, ...]
    how: str = "same"
    turns: int = 1


class Model(nn.Module):
    """Base of all architectures. A subclass gives `make` and `forward`, and for its checkpoints `MODEL_TYPES`, `read`, `written` and `rows`.

    config      numbers, of the subclass's configuration class
    scheme      residual rule of every block; None is the published one, RULE
    """

    RULE: ClassVar[str]                                     # the published scheme
    MODEL_TYPES: ClassVar[tuple[str, ...]] = ()             # model_type of config.json that it reads
    PREFIX: ClassVar[str] = ""                              # of all tensors but the head's, in a checkpoint with a head
    IGNORED: ClassVar[tuple[str, ...]] = ()                 # ends of names of tensors that hold nothing learned
    OLDER: ClassVar[Mapping[str, str]] = {}                 # ends of names in old files, and what they are called since

    def __init__(self, config: Config, scheme: str | None = None, scheme_options: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self.config = config
        self.scheme = self.rule(config) if scheme is None else scheme
        self.make(config, {"scheme": self.scheme, **(scheme_options or {})})

    def make(self, c: Any, rule: dict[str, Any]) -> None:
        """Makes the modules; `rule` are keyword arguments for every `Stack`."""
        raise NotImplementedError

    @classmethod
    def rule(cls, config: Any) -> str:
        """The published scheme of a configuration, where those of one name differ."""
        return cls.RULE

    @classmethod
    def ignores(cls, name: str, config: Any) -> bool:
        """Whether a tensor of a checkpoint holds nothing that this model has a place for, by design."""
        return name.endswith(cls.IGNORED or ("\0",))

    @classmethod
    def spelled(cls, name: str, prefix: str) -> str:
        """A name of `rows` in a checkpoint whose tensors have this prefix: PREFIX, or none."""
        return prefix + name

    @classmethod
    def name(cls) -> str:
        """The name in the registry."""
        return cls.__module__.rpartition(".")[2]

    @classmethod
    def read(cls, fields: Fields) -> Config:
        """The configuration that a config.json tells. Raises CheckpointError for a field that is not supported."""
        raise NotImplementedError

    @classmethod
    def suited(cls, config: Any, names: frozenset[str]) -> Config:
        """The configuration with what no field of a config.json tells, but the names of the tensors beside it: whether there is a pooler."""
        made: Config = config
        return made

    def written(self) -> dict[str, Any]:
        """The config.json of this model."""
        raise NotImplementedError

    def rows(self) -> Iterator[Row]:
        """Every tensor, ours and theirs; theirs without PREFIX."""
        raise NotImplementedError

    @contextmanager
    def watching(self, wanted: bool) -> Iterator[list[Any]]:
        """Collects the stream after every sublayer of every stack while a forward runs."""
        states: list[Any] = []
        joins = [m for m in self.modules() if wanted and isinstance(m, (Sublayer, ConvBlock))]
        hooks = [m.register_forward_hook(lambda _, __, out: states.append(out[0] if isinstance(out, tuple) else out)) for m in joins]
        try:
            yield states
        finally:
            for hook in hooks:
                hook.remove()

    def run(self, stack: Stack, x: Tensor, states: bool, **kwargs: Any) -> tuple[Tensor, tuple[Any, ...], tuple[Any, ...]]:
        """The stack's result, with `states` the stream after every sublayer, and what branches returned besides."""
        with self.watching(states) as seen:
            y, more = stack(x, extras=True, **kwargs)
        return y, tuple(seen), tuple(e for extra in more for e in extra)


def named(ours: str, theirs: str, bias: bool = False, how: str = "same") -> Iterator[Row]:
    """The rows of a module's weight, and of its bias."""
    yield Row(f"{ours}.weight", f"{theirs}.weight", how)
    if bias:
        yield Row(f"{ours}.bias", f"{theirs}.bias", "rows" if how == "rows turned" else "same" if how == "turned" else how)


def fused(ours: tuple[str, ...], theirs: str, bias: bool = False, how: str = "rows") -> Iterator[Row]:
    """The rows of several of our modules that are one of theirs."""
    yield Row(tuple(f"{name}.weight" for name in ours), f"{theirs}.weight", how)
    if bias:
        yield Row(tuple(f"{name}.bias" for name in ours), f"{theirs}.bias", "rows")

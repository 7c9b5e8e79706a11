"""What a value is on its way through the model: a `State` is one value of a stream, a join or a norm makes the next."""

from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class State:
    """A value that identity operations carry on unchanged.

    `via` says what made it: "join", "norm", "act", "pool", "projection", "self_add" continue `prev`; everything else starts anew.
    """

    node: int
    via: str
    prev: "State | None" = None
    norm: "Norm | None" = None
    root: "State" = None  # type: ignore[assignment]
    depth: int = 0
    joined: bool = False                                # whether it is a sum or continues one: it is past its stem
    dead: set[int] = field(default_factory=set)         # of a root: nodes known not to descend from it

    def __post_init__(self) -> None:
        if self.prev is None:
            self.root = self
        else:
            self.root, self.depth = self.prev.root, self.prev.depth + 1
        self.joined = self.via == "join" or (self.prev is not None and self.prev.joined)

    def has(self, other: "State") -> bool:
        """Whether `other` is this state or one it continues."""
        if other.root is not self.root:
            return False
        state: State | None = self
        while state is not None and state.depth > other.depth:
            state = state.prev
        return state is other


@dataclass(slots=True, eq=False)
class Norm:
    """A norm in the data flow, whichever way it is written."""

    name: str                   # "LayerNorm", "RMSNorm", "BatchNorm", "GroupNorm"
    call: int                   # module call that performs it
    source: int                 # node it norms


@dataclass(slots=True, eq=False)
class Region:
    """The nodes between a stream and an operand that is computed from it."""

    nodes: list[int]            # in order, without the states it starts from
    hits: set[int]              # nodes of the stream that it reads
    learned: bool               # some path runs through a learned operation


@dataclass(slots=True, eq=False)
class Join:
    """`node` = shortcut + branch, where the branch is computed from what the shortcut carries."""

    node: int
    shortcut: int
    branch: int
    region: Region
    before: State               # the state the shortcut carries
    after: State
    kind: str                   # "identity" or "projection"
    gain: float | None
    folded: tuple["Join", ...] = ()         # inner joins of a double skip, told as one
    in_place: bool = False
    marks: int = 0                          # what stands on the branch operand besides its own marks
    factor: float | None = 1.0              # the constant on the branch operand; None: not a constant


# Marks a node carries from the birth of its state on.
PART, MOVED, DROPPED, NARROWED, SCALAR, VECTOR, GATED, MIXED, RANDOM, CONSTANT, SHIFTED = (1 << i for i in range(11))

# What is known of a node that carries no signal.
STORED, MATRIX, INVERSE, NOISE, ROOT = (1 << i for i in range(5))

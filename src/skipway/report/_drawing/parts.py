"""What a drawing is made of, as values; nothing here knows of pixels or characters."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Badge:
    """What one rule says at one place. Badges of repeated blocks are equal where only indices differ, so that these blocks fold."""

    code: str
    severity: str
    key: str                                # the message without indices
    text: str = field(default="", compare=False)        # "SKW101 missing-skip: ..."
    numbers: tuple[int, ...] = field(default=(), compare=False)     # positions in the list of findings


@dataclass(frozen=True)
class Mark:
    """Something small that stands on a line: a norm, a scale, a drop, a pool. `kind` is "norm", "scale", "drop" or "shortcut"."""

    kind: str
    text: str
    title: str
    badges: tuple[Badge, ...] = ()


@dataclass(frozen=True)
class Box:
    """A branch, or a sublayer that stands on the stream itself."""

    kind: str                               # a branch's kind, or "standing"
    path: str                               # module path, as seen from its block
    reads: tuple[Mark, ...] = ()            # norms on its own way in
    inside: tuple[Mark, ...] = ()           # norms inside of it
    memories: tuple[str, ...] = ()          # names of the streams it reads besides its own
    inner: int = 0                          # sites of side streams that live in it
    badges: tuple[Badge, ...] = ()


@dataclass(frozen=True)
class Row:
    """One site: read (from the stream, through norms), boxes, write (through scales, drops and norms, to the join)."""

    boxes: tuple[Box, ...]
    reads: tuple[Mark, ...] = ()            # norms that all boxes read through
    writes: tuple[Mark, ...] = ()           # from the boxes to the join
    shortcut: Mark | None = None            # what stands on the stream between read and join
    gain: str = ""
    after: tuple[Mark, ...] = ()            # norms of the sum, on the stream
    lanes: int = 1
    read_back: int = 0                      # how many sites earlier the read begins
    shortcut_back: int = 0                  # how many sites earlier the shortcut begins
    carried: str = ""                       # the shortcut comes on a rail: the name of its feed
    standing: bool = False                  # no site: the one box stands on the stream
    title: str = field(default="", compare=False)       # with the source line, in which blocks alike may differ
    badges: tuple[Badge, ...] = ()          # of the join


    def marks(self) -> "tuple[Mark, ...]":
        """All of its marks."""
        inside = (m for box in self.boxes for m in (*box.reads, *box.inside))
        return (*self.reads, *self.writes, *self.after, *([self.shortcut] if self.shortcut else []), *inside)

    def all_badges(self) -> "tuple[Badge, ...]":
        """Badges of the join, of boxes and of marks, each once."""
        found = (*self.badges, *(b for box in self.boxes for b in box.badges), *(b for m in self.marks() for b in m.badges))
        return tuple(dict.fromkeys(found))


@dataclass(frozen=True)
class View:
    """A block as it is drawn."""

    rows: tuple[Row, ...]
    badges: tuple[Badge, ...] = ()          # of the block as a whole

    def numbers(self) -> tuple[int, ...]:
        """Positions of all findings in it."""
        return tuple(n for found in (self.badges, *(row.all_badges() for row in self.rows)) for b in found for n in b.numbers)


@dataclass(frozen=True)
class Entry:
    """A long skip that ends here, or another stream that this one is made of, and the track it comes on (-1: too many, none)."""

    kind: str                               # "add", "concat" or "follows"
    track: int
    title: str


@dataclass(frozen=True)
class Stem:
    """The head of a stream: its name, and the module that makes its first state."""

    name: str
    path: str
    lanes: int
    sites: int
    continues: bool = False                 # the line above goes on into it
    entries: tuple[Entry, ...] = ()         # other streams that it is made of
    standing: bool = False                  # a sublayer that nothing bypasses, as a finding says
    badges: tuple[Badge, ...] = ()


@dataclass(frozen=True)
class Run:
    """Blocks under each other, `count` times. `repeats[k]` and `paths[k]` are those of repeat k; `labels` fold the paths: layers.{0-31}."""

    count: int
    repeats: tuple[tuple[View, ...], ...]   # equal but for what their findings say
    labels: tuple[str, ...]
    paths: tuple[tuple[str, ...], ...]
    one_module: bool = False                # all repeats are one and the same module
    fold: str = ""                          # the id of what this is folded from, or one repeat of

    @property
    def views(self) -> tuple[View, ...]:
        """The blocks of the first repeat."""
        return self.repeats[0]

    def numbers(self) -> tuple[int, ...]:
        """Positions of all findings in it."""
        return tuple(sorted(n for views in self.repeats for one in views for n in one.numbers()))


@dataclass(frozen=True)
class Joint:
    """A place between two blocks where long skips end (`entries`) or begin."""

    entries: tuple[Entry, ...] = ()


@dataclass(frozen=True)
class End:
    """The end of a stream."""

    norm: Mark | None
    output: bool                            # nothing else in the drawing is made of it
    badges: tuple[Badge, ...] = ()


@dataclass(frozen=True)
class Caption:
    """A line of text of its own."""

    text: str


@dataclass(frozen=True)
class Rail:
    """A vertical line that comes into a band from above on a track of its own."""

    track: int
    kind: str                               # "stream" (one that goes on), "memory" (one that ended and is still read) or "skip"
    lanes: int = 1
    ends: bool = False                      # nothing below the band is made of it


@dataclass(frozen=True)
class Band:
    """A horizontal strip of the drawing: what happens on one track, and the lines that pass it by."""

    body: "Stem | Run | Joint | End | Caption"
    track: int = -1                         # of its stream; -1 for a caption
    lanes: int = 1
    rails: tuple[Rail, ...] = ()
    leaves: tuple[tuple[int, str], ...] = ()        # tracks of rails that begin at its lower end, and their kinds
    # Name of a stream that boxes of this band read, or of a shortcut that comes from an earlier block -> its track; -1: none.
    feeds: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Track:
    """A vertical line's place. `wide`: room for a stream with its marks; others are rails of long skips."""

    wide: bool


@dataclass(frozen=True)
class Layout:
    """The whole drawing, from top to bottom, and its tracks from left to right."""

    bands: tuple[Band, ...]
    tracks: tuple[Track, ...]
    legend: tuple[Badge, ...]               # all findings, each group once, the worst first
    placed: frozenset[int]                  # positions of findings that have a badge

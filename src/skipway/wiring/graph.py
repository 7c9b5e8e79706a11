"""Step 2: one pass over the record says of every node whether it carries signal and which state it is.

Signal is a floating value that depends on an input. Masks, position and rotary tables and weights are side inputs: adding or
multiplying by them leaves a value what it is, so such adds are no joins.
"""

from skipway.wiring import depth, fractions, lanes
from skipway.wiring import operations as ops
from skipway.wiring.joins import Joins
from skipway.wiring.labels import HANDLERS, learned
from skipway.wiring.labels.nodes import numel, scalar
from skipway.wiring.record import LEAVES, Node, Record
from skipway.wiring.states import INVERSE, MATRIX, NOISE, ROOT, STORED, State


class Graph:
    """Labels of every node of a record, and the joins among them. Lists are indexed by node number."""

    def __init__(self, record: Record, stems: frozenset[int] = frozenset(), reads: depth.Reads | None = None,
                 cuts: frozenset[int] = frozenset()) -> None:
        n = len(record.nodes)
        self.record = record
        self.stems = stems                                      # leaves that start a stream besides the inputs
        self.reads = reads or {}                                # reads over depth
        self.cuts = cuts                                        # views and parts of channels that are lanes
        self.parts: dict[int, int] = {}                         # node that is a part of a stream's channels -> number of parts
        self.written: dict[State, State] = {}                   # value that a read over depth had -> the state of the stream from then on
        self.held: dict[State, int] = {}                        # the same value -> the node that the read had
        self.nodes = record.nodes
        self.depends = bytearray(n)                             # on a principal input
        self.signal = bytearray(n)                              # and floating
        self.learned = bytearray(n)                             # multiplied by a stored matrix, or mixed over tokens
        self.gate = bytearray(n)                                # 2: bounded, or an affine function of something bounded; 1: so by a tanh
        self.table = bytearray(n)
        self.state: list[State | None] = [None] * n
        self.gain: list[float | None] = [1.0] * n               # constant factor since the birth of the state; None: another one is among them
        self.since: list[tuple[int, float]] = [(-1, 1.0)] * n   # node of the newest factor that is no constant, or -1; the constant from there on
        self.marks = [0] * n
        self.square: dict[int, State] = {}                      # elementwise square of a state
        self.statistic: dict[int, tuple[State, bool]] = {}      # reduction of a state; whether a square is in it
        self.centred: dict[State, State] = {}                   # state minus its mean
        self.linear: list[State | None] = [None] * n            # the state it is a learned linear function of
        self.terms: dict[int, tuple[int, ...]] = {}             # sums of branches
        self.products: list[tuple[int, int, int]] = []          # products of two signals
        self.doubled: list[tuple[int, int, int]] = []           # sums of a value with itself
        self.lane: dict[int, tuple[int, int]] = {}              # node -> (elements inside one lane, lanes)
        self.stacked: dict[int, tuple[int, ...]] = {}           # values stacked along a new axis, by the state's birth
        self.mixed: dict[State, int] = {}                       # root of a stream whose lanes are mixed -> lanes
        self.attention: dict[int, tuple[int, ...]] = {}         # attention output -> query, key, value nodes
        self.weighted: dict[int, tuple[int, ...]] = {}          # the same for token weights without a softmax
        self.scores: set[int] = set()                           # what an attention's softmax is taken of, back to the product
        self.grids: set[int] = set()                            # sums that say where an image is sampled
        self.affine: set[State] = set()                         # norms whose weight was met
        self.blends = {node.ins[0] for node in self.nodes if node.op == "rsub"}         # what is taken from one: gates with a complement
        self.joins = Joins(self)
        for node in self.nodes:
            self._label(node)
        self.users: list[list[int]] = [[] for _ in range(n)]
        for node in self.nodes:
            for i in node.ins:
                self.users[i].append(node.id)

    # labelling

    def _label(self, node: Node) -> None:
        n, op = node.id, node.op
        if op in LEAVES or n in self.stems:
            if op == "input" or n in self.stems:
                self.depends[n] = 1
                if node.dtype.is_floating_point or node.dtype.is_complex:
                    self.signal[n] = 1
                    self.state[n] = State(n, "stem")
            else:
                self.table[n] = STORED | (MATRIX if len(node.shape) > 1 else 0)
            return
        ins = node.ins
        if op in ops.FRESH:
            self.table[n] = NOISE if op in ops.RANDOM else 0
            return
        for i in ins:
            if self.depends[i]:
                break
        else:
            self._side(node)
            return
        self.depends[n] = 1
        if not (node.dtype.is_floating_point or node.dtype.is_complex):
            if op in ops.IDENTITY or op == "topk":
                self.gate[n] = self.gate[ins[0]]
            return
        self.signal[n] = 1
        signals = [i for i in ins if self.signal[i]]
        if not signals:                                         # made of integers: a mask, unless something learned reads them
            if op in ops.LOOKUPS or op in ops.MATMULS or op in ops.CONVOLUTIONS:
                learned.learned(self, node, signals)
            else:
                self.signal[n] = 0
                self._side(node)
            return
        if n in self.reads:
            depth.label(self, node, self.reads[n])
        elif n in self.cuts:
            fractions.born(self, node)
        else:
            HANDLERS.get(op, learned.other)(self, node, signals)
        if self.lane:
            lanes.follow(self, node, signals)
        if self.parts:
            fractions.follow(self, node, signals)

    def _side(self, node: Node) -> None:
        """Weights and tables: remember what a norm or a mask needs to know of them."""
        mark = 0
        for i in node.ins:
            mark |= self.table[i]
        power = scalar(node) if node.op == "pow" else None
        inverted = node.op in ("reciprocal", "div") and node.ins and self.table[node.ins[-1]] & ROOT
        if node.op == "sqrt" or power == 0.5:
            mark |= ROOT
        elif node.op == "rsqrt" or power == -0.5 or inverted:
            mark |= INVERSE
        if node.op in ops.RANDOM:
            mark |= NOISE
        self.table[node.id] = mark

    def fresh(self, node: Node, via: str, prev: State | None = None) -> State:
        """`node` is a new state, made by `via`; it continues `prev` where one is given."""
        n = node.id
        state = State(n, via, prev)
        self.state[n], self.gain[n], self.since[n], self.marks[n] = state, 1.0, (-1, 1.0), 0
        return state

    def carry(self, node: Node, source: int, mark: int = 0, factor: float | None = 1.0) -> None:
        """`node` is the value of `source`, marked and multiplied by a constant (None: by something that is not one)."""
        n = node.id
        self.state[n] = self.state[source]
        newest, constant = self.since[source]
        self.scale(n, 1.0 if factor is None else constant * factor, n if factor is None else newest)
        self.marks[n] = self.marks[source] | mark
        self.gate[n] = self.gate[source]
        self.linear[n] = self.linear[source]
        if source in self.statistic:
            self.statistic[n] = self.statistic[source]
        if source in self.square:
            self.square[n] = self.square[source]

    def scale(self, n: int, constant: float, newest: int = -1) -> None:
        """Set what multiplies a node since the birth of its state: a constant, behind the node of a factor that is none."""
        self.since[n], self.gain[n] = (newest, constant), constant if newest < 0 else None

    def constant(self, n: int) -> float | None:
        """The value of a one-element table that the forward itself made, where it is known."""
        while True:
            node = self.nodes[n]
            if node.op in ("full", "ones", "scalar_tensor", "full_like", "ones_like") and numel(node) >= 1:
                fill = 1.0 if node.op.startswith("ones") else node.args[0] if node.op == "scalar_tensor" else node.args[1]
                return float(fill) if isinstance(fill, (int, float)) else None
            if node.op not in ops.IDENTITY or not node.ins:
                return None
            n = node.ins[0]

    def computed_from(self, n: int, source: int) -> bool:
        """Whether `n` carries the state of `source`, or was computed from it."""
        a, b = self.state[n], self.state[source]
        if a is None or b is None or a is b:
            return a is b
        region = self.joins.reach(n, b)
        return a.has(b) or (region is not None and any(self.state[h] is b for h in region.hits))

"""Step 2: one pass over the record says of every node whether it carries signal and which state it is.

Signal is a floating value that depends on an input. Masks, position and rotary tables and weights are side inputs: adding or
multiplying by them leaves a value what it is, so such adds are no joins.
"""

from collections.abc import Callable

import torch

from skipway.wiring import lanes
from skipway.wiring import operations as ops
from skipway.wiring.joins import Joins
from skipway.wiring.record import LEAVES, Node, Record
from skipway.wiring.states import (
    CONSTANT, DROPPED, GATED, INVERSE, MATRIX, MIXED, MOVED, NARROWED, NOISE, PART, RANDOM, ROOT, SCALAR, SHIFTED, STORED, VECTOR, Norm, State,
)



class Graph:
    """Labels of every node of a record, and the joins among them. Lists are indexed by node number."""

    def __init__(self, record: Record, stems: frozenset[int] = frozenset()) -> None:
        n = len(record.nodes)
        self.record = record
        self.stems = stems                                      # leaves that start a stream besides the inputs
        self.nodes = record.nodes
        self.depends = bytearray(n)                             # on a principal input
        self.signal = bytearray(n)                              # and floating
        self.learned = bytearray(n)                             # multiplied by a stored matrix, or mixed over tokens
        self.gate = bytearray(n)                                # bounded, or an affine function of something bounded
        self.table = bytearray(n)
        self.state: list[State | None] = [None] * n
        self.gain: list[float | None] = [1.0] * n               # constant factor since the birth of the state
        self.marks = [0] * n
        self.square: dict[int, State] = {}                      # elementwise square of a state
        self.statistic: dict[int, tuple[State, bool]] = {}      # reduction of a state; whether a square is in it
        self.centred: dict[State, State] = {}                   # state minus its mean
        self.linear: list[State | None] = [None] * n            # the state it is a learned linear function of
        self.terms: dict[int, tuple[int, ...]] = {}             # sums of branches
        self.products: list[tuple[int, int, int]] = []          # products of two signals
        self.doubled: list[tuple[int, int, int]] = []           # sums of a value with itself
        self.narrowed: dict[State, list[int]] = {}              # casts of a state to a narrower type
        self.lane: dict[int, tuple[int, int]] = {}              # node -> (elements inside one lane, lanes)
        self.stacked: dict[int, tuple[int, ...]] = {}           # values stacked along a new axis, by the state's birth
        self.mixed: dict[State, int] = {}                       # root of a stream whose lanes are mixed -> lanes
        self.attention: dict[int, tuple[int, ...]] = {}         # attention output -> query, key, value nodes
        self.weighted: dict[int, tuple[int, ...]] = {}          # the same for token weights without a softmax
        self.scores: set[int] = set()                           # what an attention's softmax is taken of, back to the product
        self.affine: set[State] = set()                         # norms whose weight was met
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
                self._learned(node, signals)
            else:
                self.signal[n] = 0
                self._side(node)
            return
        _HANDLERS.get(op, Graph._other)(self, node, signals)
        if self.lane:
            lanes.follow(self, node, signals)

    def _side(self, node: Node) -> None:
        """Weights and tables: remember what a norm or a mask needs to know of them."""
        mark = 0
        for i in node.ins:
            mark |= self.table[i]
        if node.op == "sqrt" or (node.op == "pow" and _scalar(node) == 0.5):
            mark |= ROOT
        elif node.op == "rsqrt" or (node.op == "pow" and _scalar(node) == -0.5) or (node.op in ("reciprocal", "div") and node.ins and self.table[node.ins[-1]] & ROOT):
            mark |= INVERSE
        if node.op in ops.RANDOM:
            mark |= NOISE
        self.table[node.id] = mark

    def _fresh(self, node: Node, via: str, prev: State | None = None) -> State:
        n = node.id
        state = State(n, via, prev)
        self.state[n], self.gain[n], self.marks[n] = state, 1.0, 0
        return state

    def _carry(self, node: Node, source: int, mark: int = 0, factor: float | None = 1.0) -> None:
        """`node` is the value of `source`, marked and multiplied by a constant (None: by something that is not one)."""
        n = node.id
        self.state[n] = self.state[source]
        before = self.gain[source]
        self.gain[n] = None if before is None or factor is None else before * factor
        self.marks[n] = self.marks[source] | mark
        self.gate[n] = self.gate[source]
        self.linear[n] = self.linear[source]
        if source in self.statistic:
            self.statistic[n] = self.statistic[source]
        if source in self.square:
            self.square[n] = self.square[source]

    # operations that keep a value

    def _identity(self, node: Node, signals: list[int]) -> None:
        op, source = node.op, signals[0]
        if op in ops.SPLITS:
            self._fresh(node, "part", self.state[source])
            self.linear[node.id], self.gate[node.id] = self.linear[source], self.gate[source]
            return
        mark = 0
        if op in ops.PARTS and node.shape != self.nodes[source].shape:
            mark = PART
        if op in ops.MOVES:
            mark |= MOVED
        if op in ops.DROPS:
            mark |= DROPPED
        self._carry(node, source, mark)
        if op in ("_to_copy", "to", "copy") and _narrower(node.dtype, self.nodes[source].dtype):
            state = self.state[source]
            if state is None or state.norm is None or state.norm.call != node.call:     # a norm may compute in a wider type
                self.marks[node.id] |= NARROWED
        if op in ("expand", "repeat"):
            lanes.born_by_expand(self, node, source)

    def _patch(self, node: Node, signals: list[int]) -> None:
        old, new = node.ins
        if not self.signal[new]:
            self._carry(node, old)
        elif not self.signal[old]:
            self._carry(node, new, self.marks[new] & ~PART)
        else:
            a, b = self.state[old], self.state[new]
            assert a is not None and b is not None
            self._carry(node, new if b.has(a) else old)
            if b.has(a):
                self.marks[node.id] &= ~PART

    def _cat(self, node: Node, signals: list[int]) -> None:
        states = {self.state[i] for i in signals}
        biggest = max(signals, key=lambda i: _numel(self.nodes[i]))
        if len(states) == 1 and node.op == "cat":
            self._carry(node, biggest)
            self.marks[node.id] = self.marks[node.id] & ~PART | (MOVED if len(signals) > 1 else 0)
            return
        if node.op == "stack":
            self._stack(node, signals)
            return
        mostly = _numel(self.nodes[biggest]) * 2 > _numel(node)
        self._fresh(node, "cat", self.state[biggest] if mostly else None)

    def _stack(self, node: Node, signals: list[int]) -> None:
        if len({self.state[i] for i in signals}) == 1:
            self._carry(node, signals[0])
        else:
            states = [s for i in signals if (s := self.state[i])]
            lanes_end = next((s for s in states if s.root in self.mixed), None)
            self._fresh(node, "stack", _oldest(states) or lanes_end)
        self.stacked[node.id] = tuple(node.ins)
        if any(all(i == j or self.computed_from(j, i) for j in signals) for i in signals):
            lanes.born_by_stack(self, node)

    def computed_from(self, n: int, source: int) -> bool:
        """Whether `n` carries the state of `source`, or was computed from it."""
        a, b = self.state[n], self.state[source]
        return a is b or (a is not None and b is not None and (a.has(b) or self.joins.reach(n, b) is not None))

    def _scatter(self, node: Node, signals: list[int]) -> None:
        base, source = node.ins[0], node.ins[-1]
        a, b = self.state[base], self.state[source]
        if a is not None and b is not None and b is not a and b.has(a) and node.op == "masked_scatter":
            self._carry(node, source)                           # the picked part was normed, and put back in its place
        elif self.signal[base] and self.signal[source] and node.op in ("index_add", "scatter_add", "index_put"):
            self.joins.combine(node, base, source, 1.0, 1.0)
        elif self.signal[base]:
            self._carry(node, base)
        else:
            self._fresh(node, "sum")
            self.terms[node.id] = (source,)

    # scales

    def _mul(self, node: Node, signals: list[int]) -> None:
        if len(signals) == 1 and len(node.ins) == 1:
            self._carry(node, signals[0], CONSTANT, _scalar(node))
            return
        if len(signals) == 1:
            source = signals[0]
            other = node.ins[1] if node.ins[0] == source else node.ins[0]
            self._scaled(node, source, other)
            return
        a, b = signals[0], signals[1]
        if self._norm_by(node, a, b) or self._norm_by(node, b, a):
            return
        if a == b:
            self._fresh(node, "act", self.state[a])
            self.square[node.id] = self.square.get(a) or self.state[a]  # type: ignore[assignment]
            return
        for source, other in ((a, b), (b, a)):
            if self.gate[source]:
                continue
            small = _numel(self.nodes[other]) * 2 <= _numel(self.nodes[source])
            if self.gate[other] or other in self.statistic or small:
                self._carry(node, source, GATED, None)
                self.linear[node.id] = None
                return
        if self.gate[a] and self.gate[b]:
            self.gate[node.id] = 1
        self._fresh(node, "product")
        self.products.append((node.id, a, b))

    def _scaled(self, node: Node, source: int, other: int) -> None:
        """A signal times a stored or constant tensor."""
        table, size = self.table[other], _numel(self.nodes[other])
        if table & NOISE:
            self._carry(node, source, RANDOM | DROPPED)
        elif table & INVERSE and table & STORED:
            self._normed(node, source, "BatchNorm")
        elif table & STORED:
            state = self.state[source]
            own = state is not None and state.norm is not None and state.norm.call == node.call and state not in self.affine
            if own and state is not None and size > 1:          # the norm's own weight
                self.affine.add(state)
                self._carry(node, source)
            else:
                self._carry(node, source, SCALAR if size == 1 else VECTOR, None)
        else:
            value = self._constant(other)
            self._carry(node, source, CONSTANT if size == 1 else GATED, value)

    def _constant(self, n: int) -> float | None:
        """The value of a one-element table that the forward itself made, where it is known."""
        while True:
            node = self.nodes[n]
            if node.op in ("full", "ones", "scalar_tensor", "full_like", "ones_like") and _numel(node) >= 1:
                fill = 1.0 if node.op.startswith("ones") else node.args[0] if node.op == "scalar_tensor" else node.args[1]
                return float(fill) if isinstance(fill, (int, float)) else None
            if node.op not in ops.IDENTITY or not node.ins:
                return None
            n = node.ins[0]

    def _div(self, node: Node, signals: list[int]) -> None:
        if len(node.ins) == 1:
            value = _scalar(node)
            self._carry(node, signals[0], CONSTANT, 1 / value if value else None)
            return
        a, b = node.ins[0], node.ins[1]
        if self.signal[a] and not self.signal[b]:
            if self.table[b] & NOISE:
                self._carry(node, a, RANDOM | DROPPED)
            else:
                value = self._constant(b)
                self._carry(node, a, CONSTANT if value else SCALAR if _numel(self.nodes[b]) == 1 else VECTOR, 1 / value if value else None)
        elif self.signal[a] and self._norm_by(node, a, b):
            return
        elif self.signal[a] and (self.gate[a] or b in self.statistic):
            self._carry(node, a, GATED, None)
        elif not self.signal[a]:
            self._fresh(node, "act", self.state[b])
            self._statistic_of(node, b)
        else:
            self._fresh(node, "product")

    # norms

    def _normed(self, node: Node, source: int, name: str) -> None:
        state = self._fresh(node, "norm", self.state[source])
        state.norm = Norm(name, node.call, source)
        self.linear[node.id] = self.linear[source] or self.state[source]

    def _norm_by(self, node: Node, value: int, by: int) -> bool:
        """A value times or over a statistic of itself that holds a square is a norm: RMSNorm, LayerNorm where it was centred."""
        found = self.statistic.get(by)
        state = self.state[value]
        if found is None or not found[1] or state is None:
            return False
        base = found[0]
        raw = self.centred.get(state)
        if self.centred.get(base, base) is not (raw or state):
            return False
        source = raw.node if raw is not None else value
        self._normed(node, value, "LayerNorm" if raw is not None else "RMSNorm")
        if raw is not None:
            made = self.state[node.id]
            assert made is not None and made.norm is not None
            made.norm.source = source
        return True

    def _norm(self, node: Node, signals: list[int]) -> None:
        if node.out == 0:
            name = ops.NORMS[node.op]
            module = self.record.calls[node.call].module
            if "instance" in type(module).__name__.lower():
                name = "GroupNorm"
            self._normed(node, signals[0], name)
        else:
            self._fresh(node, "statistic")

    def _statistic_of(self, node: Node, source: int) -> None:
        if source in self.statistic:
            self.statistic[node.id] = self.statistic[source]

    def _act(self, node: Node, signals: list[int]) -> None:
        source = signals[0]
        op = node.op
        state = self.state[source]
        self._fresh(node, "act", state)
        self.gate[node.id] = op in ops.GATES
        self._statistic_of(node, source)
        if op == "square" or (op == "pow" and _scalar(node) == 2) or op == "abs":
            self.square[node.id] = state  # type: ignore[assignment]
        elif source in self.square and op in ("pow", "sqrt"):
            self.square[node.id] = self.square[source]

    def _reduce(self, node: Node, signals: list[int]) -> None:
        source = signals[0]
        if source in self.lane and lanes.reduce(self, node, source):
            return
        state = self.state[source]
        stack = self.stacked.get(state.node, ()) if state is not None else ()
        if node.op in ("sum", "mean") and stack and node.shape == self.nodes[stack[0]].shape:
            parts = [i for i in stack if self.signal[i]]
            factor = 1.0 if node.op == "sum" else 1.0 / len(stack)
            if len(parts) == 2:
                self.joins.combine(node, parts[0], parts[1], factor, factor)
            else:
                self._fresh(node, "sum")
                self.terms[node.id] = tuple(parts)
            return
        if node.op in ("sum", "mean") and node.shape == self.nodes[source].shape:
            self._carry(node, source)
            return
        if node.out == 0 and node.op in ops.POOLS:
            self._fresh(node, "pool", self.state[source])
            self.linear[node.id] = self.linear[source]
            self.learned[node.id] = node.op.startswith("avg_pool") and node.shape == self.nodes[source].shape
        else:
            self._fresh(node, "statistic")
        if node.op in ops.STATISTICS:
            base = self.square.get(source)
            state = base or self.state[source]
            assert state is not None
            self.statistic[node.id] = (state, base is not None or node.op in ops.SQUARED)

    # sums

    def _add(self, node: Node, signals: list[int]) -> None:
        if node.op == "add" and len(node.ins) == 1:
            self._shifted(node, signals[0], 1.0)
            return
        sign = -1.0 if node.op == "sub" else 1.0
        alpha = node.kwargs.get("alpha", 1) if node.op != "_foreach" else 1
        alpha = float(alpha) if isinstance(alpha, (int, float)) else 1.0
        if len(node.ins) == 1:
            self._shifted(node, signals[0], -1.0 if node.op == "rsub" else 1.0)
        elif len(signals) == 1:
            second = signals[0] == node.ins[1]
            self._shifted(node, signals[0], sign * alpha if second else 1.0)
        elif node.op == "sub" and (self._centres(node) or self._detrends(node)):
            return
        else:
            factors = (-1.0, 1.0) if node.op == "rsub" else (1.0, sign * alpha)
            self.joins.combine(node, node.ins[0], node.ins[1], *factors)

    def _shifted(self, node: Node, source: int, factor: float) -> None:
        self._carry(node, source, SHIFTED, factor)

    def _centres(self, node: Node) -> bool:
        a, b = node.ins
        found = self.statistic.get(b)
        state = self.state[a]
        if found is None or found[1] or found[0] is not state or state is None:
            return False
        made = self._fresh(node, "centred", state)
        self.centred[made] = state
        return True

    def _detrends(self, node: Node) -> bool:
        """A value minus a moving average of itself goes on as itself."""
        a, b = node.ins
        pooled = self.state[b]
        if pooled is None or pooled.via != "pool" or pooled.prev is not self.state[a] or node.shape != self.nodes[b].shape:
            return False
        self._carry(node, a)
        return True

    def _neg(self, node: Node, signals: list[int]) -> None:
        self._carry(node, signals[0], 0, -1.0)

    def _addc(self, node: Node, signals: list[int]) -> None:
        """addcmul and addcdiv: base + value * a * b, taken apart."""
        base, a, b = node.ins
        value = node.kwargs.get("value", 1.0)
        inner = [i for i in (a, b) if self.signal[i]]
        if not self.signal[base]:
            (self._mul if node.op == "addcmul" else self._div)(_pair(node, a, b), inner)
        elif not inner:
            self._shifted(node, base, 1.0)
        else:
            (self._mul if node.op == "addcmul" else self._div)(_pair(node, a, b), inner)
            self.joins.combine_virtual(node, base, float(value) if isinstance(value, (int, float)) else 1.0)

    def _lerp(self, node: Node, signals: list[int]) -> None:
        a, b = node.ins[0], node.ins[1]
        weight = node.args[2] if len(node.args) > 2 else node.kwargs.get("weight")
        factor = float(weight) if isinstance(weight, (int, float)) else None
        if self.signal[a] and self.signal[b]:
            self.joins.combine(node, a, b, None if factor is None else 1 - factor, factor)      # None: the weight is a tensor
        else:
            self._carry(node, signals[0], GATED, None)

    def _where(self, node: Node, signals: list[int]) -> None:
        states = {self.state[i] for i in signals}
        if len(states) == 1:
            self._carry(node, signals[0])
        else:
            self._fresh(node, "where")

    # learned operations

    def _matmul(self, node: Node, signals: list[int]) -> None:
        ins = node.ins
        if node.op in ("addmm", "baddbmm", "addbmm", "addmv", "addr") and self.signal[ins[0]] and len(ins) == 3:
            base, a, b = ins
            inner = [i for i in (a, b) if self.signal[i]]
            if inner:
                self._matmul_of(_pair(node, a, b), inner)
                beta, alpha = node.kwargs.get("beta", 1), node.kwargs.get("alpha", 1)
                self.joins.combine_virtual(node, base, float(alpha), float(beta))
            else:
                self._shifted(node, base, 1.0)
            return
        if node.op in ("addmm", "baddbmm", "addbmm", "addmv"):
            ins = ins[1:] if len(ins) == 3 else ins
        self._matmul_of(_pair(node, *ins[:2]) if len(ins) >= 2 else node, [i for i in ins if self.signal[i]])

    def _matmul_of(self, node: Node, signals: list[int]) -> None:
        n = node.id
        if (self.lane or self.stacked) and lanes.contract(self, node):
            return
        if not signals:
            self._fresh(node, "product")
            return
        if len(signals) >= 2:
            self._fresh(node, "attention" if self._attends(node) else "product")
            self.learned[n] = 1
            return
        source = signals[0]
        if not any(self.table[i] & STORED for i in node.ins if i != source):
            self._fresh(node, "product")
            return
        self._fresh(node, "learned")
        self.learned[n] = 1
        self.linear[n] = self._base(source)

    def _attends(self, node: Node) -> bool:
        """softmax(query key) value: remember the three where one operand is such a softmax, or token weights without one."""
        for weights, value in (node.ins[:2], node.ins[1::-1]):
            scores, softmax = self._score_product(weights)
            if scores and softmax:
                self.attention[node.id] = (*scores, value)
                return True
            if scores:
                self.weighted[node.id] = (*scores, value)
        return False

    def _score_product(self, n: int) -> tuple[tuple[int, ...], bool]:
        """The operands of the product that `n` was made of by masks, drop-out, activations and casts; whether by a softmax."""
        softmax, passed = False, []
        for _ in range(120):
            node = self.nodes[n]
            signals = [i for i in node.ins if self.signal[i]]
            if node.op in ops.SOFTMAXES or node.op == "exp":
                softmax = True
            elif node.op in ops.MATMULS and len(signals) >= 2:
                if softmax:
                    self.scores.update(passed)
                return tuple(signals[:2]), softmax
            elif self.learned[n]:
                break
            passed.append(n)
            if not signals:
                break
            n = max(signals, key=lambda i: _numel(self.nodes[i])) if len(signals) > 1 else signals[0]
        return (), softmax

    def _convolution(self, node: Node, signals: list[int]) -> None:
        source = signals[0]
        weight = node.ins[1] if len(node.ins) > 1 else source
        stored = bool(self.table[weight] & STORED) or self.signal[weight]
        if not stored:
            self._fresh(node, "pool", self.state[source])
            return
        self._fresh(node, "learned")
        self.learned[node.id] = 1
        self.linear[node.id] = self._base(source)

    def _base(self, source: int) -> State | None:
        """What a learned map of `source` is linear in: its state, unless a gate stands between."""
        return State(source, "gated") if self.marks[source] & GATED else self.state[source]

    def _attention(self, node: Node, signals: list[int]) -> None:
        if node.out:
            self._fresh(node, "statistic")
            return
        self._fresh(node, "attention")
        self.learned[node.id] = 1
        self.attention[node.id] = node.ins[:3]

    def _learned(self, node: Node, signals: list[int]) -> None:
        self._fresh(node, "learned")
        self.learned[node.id] = 1

    def _norm_vector(self, node: Node, signals: list[int]) -> None:
        self._fresh(node, "statistic")
        source = signals[0]
        state = self.state[source]
        assert state is not None
        self.statistic[node.id] = (self.square.get(source) or state, True)

    def _other(self, node: Node, signals: list[int]) -> None:
        self._fresh(node, node.op)


def _pair(node: Node, a: int, b: int) -> Node:
    """The product inside an operation that also adds, as a node of its own with the same number."""
    return Node(node.id, node.op, (a, b), node.shape, node.dtype, node.call, (), {}, 0, node.group, False, node.where)


def _numel(node: Node) -> int:
    n = 1
    for s in node.shape:
        n *= s
    return n


def _scalar(node: Node) -> float | None:
    """The number beside the one tensor operand."""
    for a in node.args:
        if isinstance(a, (int, float)) and not isinstance(a, bool):
            return float(a)
    value = node.kwargs.get("exponent", node.kwargs.get("other"))
    return float(value) if isinstance(value, (int, float)) else None


def _oldest(states: list[State]) -> State | None:
    """The state that all others continue, if there is one."""
    first = min(states, key=lambda s: s.depth)
    return first if all(s.has(first) for s in states) else None


def _narrower(to: torch.dtype, of: torch.dtype) -> bool:
    return to.is_floating_point and of.is_floating_point and to.itemsize < of.itemsize


Handler = Callable[[Graph, Node, list[int]], None]
_HANDLERS: dict[str, Handler] = {
    **dict.fromkeys(ops.IDENTITY | ops.PARTS, Graph._identity),
    **dict.fromkeys(ops.POOLS | ops.STATISTICS, Graph._reduce),
    **dict.fromkeys(ops.ACTS, Graph._act),
    **dict.fromkeys(ops.NORMS, Graph._norm),
    **dict.fromkeys(ops.MATMULS, Graph._matmul),
    **dict.fromkeys(ops.CONVOLUTIONS, Graph._convolution),
    **dict.fromkeys(ops.ATTENTIONS, Graph._attention),
    **dict.fromkeys(ops.RECURRENCES | ops.LOOKUPS | ops.MIXERS, Graph._learned),
    **dict.fromkeys(ops.ADDS, Graph._add),
    **dict.fromkeys(ops.SCATTERS, Graph._scatter),
    "mul": Graph._mul, "div": Graph._div, "neg": Graph._neg, "addcmul": Graph._addc, "addcdiv": Graph._addc, "lerp": Graph._lerp,
    "where": Graph._where, "patch": Graph._patch, "cat": Graph._cat, "stack": Graph._cat,
    "norm": Graph._norm_vector, "linalg_vector_norm": Graph._norm_vector,
}

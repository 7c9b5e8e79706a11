"""Where the gradient of one run flows: which nodes are part of the autograd graph, and which of them it reaches."""

from functools import cached_property

from skipway.rules._real import Real
from skipway.wiring import operations as ops
from skipway.wiring.streams import Flow


class Gradients:
    """alive: nodes in the autograd graph, or inside a custom function whose result is. wanted: nodes that the outputs depend on through
    floating values, whether or not a gradient flows. reached: the alive ones that the gradient of some output gets to."""

    def __init__(self, real: Real) -> None:
        self.real = real
        self.nodes = real.graph.nodes
        self.inside: set[int] = set()                   # a custom function
        stack = list(real.run.functions)
        while stack:
            for i in self.nodes[stack.pop()].ins:
                if i in real.run.untracked and i not in self.inside and i not in real.run.functions:
                    self.inside.add(i)
                    stack.append(i)
        self.alive = self.inside | set(real.run.tracked)
        self.wanted = self._back(set(real.record.outputs[:1]), False)
        self.reached = self._back({n for n in real.record.outputs if n in self.alive}, True)

    def _back(self, starts: set[int], flowing: bool, stop: int = -1) -> set[int]:
        """All floating nodes that the starts were computed from; only along the autograd graph where `flowing`."""
        seen, stack = set(starts), list(starts)
        while stack:
            node = self.nodes[stack.pop()]
            if node.op in ops.FRESH or (flowing and self.cuts(node.id)):
                continue
            for i in node.ins:
                if i >= stop and i not in seen and self.nodes[i].dtype.is_floating_point and (not flowing or i in self.alive):
                    seen.add(i)
                    stack.append(i)
        return seen

    def cuts(self, n: int) -> bool:
        """Whether no gradient goes on from a node to what it was made of."""
        return n not in self.alive or (self.nodes[n].op == "detach" and n not in self.inside and n not in self.real.run.functions)

    def reaches(self, end: int, start: int) -> bool:
        """Whether the gradient of `end` gets to `start`."""
        return end == start or (end in self.alive and start in self._back({end}, True, start))

    def behind(self, end: int, start: int) -> list[int]:
        """The floating nodes from `start` on that `end` was computed from, in order."""
        return sorted(self._back({end}, False, start))

    def made_of(self, end: int, start: int) -> bool:
        """Whether `end` was computed from `start` through floating values."""
        return start in self._back({end}, False, start)

    @cached_property
    def _learning(self) -> list[Flow]:
        return [f for f in self.real.flows if f.main and f.places[-1].join.node in self.reached]

    def others(self, flow: Flow) -> bool:
        """Whether another main stream leads to the output and learns: then this one may be a teacher, or a target."""
        return any(f is not flow for f in self._learning)

    def feeds(self, flow: Flow) -> bool:
        """Whether another main stream is made of the last state of this one."""
        end = flow.places[-1].join.node
        return any(f is not flow and self.made_of(f.root.node, end) for f in self._learning)

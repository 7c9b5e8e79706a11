"""What the makers of inputs know: the configuration, the forward's signature and docstring, and the sizes that errors have named."""

import ast
import inspect
import math
import operator
import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from skipway.targets._seed import generator

BATCH, TOKENS, TARGET_TOKENS = 2, 16, 12        # decoder and encoder lengths differ, so that they cannot be confused
MOST_NUMBERS = 100_000_000                      # of one input
WORDS = {"batch_size": BATCH, "batch": BATCH, "bsz": BATCH, "target_sequence_length": TARGET_TOKENS, "num_images": 1, "max_num_images": 1,
         "image_batch_size": BATCH, "text_batch_size": BATCH, "point_batch_size": 1, "num_points_per_image": 2, "num_boxes_per_image": 1}
OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.floordiv, ast.FloorDiv: operator.floordiv,
             ast.Pow: operator.pow}


class Context:
    """One model and what is known about the arguments of its forward."""

    def __init__(self, model: nn.Module, config: Any) -> None:
        self.model = model
        self.config = config
        self.parameters: Mapping[str, inspect.Parameter] = inspect.signature(model.forward).parameters
        self.wanted: frozenset[str] = frozenset()       # arguments that are given
        self.values: dict[str, Any] = {}        # those that are made already
        self.sizes: list[int] = []              # numbers that the last error named
        self.placeholders: dict[str, int] = {}  # kind of feature -> how many words an example stand in for them
        self.documented = _documented(type(model))

    def first(self, *names: str) -> Any:
        """The first of the fields that the configuration, or one of the configurations inside it, holds."""
        return first(self.config, *names)

    def number(self, default: int, *names: str) -> int:
        """As `first`, for a whole number; the last of a list."""
        value = self.first(*names)
        if isinstance(value, (list, tuple)):
            value = value[-1] if value else None
        return int(value) if isinstance(value, (int, float)) else default

    def normal(self, *shape: int) -> torch.Tensor:
        """Standard normal numbers from a fixed seed."""
        return torch.randn(shape, generator=generator())

    def whole(self, limit: int, *shape: int) -> torch.Tensor:
        """Whole numbers below `limit` from a fixed seed."""
        return torch.randint(0, max(1, limit), shape, generator=generator())

    def width(self) -> int:
        """The width of the model's stream."""
        return self.number(TOKENS, "hidden_size", "d_model", "n_embd", "dim", "embed_dim")

    def by_documentation(self, name: str) -> list[torch.Tensor]:
        """Tensors of the shapes that the forward's docstring states for the argument, where the configuration has every size."""
        made = []
        for kind, sizes in self.documented.get(name, ()):
            shape = [self._size(size) for size in sizes]
            if None not in shape and math.prod(size or 0 for size in shape) <= MOST_NUMBERS:
                known = tuple(size for size in shape if size is not None)
                made.append(self.whole(2, *known) if kind in ("Long", "Int") else self.normal(*known) if kind != "Bool" else torch.ones(known).bool())
        return made

    def _size(self, text: str) -> int | None:
        """The size that a docstring calls `text`: a number, a usual word, a field of the configuration, or arithmetic of these."""
        try:
            return _evaluated(ast.parse(text.strip(), mode="eval").body, self)
        except (SyntaxError, LookupError, TypeError, ZeroDivisionError):
            return None

    def named(self, word: str) -> int:
        """A usual word of docstrings or a field of the configuration. Raises LookupError."""
        word = word.removeprefix("self.").removeprefix("config.")
        if word in WORDS:
            return WORDS[word]
        value = self.first(word)
        if isinstance(value, (list, tuple)) and value:
            value = value[0]
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if re.search(r"(num|seq|len|length)", word):
            return TOKENS
        raise LookupError(word)


def _evaluated(node: ast.expr, context: Context) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, (ast.Name, ast.Attribute)):
        return context.named(ast.unparse(node))
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        return int(OPERATORS[type(node.op)](_evaluated(node.left, context), _evaluated(node.right, context)))
    raise LookupError(ast.unparse(node))


def _documented(cls: type) -> dict[str, list[tuple[str, list[str]]]]:
    """Argument -> (kind of tensor, sizes) for every shape that the docstring of the class's forward states."""
    text = getattr(cls, "forward", cls).__doc__ or ""
    found: dict[str, list[tuple[str, list[str]]]] = {}
    for name, kind, shapes in re.findall(r"^\s*(\w+) \(`?(?:torch\.)?(\w*?)Tensor`? of shape ([^\n]*)$", text, re.MULTILINE):
        for shape in re.findall(r"`?\(([^()`]*(?:\([^()`]*\)[^()`]*)*)\)`?", shapes):
            sizes = [s for s in shape.split(",") if s.strip()]
            if sizes:
                found.setdefault(name, []).append((kind, sizes))
    return found


def first(config: Any, *names: str) -> Any:
    """The first of the fields that the configuration, or one of the configurations inside it, holds."""
    for part in parts(config):
        for name in names:
            value = getattr(part, name, None)
            if value is not None:
                return value
    return None


def parts(config: Any) -> Iterator[Any]:
    """The configuration and all those inside it, outermost first."""
    yield config
    for value in vars(config).values():
        if hasattr(value, "to_dict"):
            yield from parts(value)

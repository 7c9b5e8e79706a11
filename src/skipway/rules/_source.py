"""What a module's source says that its run did not do."""

import ast
import inspect
import textwrap
from functools import cache
from typing import Any

from skipway.wiring.record import Record


def unrun_add(module: Any, record: Record) -> tuple[str, int] | None:
    """File and line of an add of the forward's own input that is written in the source and never ran, or None."""
    ran = {node.where for node in record.nodes if node.where is not None}
    kind: Any = type(module)
    return next((place for place in _adds_of_input(kind) if place not in ran), None)


@cache
def _adds_of_input(kind: Any) -> tuple[tuple[str, int], ...]:
    """Lines of a class's forward that add one of its arguments, or a name that stands for one, to something."""
    try:
        lines, first = inspect.getsourcelines(kind.forward)
        file = kind.forward.__code__.co_filename
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError, AttributeError):
        return ()                                   # no source to read: a class made in memory
    function = tree.body[0]
    if not isinstance(function, ast.FunctionDef):
        return ()
    names = {a.arg for a in function.args.args[1:]}
    found = []
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name) and node.value.id in names:
            names.update(t.id for t in node.targets if isinstance(t, ast.Name))
        operands: list[ast.expr] = []
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            operands = [node.left, node.right]
        elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
            operands = [node.target, node.value]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("add", "add_"):
            operands = [node.func.value, *node.args]
        if any(isinstance(o, ast.Name) and o.id in names for o in operands):
            found.append((file, first + operands[0].lineno - 1))
    return tuple(found)

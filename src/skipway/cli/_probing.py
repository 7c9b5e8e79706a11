"""From a target and data to a table of measurements, or to the producers of what is not finite: what `skipway probe` runs."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from skipway._errors import SkipwayError, UsageError

if TYPE_CHECKING:
    from skipway.probing.nonfinite import NonFinite
    from skipway.probing.table import Table
    from skipway.targets import Target
    from skipway.targets._data import Data, Wanted

T = TypeVar("T")
NO_MEMORY = ("can't allocate memory", "cannot allocate memory", "out of memory", "not enough memory", "failed to allocate")


@dataclass(frozen=True)
class Request:
    """What is asked for. loss: its name or file.py:function; None for none."""

    mode: str = "eval"
    dtype: str | None = None
    seed: int = 0
    data: str | None = None
    loss: str | None = None
    lesion: bool = False


def made_ready(target: "Target", request: Request, wanted: "Wanted") -> "tuple[Target, Data]":
    """The target with numbers, in the mode and dtype asked for, and the inputs with what is known about them."""
    from skipway.targets._data import Data, load
    from skipway.targets._given import Given
    made = target.with_numbers()
    made.model.train(request.mode == "train")
    if request.dtype is not None:
        made.model.to(_dtype(request.dtype))
    if request.data is None:
        data = Data(Given(made.args, made.kwargs), f"random, seed {request.seed}" if made.inputs == "random" else made.inputs)
    elif any(note.startswith("a small real copy") for note in made.notes):
        raise UsageError(f"--data: {target.name} is large and comes without weights, so a small copy of it is probed, which this data may not fit; "
                         "leave --data out, or make the model smaller with --config")
    else:
        data = load(request.data, made, wanted)
    return made, replace(data, given=_cast(data.given, made.model))


def measured(made: "Target", data: "Data", request: Request, said: Callable[[int, int], None]) -> "Table":
    """The table of one probe, with its lesions where they are asked for. Raises SkipwayError, one line."""
    def work(part: "Data") -> "Table":
        return _table(made, part, request, said)
    table = _within_memory(work, data)
    weights = f"random, seed {request.seed}" if made.weights == "random" else made.weights
    notes = [*made.notes, *data.notes, *table.notes]
    return replace(table, target=made.name, inputs=data.said, weights=weights, notes=tuple(dict.fromkeys(n for n in notes if not _told(n))))


def nonfinite(made: "Target", data: "Data") -> "NonFinite":
    """The producers of NaN and infinity in one forward. Raises SkipwayError, one line."""
    from skipway.probing.nonfinite import find_nonfinite
    from skipway.probing.probe import check_inputs

    def work(part: "Data") -> "NonFinite":
        check_inputs(part.given.args, part.given.kwargs)
        return find_nonfinite(made.model, *part.given.args, **part.given.kwargs)
    return _within_memory(work, data)


def _table(made: "Target", data: "Data", request: Request, said: Callable[[int, int], None]) -> "Table":
    import skipway
    from skipway.targets._loss import objective
    from skipway.targets._seed import seeded
    given, loss = data.given, None
    notes: tuple[str, ...] = ()
    if request.loss is not None:
        with seeded(request.seed):
            wanted = objective(request.loss, data)
        given, loss, notes = wanted.given, wanted.call, wanted.notes
    clash = sorted({"loss", "table", "said"} & set(given.kwargs))
    if clash:
        raise UsageError(f"{made.name}: the forward's argument {clash[0]!r} has the name of an option of probe; give it by position")
    table: Table = skipway.probe(made.model, *given.args, loss=loss, **given.kwargs)
    table = replace(table, loss_name=request.loss or "", notes=(*notes, *table.notes))
    if request.lesion:
        from skipway.probing.lesion import lesion
        assert loss is not None
        table = lesion(made.model, table, *given.args, loss=loss, said=said, **given.kwargs)
    return table


def _told(note: str) -> bool:
    """Whether the table's own fields say it: how inputs were guessed."""
    return note.startswith("inputs: example_inputs")


def _within_memory(work: "Callable[[Data], T]", data: "Data") -> T:
    """`work(data)`. Where memory does not suffice, half of the rows is tried once, to say whether that would fit.

    Raises UsageError that says what was asked for and what fits.
    """
    try:
        return work(data)
    except Exception as error:
        if not out_of_memory(error):
            raise
        rows, half = _rows(data), None
        asked = f"out of memory with {data.said}"
        cause: Exception = error
    if rows > 1:
        half = _first_rows(data, rows // 2)
        try:
            work(half)
        except Exception as error:
            if not out_of_memory(error):
                raise
            cause, half = error, None
    if half is not None:
        raise UsageError(f"{asked}; {rows // 2} of the {rows} rows fit: --batch {rows // 2}") from cause
    less = f"nor do {rows // 2} of the {rows} rows fit; " if rows > 1 else ""
    raise UsageError(f"{asked}; {less}ask for shorter rows (--tokens), a narrower --dtype such as bfloat16, or a smaller model") from cause


def out_of_memory(error: BaseException | None) -> bool:
    """Whether an error, or one that it was raised from, says that memory did not suffice."""
    import torch
    while error is not None:
        if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
            return True
        if isinstance(error, RuntimeError) and not isinstance(error, SkipwayError) and any(said in str(error).lower() for said in NO_MEMORY):
            return True
        error = error.__cause__
    return False


def _rows(data: "Data") -> int:
    """The batch size that all inputs share, or 1."""
    from torch import Tensor
    tensors = [v for v in (*data.given.args, *data.given.kwargs.values()) if isinstance(v, Tensor)]
    sizes = {len(t) if t.dim() else 0 for t in tensors}
    return sizes.pop() if len(sizes) == 1 else 1


def _first_rows(data: "Data", count: int) -> "Data":
    from torch import Tensor

    def cut(value: Any) -> Any:
        return value[:count] if isinstance(value, Tensor) else value
    given = replace(data.given, args=tuple(cut(a) for a in data.given.args), kwargs={k: cut(v) for k, v in data.given.kwargs.items()})
    return replace(data, given=given, labels=cut(data.labels))


def _dtype(name: str) -> Any:
    import torch
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise UsageError(f"--dtype: got {name!r}, want float32, bfloat16, float16 or float64")
    return found


def _cast(given: Any, model: Any) -> Any:
    """Floating inputs in the dtype of the model's weights."""
    from torch import Tensor
    kind = next((p.dtype for p in model.parameters() if p.is_floating_point()), None)

    def cast(value: Any) -> Any:
        return value.to(kind) if kind is not None and isinstance(value, Tensor) and value.is_floating_point() else value
    return replace(given, args=tuple(cast(a) for a in given.args), kwargs={k: cast(v) for k, v in given.kwargs.items()})

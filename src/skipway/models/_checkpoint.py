"""Hugging Face checkpoint folders: config.json and safetensors, one file or shards."""

import json
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from skipway import _registry
from skipway._errors import CheckpointError
from skipway.models._base import Model, Row
from skipway.models._build import PACKAGE, family, names
from skipway.models._fields import Fields

SHARD = 5 * 10 ** 9                     # bytes of a file, at most


def load(folder: str | pathlib.Path, *, device: str | torch.device = "cpu") -> Model:
    """The model of a checkpoint folder, in the dtype of its tensors, in evaluation mode.

    Reads config.json and safetensors, one file or shards. Raises CheckpointError, before anything is built where it can: no such folder or
    configuration, an architecture or a field that is not supported, pickle weights (with the way to convert them), a tensor that is missing, that
    nobody wants, or that has another shape.
    """
    home = pathlib.Path(folder)
    data = _json(home / "config.json", "a checkpoint folder has one")
    kind = _family(data, home)
    tensors = Files(home, kind.OLDER)
    fields = Fields(data, str(home / "config.json"))
    config = kind.suited(kind.read(fields), tensors.names)
    fields.done()
    with torch.device("meta"):
        model = kind(config)
    prefix = kind.PREFIX if any(name.startswith(kind.PREFIX) for name in tensors.names) else ""
    model.load_state_dict(dict(_ours(model, tensors, prefix)), strict=False, assign=True)
    for module in model.modules():
        reset = getattr(module, "reset", None)              # tables of positions, which were computed without memory
        if callable(reset):
            reset()
    tie(model)
    return model.to(device).eval()


def save(model: Model, folder: str | pathlib.Path) -> None:
    """Writes a folder that transformers and `load` read: config.json and model.safetensors (shards beyond 5 GB), in the dtype of the weights.

    Raises CheckpointError where the model's scheme is not the published one: no checkpoint format has a place for it.
    """
    from safetensors.torch import save_file
    if model.scheme != model.rule(model.config):
        raise CheckpointError(f"a {model.name()} with the scheme {model.scheme} has no checkpoint format; save its state_dict() with safetensors")
    config = {**model.written(), "dtype": str(next(model.parameters()).dtype).removeprefix("torch.")}
    home = pathlib.Path(folder)
    home.mkdir(parents=True, exist_ok=True)
    shards: list[dict[str, Tensor]] = [{}]
    size = 0
    for name, tensor in _theirs(model):
        if size and size + tensor.nbytes > SHARD:
            shards.append({})
            size = 0
        shards[-1][name] = tensor.contiguous()
        size += tensor.nbytes
    (home / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    if len(shards) == 1:
        save_file(shards[0], home / "model.safetensors", {"format": "pt"})
        return
    index: dict[str, str] = {}
    for k, shard in enumerate(shards, 1):
        file = f"model-{k:05d}-of-{len(shards):05d}.safetensors"
        save_file(shard, home / file, {"format": "pt"})
        index |= dict.fromkeys(shard, file)
    total = sum(t.nbytes for shard in shards for t in shard.values())
    (home / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": total}, "weight_map": index}), encoding="utf-8")


class Files:
    """The tensors of a folder, read one at a time. `older` are ends of names in old files, and what they are called since."""

    def __init__(self, home: pathlib.Path, older: Mapping[str, str] | None = None) -> None:
        from safetensors import safe_open
        self.home = home
        index = home / "model.safetensors.index.json"
        found = sorted({home / f for f in _json(index, "")["weight_map"].values()}) if index.is_file() else [home / "model.safetensors"]
        missing = [f for f in found if not f.is_file()]
        if missing:
            pickles = sorted(f.name for f in home.glob("*.bin")) + sorted(f.name for f in home.glob("*.pt*"))
            if pickles and not index.is_file():
                raise CheckpointError(f"{home}: {pickles[0]} is a pickle, which can run code when it is read; convert it: "
                                      "AutoModel.from_pretrained(folder).save_pretrained(folder) writes model.safetensors")
            raise CheckpointError(f"{missing[0]}: no such file; wanted the weights as safetensors")
        try:
            self.files = [safe_open(str(f), "pt") for f in found]
        except Exception as error:
            raise CheckpointError(f"{home}: the weights cannot be read as safetensors: {error}") from error
        self.places = {_renamed(name, older or {}): (f, name) for f in self.files for name in f.keys()}          # noqa: SIM118
        self.names = frozenset(self.places)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor, without reading it."""
        file, stored = self.places[name]
        return tuple(file.get_slice(stored).get_shape())

    def read(self, name: str) -> Tensor:
        """A tensor."""
        file, stored = self.places[name]
        tensor: Tensor = file.get_tensor(stored)
        return tensor


def _renamed(name: str, older: Mapping[str, str]) -> str:
    end = next((old for old in older if name.endswith(old)), None)
    return name if end is None else name.removesuffix(end) + older[end]


def tie(model: nn.Module) -> None:
    """Makes one parameter of those that a model says are one: its attribute `tied`, pairs of paths (owner, other)."""
    for owner, other in getattr(model, "tied", ()):
        home, _, name = other.rpartition(".")
        setattr(model.get_submodule(home), name, model.get_parameter(owner))


def _json(file: pathlib.Path, why: str) -> dict[str, Any]:
    try:
        made = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{file}: cannot be read ({type(error).__name__}); {why or 'wanted JSON'}") from error
    if not isinstance(made, dict):
        raise CheckpointError(f"{file}: holds a {type(made).__name__}; wanted an object")
    return made


def _family(data: dict[str, Any], home: pathlib.Path) -> type[Model]:
    wanted = data.get("model_type")
    known: dict[str, type[Model]] = {}
    for name in names():
        if not hasattr(_registry.load(PACKAGE, name.replace("_", "-")), "NOT_PUBLISHED"):
            kind = family(name)
            known |= dict.fromkeys(kind.MODEL_TYPES, kind)
    if wanted not in known:
        raise CheckpointError(f"{home / 'config.json'}: model_type is {wanted!r}; supported are {', '.join(sorted(known))}")
    return known[wanted]


def _named(model: Model, row: Row, prefix: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    ours = (row.ours,) if isinstance(row.ours, str) else row.ours
    theirs = (row.theirs,) if isinstance(row.theirs, str) else row.theirs
    own = model.PREFIX
    return ours, tuple(name if name.startswith(own) or _heads(name) else model.spelled(name, prefix) for name in theirs)


def _heads(name: str) -> bool:
    """A name that begins with a slash stands outside of the prefix."""
    return name.startswith("/")


def _ours(model: Model, tensors: Files, prefix: str) -> Iterator[tuple[str, Tensor]]:
    """Our tensors out of theirs. Raises CheckpointError with all that is missing, unwanted or of another shape."""
    own = {**dict(model.named_parameters(remove_duplicate=False)), **dict(model.named_buffers())}
    tied = {other for _, other in getattr(model, "tied", ())}
    rows = [(ours, tuple(t.removeprefix("/") for t in theirs), row) for row in model.rows()
            for ours, theirs in [_named(model, row, prefix)] if not set(ours) <= tied]
    wanted = {name for _, theirs, _ in rows for name in theirs}
    absent = sorted(wanted - tensors.names)
    if absent:
        raise CheckpointError(f"{tensors.home}: {len(absent)} tensors are missing, the first is {absent[0]}")
    spare = {t.removeprefix("/") for row in model.rows() for ours, theirs in [_named(model, row, prefix)] if set(ours) <= tied for t in theirs}
    extra = sorted(n for n in tensors.names - wanted - spare if not model.ignores(n, model.config))
    if extra:
        raise CheckpointError(f"{tensors.home}: {len(extra)} tensors that a {model.name()} does not have, the first is {extra[0]}")
    told = {name for ours, _, _ in rows for name in ours}
    apart = {**dict(model.named_parameters()), **dict(model.named_buffers())}       # a module that stands at several depths counts once
    untold = sorted(n for n in apart if n not in told | tied and n in model.state_dict())
    if untold:
        raise CheckpointError(f"{model.name()}: no row tells where {untold[0]} stands in a checkpoint")
    for ours, theirs, row in rows:
        _fits([tuple(own[n].shape) for n in ours], [tensors.shape(n) for n in theirs], row, ours, theirs, tensors.home)
    _alike(model, tensors, prefix, {ours[0]: theirs[0] for ours, theirs, row in rows if row.how == "same"})
    for ours, theirs, row in rows:
        yield from zip(ours, _split([tensors.read(n) for n in theirs], [own[n].shape[_axis(row)] for n in ours if "rows" in row.how], row))


def _alike(model: Model, tensors: Files, prefix: str, places: Mapping[str, str]) -> None:
    """Raises CheckpointError where a folder holds two tensors that the configuration says are one, and they differ."""
    owners = {other: owner for owner, other in getattr(model, "tied", ())}
    for row in model.rows():
        ours, theirs = _named(model, row, prefix)
        copy, owner = theirs[0].removeprefix("/"), places.get(owners.get(ours[0], ""))
        if owner is not None and copy in tensors.names and not torch.equal(tensors.read(copy), tensors.read(owner)):
            raise CheckpointError(f"{tensors.home}: {copy} is another matrix than {owner}, and the configuration says that they are one")


def _axis(row: Row) -> int:
    """The axis of ours along which rows stand."""
    return 1 if row.how.startswith("each") else 0


def _fits(ours: list[tuple[int, ...]], theirs: list[tuple[int, ...]], row: Row, names: tuple[str, ...], others: tuple[str, ...],
          home: pathlib.Path) -> None:
    axis, want = _axis(row), ours[0]
    if row.how == "stacked":
        want = want[1:]
    elif row.how == "led":
        want = (1, *want)
    elif "rows" in row.how:
        want = (*want[:axis], sum(s[axis] for s in ours), *want[axis + 1:])
    if row.how.endswith("turned"):
        want = (*want[:axis], want[axis + 1], want[axis])
    for name, shape in zip(others, theirs):
        if shape != want:
            raise CheckpointError(f"{home}: {name} has the shape {shape}, the configuration wants {want} (for {', '.join(names)})")


def _split(theirs: list[Tensor], sizes: list[int], row: Row) -> list[Tensor]:
    if row.how == "stacked":
        return [torch.stack(theirs)]
    if row.how == "led":
        return [theirs[0][0].contiguous()]
    axis = _axis(row)
    whole = theirs[0].transpose(axis, axis + 1) if row.how.endswith("turned") else theirs[0]
    if "rows" not in row.how:
        return [whole.contiguous()]
    parts = whole.unflatten(axis, (row.turns, -1)).split([s // row.turns for s in sizes], axis + 1)
    return [part.flatten(axis, axis + 1).contiguous() for part in parts]


def _joined(ours: list[Tensor], row: Row) -> Tensor:
    axis, whole = _axis(row), ours[0]
    if "rows" in row.how:
        whole = torch.cat([t.unflatten(axis, (row.turns, -1)) for t in ours], axis + 1).flatten(axis, axis + 1)
    return whole.transpose(axis, axis + 1) if row.how.endswith("turned") else whole


def _theirs(model: Model) -> Iterator[tuple[str, Tensor]]:
    """Their tensors out of ours."""
    own = model.state_dict()
    tied = {other for _, other in getattr(model, "tied", ())}
    prefix = model.PREFIX if model.config.head else ""
    for row in model.rows():
        ours, theirs = _named(model, row, prefix)
        if set(ours) <= tied:
            continue
        if row.how == "stacked":
            yield from zip((t.removeprefix("/") for t in theirs), own[ours[0]].unbind())
            continue
        if row.how == "led":
            yield theirs[0].removeprefix("/"), own[ours[0]].detach().clone()[None]
            continue
        yield theirs[0].removeprefix("/"), _joined([own[n] for n in ours], row).detach().clone()

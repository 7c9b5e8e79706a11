"""Checkpoints of transformers models in local folders: safetensors files, whole or sharded, and GGUF files.

A pickled checkpoint can run code when it is read, so none is ever read.
"""

import contextlib
import functools
import importlib.util
import json
import pathlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import nn

from skipway._errors import TargetError
from skipway._load import failure
from skipway.targets._hf_config import without_cache
from skipway.targets._seed import reseed

WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
CONVERT = ('convert it once, where you trust the file: python -c "import torch, safetensors.torch as s; s.save_model(MODEL, \'model.safetensors\')" '
           "with MODEL loaded by its own code")


@dataclass(frozen=True)
class Checkpoint:
    """A folder and the weights in it. files: of safetensors, or the one GGUF file; empty where the folder holds a configuration alone."""

    folder: pathlib.Path = pathlib.Path()
    files: tuple[str, ...] = ()
    gguf: bool = False
    pickled: str | None = None          # a pickled checkpoint beside the configuration, where there is nothing else

    @property
    def said(self) -> str:
        """The weights in a few words; "" where there are none."""
        if not self.files:
            return self.pickled or ""
        return self.files[0] if len(self.files) == 1 else f"{len(self.files)} safetensors files"


def find(rest: str, name: str) -> Checkpoint | None:
    """The checkpoint that `hf:rest` names, or None where it is a model type or a configuration file.

    Raises TargetError for a pickled file, for several GGUF files in one folder, and for a shard that is missing.
    """
    path = pathlib.Path(rest)
    if path.suffix in PICKLED and path.is_file():
        raise TargetError(f"{name}: {path.name} is pickled: reading it can run code, so it is never read; {CONVERT}")
    if path.suffix == ".gguf":
        if not path.is_file():
            raise TargetError(f"{name}: no such file {rest!r}; give a GGUF file or the folder that holds one (nothing is downloaded)")
        return Checkpoint(path.parent, (path.name,), gguf=True)
    if path.suffix == ".safetensors" and path.is_file():
        path = path.parent
    if not rest or not path.is_dir():
        return None
    if (path / INDEX).is_file():
        return Checkpoint(path, _shards(path, name))
    if (path / WHOLE).is_file():
        return Checkpoint(path, (WHOLE,))
    gguf = sorted(p.name for p in path.glob("*.gguf"))
    if len(gguf) > 1:
        raise TargetError(f"{name}: it holds {len(gguf)} GGUF files ({', '.join(gguf[:4])}); name one, such as {name}/{gguf[0]}")
    if gguf:
        return Checkpoint(path, (gguf[0],), gguf=True)
    return Checkpoint(path, pickled=next((p.name for p in sorted(path.iterdir()) if p.suffix in PICKLED), None))


def _shards(folder: pathlib.Path, name: str) -> tuple[str, ...]:
    """The files that the index names; each must be a safetensors file of this folder."""
    try:
        index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        files = sorted(set(index["weight_map"].values()))
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise TargetError(f"{name}: {INDEX} cannot be read ({type(error).__name__}: {error}); copy the checkpoint's own anew") from error
    odd = next((f for f in files if not isinstance(f, str) or not f.endswith(".safetensors") or pathlib.PurePath(f).name != f), None)
    if odd is not None:
        raise TargetError(f"{name}: {INDEX} names {odd!r}, which is no safetensors file of this folder; copy the checkpoint's own anew")
    missing = [f for f in files if not (folder / f).is_file()]
    if missing or not files:
        what = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
        raise TargetError(f"{name}: {len(missing)} of {len(files)} shards are missing ({what or 'it names none'}); copy them beside {INDEX}")
    return tuple(files)


def gguf_config(found: Checkpoint, name: str) -> Any:
    """The configuration inside a GGUF file."""
    _needs_gguf(name)
    from transformers import AutoConfig
    try:
        return AutoConfig.from_pretrained(found.folder, gguf_file=found.files[0], local_files_only=True, trust_remote_code=False)
    except Exception as error:
        raise failure(error, f"{found.files[0]} has no configuration that transformers reads", fallback=name) from error


def _needs_gguf(name: str) -> None:
    lacking = [package for package in ("gguf", "accelerate") if importlib.util.find_spec(package) is None]
    if lacking:
        raise TargetError(f"{name}: reading a GGUF file needs the packages gguf and accelerate, and {' and '.join(lacking)} "
                          f"{'are' if len(lacking) > 1 else 'is'} missing; pip install 'skipway[gguf]'")


def load(cls: Any, config: Any, found: Checkpoint, name: str) -> tuple[nn.Module, tuple[str, ...]]:
    """The model of this class with the checkpoint's weights in their own dtype, in evaluation mode, and notes about what did not fit.

    Raises TargetError where there are no weights that may be read, or they are not of this model.
    """
    if found.pickled is not None:
        raise TargetError(f"{name}: its weights are pickled ({found.pickled}): reading them can run code, so they are never read; {CONVERT}")
    without_cache(config)
    options: dict[str, Any] = {"local_files_only": True, "output_loading_info": True, "config": config}
    if found.gguf:
        _needs_gguf(name)
        options["gguf_file"] = found.files[0]
    else:
        options |= {"use_safetensors": True, "dtype": "auto"}
    try:
        reseed()                                # what the checkpoint lacks is random
        with _without_bars():
            model, info = cls.from_pretrained(found.folder, **options)
    except Exception as error:
        raise failure(error, f"{found.said} cannot be loaded into {cls.__name__}", fallback=name) from error
    return model.eval(), _notes(found, model, info)


@contextlib.contextmanager
def _without_bars() -> Iterator[None]:
    """Loading draws no bars of its own. The one for GGUF tensors knows no switch."""
    from transformers import modeling_gguf_pytorch_utils as gguf
    from transformers.utils import logging
    shown, bar = logging.is_progress_bar_enabled(), getattr(gguf, "tqdm", None)
    logging.disable_progress_bar()
    if bar is not None:
        gguf.tqdm = functools.partial(bar, disable=True)
    try:
        yield
    finally:
        if bar is not None:
            gguf.tqdm = bar
        if shown:
            logging.enable_progress_bar()
        logging.set_verbosity_error()


def _notes(found: Checkpoint, model: nn.Module, info: Any) -> tuple[str, ...]:
    kinds = sorted({str(p.dtype).removeprefix("torch.") for p in model.parameters()})
    notes = [f"weights: {found.said}{', dequantised to' if found.gguf else ','} {'+'.join(kinds)}"]
    missing, unused = (sorted(info.get(key) or ()) for key in ("missing_keys", "unexpected_keys"))
    if missing:
        notes.append(f"weights: {len(missing)} tensors of the model are not in the checkpoint and are random: {_some(missing)}")
    if unused:
        notes.append(f"weights: {len(unused)} tensors of the checkpoint are not in {type(model).__name__}: {_some(unused)}")
    return tuple(notes)


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")

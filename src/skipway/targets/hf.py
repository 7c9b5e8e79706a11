"""`hf:<model type, or local config.json, folder or GGUF file>`: a transformers model from a configuration, with weights where numbers are needed.

Nothing is fetched and no code that lies beside a checkpoint is run: only classes of the installed transformers package are used, and
weights come from safetensors and GGUF files alone.
"""

import copy
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from skipway._errors import TargetError
from skipway.targets._given import Given
from skipway.targets._seed import reseed
from skipway.targets._target import RANDOM, Target

FORM = "hf:<model type, config.json, checkpoint folder or GGUF file>"
COPY = "a real copy of full size with random weights was run instead"


def build(rest: str, given: Given | None, config: tuple[str, ...]) -> Target:
    """The model on the meta device in evaluation mode, with inputs guessed from its configuration and the signature of its forward.

    A forward that asks for numbers gets a small real copy instead; `Target.notes` say so, and what was changed in the configuration.
    `Target.full` reads the weights of a checkpoint.
    """
    os.environ["HF_HUB_OFFLINE"] = "1"          # read by huggingface_hub when it is imported: no request leaves this process
    try:
        import transformers
    except ImportError as error:
        raise TargetError("hf: targets need the transformers package; pip install 'skipway[hf]'") from error
    from skipway.targets._hf_config import override, read_config
    from skipway.targets._hf_known import told
    from skipway.targets._hf_search import search
    from skipway.targets._hf_weights import Checkpoint, find, gguf_config
    transformers.logging.set_verbosity_error()
    name = f"hf:{rest}"
    known = rest in transformers.CONFIG_MAPPING
    checkpoint = None if known else find(rest, name)
    if checkpoint is not None and checkpoint.gguf:
        settings = gguf_config(checkpoint, name)
    else:
        settings = read_config(rest if checkpoint is None else os.fspath(checkpoint.folder), name)
    for text in config:
        override(settings, text, name)
    kept = frozenset(text.partition("=")[0].strip().rpartition(".")[2] for text in config)
    found = search(settings, name, given, kept if known else None, told(rest))
    weights = checkpoint or Checkpoint()
    return replace(found, full=_full(found, settings, weights, name, given), weights=weights.said or RANDOM,
                   folder=os.fspath(checkpoint.folder) if checkpoint is not None else None)


def _full(found: Target, settings: Any, weights: Any, name: str, given: Given | None) -> Callable[[], Target]:
    """Makes the real model of full size: with the checkpoint's weights, else with random ones."""
    def made() -> Target:
        from skipway.targets._hf_config import make
        from skipway.targets._hf_search import real_inputs
        from skipway.targets._hf_weights import load
        cls, config = type(found.model), copy.deepcopy(found.model.config if found.abstract else settings)
        notes: tuple[str, ...]
        if weights.said:
            model, notes = load(cls, config, weights, name)
        else:
            reseed()
            model, notes = make(cls, config, "cpu", name)[0], (COPY,)
        args, kwargs = found.args, found.kwargs
        if not found.abstract and given is None:                # they were made for another size
            made_up = real_inputs(model, config, name)
            args, kwargs = made_up.args, made_up.kwargs
        return replace(found, model=model, args=args, kwargs=kwargs, notes=notes, shrink=None, full=None)
    return made

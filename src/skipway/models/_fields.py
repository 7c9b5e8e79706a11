"""Reads the fields of a config.json: each is handled, known to be harmless, or an error that names it."""

from collections.abc import Mapping
from typing import Any

from skipway._errors import CheckpointError

_MISSING = object()
# Fields that say nothing about the forward of a model: ids of special tokens, how it was made, how outputs are packed.
_HARMLESS = """
    architectures auto_map model_type dtype torch_dtype transformers_version _name_or_path _model_name_or_path name_or_path use_cache
    return_dict output_attentions
    output_hidden_states id2label label2id num_labels problem_type initializer_range initializer_factor is_encoder_decoder chunk_size_feed_forward
    gradient_checkpointing pretraining_tp task_specific_params tokenizer_class bos_token_id eos_token_id pad_token_id sep_token_id cls_token_id
    unk_token_id mask_token_id decoder_start_token_id forced_eos_token_id forced_bos_token_id begin_suppress_tokens suppress_tokens prefix
    finetuning_task license language attn_implementation _attn_implementation torchscript
"""
HARMLESS = frozenset(_HARMLESS.split())

ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "relu": "relu", "relu2": "relu2", "silu": "silu",
               "swish": "silu"}
ACTIVATION_WRITTEN = {"gelu": "gelu", "gelu_tanh": "gelu_new", "relu": "relu", "relu2": "relu2", "silu": "silu"}


class Fields:
    """A config.json. `take` reads a field, `same` insists on a value, `done` raises for what nobody read."""

    def __init__(self, data: Mapping[str, Any], where: str) -> None:
        self.data, self.where = dict(data), where
        self.left = {k for k in self.data if k not in HARMLESS}

    def take(self, name: str, default: Any = _MISSING) -> Any:
        """The value of a field. Raises CheckpointError where it is missing and has no default; null counts as missing."""
        self.left.discard(name)
        value = self.data.get(name)
        if value is not None:
            return value
        if default is _MISSING:
            raise CheckpointError(f"{self.where}: no field {name}; wanted one, is this the configuration of another architecture?")
        return default

    def same(self, name: str, *wanted: Any) -> None:
        """Raises CheckpointError where the field is there and is none of these values."""
        self.left.discard(name)
        value = self.data.get(name)
        if value is not None and value not in wanted:
            raise CheckpointError(f"{self.where}: {name} is {value!r}; only {' or '.join(repr(w) for w in wanted)} is supported")

    def skip(self, *names: str) -> None:
        """Fields that change nothing here."""
        self.left.difference_update(names)

    def activation(self, name: str, default: str) -> str:
        """The kind of feed-forward for a field that names an activation. Raises CheckpointError for one that is not supported."""
        told = self.take(name, default)
        if told not in ACTIVATIONS:
            raise CheckpointError(f"{self.where}: {name} is {told!r}; only {', '.join(ACTIVATIONS)} are supported")
        return ACTIVATIONS[told]

    def architecture(self, *known: str) -> str:
        """The class that wrote the folder, of these; the first where none is told. Raises CheckpointError for one whose head we do not have."""
        named: str = (self.data.get("architectures") or known)[0]
        if named not in known:
            raise CheckpointError(f"{self.where}: architectures is {named!r}; only {', '.join(known)} are supported")
        return named

    def head(self) -> bool:
        """Whether the checkpoint has a head: its architecture is named For something."""
        named = self.data.get("architectures") or ["For"]
        return "For" in named[0] or "LMHead" in named[0]

    def done(self) -> None:
        """Raises CheckpointError with the fields that were not read."""
        left = sorted(k for k in self.left if self.data[k] not in (None, False) or k.startswith("rope"))
        if left:
            shown = ", ".join(f"{k} = {self.data[k]!r}"[:80] for k in left[:4]) + (" ..." if len(left) > 4 else "")
            raise CheckpointError(f"{self.where}: fields that are not supported here: {shown}; remove them if they change nothing")

    def rope(self, theta: float = 10000.0, kind: str | None = None) -> dict[str, Any]:
        """Options of `nn.Rotary`: theta and scaling, from rope_parameters (of one kind of layer, where they stand by kind) or the older
        rope_theta and rope_scaling."""
        told = dict(self.take("rope_parameters", None) or {})
        if kind is not None and kind in told:
            return self._rope(dict(told[kind]), theta)
        base = self.take("rope_theta", None)
        told |= dict(self.take("rope_scaling", None) or {})
        return self._rope(told, base or theta)

    def _rope(self, told: dict[str, Any], theta: float) -> dict[str, Any]:
        made: dict[str, Any] = {"theta": float(told.pop("rope_theta", None) or theta)}
        share = told.pop("partial_rotary_factor", None) or self.take("partial_rotary_factor", None)
        if share not in (None, 1.0):
            made["partial"] = share
        kind = told.pop("rope_type", None) or told.pop("type", "default")
        told.pop("type", None)
        if kind != "default":
            made["scaling"] = _scaling(kind, told, self)
        return made


def _scaling(kind: str, told: dict[str, Any], fields: Fields) -> dict[str, Any]:
    named = {"linear": {"factor": "factor"},
             "llama3": {"factor": "factor", "low_freq_factor": "low", "high_freq_factor": "high", "original_max_position_embeddings": "original"},
             "yarn": {"factor": "factor", "original_max_position_embeddings": "original", "beta_fast": "beta_fast", "beta_slow": "beta_slow",
                      "attention_factor": "attention_factor", "truncate": "truncate", "mscale": "mscale", "mscale_all_dim": "mscale_all"}}
    if kind not in named:
        raise CheckpointError(f"{fields.where}: rotary positions of type {kind!r}; only default, {', '.join(named)} are supported")
    left = sorted(k for k, v in told.items() if k not in named[kind] and v is not None)
    if left:
        raise CheckpointError(f"{fields.where}: rotary options that are not supported for {kind}: {', '.join(left)}")
    return {"kind": kind, **{ours: told[theirs] for theirs, ours in named[kind].items() if told.get(theirs) is not None}}


def rope_written(rotary: Mapping[str, Any]) -> dict[str, Any]:
    """`rope_parameters` for these options of `nn.Rotary`."""
    made: dict[str, Any] = {"rope_theta": rotary.get("theta", 10000.0), "rope_type": "default"}
    if "partial" in rotary:
        made["partial_rotary_factor"] = rotary["partial"]
    scaling = dict(rotary.get("scaling", {}))
    if scaling:
        made["rope_type"] = scaling.pop("kind")
        back = {"low": "low_freq_factor", "high": "high_freq_factor", "original": "original_max_position_embeddings", "mscale_all": "mscale_all_dim"}
        made |= {back.get(str(k), str(k)): v for k, v in scaling.items()}
    return made


def classes(fields: Fields) -> int:
    """The number of classes: of names, or told; two where neither is there."""
    return len(fields.data.get("id2label") or ()) or int(fields.data.get("num_labels") or 2)


def classes_written(count: int) -> dict[str, Any]:
    """Names for so many classes."""
    return {"id2label": {str(k): f"LABEL_{k}" for k in range(count)}, "label2id": {f"LABEL_{k}": k for k in range(count)}}

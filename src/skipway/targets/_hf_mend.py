"""Mends a default configuration that leaves out what its model needs: the smallest change that the error points to, one at a time.

Only defaults are mended, and each change is told in a note; what a user gave is judged as it is.
"""

import inspect
import math
import re
from collections.abc import Callable
from typing import Any

from skipway.targets._hf_blame import cause, nearby, places, sources
from skipway.targets._hf_context import parts

FEW, WORDS = 8, 1000


def _heads(part: Any) -> int:
    return int(getattr(part, "num_attention_heads", None) or getattr(part, "num_heads", None) or 1)


def _width(part: Any) -> int:
    return int(getattr(part, "hidden_size", None) or getattr(part, "d_model", None) or 64)


def _layers(part: Any) -> int:
    return int(getattr(part, "num_hidden_layers", None) or getattr(part, "num_layers", None) or 1)


# Field -> what it becomes where it is missing or None. The first pattern that fits counts.
FIELDS: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    (r"(image|audio|video|speech)_token_(id|index)", lambda part: 5),
    (r"\w+_token_id", lambda part: 1 if hasattr(part, "pad_token_id") else None),
    (r"vocabulary_map", lambda part: {"<image>": 5}),
    (r"vocab_size", lambda part: WORDS),
    (r"head_dim", lambda part: _width(part) // _heads(part)),
    (r"num_key_value_heads|decoder_num_key_value_heads|encoder_num_key_value_heads", _heads),
    (r"prediction_length|context_length", lambda part: FEW),
    (r"num_experts_per_tok|num_experts_per_token|top_k\w*|moe_top_?k|moe_num_experts_per_tok|num_selected_experts", lambda part: 2),
    (r"n_group|topk_group|num_expert_group|n_shared_experts|num_shared_experts", lambda part: 1),
    (r"num_experts|num_local_experts|n_routed_experts|moe_num_experts", lambda part: FEW),
    (r"moe_intermediate_size|shared_expert_intermediate_size|expert_ffn_hidden_size", lambda part: int(getattr(part, "intermediate_size", 0) or 64)),
    (r"layer_types", lambda part: ["full_attention"] * _layers(part)),
    (r"mlp_layer_types", lambda part: ["dense"] + ["sparse"] * (_layers(part) - 1)),
    (r"sliding_window", lambda part: FEW),
    (r"\w*(dropout|drop_rate|dropout_rate|droppath|drop_path_rate)", lambda part: 0.0),
    (r"rope_theta", lambda part: 10_000.0),
    (r"backbone", lambda part: "resnet18"),
    (r"\w+_layer_map", lambda part: []),
)


def mend(config: Any, error: BaseException, kept: frozenset[str] = frozenset()) -> str | None:
    """Makes one change and tells it in words; None where the error points to nothing that can be mended. Fields in `kept` stay."""
    return _divisible(config, error, kept) or _sections(config, error) or _rope_kinds(config, error) or _field(config, error, kept)


def _field(config: Any, error: BaseException, kept: frozenset[str]) -> str | None:
    """A field that is missing or None, and that the message or the failing line names."""
    owners = _owners(config, error)
    for text in (*sources(error), nearby(error)):
        for word in _fields_named(text, error):
            make = next((m for pattern, m in FIELDS if re.fullmatch(pattern, word)), None)
            if make is None or word in kept:
                continue
            for part in owners:
                if getattr(part, word, None) is not None:
                    continue
                if not hasattr(part, word) and f"'{type(part).__name__}'" not in text and f"config.{word}" not in text:
                    continue
                missing, value = not hasattr(part, word), make(part)
                if value is None and not missing:
                    continue
                setattr(part, word, value)
                return f"{word} {'was missing' if missing else 'None'}, now {value if not isinstance(value, list) else value[0] if value else '[]'}"
    return None


def _fields_named(text: str, error: BaseException) -> list[str]:
    """Fields that a text names: after `config.`, in quotes, or as the source of an attribute of the module that failed."""
    named = re.findall(r"config\.(\w+)", text) + re.findall(r"[`'\"](\w+)[`'\"]", text)
    for attribute in re.findall(r"self\.(\w+)", text):
        for place in places(error)[:3]:
            named += _sources_of(place.values.get("self"), attribute)
    return list(dict.fromkeys(named))


def _sources_of(module: Any, attribute: str) -> list[str]:
    """Fields of the configuration that the constructor reads for an attribute."""
    try:
        lines = inspect.getsource(type(module).__init__)
    except (OSError, TypeError):
        return []
    found = [re.findall(r"config\.(\w+)|config, [\"'](\w+)[\"']", line) for line in re.findall(rf"self\.{attribute}\s*=(.*)", lines)]
    return [a or b for line in found for a, b in line]


def _owners(config: Any, error: BaseException) -> list[Any]:
    """Configurations inside `config` that the failing frames work with, innermost first, then all."""
    seen: list[Any] = []
    kinds = [type(v) for place in places(error)[:4] for v in (*place.values.values(), getattr(place.values.get("self"), "config", None))
             if hasattr(v, "to_dict")]
    kinds += [type(part) for part in parts(config) if f"'{type(part).__name__}'" in str(cause(error))]
    for kind in kinds:
        seen += [part for part in parts(config) if type(part) is kind and not any(part is s for s in seen)]
    return seen or list(parts(config))


def _divisible(config: Any, error: BaseException, kept: frozenset[str]) -> str | None:
    """A number of heads that does not divide the width."""
    if "divisible by" not in str(cause(error)):
        return None
    for part in _owners(config, error):
        name = next((n for n in ("num_attention_heads", "num_heads") if n in vars(part)), None)
        if name is None or name in kept or _width(part) % _heads(part) == 0:
            continue
        old = _heads(part)
        setattr(part, name, math.gcd(_width(part), 2 ** 4) if old >= 16 or _width(part) % 16 == 0 else math.gcd(_width(part), old))
        return f"{name} {old}, now {getattr(part, name)}, which divides {_width(part)}"
    return None


def _sections(config: Any, error: BaseException) -> str | None:
    """Sections of a rotary table (time, height, width) whose sum is not the size that they divide."""
    found = re.search(r"split_sizes to sum exactly to (\d+).*split_sizes=\[([\d, ]+)\]", str(cause(error)))
    if found is None:
        return None
    total, sections = int(found[1]), [int(n) for n in found[2].split(",")]
    scaled = [n * total // sum(sections) for n in sections]
    scaled[0] += total - sum(scaled)
    for part in _owners(config, error):
        rope = getattr(part, "rope_parameters", None)
        if isinstance(rope, dict) and rope.get("mrope_section") != scaled:
            rope["mrope_section"] = scaled
            return f"mrope_section {sections}, now {scaled}, which fills {total}"
    return None


def _rope_kinds(config: Any, error: BaseException) -> str | None:
    """Rotary parameters that are wanted for each kind of layer and given once."""
    if not isinstance(cause(error), KeyError):
        return None
    for part in _owners(config, error):
        rope, kinds = getattr(part, "rope_parameters", None), getattr(part, "layer_types", None)
        if isinstance(rope, dict) and kinds and str(cause(error)).strip("'") in kinds and not set(kinds) & set(rope):
            one = {"rope_type": "default", "rope_theta": 10_000.0, **rope}
            part.rope_parameters = {kind: dict(one) for kind in dict.fromkeys(kinds)}
            return "rope_parameters, now one for each kind of layer"
    return None

"""Small configurations of the same class: few layers and small widths, with the ratios that a model checks kept."""

import copy
import re
from collections.abc import Iterator
from typing import Any

from skipway.targets._hf_context import parts

LAYERS = re.compile(r"(num_hidden_layers|n_layers?|num_layers|num_decoder_layers|num_encoder_layers|encoder_layers|decoder_layers|depth)")
WIDTHS = re.compile(r"(\w*hidden_size\w*|\w*intermediate_size\w*|d_model|d_ff|d_inner|d_kv|n_embd|n_inner|\w*dim|\w*ffn_dim|key_size|\w*lora_rank"
                    r"|lru_width|embedding_size|\w*_channels)")
INNER = re.compile(r"\w*intermediate_size\w*|d_ff|d_inner|n_inner|\w*ffn_dim")     # tied to nothing outside its own sublayer
FIXED = re.compile(r"(num_|in_|audio_)?channels|num_mel_bins|\w*input_dim|in_channels|max_\w+|codebook_dim")
HEADS = re.compile(r"(num_attention_heads|n_heads?|num_heads|encoder_attention_heads|decoder_attention_heads)")
EXPERTS = re.compile(r"(num_experts|num_local_experts|n_routed_experts|moe_num_experts|zero_expert_num)")
CHOSEN = re.compile(r"(num_experts_per_tok|moe_top_?k|num_experts_per_token|top_k_experts)")
GROUPS = re.compile(r"(n_group|topk_group|num_expert_group)")
TABLES = re.compile(r"\w*vocab\w*")
TOKENS = re.compile(r"\w+_token_id|\w+_token_index")
MOST_LAYERS, MOST_WORDS, MOST_EXPERTS, LEAST_HEAD, LEAST_WIDTH = 4, 1000, 8, 16, 64


def smaller(config: Any) -> Iterator[tuple[Any, list[str]]]:
    """Configurations to try, the smallest first, each with its changes in words. The last one is unchanged."""
    steps = (_layers, _words, _experts)
    for number, narrow in ((3, True), (3, False), (2, False), (1, False), (0, False)):
        small = copy.deepcopy(config)
        changes: list[str] = []
        for part in parts(small):
            for step in steps[:number]:
                step(part, changes)
        if narrow:
            _widths(list(parts(small)), changes)
        yield small, list(dict.fromkeys(changes))


def _fields(config: Any, names: "re.Pattern[str]") -> dict[str, int]:
    """The whole-number fields with such names that the configuration stores itself (a mapped name is an alias of one of these)."""
    return {n: v for n, v in vars(config).items() if names.fullmatch(n) and isinstance(v, int) and not isinstance(v, bool) and v > 0}


def _layers(config: Any, changes: list[str]) -> None:
    for name, count in _fields(config, LAYERS).items():
        if count <= MOST_LAYERS:
            continue
        keep = _keep(config, count)
        for key, value in list(vars(config).items()):
            if isinstance(value, (list, tuple)) and len(value) == count:
                setattr(config, key, value[:keep])
        setattr(config, name, keep)
        changes.append(f"{name} {count} to {keep}")


def _keep(config: Any, count: int) -> int:
    """MOST_LAYERS, or as many as it takes to see every kind of layer once."""
    kinds = getattr(config, "layer_types", None)
    if not isinstance(kinds, (list, tuple)) or len(kinds) != count:
        return MOST_LAYERS
    return max(MOST_LAYERS, 1 + max(list(kinds).index(kind) for kind in set(kinds)))


def _widths(configs: list[Any], changes: list[str]) -> None:
    """Divides all widths by one power of two, as long as each stays whole and neither heads nor layers become too narrow."""
    factor = min((_most(part) for part in configs if _main(part)), default=1)
    if factor == 1:
        return
    for part in configs:
        for name, width in _fields(part, WIDTHS).items():
            if not FIXED.fullmatch(name) and width % factor == 0:
                setattr(part, name, width // factor)
    changes.append(f"widths divided by {factor}")


def _main(config: Any) -> int:
    widths = _fields(config, WIDTHS)
    return next((widths[n] for n in ("hidden_size", "d_model", "n_embd", "dim", "embed_dim") if n in widths), 0)


def _most(config: Any) -> int:
    """The greatest power of two by which all widths of one configuration can be divided."""
    main = _main(config)
    widths = {n: w for n, w in _fields(config, WIDTHS).items() if not FIXED.fullmatch(n) and not INNER.fullmatch(n)}
    heads = max(_fields(config, HEADS).values(), default=1)
    sizes = [w for n, w in widths.items() if n.endswith("head_dim")] or [main // heads]
    factor = 1
    while min(sizes) // (2 * factor) >= LEAST_HEAD and main // (2 * factor) >= LEAST_WIDTH and all(w % (4 * factor) == 0 for w in widths.values()):
        factor *= 2
    return factor


def _experts(config: Any, changes: list[str]) -> None:
    for name, count in _fields(config, EXPERTS).items():
        if count <= MOST_EXPERTS:
            continue
        setattr(config, name, MOST_EXPERTS)
        for chosen, number in _fields(config, CHOSEN).items():
            setattr(config, chosen, min(number, 2))
        for group in _fields(config, GROUPS):
            setattr(config, group, 1)
        changes.append(f"{name} {count} to {MOST_EXPERTS}")


def _words(config: Any, changes: list[str]) -> None:
    """Vocabularies and tables that are hashed into: their size is the number of rows."""
    for name, count in _fields(config, TABLES).items():
        if count <= MOST_WORDS:
            continue
        setattr(config, name, MOST_WORDS)
        changes.append(f"{name} {count} to {MOST_WORDS}")
    for name, value in _fields(config, TOKENS).items():
        if value >= MOST_WORDS:
            setattr(config, name, MOST_WORDS - 1)

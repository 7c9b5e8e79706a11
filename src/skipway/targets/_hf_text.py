"""Inputs of words: identities, masks, types, boxes, and states that stand in for embedded words."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from skipway.targets._hf_context import BATCH, TARGET_TOKENS, TOKENS, Context, parts
from skipway.targets._hf_images import grid_named, patches

Maker = Callable[[str, Context], Sequence[Any]]


def ids(name: str, c: Context) -> list[torch.Tensor]:
    """Words of the vocabulary that are no placeholders: (batch, token), or one row a codebook."""
    config = _part(name.removesuffix("input_ids").strip("_"), c)
    inner = c if config is None else Context(c.model, config)
    names = ("decoder_vocab_size", "vocab_size") if name.startswith("decoder") else ("vocab_size", "src_vocab_size")
    size = inner.number(1000, *names)
    length, most = TARGET_TOKENS if name.startswith("decoder") else TOKENS, inner.number(TOKENS, "max_position_embeddings", "n_positions")
    length = min(length, most) if most > 0 else length
    special = {v for part in parts(inner.config) for n, v in vars(part).items() if n.endswith(("_token_id", "_token_index")) and isinstance(v, int)}
    plain = [i for i in range(min(size, 1000)) if i not in special] or [0]

    def words(*shape: int) -> torch.Tensor:
        return torch.tensor(plain)[inner.whole(len(plain), *shape)]

    if name == "input_ids" and c.placeholders:
        return [_placed(words(BATCH, length), c)]
    books = c.first("num_codebooks", "n_codebooks", "num_quantizers", *(("num_channels",) if name.startswith("decoder") else ()))
    made = [words(BATCH, length)]
    for count in (books, books + 1) if isinstance(books, int) else ():
        made += [words(BATCH, length, count), words(BATCH, count, length)]
    return [*made, words(BATCH, 1, length)]


def _placed(words: torch.Tensor, c: Context) -> torch.Tensor:
    """The words with a run of placeholders for each kind of feature in front."""
    for kind, count in c.placeholders.items():
        token = c.first(f"{kind}_token_id", f"{kind}_token_index")
        words = torch.cat((torch.full((BATCH, count), int(token) if isinstance(token, int) else 0), words), dim=1)
    return words


def _part(prefix: str, c: Context) -> Any:
    """The configuration that a prefix of an argument's name speaks of."""
    for name in (f"{prefix}_config", prefix) if prefix else ("text_config",):
        found = getattr(c.config, name, None)
        if hasattr(found, "to_dict"):
            return found
    return None


def mask(name: str, c: Context) -> list[torch.Tensor]:
    """Ones: everything is there. Of the shape of what is masked."""
    base = name
    for ending in ("_attention_mask", "_padding_mask", "_mask"):
        base = base.removesuffix(ending)
    like = [v for n, v in c.values.items() if isinstance(v, torch.Tensor) and (n.startswith(base) or base.startswith(n.split("_")[0]))]
    like += [v for v in c.values.values() if isinstance(v, torch.Tensor) and not any(v is w for w in like)]
    made: list[torch.Tensor] = []
    for value in like:
        whole = tuple(value.shape)
        for shape in (whole[:2] if not value.is_floating_point() or len(whole) < 3 else whole[:-1], whole[:2], (whole[0], whole[-1]), whole):
            made += [torch.ones(shape, dtype=torch.long), torch.ones(shape, dtype=torch.bool)]
    return [*made, torch.ones(BATCH, TOKENS, dtype=torch.long)]


def types(name: str, c: Context) -> list[torch.Tensor]:
    """Zeros like the words: one segment, one language, one kind of token."""
    words = next((v for n, v in c.values.items() if n.endswith("input_ids")), None)
    length = TOKENS if words is None else words.shape[1]
    return [torch.zeros(BATCH, length, dtype=torch.long), torch.zeros(BATCH, dtype=torch.long)]


def boxes(name: str, c: Context) -> list[torch.Tensor]:
    """One box a word, (x0, y0, x1, y1) with x0 <= x1 and y0 <= y1: whole numbers up to 1000, or shares of the page."""
    words = next((v for n, v in c.values.items() if n.endswith("input_ids")), None)
    length = TOKENS if words is None else words.shape[1]
    corner = c.whole(400, BATCH, length, 2)
    whole = torch.cat((corner, corner + 100), dim=-1)
    return [whole, whole / 1000, torch.cat((whole, whole), dim=-1) / 1000]


def states(name: str, c: Context) -> list[torch.Tensor]:
    """Embedded words (batch, token, width); the widths are those of the configuration and of its parts, channels last and first."""
    if name == "hidden_states" and grid_named(c):
        return patches(name, c)
    count = c.number(TOKENS, "num_query_tokens", "query_length") if "query" in name else TOKENS
    widths = [c.width()]
    for part in parts(c.config):
        widths += [v for n in ("hidden_size", "d_model", "n_embd", "embed_dim", "latent_dim", "codebook_dim", "decoder_hidden_size")
                   if isinstance(v := getattr(part, n, None), int)]
    widths = list(dict.fromkeys(widths + c.sizes[::-1]))
    return [t for w in widths for t in (c.normal(BATCH, count, w), c.normal(BATCH, w, count))]


def anything(name: str, c: Context) -> list[torch.Tensor]:
    """Words, or states, for an argument that takes whatever the model is for."""
    return [*ids("input_ids", c)[:1], *states(name, c)]


MAKERS: dict[str, Maker] = {
    r"input_ids|\w+_input_ids|task_inputs": ids,
    r"inputs?": anything,
    r"bbox|\w+_bbox": boxes,
    r"token_type_ids|\w+_token_type_ids|langs|lang_ids|speaker_ids?|task_type_ids": types,
    r"(?!image|pixel|bool)\w*mask": mask,
    r"hidden_states|encoder_hidden_states|\w+_hidden_states|\w*embeds|latents|noise": states,
}

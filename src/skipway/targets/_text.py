"""A text file as rows of tokens, by the tokenizer that lies beside the model."""

import inspect
import pathlib
from typing import Any

import torch

from skipway._errors import TargetError
from skipway.targets._data import Data, Wanted
from skipway.targets._given import Given
from skipway.targets._target import Target

MASKS = ("[MASK]", "<mask>", "<|mask|>", "<mask_1>", "[mask]")
CHARACTERS = 64                 # read for each token wanted; a text that needs more is read as a whole


def text_data(file: pathlib.Path, target: Target, wanted: Wanted) -> Data:
    """Consecutive stretches of the text, from its start, as rows of `wanted.tokens` tokens with the special ones that belong around a text.

    An encoder-decoder gets the first half of each row on its encoder and the second on its decoder. A text that is too short gives fewer rows.
    Raises TargetError: there is no tokenizer, the file is no text, or the model takes fewer positions.
    """
    tokenizer = _tokenizer(target, wanted, file)
    where = f"--data {file}"
    most = getattr(getattr(target.model, "config", None), "max_position_embeddings", None)
    if isinstance(most, int) and 0 < most < wanted.tokens:
        raise TargetError(f"{where}: --tokens {wanted.tokens}: {type(target.model).__name__} takes at most {most} positions; ask for no more")
    before, after = _around(tokenizer)
    room = wanted.tokens - len(before) - len(after)
    if room < 1:
        raise TargetError(f"{where}: --tokens {wanted.tokens}: the tokenizer adds {len(before) + len(after)} special ones to each row; ask for more")
    ids = _ids(tokenizer, file, room * wanted.batch, where)
    rows = [ids[i:i + room] for i in range(0, room * wanted.batch, room)]
    whole = [row for row in rows if len(row) == room] or rows[:1]
    if len(whole[0]) < 2:
        raise TargetError(f"{where}: the text has {len(ids)} tokens, want at least 2; give a longer text")
    table = torch.tensor([before + row + after for row in whole])
    short = ", all that the text has" if len(whole) < wanted.batch or len(whole[0]) < room else ""
    said = f"text {file.name}, {table.shape[0]} x {table.shape[1]} tokens{short}"
    mask = next((i for i in (tokenizer.token_to_id(m) for m in MASKS) if i is not None), None)
    special = frozenset(i for i, token in tokenizer.get_added_tokens_decoder().items() if token.special)
    return Data(_given(table, target), said, None, mask, special)


def _given(table: torch.Tensor, target: Target) -> Given:
    parameters = inspect.signature(target.model.forward).parameters
    if "decoder_input_ids" in parameters and "decoder_input_ids" in target.kwargs:
        half = table.shape[1] // 2
        return Given((), {"input_ids": table[:, :half].contiguous(), "decoder_input_ids": table[:, half:].contiguous()})
    if "input_ids" in parameters:
        return Given((), {"input_ids": table})
    return Given((table,))


def _around(tokenizer: Any) -> tuple[list[int], list[int]]:
    """The special tokens before and after a text."""
    bare = list(tokenizer.encode("a", add_special_tokens=False).ids)
    full = list(tokenizer.encode("a", add_special_tokens=True).ids)
    at = next((i for i in range(len(full)) if full[i:i + len(bare)] == bare), 0)
    return full[:at], full[at + len(bare):]


def _ids(tokenizer: Any, file: pathlib.Path, count: int, where: str) -> list[int]:
    try:
        with file.open(encoding="utf-8") as opened:
            text = opened.read(CHARACTERS * count)
            ids = list(tokenizer.encode(text, add_special_tokens=False).ids)
            rest = opened.read() if len(ids) < count else ""
    except UnicodeDecodeError as error:
        raise TargetError(f"{where}: not a text in UTF-8 ({error.reason} at byte {error.start}); give a text, .safetensors or .npz file") from error
    except OSError as error:
        raise TargetError(f"{where}: {error.strerror}; give a file that can be read") from error
    return list(tokenizer.encode(text + rest, add_special_tokens=False).ids) if rest else ids


def _tokenizer(target: Target, wanted: Wanted, file: pathlib.Path) -> Any:
    """A tokenizer of the tokenizers package that neither cuts nor pads."""
    try:
        import tokenizers
    except ImportError as error:
        raise TargetError(f"--data {file}: reading a text needs the tokenizers package; pip install 'skipway[hf]'") from error
    folder = pathlib.Path(wanted.tokenizer or target.folder or "")
    own = folder if folder.is_file() else folder / "tokenizer.json"
    try:
        if (wanted.tokenizer or target.folder) and own.is_file():
            found = tokenizers.Tokenizer.from_file(str(own))
        elif not wanted.tokenizer and target.weights.endswith(".gguf"):
            from transformers import AutoTokenizer
            found = AutoTokenizer.from_pretrained(target.folder, gguf_file=target.weights, local_files_only=True).backend_tokenizer
        else:
            where = f"{own} is not there" if wanted.tokenizer or target.folder else f"{target.name} comes without one"
            raise TargetError(f"--data {file}: a text needs a tokenizer, and {where}; give --tokenizer FOLDER with a tokenizer.json, or the token "
                              "ids by name in a .npz or .safetensors file")
    except TargetError:
        raise
    except Exception as error:
        raise TargetError(f"--data {file}: the tokenizer of {own} cannot be read: {' '.join(str(error).split())[:200]}; give another with "
                          "--tokenizer") from error
    found.no_truncation()
    found.no_padding()
    return found

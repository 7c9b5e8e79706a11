"""text: the next byte of a text.

Without a data file the text is the source code of Python's own standard library: real, and always at hand. Its files are dealt out by a hash of
their names, one in ten to the held-out part, so no held-out file was ever trained on. A file of one's own is cut: its last tenth is held out.
Inputs (batch, length) of int64 bytes; the loss is in nats a byte.
"""

import hashlib
import pathlib
import sysconfig
from typing import Any, ClassVar

import torch
from torch import nn

from skipway._errors import StudyError
from skipway.lab.tasks._base import HELD_OUT, TRAIN, Batch, Task
from skipway.lab.tasks._tokens import TokenEmbedding, at_least

MOST = 8_000_000            # bytes of the standard library that are read: every file in order of its name's hash until then
PART = 10                   # one file, or one byte, in so many is held out


class Text(Task):
    """Options: bytes a row."""

    defaults: ClassVar[dict[str, Any]] = {
        "steps": 500, "width": 128, "heads": 4, "depth": 4, "batch": 16, "lr": [3e-4, 1e-3, 3e-3], "warmup": 50, "held_out": 8}
    reads_data = True

    def build(self, length: int = 64) -> None:
        at_least("text", 2, length=length)
        parts = _library() if self.data is None else _file(self.data)
        self.parts = {split: torch.frombuffer(bytearray(part), dtype=torch.uint8) for split, part in parts.items()}
        self.vocabulary, self.classes, self.length = 256, 256, length
        short = min(len(p) for p in parts.values())
        if short <= length + 1:
            raise StudyError(f"task text: {self.data or 'the standard library'} is too short: its smaller part has {short} bytes, and a row takes "
                             f"{length + 1}; give a longer file, or a smaller length")

    def draw(self, split: str, generator: torch.Generator, size: int) -> Batch:
        text = self.parts[split]
        starts = torch.randint(len(text) - self.length, (size, 1), generator=generator)
        rows = text[starts + torch.arange(self.length + 1)].long()
        return Batch(rows[:, :-1].contiguous(), rows[:, 1:].contiguous())

    def embed(self, width: int) -> nn.Module:
        return TokenEmbedding(256, self.length, width)


def _file(name: str) -> dict[str, bytes]:
    try:
        text = pathlib.Path(name).read_bytes()
    except OSError as error:
        raise StudyError(f"--data {name}: {error.strerror}; give a file that can be read") from error
    cut = len(text) - len(text) // PART
    return {TRAIN: text[:cut], HELD_OUT: text[cut:]}


def _library() -> dict[str, bytes]:
    root = pathlib.Path(sysconfig.get_paths()["stdlib"])
    files = {hashlib.sha256(f.relative_to(root).as_posix().encode()).hexdigest(): f for f in root.rglob("*.py")
             if not {"site-packages", "dist-packages", "__pycache__", "test", "tests", "idlelib"} & set(f.relative_to(root).parts)}
    if not files:
        raise StudyError(f"task text: Python's standard library has no source files in {root}; give a text with --data FILE")
    parts, size = {TRAIN: bytearray(), HELD_OUT: bytearray()}, 0
    for key in sorted(files):
        if size >= MOST:
            break
        text = files[key].read_bytes()
        parts[HELD_OUT if int(key, 16) % PART == 0 else TRAIN] += text
        size += len(text)
    return {split: bytes(part) for split, part in parts.items()}

"""A worker on some machine: what an engine whose workers are elsewhere talks to. Its calls and answers are plain values; it knows no engine.

Where the study's folder is not at hand, the checkpoint lies in a folder of its own: it comes in with the job, and new ones go out with the events.
"""

import dataclasses
import json
import os
import pathlib
import platform
import queue
import tempfile
from typing import Any

from skipway.lab._machine import installed
from skipway.lab.engines._base import LAST
from skipway.lab.engines._process import Process

POLL = 1.0              # seconds that a call of `heard` waits for the first event


@dataclasses.dataclass
class News:
    """What was said since the last call."""

    events: list[dict[str, Any]]
    log: bytes = b""
    checkpoint: bytes | None = None         # a new one, where the study's folder is not at hand
    ended: str = ""                         # why the worker process is gone


class Station:
    """Holds one worker process. `heard` may wait while other calls go on beside it."""

    def __init__(self, threads: int, folder: str, apart: bool, keep: str | None = None) -> None:
        """folder: that relative paths start from. apart: whether the study's folder is elsewhere. keep: folder for files of its own."""
        self.threads, self.folder, self.apart = threads, folder if pathlib.Path(folder).is_dir() else None, apart
        self.own = tempfile.TemporaryDirectory(prefix="skipway-", dir=keep)
        self.log = open(pathlib.Path(self.own.name) / "log", "a+b")              # noqa: SIM115  (open as long as the station is)
        self.read = 0
        self.said: queue.Queue[tuple[Process, dict[str, Any] | None]] = queue.Queue()
        self.process: Process | None = None
        self.path: pathlib.Path | None = None           # of a checkpoint that lies here alone
        self.seen = 0

    def about(self) -> dict[str, Any]:
        """Versions, the machine's name, and the ids of this process and of the worker."""
        worker = self.process.process.pid if self.process is not None else None
        return {**installed(), "machine": platform.node(), "process": os.getpid(), "worker": worker}

    def give(self, job: dict[str, Any], checkpoint: bytes | None = None) -> None:
        """Begins a job; `checkpoint` is what its file holds so far."""
        if self.process is None:
            self.process = Process(self.threads, self.log, self.said, self.folder)
        self.path = None
        if self.apart:
            self.path = pathlib.Path(self.own.name) / pathlib.PurePath(job["checkpoint"]).name
            self.path.unlink(missing_ok=True)
            if checkpoint is not None:
                self.path.write_bytes(checkpoint)
                self.seen = self.path.stat().st_mtime_ns
            job = {**job, "checkpoint": str(self.path)}
        self.process.write(json.dumps(job))

    def stop(self) -> None:
        """Stops the running job at its next step."""
        if self.process is not None:
            self.process.write("stop")

    def heard(self) -> News:
        """Events since the last call; waits up to a second for one."""
        news = News([])
        try:
            self._take(news, self.said.get(timeout=POLL))
            while True:
                self._take(news, self.said.get_nowait())
        except queue.Empty:
            pass
        news.log = os.pread(self.log.fileno(), 1 << 20, self.read)
        self.read += len(news.log)
        if self.path is not None:
            news.checkpoint = self._new(self.path)
            if news.ended or any(e["kind"] in LAST for e in news.events):
                self.path.unlink(missing_ok=True)
                self.path = None
        return news

    def close(self) -> None:
        """Ends the process, in the middle of a step if need be, and leaves nothing behind."""
        if self.process is not None:
            self.process.end()
        self.log.close()
        self.own.cleanup()

    def _take(self, news: News, said: tuple[Process, dict[str, Any] | None]) -> None:
        process, event = said
        if event is not None:
            news.events.append(event)
        elif process is self.process:
            news.ended, self.process = process.ended(), None

    def _new(self, path: pathlib.Path) -> bytes | None:
        """The checkpoint, where it is another than before."""
        try:
            at = path.stat().st_mtime_ns
            if at == self.seen:
                return None
            self.seen = at
            return path.read_bytes()
        except FileNotFoundError:
            return None

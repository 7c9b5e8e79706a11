"""Worker processes for bench/atlas.py: each serves many targets, and is started anew after a crash, a timeout or when it has grown."""

import json
import os
import pathlib
import queue
import select
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

WORKER = pathlib.Path(__file__).with_name("_atlas_worker.py")
GROWN = 0.5                                     # share of the memory limit at which a worker is started anew between two targets
START_SECONDS = 120.0


class Worker:
    """One child process."""

    def __init__(self, memory: float, log: pathlib.Path) -> None:
        self.memory = memory
        self.log = log
        self.child: subprocess.Popen[str] | None = None
        self.results = -1

    def ask(self, target: str, limit: float) -> dict[str, Any]:
        """The row of one target; a row with a reason where the child dies or does not answer in time."""
        if self.child is None and (row := self._start()) is not None:
            return {"target": target, **row}
        assert self.child is not None and self.child.stdin is not None
        self.child.stdin.write(target + "\n")
        self.child.stdin.flush()
        row = self._answer(limit)
        if "crash" in row or "timeout" in row or self._resident() > GROWN * self.memory * 2 ** 30:
            self.stop()
        return {"target": target, **row}

    def _start(self) -> dict[str, Any] | None:
        self.results, write = os.pipe()
        with self.log.open("a") as log:
            self.child = subprocess.Popen([sys.executable, str(WORKER), str(write), str(self.memory)], stdin=subprocess.PIPE, stdout=log, stderr=log,
                                          pass_fds=(write,), text=True)
        os.close(write)
        self.buffer = b""
        row = self._answer(START_SECONDS)
        if "ready" in row:
            return None
        self.stop()
        return row

    def _answer(self, limit: float) -> dict[str, Any]:
        import time
        end = time.monotonic() + limit
        while b"\n" not in self.buffer:
            ready, _, _ = select.select([self.results], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                return {"timeout": limit, "reason": f"no answer after {limit:g} s", "seconds": limit}
            chunk = os.read(self.results, 1 << 20)
            if not chunk:
                assert self.child is not None
                return {"crash": f"the process ended with status {self.child.wait()}", "seconds": 0.0}
            self.buffer += chunk
        line, _, self.buffer = self.buffer.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found

    def _resident(self) -> int:
        """Bytes of memory that the child holds; 0 where the system does not tell."""
        assert self.child is not None
        try:
            pages = pathlib.Path(f"/proc/{self.child.pid}/statm").read_text().split()[1]
        except OSError:
            return 0
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def stop(self) -> None:
        """Ends the child; the next target starts another."""
        if self.child is not None:
            self.child.kill()
            self.child.wait()
            os.close(self.results)
        self.child = None


def serve(targets: Iterable[str], workers: int, limit: float, memory: float, log: pathlib.Path, take: Callable[[dict[str, Any]], None]) -> None:
    """Runs all targets; `take` is called with each row, one at a time, as they come."""
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    for target in targets:
        waiting.put(target)
    lock = threading.Lock()

    def work() -> None:
        worker = Worker(memory, log)
        try:
            while True:
                try:
                    target = waiting.get_nowait()
                except queue.Empty:
                    return
                row = worker.ask(target, limit)
                with lock:
                    take(row)
        finally:
            worker.stop()

    threads = [threading.Thread(target=work) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

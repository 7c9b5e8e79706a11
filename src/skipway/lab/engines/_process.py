"""A worker process as its holder has it: orders go in as lines, events come out by way of a queue. What runs in it is `skipway.lab._worker`."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from typing import IO, Any

PATIENCE = 60.0         # seconds that a worker gets to end its step
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class Process:
    """Puts (itself, event) into `said` for each event, and (itself, None) once it has ended. What a trial prints goes to the file `log`."""

    def __init__(self, threads: int, log: IO[bytes], said: "queue.Queue[tuple[Process, dict[str, Any] | None]]", folder: str | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "skipway.lab._worker", str(threads)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
            encoding="utf-8", env={**os.environ, **dict.fromkeys(THREADS, str(threads))}, start_new_session=True, cwd=folder)
        threading.Thread(target=self._read, args=(said,), daemon=True).start()

    def _read(self, said: "queue.Queue[tuple[Process, dict[str, Any] | None]]") -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            try:
                event = json.loads(line)
            except ValueError:
                break                       # it was killed in the middle of a line
            said.put((self, event))
        said.put((self, None))

    def write(self, line: str) -> None:
        """An order: a job, or "stop"."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return                          # it has ended, which its reader tells

    def ended(self) -> str:
        """Why the process is gone, in words."""
        code = self.process.wait()
        if code >= 0:
            return f"its worker ended with status {code}; see the log of the workers"
        name = signal.Signals(-code).name
        return f"its worker was ended by {name}" + (", as the system does when memory runs out" if name == "SIGKILL" else "")

    def end(self) -> None:
        """Closes its orders, which ends it; after a minute, kills it."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.close()
            self.process.wait(PATIENCE)
        except (subprocess.TimeoutExpired, BrokenPipeError):
            self.process.kill()
            self.process.wait()

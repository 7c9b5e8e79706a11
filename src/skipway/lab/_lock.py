"""One process holds a study's folder: a file that the system unlocks when its holder ends, however it ends."""

import json
import os
import pathlib
import platform
import sys
import time
from types import TracebackType

from skipway._errors import StoreError

FILE = "study.lock"


class Lock:
    """A context: inside it, no other process writes to the folder. Raises StoreError, with the holder's id, where one does."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder, self.path = folder, folder / FILE

    def __enter__(self) -> "Lock":
        try:
            self.file = open(self.path, "a+", encoding="utf-8")
        except OSError as error:
            raise StoreError(f"{self.folder}: {error.strerror}; choose a folder that may be written to") from error
        if not _taken(self.file.fileno()):
            self.file.seek(0)
            said = self.file.read()
            self.file.close()
            raise StoreError(f"{self.folder}: {_holder(said)} is working on this study; wait for it, or stop it")
        self.file.truncate(0)
        self.file.write(json.dumps({"process": os.getpid(), "machine": platform.node(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}))
        self.file.flush()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.file.truncate(0)
        self.file.close()


def _holder(said: str) -> str:
    try:
        found = json.loads(said)
    except ValueError:
        return "another process"
    return f"process {found['process']} on {found['machine']} (since {found['since']})"


def _taken(descriptor: int) -> bool:
    """Tries to take the lock."""
    try:
        if sys.platform == "win32":
            import msvcrt
            os.lseek(descriptor, 1 << 20, os.SEEK_SET)      # beyond the text, which others may read
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True

"""A line or a bar on stderr while something takes more than two seconds; nothing where stderr is no terminal."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

DELAY = 2.0


@contextlib.contextmanager
def progress(text: str) -> Iterator[Callable[[str], None]]:
    """Gives a function that changes the text."""
    from rich.console import Console
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _: None
        return
    status = console.status(text)
    timer = threading.Timer(DELAY, status.start)
    timer.daemon = True
    timer.start()
    try:
        yield status.update
    finally:
        timer.cancel()
        status.stop()


@contextlib.contextmanager
def bar(text: str) -> Iterator[Callable[[int, int], None]]:
    """Gives a function that is told how many steps of how many are done."""
    from rich.console import Console
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda done, total: None
        return
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    drawn = Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), console=console, transient=True)
    task = drawn.add_task(escape(text), total=None)
    start = time.monotonic()

    def tell(done: int, total: int) -> None:
        if not drawn.live.is_started and time.monotonic() - start > DELAY:
            drawn.start()
        drawn.update(task, completed=done, total=total)

    try:
        yield tell
    finally:
        drawn.stop()

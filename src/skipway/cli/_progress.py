"""A line on stderr while something takes more than two seconds; nothing where stderr is no terminal."""

import contextlib
import threading
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

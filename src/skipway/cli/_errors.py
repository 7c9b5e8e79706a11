"""What a command does with an error: one line on stderr and exit status 2."""

import contextlib
import sys
import traceback
from collections.abc import Iterator

import typer

from skipway._errors import SkipwayError
from skipway.report._escape import plain

FAILED = 2
LONGEST = 4000           # characters of an error's line; a name inside it may be of any length


@contextlib.contextmanager
def one_line(debug: bool) -> Iterator[None]:
    """Turns an error into one line on stderr and exit status 2; with `debug`, its traceback and its cause's come first."""
    try:
        yield
    except (typer.Exit, typer.Abort):
        raise
    except SkipwayError as error:
        _fail(error, str(error), debug)
    except KeyboardInterrupt:
        typer.echo("skipway: stopped", err=True)
        raise typer.Exit(130) from None
    except BrokenPipeError:
        sys.stderr.close()
        raise typer.Exit(0) from None
    except Exception as error:
        _fail(error, f"skipway itself failed: {type(error).__name__}: {error}; run it again with --debug and report what it prints", debug)


def tell(error: BaseException, text: str, debug: bool) -> None:
    """One line on stderr; with `debug`, the traceback before it."""
    if debug:
        traceback.print_exception(error, file=sys.stderr)
    typer.echo(f"skipway: error: {plain(' '.join(text.split()), LONGEST)}", err=True)


def _fail(error: BaseException, text: str, debug: bool) -> None:
    tell(error, text, debug)
    raise typer.Exit(FAILED) from error

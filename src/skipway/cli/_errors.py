"""What a command does with an error: one line on stderr and exit status 2."""

import contextlib
import sys
import traceback
from collections.abc import Iterator

import typer

from skipway._errors import SkipwayError

FAILED = 2


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


def _fail(error: BaseException, text: str, debug: bool) -> None:
    if debug:
        traceback.print_exception(error, file=sys.stderr)
    typer.echo(f"skipway: error: {' '.join(text.split())}", err=True)
    raise typer.Exit(FAILED) from error

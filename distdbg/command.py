"""How a command of distdbg ends: errors become text on stderr and an exit code."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress

from distdbg.errors import DistError, InternalError, format_error

#: 128 + the number of SIGINT, as a shell says it.
_INTERRUPTED = 130


def run_command(command: Callable[[], int]) -> int:
    """Return what `command` returns, or the exit code of the error that it raises."""
    try:
        return _run(command)
    finally:
        _let_go()


def _run(command: Callable[[], int]) -> int:
    try:
        try:
            return command()
        except SystemExit as left:  # argparse leaves so after --help
            return _code_of(left)
    except DistError as error:
        say(format_error(error))
        return error.exit_code
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        return 0  # the reader of a pipe has seen enough
    except Exception:  # noqa: BLE001 - the last one who can say anything
        say(f"{traceback.format_exc()}this is a bug of distdbg; the lines above say where")
        return InternalError.exit_code


def _let_go() -> None:
    """Write what is left; where nobody takes it, Python must not complain at its end either."""
    for stream in (sys.stdout, sys.stderr):
        if stream is None:  # it was closed before Python began
            continue
        try:
            stream.flush()
        except (OSError, ValueError):
            with suppress(OSError, ValueError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, stream.fileno())
                os.close(nowhere)


def say(text: str) -> None:
    """Write to stderr; nobody may be listening there any more."""
    with suppress(OSError, ValueError, AttributeError):  # closed, or None when there never was one
        sys.stderr.write(text + "\n")
        sys.stderr.flush()


def _code_of(left: SystemExit) -> int:
    if left.code is None or isinstance(left.code, int):
        return left.code or 0
    say(str(left.code))
    return 1

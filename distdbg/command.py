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
        try:
            code = command()
        except SystemExit as left:  # argparse leaves so after --help
            code = _code_of(left)
        if sys.stdout is not None:  # None: it was closed before Python began
            sys.stdout.flush()
    except DistError as error:
        say(format_error(error))
        return error.exit_code
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        # The reader of a pipe has seen enough; Python must not complain at its end either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception:  # noqa: BLE001 - the last one who can say anything
        say(f"{traceback.format_exc()}this is a bug of distdbg; the lines above say where")
        return InternalError.exit_code
    return code


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

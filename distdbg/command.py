"""How a command of distdbg ends: errors become text on stderr and an exit code."""

from __future__ import annotations

import errno
import gc
import io
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import current_thread, main_thread
from typing import Final

from distdbg.errors import DistError, InternalError, UsageError, format_error

#: 128 + the number of SIGINT, as a shell says it.
_INTERRUPTED = 130
#: What a stream says that has no room left.
_FULL: Final = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))


def run_command(command: Callable[[], int]) -> int:
    """Return what `command` returns, or the exit code of the error that it raises."""
    _take_any_letter()
    try:
        return _run(command)
    finally:
        _let_go()


def _run(command: Callable[[], int]) -> int:
    try:
        try:
            code = command()
        except SystemExit as left:  # argparse leaves so after --help
            code = _code_of(left)
        if sys.stdout is not None:
            with suppress(BrokenPipeError, ValueError):
                sys.stdout.flush()  # a full disk may be noticed here only
        return code
    except DistError as error:
        print_error(format_error(error))
        return error.exit_code
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        return 0  # the reader of a pipe has seen enough
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            print_error(
                format_error(UsageError(f"{str(error.filename)[:40]}...: {error.strerror}"))
            )
            return UsageError.exit_code
        if error.errno not in _FULL or error.filename is not None:
            return _bug()
        print_error(format_error(UsageError(f"the output cannot be written: {error.strerror}")))
        return UsageError.exit_code
    except Exception:  # noqa: BLE001 - the last one who can say anything
        return _bug()


def _bug() -> int:
    print_error(f"{traceback.format_exc()}this is a bug of distdbg; the lines above say where")
    return InternalError.exit_code


def _take_any_letter() -> None:
    """Let what the terminal's encoding has no letter for be written as \\u2502; closed streams take all."""
    if sys.stdout is None:  # it was closed before Python began
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - until the end
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


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


@contextmanager
def ended_by_interrupts() -> Iterator[None]:
    """Ctrl-C ends the process at once in here, while modules are imported: there is nothing to clean up yet.

    An exception would come out of some library's own import, as an ImportError perhaps.
    """
    usual = signal.getsignal(signal.SIGINT)
    if usual is not signal.default_int_handler or current_thread() is not main_thread():
        yield  # whoever has another handler wants it
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)


def spare_last_collection() -> None:
    """For a process that ends now: Python would look through all objects for cycles, 20 ms of nothing."""
    gc.freeze()


def print_error(text: str) -> None:
    """Write to stderr; nobody may be listening there any more."""
    with suppress(OSError, ValueError, AttributeError):  # closed, or None when there never was one
        sys.stderr.write(text + "\n")
        sys.stderr.flush()


def _code_of(left: SystemExit) -> int:
    if left.code is None or isinstance(left.code, int):
        return left.code or 0
    print_error(str(left.code))
    return 1

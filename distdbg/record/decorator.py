"""`@dist.record`: writes what ended the decorated function into the error file of the process.

The same as torch.distributed.elastic.multiprocessing.errors.record; the files of both are read by the
launchers of both. A rank of distdbg writes the file at its end without it as well: this is for programs
that fail before they have a process group, or have none.
"""

from __future__ import annotations

import faulthandler
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, Protocol, TypeVar, overload

from distdbg.record.error_file import copy_error_file, error_file_path, write_error_file

_P = ParamSpec("_P")
_R = TypeVar("_R")


class ErrorHandler(Protocol):
    """What torch's ErrorHandler is, for those who bring one of their own."""

    def initialize(self) -> None:
        """Called before the function."""
        ...

    def record_exception(self, e: BaseException) -> None:
        """Write what the function raised."""
        ...

    def dump_error_file(self, rootcause_error_file: str, error_code: int = 0) -> None:
        """Pass on the file of a child."""
        ...


class _FileHandler:
    def initialize(self) -> None:
        # A crash in native code leaves its stack on stderr. Without a stderr there is no place.
        if not faulthandler.is_enabled():
            with suppress(OSError, ValueError, RuntimeError, AttributeError):
                faulthandler.enable(all_threads=True)

    def record_exception(self, e: BaseException) -> None:
        write_error_file(e)

    def dump_error_file(self, rootcause_error_file: str, error_code: int = 0) -> None:
        path = error_file_path()
        if path is not None:
            copy_error_file(path, Path(rootcause_error_file), error_code or None)


@overload
def record(
    fn: Callable[_P, _R], error_handler: ErrorHandler | None = None
) -> Callable[_P, _R | None]: ...
@overload
def record(
    fn: None = None, error_handler: ErrorHandler | None = None
) -> Callable[[Callable[_P, _R]], Callable[_P, _R | None]]: ...


def record(fn: Callable[..., Any] | None = None, error_handler: ErrorHandler | None = None) -> Any:
    """Decorate the function that is the program: an exception is written down, and raised as before.

    `@record`, `@record()` and `@record(error_handler=...)` all do. sys.exit(0) in the function becomes
    a return of None, as torch has it.
    """
    if fn is None:
        return lambda function: record(function, error_handler)
    handler: ErrorHandler = error_handler or _FileHandler()

    @wraps(fn)
    def recorded(*args: Any, **kwargs: Any) -> Any:
        handler.initialize()
        try:
            return fn(*args, **kwargs)
        except SystemExit as error:
            if error.code == 0:
                return None
            if isinstance(error.code, str):  # sys.exit("no data"): a reason, and exit code 1
                handler.record_exception(error)
            raise
        except Exception as error:
            _hold(error)
            child = _child_failure(error)
            if child is None:
                handler.record_exception(error)
            else:
                handler.dump_error_file(*child)
            raise

    return recorded


def _hold(error: Exception) -> None:
    """Let a rank stop in the debugger first, where that is asked for; without a runtime there is none."""
    stops: Any = sys.modules.get("distdbg.runtime.process.debugger_seam")
    if stops is not None:
        stops.hold_on_error(error)


def _child_failure(error: Exception) -> tuple[str, int] | None:
    """File and exit code of the child that failed first, if `error` is torch's word for that."""
    if type(error).__name__ != "ChildFailedError" or not hasattr(error, "get_first_failure"):
        return None
    failure = error.get_first_failure()[1]
    if not Path(failure.error_file).is_file():
        return None
    return str(failure.error_file), int(failure.exitcode)

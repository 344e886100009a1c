"""Prints an uncaught exception of a rank as one block, in one write.

`sys.excepthook` and `threading.excepthook`, only where Python's own are there: a hook that was set
before stays. DISTDBG_TRACEBACK=full shows the frames of this package and the tracebacks of all ranks.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import stat
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, suppress
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, TextIO

from distdbg.record.error_file import find_known
from distdbg.record.folders import attempt_number, user_folder
from distdbg.record.traceback_text import (
    as_block,
    format_trimmed,
    is_consequence,
    is_full,
    is_of_job,
    one_line,
)

#: A line of a victim, where a launcher prints the report: it names the store of its ranks so.
_LAUNCHER = "launcher://"
#: How long a stream that takes nothing is waited for.
_FULL_S = 5.0
#: Set by init_process_group of torch around the one that it finds.
_OF_TORCH = "_distributed_excepthook"
#: Hooks that one may have around it.
_MAX_HOOKS = 6


class _Run(NamedTuple):
    rank: int
    folder: Path | None


#: What this process is in its job, latest; ranks that are threads do not count.
_runs: list[_Run] = []


def print_in_blocks() -> None:
    """From now on uncaught exceptions of this process are printed so. Idempotent."""
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _print_uncaught
    if threading.excepthook is threading.__excepthook__:
        threading.excepthook = _print_in_thread


def know_run(rank: int, folder: Path | None) -> None:
    """This process is that rank, and its record is there: its last words say so."""
    if threading.current_thread() is threading.main_thread():
        _runs[:] = [_Run(rank, folder)]


def _rank() -> int | None:
    number = os.environ.get("RANK", "")
    if number.isdecimal():
        return int(number)
    return _runs[0].rank if _runs else None


def _next_command(error: BaseException) -> str:
    """Where nobody reports for all ranks: what tells more of an error that is about several of them."""
    folder = _runs[0].folder if _runs else None
    if folder is None or not is_of_job(error):
        return ""
    run = folder.parent if attempt_number(folder) is not None else folder
    return f"next: distdbg analyze {run.name if run.parent == user_folder() else run}\n"


def text_of(error: BaseException, thread: str = "") -> str:
    """The lines for stderr, each with its end."""
    is_whole = is_full()
    rank = _rank()
    has_report = _has_report()
    # Below a launcher a file is this rank's own log: it gets all of it, and needs no number.
    is_log = has_report and _is_file(sys.stderr)
    has_report = has_report and not is_log
    prefix = "" if rank is None or is_log else f"[rank {rank}] "
    if not is_whole and not thread and has_report:
        if isinstance(error, KeyboardInterrupt):
            return as_block(one_line(error), prefix)
        if is_consequence(error, rank):
            return as_block(one_line(error), prefix)
    head = f"Exception in thread {thread}:\n" if thread else ""
    text = head + format_trimmed(error, is_full=is_whole, has_report=has_report)
    return as_block(text if _has_report() else text + _next_command(error), prefix)


def _print_uncaught(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    if hasattr(sys, "ps1"):  # at a prompt nothing ends
        sys.__excepthook__(kind, error, trace)
        return
    _make_room_for_files()
    with _whole_words(), redirect_stderr(_beyond_torch() or sys.stderr):
        try:
            text = text_of(error.with_traceback(trace))
        except Exception:  # noqa: BLE001 - the traceback must not be lost for another one
            sys.__excepthook__(kind, error, trace)
            return
        _write(text)


@contextmanager
def _whole_words() -> Iterator[None]:
    """Ctrl-C reaches all ranks at once: one that is ending already is not interrupted in its last words.

    Below a launcher not until its end, which the launcher brings about by other signals.
    """
    before = None
    with suppress(KeyboardInterrupt, ValueError):  # not in the main thread
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    yield
    if before is not None and not _has_report():
        signal.signal(signal.SIGINT, before)


def _beyond_torch() -> TextIO | None:
    """Where torch's hook, which has called this one, would write with "[rank1]: " before each line; None."""
    frame = sys._getframe(1)
    for _ in range(_MAX_HOOKS):
        if frame.f_back is None:
            return None
        frame = frame.f_back
        if frame.f_code.co_name == _OF_TORCH:
            if frame.f_locals.get("buf") is not sys.stderr:
                return None  # a hook of the program between has sent it elsewhere
            found: TextIO | None = frame.f_locals.get("old_stderr")
            return found
    return None


def _print_in_thread(args: threading.ExceptHookArgs) -> None:
    error = args.exc_value
    if error is None or isinstance(error, SystemExit):
        threading.__excepthook__(args)
        return
    name = args.thread.name if args.thread is not None else "?"
    _record(error, name)
    try:
        text = text_of(error, name)
    except Exception:  # noqa: BLE001 - as above
        threading.__excepthook__(args)
        return
    _write(text)


def _record(error: BaseException, thread: str) -> None:
    """Whoever finds this rank waiting for that thread is to know; errors of ops are in the record already."""
    with suppress(Exception):
        from distdbg.record.writing import write_thread_error
        from distdbg.runtime.process.world import observed

        recorder = observed().recorder
        if recorder is not None and find_known(error) is None:
            write_thread_error(recorder, error, thread)


def _write(text: str) -> None:
    """All at once: what other ranks print comes before or after it."""
    stream, first = sys.stderr, sys.__stderr__
    if stream is None:
        return
    with suppress(OSError, ValueError):
        stream.flush()
        if first is None or stream is not first:  # a program's own
            stream.write(text)
            stream.flush()
            return
        left = memoryview(text.encode(first.encoding or "utf-8", "backslashreplace"))
        while left:
            try:
                left = left[os.write(first.fileno(), left) :]
            except BlockingIOError:  # somebody has made it so
                if not select.select([], [first.fileno()], [], _FULL_S)[1]:
                    return


def _has_report() -> bool:
    return os.environ.get("DISTDBG_STORE", "").startswith(_LAUNCHER)


def _is_file(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError, AttributeError):  # no descriptor: a program's own
        return False


_MORE: Final = 16
_STDIN: Final = 0


def _make_room_for_files() -> None:
    """Raise the limit of open files of a process that ends, or close what nobody will read any more.

    One that dies of too many open files cannot open one more for its error file, its record's end, or the
    sources of its traceback.
    """
    if _has_room():
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        more = soft + _MORE if hard == resource.RLIM_INFINITY else min(soft + _MORE, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (more, hard))
    if not _has_room():
        with suppress(OSError):
            os.close(_STDIN)


def _has_room() -> bool:
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError:
        return False
    return True

"""What Python writes into a record: its making, errors, and how the program ended.

Ops are written by native code as they run; nothing here is on their path.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from pathlib import Path
from traceback import walk_tb

from distdbg import __version__
from distdbg.errors import (
    CollectiveError,
    DebuggerQuit,
    DistError,
    DistNetworkError,
    DistStoreError,
    JobAborted,
    MismatchError,
    OpTimeout,
    PeerLost,
    UsageError,
)
from distdbg.native import Recorder
from distdbg.record.format import EventType, Exit, Status
from distdbg.record.handled_error import say_handled
from distdbg.record.host import host_name
from distdbg.record.known_marks import EXIT_CALL, THREAD_ERROR
from distdbg.record.libraries import is_library
from distdbg.record.printable import shorten_middle
from distdbg.record.printed_stack import own_frame, read_stack
from distdbg.record.raised_error import carried_by, cause_of, say_error
from distdbg.record.recursion import recursion_hint

#: How an op ended that raised; the first that fits.
_STATUS: tuple[tuple[type[BaseException], Status], ...] = (
    (JobAborted, Status.ABORTED),
    (DebuggerQuit, Status.ABORTED),
    (OpTimeout, Status.TIMEOUT),
    (PeerLost, Status.PEER_LOST),
    (MismatchError, Status.MISMATCH),
    (UsageError, Status.USAGE),
    (DistNetworkError, Status.NETWORK),
    (DistStoreError, Status.STORE),
    (CollectiveError, Status.BROKEN),
    (KeyboardInterrupt, Status.INTERRUPTED),
)

#: The package itself.
_OWN = str(Path(__file__).resolve().parent.parent) + os.sep

#: How long an argument of the command line may be in the record.
_MAX_ARGUMENT = 200


def make_recorder(
    path: Path | None, *, rank: int, world_size: int, run: str, ring_count: int
) -> Recorder:
    """Make the record at `path`; None: in memory, for messages only. OSError when it cannot be."""
    return Recorder.create(
        None if path is None else os.fsencode(path),
        rank,
        world_size,
        host_name(),
        _boot_id(),
        __version__,
        platform.python_version(),
        run,
        _argv_text(sys.argv),
        ring_count,
    )


def status_of(error: BaseException) -> Status:
    """How an op ended that raised `error`."""
    return next((s for kind, s in _STATUS if isinstance(error, kind)), Status.FAILED)


def write_finding(recorder: Recorder, group: int, seq: int, facts: dict[str, object]) -> None:
    """Add what a check found that is no error of an op."""
    text = recorder.add_text(bounded_json(facts))
    recorder.note(int(EventType.FINDING), group, seq, 0, None, text)


def write_thread_error(recorder: Recorder, error: BaseException, thread: str) -> None:
    """Add that a thread of this rank has ended by an exception, which nobody else may notice."""
    said = say_error(error).splitlines()[0][:300]
    what = f"thread {thread!r} raised {said}"
    where = _raised_at(error)
    facts: dict[str, object] = {
        "type": THREAD_ERROR,
        "what": what,
        "details": [where][: bool(where)],
    }
    write_finding(recorder, 0, 0, facts)


def write_exit_call(recorder: Recorder, what: str, sites: list[str], how: str = "") -> None:
    """Add that this rank ends its own process: by which call; where that is, and where its main thread is.

    `how`: 'while it handled ValueError: no data at load.py:3 (read)'.
    """
    facts: dict[str, object] = {"type": EXIT_CALL, "what": what, "details": sites}
    write_finding(recorder, 0, 0, facts | ({"how": how} if how else {}))


def write_error(
    recorder: Recorder, group: int, number: int, error: DistError, breaks: bool = False
) -> None:
    """Add what an op failed with; `number` is the op's, 0 when it has none.

    `breaks`: its group cannot be used any more.
    """
    text = recorder.add_text(error_text(error))
    if breaks:
        recorder.set_broken(group, text)
    if number:
        recorder.set_error(number, text)
    seq = max(getattr(error, "seq", 0), 0)
    recorder.note(int(EventType.FINDING), group, seq, 0, None, text)


def error_text(error: DistError) -> bytes:
    """The facts of an error as JSON."""
    facts: dict[str, object] = {"type": type(error).__name__, "what": error.what}
    if isinstance(error, (CollectiveError, PeerLost)):
        facts |= {"kind": error.kind, "seq": error.seq, "group": error.group}
    ranks = getattr(error, "missing", None) or getattr(error, "ranks", None)
    if ranks:
        facts["ranks"] = list(ranks)[:64]
    if isinstance(error, PeerLost):
        facts |= {"ranks": [error.peer], "how": error.how}
    if error.hint:
        facts["hint"] = error.hint
    return bounded_json(facts | {"details": list(error.details)})


def bounded_json(facts: dict[str, object], most_nbytes: int = 2024) -> bytes:
    """JSON of at most so many bytes: details go first, then the end of the first line."""
    details = facts.get("details")
    while len(text := json.dumps(facts).encode()) > most_nbytes:
        if isinstance(details, list) and details:
            details.pop()
        else:
            return json.dumps({"what": str(facts.get("what", ""))[: most_nbytes // 8]}).encode()
    return text


def write_exit(recorder: Recorder, how: Exit | None, error: BaseException | None = None) -> None:
    """Say how far the rank has come; None: it goes on."""
    text = 0
    if error is not None:
        where = _raised_at(error)
        what = shorten_middle(say_error(error).splitlines()[0], 500)
        if cause := cause_of(error):
            what += f" (caused by {shorten_middle(cause, 250)})"
        facts: dict[str, object] = {"what": what, "where": where}
        if handled := say_handled(error):
            facts["handled"] = handled
        if hint := hint_of_error(error):
            facts["hint"] = hint[:500]
        text = recorder.add_text(bounded_json(facts))
    recorder.set_exit(0 if how is None else int(how), text)


def hint_of_error(error: BaseException) -> str:
    """What to do about it, where the error itself knows; ''."""
    if isinstance(error, RecursionError):
        return recursion_hint(error)
    return error.hint or "" if isinstance(error, DistError) else ""


def _raised_at(error: BaseException) -> str:
    """Where the program called what failed: its innermost line, or a library's if there is none."""
    where, is_program = "", False
    carried = carried_by(error)
    inner = own_frame(read_stack(carried.traceback)) if carried is not None else None
    if inner is not None and not is_library(inner.file):
        return str(inner)
    for frame, line in walk_tb(error.__traceback__):
        code = frame.f_code
        path = code.co_filename
        if where and path.startswith(_OWN):
            continue
        is_of_library = is_library(path)
        if not (is_of_library and is_program):
            where = f"{path}:{line} ({code.co_qualname})"
            is_program = is_program or not is_of_library
    return where


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _argv_text(argv: list[str], most_nbytes: int = 3000) -> str:
    """The command line as JSON that fits: long arguments are cut, then the last are left out."""
    kept = [a if len(a) <= _MAX_ARGUMENT else a[:_MAX_ARGUMENT] + "..." for a in argv]
    while len(text := json.dumps(kept)) > most_nbytes:
        kept = [*kept[:-2], "..."]
    return text

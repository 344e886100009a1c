"""Hints: what to do about a root cause, in one line. Pure."""

from __future__ import annotations

import errno
import re
import signal
from typing import Final

from distdbg.errors import format_ranks
from distdbg.launch.root_cause import LossRole, RootCause
from distdbg.record.ends import BY_SYS_EXIT, MORE_MEMORY
from distdbg.record.format import Exit
from distdbg.record.memory_share import MemoryShare, its_share

#: Hints about ranks that others wait for.
STOPPED_RANK: Final = "send its process SIGCONT; find out who sent it SIGSTOP"
THREAD_RAISED: Final = (
    "see why that thread raised: this rank waits for what the thread should have made or done"
)
#: A full disk, or a quota that is used up.
_NO_SPACE: Final = re.compile(rf"OSError: \[Errno (?:{errno.ENOSPC}|{errno.EDQUOT})\]")

#: What a program does with the Work of an op.
_NO_WORK: Final = re.compile(
    r"AttributeError: 'NoneType' object has no attribute '(?:wait|is_completed|get_future|result)'"
)

#: What DDP says of a gradient that comes twice in one backward pass.
_READY_TWICE: Final = "Expected to mark a variable ready only once"


def hint_of(found: RootCause) -> str:
    """The hint for the first of those that failed; '' where nothing can be advised."""
    first = found.first[0]
    error, end = first.error, first.end
    if error is not None and error.hint:
        return error.hint
    if found.role is LossRole.LEAVER:
        hints = (one.error.hint for one in found.victims if one.error is not None)
        return next(filter(None, hints), "")
    if first.reason.startswith("MemoryError"):
        share = its_share(
            end, [one.end for one in (*found.terminated, *found.victims)], has_raised=True
        )
        return share.advice(first.rank) if share is not None else MORE_MEMORY
    if first.reason.startswith(f"OSError: [Errno {errno.EMFILE}]"):
        return "close the files that it opens, in a loop perhaps, or raise the limit (ulimit -n)"
    if _NO_SPACE.match(first.reason):
        return "free space there; what a rank prints does not fail so with --tee, which shows it all the same"
    if first.reason.startswith("FileNotFoundError"):
        others = (*found.terminated, *found.victims)
        names = format_ranks(one.rank for one in others)
        who = f"rank{'s' * (len(others) > 1)} {names}" if others else "another rank"
        return (
            f"if {who} had to write it first, put a barrier between writing and reading; a file that "
            "all use may be removed by one rank only, behind a barrier"
        )
    if _NO_WORK.match(first.reason):
        return "an op returns None without async_op=True, and on a rank that is not in its group"
    if _READY_TWICE in first.reason:
        return (
            "checkpoint(..., use_reentrant=False), or no find_unused_parameters=True; else a module that is "
            "called twice in one forward pass"
        )
    if first.crash and end.signal != signal.SIGBUS:
        return (
            "native code that this line calls crashed: look there, or into a core dump (ulimit -c)"
        )
    if (share := share_of(found)) is not None:
        return share.advice(end.rank)
    if end.hint and (end.cause == "oom" or not first.reason):
        return end.hint
    if not first.reason and end.cause == "exited" and found.role is LossRole.CAUSE:
        if first.record is not None and first.record.exit_site:
            return f"see why {first.record.exit_site} ends the process"
        if first.record is not None and first.record.how is Exit.RETURNED:
            return BY_SYS_EXIT
        return "@distdbg.record on main() brings its traceback here"
    if not first.reason and first.record is not None:
        return f"python -m distdbg.record {first.record.path}"
    return ""


def share_of(found: RootCause) -> MemoryShare | None:
    """How much memory the others had used, if far less than a rank that was killed without a word."""
    first = found.first[0]
    if first.reason or len(found.first) > 1 or first.end.cause != "signal":
        return None
    others = (*found.others, *found.victims, *found.terminated)
    return its_share(first.end, [one.end for one in others])

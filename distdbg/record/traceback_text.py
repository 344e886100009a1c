"""How an uncaught exception is shown: without the frames of this package, in one block. Pure.

    [rank 2] Traceback (most recent call last):
    [rank 2]   File "train.py", line 80, in step
    [rank 2]     y = x / 0
    [rank 2] ZeroDivisionError: division by zero

A rank that fails only because of another one, below a launcher that reports the cause, gets one line:

    [rank 0] PeerLost at train.py:80: rank 2 died (signal 9, SIGKILL)
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from distdbg import config
from distdbg.errors import (
    CollectiveError,
    DistError,
    JobAborted,
    MismatchError,
    OpTimeout,
    PeerLost,
    RankLeft,
    RendezvousError,
    UsageError,
    error_text,
    format_ranks,
)
from distdbg.record.durations import duration_text
from distdbg.record.error_file import because_of, waits_for
from distdbg.record.libraries import is_library

#: Files below it are ours; the tests' helpers and examples are not below it.
PACKAGE: Final = f"{Path(__file__).parents[1]}{os.sep}"
#: Python's own modules; packages that were installed are elsewhere below it.
_LIBRARY: Final = f"{os.path.dirname(os.__file__)}{os.sep}"
_MAX_LINE: Final = 60
#: Behind it stands why.
_CANNOT_RUN: Final = " cannot run: "
_MAX_CAUSES: Final = 32


def is_full(environ: Mapping[str, str] | None = None) -> bool:
    """Whether DISTDBG_TRACEBACK asks for all frames; a bad value must not hide what a rank died of."""
    try:
        return config.read_setting("DISTDBG_TRACEBACK", environ) == "full"
    except DistError:
        return True


def format_trimmed(
    error: BaseException,
    *,
    is_full: bool = False,
    has_report: bool = False,
    package: str = PACKAGE,
) -> str:
    """What Python prints of an uncaught exception, without the frames below `package`.

    A traceback that has no others is left as it is: then the package itself is what failed. Of an error
    about several ranks only the first line is left where a report follows.
    """
    found = traceback.TracebackException.from_exception(error, compact=True)
    if not is_full:
        for part in _parts(found):
            frames = [*part.stack]
            if isinstance(error, KeyboardInterrupt):
                frames = _without_wait(frames, package)
            theirs = [frame for frame in frames if not frame.filename.startswith(package)]
            if theirs and len(theirs) < len(part.stack):
                part.stack = traceback.StackSummary.from_list(theirs)
    text = "".join(found.format())
    if has_report and not is_full and isinstance(error, CollectiveError) and error.details:
        whole = error_text(error)
        head, at, tail = text.rpartition(whole)
        text = f"{head}{error.what}{tail}" if at else text
    return text


def as_block(text: str, prefix: str) -> str:
    """Each line behind the prefix; the text ends with the end of a line."""
    return "".join(f"{prefix}{line}".rstrip() + "\n" for line in text.splitlines())


def one_line(error: BaseException, package: str = PACKAGE) -> str:
    """What a rank prints that fails because of another one: type, reason, its own line."""
    first = _brief(error)
    place = _last_place(error, package)
    at = f" at {place}" if place else ""
    return f"{type(error).__name__}{at}{': ' if first else ''}{first}"


def _brief(error: BaseException) -> str:
    """Its reason in a few words: the report says all of it."""
    match error:
        case JobAborted() if error.verdict:
            return f"{error.verdict}, found by {error.by}" if error.by else error.verdict
        case RankLeft() if error.peer >= 0:
            return f"rank {error.peer} left"
        case PeerLost() if error.peer >= 0:
            return f"rank {error.peer} {error.how}" if len(error.how) < 40 else "rank is gone"
        case OpTimeout() if error.missing:
            whom = format_ranks(error.missing)
            name = "rank" if len(error.missing) == 1 else "ranks"
            return f"waited {duration_text(error.waited_s)} for {name} {whom}"
        case RendezvousError() if error.missing:
            return (
                f"rank{'s' * (len(error.missing) > 1)} {format_ranks(error.missing)} did not join"
            )
        case MismatchError() if error.ranks:
            ranks = format_ranks(error.ranks)
            return f"rank {ranks} differs" if ranks.isdecimal() else f"ranks {ranks} differ"
        case CollectiveError() if _CANNOT_RUN in error.what:
            return error.what.partition(_CANNOT_RUN)[2]
    first = error_text(error).partition("\n")[0]
    return first if len(first) <= _MAX_LINE else first[:_MAX_LINE].rpartition(" ")[0] + " ..."


def is_of_job(error: BaseException) -> bool:
    """Whether it is of this package, or raised from such an error, and not about a wrong argument alone."""
    return any(
        isinstance(one, DistError) and not isinstance(one, UsageError)
        for one in _raised_from(error)
    )


def is_consequence(error: BaseException, rank: int | None) -> bool:
    """Whether another rank is the cause of the error, or differs from this one.

    Only for an error of this package, and one raised from it (`raise ... from`): what a handler
    raised by mistake while it handled one is a cause of its own.
    """
    known = next((one for one in _raised_from(error) if isinstance(one, DistError)), None)
    if known is None:
        return False
    if because_of(known):
        return True
    if isinstance(known, (OpTimeout, RendezvousError)):
        return bool(waits_for(known)) and rank not in known.missing
    if isinstance(known, CollectiveError):
        return bool(known.ranks) and rank is not None and rank not in known.ranks
    return False


def _raised_from(error: BaseException) -> Iterator[BaseException]:
    current: BaseException | None = error
    for _ in range(_MAX_CAUSES):
        if current is None:
            return
        yield current
        current = current.__cause__


def _without_wait(
    frames: list[traceback.FrameSummary], package: str
) -> list[traceback.FrameSummary]:
    """Without the library that the package waited in when Ctrl-C came: the user's line is the last."""
    at = len(frames)
    while at > 0 and _is_library(frames[at - 1].filename, package):
        at -= 1
    waited = any(frame.filename.startswith(package) for frame in frames[at:])
    return frames[:at] if waited else frames


def _is_library(filename: str, package: str) -> bool:
    if filename.startswith((package, "<frozen")):
        return True
    return filename.startswith(_LIBRARY) and "site-packages" not in filename


def _parts(
    found: traceback.TracebackException, depth: int = 0
) -> Iterator[traceback.TracebackException]:
    """The exception, what it came from, and the members of a group."""
    if depth > _MAX_CAUSES:
        return
    yield found
    for one in (found.__cause__, found.__context__, *(found.exceptions or ())):
        if one is not None:
            yield from _parts(one, depth + 1)


def _last_place(error: BaseException, package: str) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if not frame.filename.startswith(package)]
    if not theirs:
        return ""
    last = theirs[-1]
    if frames[-1] is not last and not is_library(theirs[0].filename):
        # Raised by the package, which a library may have called: torch in a backward pass.
        last = next(frame for frame in reversed(theirs) if not is_library(frame.filename))
    return f"{os.path.basename(last.filename)}:{last.lineno}"

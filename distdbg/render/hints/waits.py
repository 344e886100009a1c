"""A lock that a rank holds itself, a timer or a signal of the program that ended a rank.

see whether rank 1 holds that lock itself, by `with self._lock` (line 26 of cache.py): take an RLock, or
lock once

its timer is set at data.py:20: see on which path it is not cancelled
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final

from distdbg.diagnose.wording import short_site
from distdbg.record.recorded_frame import RecordedFrame
from distdbg.render.enclosing import (
    ParsedSource,
    handlers_in,
    imported_beside,
    kills_in,
    pipe_defaults_in,
    quote_line,
    raised_limits_in,
    timers_in,
)
from distdbg.render.finding_stacks import ReportedFrame
from distdbg.render.hints.case import Case, in_file
from distdbg.render.hints.skipped_ends import past_cancel

_MAX_TIMERS: Final = 3
_WITH: Final = re.compile(r"in `(with .*)` \((line \d+)\)")


def by_timer(case: Case) -> str:
    """A timer killed the rank: where its program sets one."""
    found = _calls_in_files(case, timers_in)
    if not 0 < len(found) <= _MAX_TIMERS:
        return ""
    for file, line in found if len(found) == 1 else ():
        parsed = case.source.parsed(file)
        if parsed is not None and (said := past_cancel(parsed, file, line)):
            return said
    return f"its timer is set at {_say_places(found)}: see on which path it is not cancelled"


def _say_places(found: Sequence[tuple[str, int]]) -> str:
    return " and ".join(f"{os.path.basename(file)}:{line}" for file, line in found)


def _calls_in_files(case: Case, find: Callable[[ParsedSource], list[int]]) -> list[tuple[str, int]]:
    """Search the files of the first stack, and those that they import: file and line of each call."""
    files = {one.frame.file: None for stack in case.reported[:1] for one in stack.frames}
    for file in [*files]:
        if (parsed := case.source.parsed(file)) is not None:
            files |= dict.fromkeys(imported_beside(parsed, file))
    return [
        (file, line)
        for file in files
        if (parsed := case.source.parsed(file)) is not None
        for line in find(parsed)
    ]


def by_kill(case: Case) -> str:
    """SIGKILL came from somewhere: where the program sends signals, to its process group perhaps."""
    found = _calls_in_files(case, kills_in)
    if not 0 < len(found) <= _MAX_TIMERS:
        return ""
    return (
        f"signals are sent at {_say_places(found)}: see whether that hits {case.who} itself; a child "
        "shares its process group without start_new_session=True"
    )


def by_default_of_pipes(case: Case) -> str:
    """SIGPIPE ended the rank: where its program lets it."""
    found = _calls_in_files(case, pipe_defaults_in)
    if not 0 < len(found) <= _MAX_TIMERS:
        return ""
    return (
        f"it wrote to a pipe or a socket whose reader had ended; {_say_places(found)} lets SIGPIPE end the "
        "process, where Python raises BrokenPipeError"
    )


def by_recursion_limit(case: Case) -> str:
    """The C stack has an end, which Python's own limit was to keep it from: where the program raises that."""
    found = _calls_in_files(case, raised_limits_in)
    reported = next((one for one in case.reported if one.frames), None)
    if len(found) != 1 or reported is None:
        return ""
    file, line = found[0]
    parsed = case.source.parsed(file)
    assert parsed is not None  # the call was found there
    place = short_site(str(reported.frames[0].frame)).partition(" (")[0]
    raised = quote_line(parsed, file, line)
    return (
        f"{raised} lets calls go deeper than the C stack holds, those of pickle, copy and json as well: see "
        f"how deep the data at {place} go"
    )


def by_own_lock(case: Case) -> str:
    """A rank waits for a lock that a `with` of its own callers holds.

    The two are in one file, and those of `self` in one class: elsewhere the same words are another lock.
    """
    for stack in case.reported:
        if not stack.is_cause or not stack.frames:
            continue
        first, *outer = stack.frames
        wanted = first.text.removesuffix(":")
        for one in outer:
            for note in one.notes:
                found = _WITH.fullmatch(note)
                if found and found[1] == wanted and _are_of_one_class(first.frame, one.frame):
                    if handler := _handler_on(case, stack.frames):
                        return (
                            f"the signal handler {handler} wants a lock that {case.who} held already, by "
                            f"`{wanted}` ({in_file(one, found[2])}): only set a flag in a handler"
                        )
                    return (
                        f"see whether {case.who} holds that lock itself, by `{wanted}` "
                        f"({in_file(one, found[2])}): take an RLock, or lock once"
                    )
    return ""


def _handler_on(case: Case, frames: Sequence[ReportedFrame]) -> str:
    """'_tick() (stats.py:43)': a handler of the program that no line of its caller calls; ''."""
    for inner, outer in pairwise(frames):
        name = inner.frame.function.rpartition(".")[2]
        source = case.source.parsed(inner.frame.file)
        if source is None or name not in handlers_in(source):
            continue
        if not re.search(rf"\b{re.escape(name)}\b", outer.text):
            return f"{name}() ({short_site(str(inner.frame)).partition(' (')[0]})"
    return ""


def _are_of_one_class(one: RecordedFrame, other: RecordedFrame) -> bool:
    classes = [frame.function.rpartition(".")[0] for frame in (one, other)]
    return one.file == other.file and classes[0] == classes[1]

"""The loop that a rank left, or does not end; a condition that depends on time; a file that a rank waits for.

see whether rank 2 left the loop by the `break` under `if patience.exhausted(loss)` (line 59): all ranks
have to decide that alike

`if not work.is_completed()` (line 21) depends on time: ranks start different numbers of ops by it; wait()
is the same on all

see whether `while True` (line 38) ends on rank 2
"""

from __future__ import annotations

import re
from typing import Final

from distdbg.render.hints.case import FILE_LOOP, LOOP, Case

Pattern = tuple[re.Pattern[str], str]

_LEFT: Final = (
    (
        re.compile(r"a (`continue` under .*) skips this call"),
        "see whether {who} skipped the call by the {way}",
    ),
    (
        re.compile(r"a (`(?:break|return)` under .*) ends the loop \(line \d+\)"),
        "see whether {who} left the loop by the {way}: all ranks have to decide that alike",
    ),
)
_FEWER: Final = (
    re.compile(r"in (`(?:for|while) .*` \(line \d+\))"),
    "see whether {way} makes as many rounds on {who} as on the others",
)
#: A condition that no two ranks see alike, around a call that all have to make.
_BY_TIME: Final = (
    re.compile(r".*under (`[^`]*\.is_(?:completed|success)\(\)[^`]*` \(line \d+\)).*"),
    "{way} depends on time: ranks start different numbers of ops by it; wait() is the same on all",
)
_CACHED: Final = (
    re.compile(r"(`@.*` \(line \d+\)) skips this call for arguments that it knows"),
    "{way} decides which ranks make the ops in that function: call it on all ranks, or on none",
)
_SHORT: Final = (
    re.compile(r"behind (`(?:or|and)` in `.*` \(line \d+\))"),
    "a call behind {way} is left out where the part before it decides: all ranks have to make it",
)
_ENDLESS: Final = (
    re.compile(r"in (`while .*` \(line \d+\))"),
    "see whether {way} ends on {who}; if it was at work, take its stacks twice (distdbg stacks)",
)
_FILE: Final = (
    FILE_LOOP,
    "{way} waits for a file: see who has to make it (another rank, another job), and whether it did",
)
#: The hint for ranks that made one call more than the others.
_HOLDS_MORE: Final = (
    re.compile(r"under (`.*` \(line \d+\))"),
    "see whether {way} holds once more on {who} than on the others; results since then are of calls that do "
    "not belong together",
)
_ROUND_MORE: Final = (
    re.compile(r"in (`(?:for|while) .*` \(line \d+\))"),
    "see whether {way} makes one round more on {who} than on the others; results since then are of calls "
    "that do not belong together",
)


def by_exit_of_loop(case: Case) -> str:
    """A rank makes no call any more: an exit ends its loop early, or its loop has fewer rounds."""
    return _first(case, case.notes_of_cause(), *_LEFT) or _of_one_loop(case, _FEWER)


def by_steps(case: Case) -> str:
    """A rank made fewer calls in a loop, and the records cannot tell which."""
    return _first(case, case.notes_of_cause(), *_LEFT, _FEWER)


def by_one_more(case: Case) -> str:
    """Ranks made one call more: a condition or a loop around it."""
    return _first(case, case.notes_of_cause(), _HOLDS_MORE) or _of_one_loop(case, _ROUND_MORE)


def by_skipping(case: Case) -> str:
    """A condition that depends on time, a cache, or `or` and `and` stand before a call.

    All stacks are looked at: what skips the call of one rank may skip that of any.
    """
    notes = [note for stack in case.reported for one in stack.frames for note in one.notes]
    return _first(case, notes, _BY_TIME, _CACHED, _SHORT)


def by_endless_loop(case: Case) -> str:
    """A rank is busy in a `while` loop."""
    return _first(case, case.notes_of_cause(), _ENDLESS)


def by_file(case: Case) -> str:
    """A rank sleeps in a loop until there is a file."""
    return _first(case, case.notes_of_cause(), _FILE)


def _of_one_loop(case: Case, pattern: Pattern) -> str:
    """Say it where there is one loop; of several, any may be the one."""
    loops = {note for note in case.notes_of_cause() if LOOP.fullmatch(note)}
    return _first(case, case.notes_of_cause(), pattern) if len(loops) == 1 else ""


def _first(case: Case, notes: list[str], *patterns: Pattern) -> str:
    return next(filter(None, (_say(case, notes, one) for one in patterns)), "")


def _say(case: Case, notes: list[str], pattern: Pattern) -> str:
    wanted, text = pattern
    found = next((match for note in notes if (match := wanted.fullmatch(note))), None)
    return text.format(who=case.who, way=found[1]) if found else ""

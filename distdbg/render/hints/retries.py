"""A rank that repeats its calls, in a loop that tries again after an error.

see whether rank 3 repeats its calls by the retry `for attempt in range(3)` (line 13 of retry.py), after an
error that the other ranks did not have: a retry must not make collectives
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import Final

from distdbg.diagnose.finding import Evidence, Finding
from distdbg.diagnose.wording import fit, say_ranks, verb
from distdbg.render.finding_stacks import ReportedStack
from distdbg.render.hints.case import Case, place_of_stack
from distdbg.render.loop_exits import retry_around
from distdbg.render.source_line import SourceLines
from distdbg.render.where import place_of

_COUNTER: Final = re.compile(r"`for (\w+) in ")
_NUMBER: Final = re.compile(r"= (\d{1,9})")


def by_retry(case: Case) -> str:
    """Ranks are in a loop that calls again after an error, and the others are not in it."""
    mine, others = case.sides()
    passed = {_retries(stack, case.source) for stack in others}
    for stack in mine if others else ():
        for retry in _retries(stack, case.source):
            if not any(retry in each for each in passed):
                return _say(stack, retry)
    return ""


def _say(stack: ReportedStack, retry: str) -> str:
    return (
        f"see whether {say_ranks(stack.ranks, 3)} repeats its calls by the retry {retry}, after an error "
        "that the other ranks did not have: a retry must not make collectives"
    )


def _retries(stack: ReportedStack, source: SourceLines) -> tuple[str, ...]:
    """'`for attempt in range(3)` (line 13 of retry.py)', the innermost first."""
    found = (
        (_retry_of(one.frame.file, one.frame.line, source), os.path.basename(one.frame.file))
        for one in stack.frames
    )
    return tuple(f"{loop.removesuffix(')')} of {file})" for loop, file in found if loop)


def by_attempt(case: Case) -> str:
    """All ranks are in such a loop, and only those of the cause in a later attempt."""
    found = _later_attempt(case)
    if found is None:
        return ""
    retry, mine = found
    return _say(mine, retry)


def called_again(case: Case) -> Finding:
    """The finding of `by_attempt`: its rank did not skip the call of the others, it began anew."""
    root, found = case.root, _later_attempt(case)
    place = place_of(case.session, root.ranks[0]) if root.ranks else None
    others = case.sides()[1]
    if found is None or place is None or not others:
        return root
    _, mine = found
    kind, whom = case.session.kind_of(place.op), say_ranks(root.ranks, 3)
    what = fit(
        f"{whom} called {kind} at {place_of_stack(mine)} again, by a retry",
        f"; {say_ranks(others[0].ranks, 3)} {verb(others[0].ranks, 'is', 'are')} at "
        f"{place_of_stack(others[0])}",
    )
    again = Evidence(
        text=f"{whom} called {case.session.name_of(place.op)} in a later attempt than the others",
        rank=root.ranks[0],
        ranks=root.ranks,
        op=place.op,
    )
    kept = [fact for fact in root.evidence if not fact.is_left_out and not fact.is_extra]
    return replace(root, what=what, evidence=(again, *kept))


def _later_attempt(case: Case) -> tuple[str, ReportedStack] | None:
    """'`for attempt in range(3)` (line 13 of retry.py)', and the stack of who is further in it."""
    mine, others = case.sides()
    for stack in mine if others else ():
        for at, retry in enumerate(_retries(stack, case.source)):
            counter = _COUNTER.match(retry)
            known = [_retries(other, case.source) for other in others]
            if counter is None or any(retry not in each for each in known):
                continue
            own = _attempt(case, stack, at, counter[1])
            theirs = [
                _attempt(case, other, each.index(retry), counter[1])
                for other, each in zip(others, known, strict=True)
            ]
            if own is not None and all(one is not None and one < own for one in theirs):
                return retry, stack
    return None


def _attempt(case: Case, stack: ReportedStack, which: int, name: str) -> int | None:
    """The value of the counter in the frame of that retry, the same on all ranks of the stack."""
    frames = [one for one in stack.frames if _retry_of(one.frame.file, one.frame.line, case.source)]
    frame = frames[which].frame
    values = {
        case.session.ranks[rank].left_values.get((frame.file, frame.line), {}).get(name, "")
        for rank in stack.ranks
    }
    found = _NUMBER.fullmatch(values.pop()) if len(values) == 1 else None
    return None if found is None else int(found[1])


def _retry_of(file: str, line: int, source: SourceLines) -> str:
    parsed = source.parsed(file)
    return "" if parsed is None else retry_around(parsed, line)

"""A rank that left a loop in which the others began one more step, and went on to what comes behind it.

    main:57 < train_epoch:34    15 times, and then main:58 < validate:44     rank 2
    main:57 < train_epoch:34    16 times                                     ranks 0-1,3

Proven by the stacks: up to the line where they part both are the same; the rank's own last call was in the
loop, as often as those of the others without the one that they are in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from distdbg.diagnose.ops import OpRef
from distdbg.diagnose.session import Session, Stack
from distdbg.diagnose.traits import Advice, Trait
from distdbg.diagnose.wording import MAX_LINE, fit, say_ranks, say_site, site_of, verb
from distdbg.record.batches import name_join
from distdbg.record.recorded_frame import RecordedFrame

_Site = tuple[str, int]


#: Fewer calls are no loop.
_FEWEST = 2


class LeftLoop(NamedTuple):
    """The words of a finding about a loop that was left too early."""

    what: str
    advice: Advice


def find_left_loop(
    session: Session, calls: Mapping[int, OpRef], odd: Sequence[int]
) -> LeftLoop | None:
    """Explain the ranks `odd`, whose call differs from that of the others; None where it does not show."""
    others = [rank for rank in sorted(calls) if rank not in odd]
    if not odd or not others or not calls.keys() >= set(odd):
        return None
    loop = session.stack_of(calls[others[0]])
    where = _behind(session.stack_of(calls[odd[0]]), loop)
    if where is None or any(session.stack_of(calls[rank]) != loop for rank in others):
        return None
    counts = {rank: _count(session, calls[rank], loop) for rank in calls}
    made = counts[odd[0]]
    if made < _FEWEST or any(counts[rank] != made for rank in odd):
        return None
    if any(counts[rank] != made + 1 for rank in others):
        return None
    if any(not _came_from(session, calls[rank], loop) for rank in odd):
        return None
    mine, called = where
    whom, short = say_ranks(odd, 3), say_site(loop[0]).partition(" (")[0]
    place = say_site(mine).partition(" (")[0]
    # What it went on to may stand in the same loop: then it may as well be one call too many.
    if not called:
        they, makes = say_ranks(others, 3), verb(odd, "makes", "make")
        return LeftLoop(
            fit(
                f"{whom} went on to {place} after {made} calls at {short}",
                f", where {they} began one more",
            ),
            Advice(
                f"see why {whom} {makes} the call at {place} and {they} do not, or what skipped one at "
                f"{short}",
                Trait.OTHER_LINES,
            ),
        )
    began = f"after {made} calls at {short}; {say_ranks(others, 3)} began one more"
    what = f"{whom} left {called}() for {place} {began}"
    what = what if len(what) <= MAX_LINE else fit(f"{whom} left {called}() {began}")
    group = session.group_of(calls[odd[0]])
    joining = name_join(group.backend if group is not None else "")
    advice = Advice(
        f"see why {whom} made one call fewer: {verb(odd, 'it', 'they')} skipped a batch, had fewer of them "
        f"({joining} helps), or {verb(odd, 'its', 'their')} own data ended the loop",
        Trait.OTHER_LINES,
        of=called,
    )
    return LeftLoop(what, advice)


def _behind(mine: Stack, loop: Stack) -> tuple[RecordedFrame, str] | None:
    """The frame behind the loop, in the function where the stacks part, and the function of the loop."""
    own, other = mine[::-1], loop[::-1]
    for at, (one, two) in enumerate(zip(own, other, strict=False)):
        if one == two:
            continue
        if (one.file, one.function) != (two.file, two.function) or one.line <= two.line:
            return None
        return one, other[at + 1].function if at + 1 < len(other) else ""
    return None


def _count(session: Session, last: OpRef, stack: Stack) -> int:
    """How often a rank called there until then; 0 where its first calls are not known."""
    log = session.ranks[last.rank]
    if log.lost.get("ops"):
        return 0
    return sum(session.stacks[index] == stack for index in log.ops.stack[: last.at + 1])


def _came_from(session: Session, call: OpRef, stack: Stack) -> bool:
    """Whether the last call before it was in the loop."""
    ops = session.ranks[call.rank].ops
    return call.at > 0 and session.stacks[ops.stack[call.at - 1]] == stack


class _OneMoreCall(NamedTuple):
    """The words of a finding about one call too many."""

    what: str
    advice: Advice


def find_one_more_call(
    session: Session, calls: Mapping[int, OpRef], odd: Sequence[int]
) -> _OneMoreCall | None:
    """Explain the ranks `odd`, whose call differs from that of the others; None where it does not show.

        statistics:61    15 times                       rank 1
        statistics:61    14 times, and then main:83     ranks 0,2

    Where it was once too often does not show: all calls of the line fitted, and their results may be mixed.
    """
    others = [rank for rank in sorted(calls) if rank not in odd]
    if not odd or not others or not calls.keys() >= set(odd):
        return None
    counts = {rank: _counts(session, op) for rank, op in calls.items()}
    again, behind = _site(session, calls[odd[0]]), _site(session, calls[others[0]])
    mine, theirs = counts[odd[0]], counts[others[0]]
    if None in (again, behind) or again == behind or not all(counts.values()):
        return None
    if any(counts[rank] != mine for rank in odd) or any(counts[r] != theirs for r in others):
        return None
    # What the others went on to is new to all; a line that all come to again may only be out of order.
    expected = mine.copy()
    expected[again] -= 1
    expected[behind] += 1
    if theirs != expected or theirs[behind] != 1 or theirs[again] < 1:
        return None
    whom, they = say_ranks(odd, 3), say_ranks(others, 3)
    made, count = calls[odd[0]], mine[again]
    place = site_of(session, made).partition(" (")[0]
    on_to = site_of(session, calls[others[0]]).partition(" (")[0]
    return _OneMoreCall(
        fit(
            f"{whom} called {session.kind_of(made)} at {place} {count} times, {they} {count - 1} times",
            f", and went on to {on_to}",
        ),
        Advice(
            f"see what repeats that call on {whom}, be it long before: a retry, or a round more; results "
            "since then are of calls that do not belong together",
            Trait.ONE_MORE_CALL,
        ),
    )


def _counts(session: Session, last: OpRef) -> Counter[_Site | None]:
    """How often each line called on that group until then; nothing where the first calls are not known."""
    log = session.ranks[last.rank]
    ops, group = log.ops, log.ops.group[last.at]
    if log.lost.get("ops"):
        return Counter()
    mine = (OpRef(last.rank, at) for at in range(last.at + 1) if ops.group[at] == group)
    return Counter(_site(session, op) for op in mine)


def _site(session: Session, op: OpRef) -> _Site | None:
    frame = session.site_of(op)
    return None if frame is None else (frame.file, frame.line)

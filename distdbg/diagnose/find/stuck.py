"""Stuck ranks: alive and stopped, holding the GIL, busy, asleep ... for longer than `record.thresholds`
allows. `stall` reports those that are so for less long.

    live    "rank 2 is asleep in load() at slp.py:7 for 1 min 39 s; ranks 0-1,3 wait for it in ..."
    over    "ranks 0-1,3 waited 1 min 39 s for rank 2, asleep in load() at slp.py:7; then the job was stopped
            by SIGTERM"

A busy or sleeping rank may be at work, so it is an error only when the job did not survive it: an op timed
out, or somebody stopped the job meanwhile.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from distdbg.diagnose.chains import ChainEnd, chain_ends
from distdbg.diagnose.debugged import is_debugged
from distdbg.diagnose.doing import RankActivity, doing_of, place
from distdbg.diagnose.find.missing import last_ops, wait_evidence
from distdbg.diagnose.find.sent_by_another import sent_by_another
from distdbg.diagnose.finding import Evidence, Finding, FindingKind, Severity, Waits
from distdbg.diagnose.matching import Matched
from distdbg.diagnose.ops import NEVER
from distdbg.diagnose.session import Activity, Session
from distdbg.diagnose.traits import Advice, FactKind, Trait
from distdbg.diagnose.wording import fit, known_ns, say_ranks, say_s, short_site, verb
from distdbg.record.format import Status
from distdbg.record.libraries import is_library
from distdbg.record.observations import (
    CHILD_END,
    DATA_FROM,
    FILE_LOCK,
    FOR_WHOM,
    IN_LIBRARY,
    LOCKED_CHILDREN,
    NO_OTHER_THREAD,
    NOT_ACCEPTED,
    OTHER_THREAD,
    STOPPED_ITSELF,
    STORE_KEY,
    UNREAD,
    lock_holder_in,
    nobody_wakes_it,
    waits_for_lock,
)
from distdbg.record.rank_state import RankState
from distdbg.record.thresholds import measure_of

_IS: Final = {
    RankState.STOPPED: "is stopped",
    RankState.TRACED: "is stopped in a debugger",
    RankState.HOLDS_GIL: "holds the GIL",
    RankState.BUSY: "is busy",
    RankState.BLOCKED_IO: "is blocked in I/O",
    RankState.ASLEEP: "is asleep",
}
#: A rank that waits for a result of multiprocessing.Pool.
_OF_POOL: Final = f"{IN_LIBRARY}pool.py"
#: Ranks that are compared.
_MAX_ALIKE: Final = 16
#: Matches the holder of a file lock, in the reason of the rank that waits for it.
_HOLDER: Final = re.compile(rf"{FILE_LOCK} that (rank \d+|pid \d+ \(.*?\)) holds")
_ADVICE: Final = {
    RankState.STOPPED: "send its process SIGCONT; find out who sent it SIGSTOP",
    RankState.TRACED: "continue it in the debugger",
    RankState.HOLDS_GIL: "look at the call that does not return: it blocks all other threads of the rank",
    RankState.BUSY: "it may be at work: take its stacks twice, some seconds apart (distdbg stacks)",
    RankState.BLOCKED_IO: "look at the disk or network file system that it waits for",
    RankState.ASLEEP: "look at what it waits for: a lock, a pipe, a queue, a timer",
}


def find(session: Session, matched: Matched, waits: Waits) -> list[Finding]:
    ends = {rank: end for end in chain_ends(session, waits) for rank in end.ranks}
    alike: dict[tuple[object, ...], list[int]] = {}
    for rank, log in sorted(session.ranks.items()):
        if log.activity is None or log.is_gone or is_debugged(log) or log.exit is not None:
            continue
        if log.is_joining:  # `waits_to_join` says for whom
            continue
        end = ends.get(rank)
        if log.activity.state.is_stuck and is_overdue(session, rank, end):
            doing = doing_of(session, rank)
            key = (rank,) if end is None else (end.ranks, doing.state, doing.text, doing.why)
            alike.setdefault(key, []).append(rank)
    return [_finding(session, tuple(ranks), ends.get(ranks[0]), waits) for ranks in alike.values()]


def is_overdue(session: Session, rank: int, end: ChainEnd | None) -> bool:
    """Whether a rank in such a state counts as stuck, by its age or because the job did not outlive it."""
    log = session.ranks[rank]
    assert log.activity is not None
    doing = doing_of(session, rank)
    if measure_of(doing.state).error_ns is not None or _is_locked_out(doing, end):
        return True
    if end is not None and (session.cut is Status.TIMEOUT or not session.is_live):
        return True  # it has not come in time, or the record is all that there is
    if (
        log.activity.is_patient is not None
    ):  # an agent has judged by the same table, and the use of its CPU
        return log.activity.is_patient
    return waited_ns(session, doing, end) >= doing.limit_ns


def _is_locked_out(doing: RankActivity, end: ChainEnd | None) -> bool:
    """Whether who holds the file lock that it waits for waits for it in turn: a deadlock, of whatever age.

    So does a child process that writes to a pipe which only this rank can read; and nobody wakes a rank
    that waits for another thread of its own and has none.
    """
    return end is not None and (
        lock_holder_in(doing.why) in end.waiters
        or UNREAD in doing.why
        or nobody_wakes_it(doing.why)
    )


def waited_ns(session: Session, doing: RankActivity, end: ChainEnd | None) -> int:
    """How long it has been waited for; where nobody waits, how long it has made no progress."""
    if end is None or end.since_ns is None or session.now_ns == NEVER:
        return doing.age_ns
    return min(max(session.now_ns - end.since_ns, 0), doing.age_ns or 2**63)


def past_words(session: Session, end: ChainEnd, ranks: tuple[int, ...], doing: RankActivity) -> str:
    """Describe a job that is over: "ranks 0-1 waited 1 min 39 s for rank 2, asleep in load() at ..."."""
    direct = tuple(sorted({edge.rank for edge in end.direct}))
    waited = ""
    if end.since_ns is not None and session.now_ns != NEVER:
        waited = f" {say_s(session.now_ns - end.since_ns)}"
    then = f"; then {session.cut_words}" if session.cut_words else ""
    seen = f", {doing.text}" if doing.text else ", which no agent saw"
    return fit(
        f"{say_ranks(direct, 3)} waited{waited} for {say_ranks(ranks, 3)}",
        seen if not doing.text or _do_the_same(session, ranks, doing) else "",
        then,
        f" (in {op})" if (op := end.waited_in(session)) else "",
    )


def _do_the_same(session: Session, ranks: tuple[int, ...], doing: RankActivity) -> bool:
    return all(doing_of(session, rank).text == doing.text for rank in ranks[:_MAX_ALIKE])


def doing_evidence(
    session: Session, doing: RankActivity, ranks: tuple[int, ...] = ()
) -> list[Evidence]:
    """What was seen of it, how long, and how that compares; of all of `ranks`, where they do the same."""
    ranks = ranks or (doing.rank,)
    who = say_ranks(ranks)
    if not doing.text:
        text = f"no agent saw what {who} did instead"
        return [Evidence(text=text, rank=doing.rank)]
    is_past = session.cut is not None
    be = verb(ranks, "was", "were") if is_past else verb(ranks, "is", "are")
    word = doing.text.partition(" in ")[0].partition(" at ")[0] if doing.site else doing.text
    text = f"{who} {be} {word}{doing.lasts}"
    since = known_ns(doing.since_ns) if doing.since_ns is not None else None
    found = [Evidence(text=text, rank=doing.rank, site=doing.site, at_ns=since)]
    if doing.gap_bound_ns:
        gap = say_s(doing.gap_bound_ns)
        was = verb(ranks, "was", "were")
        text = f"before that, {who} {was} never longer than {gap} between two ops"
        found.append(Evidence(text=text, rank=doing.rank))
    if doing.why:
        text = f"{who}: {doing.why}"
        reason = Evidence(text=text, rank=doing.rank, kind=FactKind.REASON, detail=doing.news)
        found.append(reason)
    return found


def _finding(
    session: Session,
    ranks: tuple[int, ...],
    end: ChainEnd | None,
    waits: Waits,
) -> Finding:
    """Make one finding of ranks that do the same, and for whom the same ranks wait."""
    rank = ranks[0]
    log = session.ranks[rank]
    seen = log.activity
    assert seen is not None
    doing = doing_of(session, rank)
    astray, compare = ([], "") if end is None else sent_by_another(session, end, waits)
    evidence = [
        *astray,
        *(replace(one, ranks=ranks) for one in doing_evidence(session, doing, ranks)),
        *_caller(rank, doing, seen),
        *last_ops(session, ranks),
    ]
    numbers: dict[str, float] = {"longest_gap_s": doing.longest_gap_ns / 1e9}
    if end is not None:
        evidence += wait_evidence(session, end)
        numbers["waiting"] = float(len(end.waiters))
    is_past = session.cut is not None and end is not None
    causes, victims = ranks, () if end is None else end.waiters
    holder = lock_holder_in(doing.why)
    # A rank that takes a lock and waits for the others is the cause. While the job runs the state of those
    # that sleep for it tells whether it still is so.
    if is_past and holder is not None and _is_locked_out(doing, end):
        causes, victims = (holder,), tuple(sorted({*ranks, *victims} - {holder}))
    return Finding(
        kind=FindingKind.STUCK_RANK,
        severity=_severity(session, doing, end),
        what=past_words(session, end, ranks, doing)
        if is_past and end is not None
        else _now(session, ranks, doing, end),
        ranks=causes,
        victims=victims,
        at_ns=known_ns(session.time_ns(rank, seen.since_ns)),
        evidence=tuple(evidence),
        advice=compare
        or _advice(seen.state, doing.why, is_past=session.cut is not None or not session.is_live),
        numbers=numbers,
        traits=doing.traits,
    )


def _caller(rank: int, doing: RankActivity, seen: Activity) -> Iterator[Evidence]:
    """'rank 3 called next() at train.py:34 (train)': from where it came to its place."""
    sites = [short_site(str(frame)) for frame in seen.stack]
    outer = sites.index(doing.site) + 1 if doing.site in sites else 0
    if not outer or outer >= len(seen.stack) or is_library(seen.stack[outer].file):
        return
    called = seen.stack[outer - 1].function.rpartition(".")[2]
    if called.startswith("<") or sites[outer] == doing.site:
        return
    text = f"rank {rank} called {called}() at {sites[outer]}"
    yield Evidence(text=text, rank=rank, site=sites[outer])


def advice_of_reason(why: str) -> str:
    """What the reason itself asks for; ''."""
    if why == STOPPED_ITSELF:
        return "see why it stops itself at that line; SIGCONT makes its process go on"
    if NO_OTHER_THREAD in why and OTHER_THREAD in why:
        return "none of its threads goes on: see what the other ones wait for, and who was to give it to them"
    if OTHER_THREAD in why and IN_LIBRARY not in why.partition(OTHER_THREAD)[0]:
        return "two of its threads may wait for each other's locks: compare in which order they take them"
    if LOCKED_CHILDREN in why:
        return (
            "its workers were forked while a thread held that lock, and have no thread that would release "
            "it: start them by 'spawn', or before the threads"
        )
    if why.endswith(_OF_POOL):
        return Advice(
            "see whether a worker of that pool ended: Pool never notices (concurrent.futures would)",
            Trait.HOLDS_ALWAYS,
        )
    if NO_OTHER_THREAD in why:
        return "see where its other threads ended, or why none was started: one of them should end the wait"
    if why.startswith(CHILD_END) and UNREAD in why:
        return (
            "read what that process writes before you wait for its end (subprocess: communicate())"
        )
    if why.startswith(CHILD_END):
        return "see what that process waits for, or is still busy with"
    if why.startswith(DATA_FROM) and why.endswith(NOT_ACCEPTED):
        return Advice(
            "see what keeps that process from accepting connections: it may serve one at a time",
            Trait.HOLDS_ALWAYS,
        )
    if found := re.match(rf"{DATA_FROM}(rank \d+|pid \d+ \(.*?\))", why):
        return Advice(
            f"see why {found[1]} sends nothing: distdbg stacks shows where its threads are",
            Trait.HOLDS_ALWAYS,
        )
    if why.startswith(DATA_FROM):
        return "see whether the other end of that connection lives and answers; give the read a time limit"
    if why.startswith(STORE_KEY):
        return "see which rank has to set that key, and which condition keeps it from doing so"
    if why.startswith(FILE_LOCK) and (holder := _HOLDER.match(why)):
        return f"let {holder[1]} release that file lock before it waits for the others"
    if why.startswith(FILE_LOCK):
        return "see who holds that file lock (lslocks): a rank that holds it must not wait for the others"
    return ""


def _advice(state: RankState, why: str, *, is_past: bool) -> str:
    if state is RankState.BUSY and is_past:
        return (
            "it may have been at work: next time take its stacks twice before you stop the job "
            "(distdbg stacks)"
        )
    if advice := advice_of_reason(why):
        return advice
    if state is RankState.ASLEEP and "sleep" in why:
        return "see why it sleeps there: time.sleep, or a wait with a time limit"
    return _ADVICE.get(state, "")


def _severity(session: Session, doing: RankActivity, end: ChainEnd | None) -> Severity:
    is_over = session.cut is not None or not session.is_live
    is_proven = (
        is_over or measure_of(doing.state).error_ns is not None or _is_locked_out(doing, end)
    )
    if end is not None:
        return Severity.ERROR if is_proven else Severity.WARNING
    # Nobody waits for it: all ranks may compute, or read, at once.
    is_at_work = doing.state in (RankState.BUSY, RankState.ASLEEP)
    return Severity.NOTE if is_at_work else Severity.WARNING


def _now(
    session: Session, ranks: tuple[int, ...], doing: RankActivity, end: ChainEnd | None
) -> str:
    assert doing.state is not None
    seen = session.ranks[doing.rank].activity
    assert seen is not None
    is_locked = waits_for_lock(doing.state, seen.why)
    state = _IS.get(doing.state, f"is {doing.state.value}")
    if len(ranks) > 1:
        state = re.sub("^is ", "are ", state).replace("holds", "hold")
    if doing.why.startswith(FOR_WHOM):
        state = f"{verb(ranks, 'is', 'are')} {doing.why.partition(';')[0]}"
    elif is_locked:
        state = verb(ranks, "waits for a lock", "wait for a lock")
    head = f"{say_ranks(ranks, 3)} {state}"
    where = place(doing.site)
    tails = [f" {where}" if where else ""]
    tails.append(doing.lasts)
    if end is not None:
        wait, whom = verb(end.waiters, "waits", "wait"), verb(ranks, "it", "them")
        tails.append(f"; {say_ranks(end.waiters, 3)} {wait} for {whom}")
        is_one = {edge.rank for edge in end.direct} == set(end.waiters)
        if is_one and (op := end.waited_in(session)):
            tails.append(f" in {op}")
    if doing.state is not RankState.BUSY and seen.why:
        tails.append(f" ({seen.why})")
    return fit(head, *tails, doing.compared)

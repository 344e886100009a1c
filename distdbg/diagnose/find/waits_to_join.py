"""Ranks that wait in init_process_group for others, by the notes of their calls.

    live    "all 5 ranks have waited 44 s in init_process_group at job.py:23 (connect) for rank 5, which was
            not started"
    over    "all 5 ranks waited 44 s ...; then the job was stopped by SIGTERM"

They have no record and no op yet. Where they gave up by themselves, their errors say it (`not_joined`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from distdbg.diagnose.doing import doing_of, traits_of_doing
from distdbg.diagnose.endings import Endings, EndRole, RankEnding, endings_of
from distdbg.diagnose.failures import failures_of
from distdbg.diagnose.finding import Evidence, Finding, FindingKind, Severity, Waits
from distdbg.diagnose.matching import Matched
from distdbg.diagnose.ops import NEVER
from distdbg.diagnose.session import Session
from distdbg.diagnose.stops import OutsideStop, stop_of
from distdbg.diagnose.traits import Advice, Trait
from distdbg.diagnose.wording import fit, known_ns, say_ranks, verb
from distdbg.record.join_calls import JoinCall
from distdbg.record.join_waits import JoinReason, JoinWait, find_join_wait
from distdbg.record.thresholds import limit_ns

_TRAITS: Final = MappingProxyType(
    {
        JoinReason.SIZES: (Trait.HOLDS_ALWAYS,),
        JoinReason.TWICE: (Trait.HOLDS_ALWAYS, Trait.RANK_TWICE),
        JoinReason.PLACES: (Trait.HOLDS_ALWAYS,),
        # If ranks have not called it, the advice may be that there are more of them than were started.
        JoinReason.ABSENT: (Trait.HOLDS_ALWAYS, Trait.WORLD_SIZE),
        JoinReason.TOO_MANY: (Trait.HOLDS_ALWAYS, Trait.WORLD_SIZE),
    }
)
#: Ends that are none of the rank's own: it would have gone on.
_FROM_OUTSIDE: Final = (EndRole.ENDED, EndRole.INTERRUPTED)
_LIMIT: Final = 8


def find(session: Session, matched: Matched, waits: Waits) -> list[Finding]:
    if not any(log.join is not None for log in session.ranks.values()):
        return []
    failures = failures_of(session)
    endings = endings_of(session, failures)
    calls = {
        rank: _on_clock_of(session, rank, log.join)
        for rank, log in session.ranks.items()
        if log.join is not None and not (log.join.gave_up and _went_on(endings.get(rank)))
    }
    stop = stop_of(session, failures, endings)
    ended = {rank: one.how for rank, one in endings.items() if one.part not in _FROM_OUTSIDE}
    doing = {rank: doing_of(session, rank).text for rank in session.ranks if rank not in ended}
    found = find_join_wait(calls, ended, doing, _until_ns(session, calls, stop))
    return [] if found is None else [_finding(session, found, calls, endings, stop)]


def _on_clock_of(session: Session, rank: int, call: JoinCall) -> JoinCall:
    """With times of the session: the clocks of two hosts differ."""
    since_ns, step_ns = (session.time_ns(rank, at_ns) for at_ns in (call.since_ns, call.step_ns))
    return replace(call, since_ns=since_ns, step_ns=step_ns)


def _went_on(ending: RankEnding | None) -> bool:
    """Whether the program caught the error and did without the group, as far as is known."""
    return ending is None or ending.part is EndRole.FINE


def _until_ns(session: Session, calls: Mapping[int, JoinCall], stop: OutsideStop | None) -> int:
    """When the waits ended, on the clock of the session."""
    ends = [at_ns for call in calls.values() if (at_ns := call.waited_until_ns) is not None]
    if stop is not None and stop.at_ns != NEVER:
        ends.append(stop.at_ns)
    return min(ends, default=session.now_ns)


def _finding(
    session: Session,
    found: JoinWait,
    calls: Mapping[int, JoinCall],
    endings: Endings,
    stop: OutsideStop | None,
) -> Finding:
    is_long = found.waited_ns >= limit_ns(None)
    kind, severity = FindingKind.STALL, Severity.WARNING if is_long else Severity.NOTE
    if found.has_given_up or (is_long and not session.is_live):
        kind, severity = FindingKind.MISSING_RANK, Severity.ERROR
    have = verb(found.waiting, "has", "have")
    then = f"; then {stop.words}" if stop is not None and is_long else ""
    then = "; then it timed out" if found.has_given_up else then
    return Finding(
        kind=kind,
        severity=severity,
        what=fit("".join(found.say("waited" if not session.is_live else f"{have} waited")), then),
        ranks=found.causes,
        victims=tuple(rank for rank in found.waiting if rank not in found.causes),
        at_ns=known_ns(_since_ns(found, endings)),
        evidence=(
            *_calls(found, calls),
            *_late(session, found, endings),
        ),
        advice=Advice(found.advice, *_TRAITS.get(found.reason, ())) or Advice(_advice(found)),
        traits=frozenset((Trait.JOINING, *traits_of_doing(session, found.causes))),
        numbers={"waited_s": found.waited_ns / 1e9, "waiting": float(len(found.waiting))},
    )


def _since_ns(found: JoinWait, endings: Endings) -> int:
    """When all of them waited; for one that had ended, not before it had."""
    gone = [endings[rank] for rank in found.causes if rank in endings]
    ends = [one.at_ns for one in gone if one.part not in _FROM_OUTSIDE and one.at_ns != NEVER]
    return max([found.since_ns, *ends])


def _calls(found: JoinWait, calls: Mapping[int, JoinCall]) -> Iterator[Evidence]:
    """'ranks 0-4 called init_process_group(world_size=6) at job.py:23 (connect), to meet at tcp://...'."""
    alike: dict[tuple[str, ...], list[int]] = {}
    for rank in found.waiting:
        call = calls[rank]
        given = [f"world_size={call.world_size}"] if call.world_size > 0 else []
        given += [f"rank={call.as_rank}"] if call.as_rank not in (-1, rank) else []
        at = f" at {call.site}" if call.site else ""
        meet = f", to meet at {call.where}" if call.where else ""
        reached = ", which it reached" if call.is_connected and meet else ""
        key = (f"init_process_group({', '.join(given)}){at}{meet}", reached)
        alike.setdefault(key, []).append(rank)
    for (text, reached), ranks in list(alike.items())[:_LIMIT]:
        reached = reached.replace("it", "they") if len(ranks) > 1 else reached
        first = calls[ranks[0]]
        yield Evidence(
            text=f"{say_ranks(ranks)} called {text}{reached}",
            rank=ranks[0],
            site=first.site,
            at_ns=known_ns(first.since_ns),
            ranks=tuple(ranks),
        )


def _late(session: Session, found: JoinWait, endings: Endings) -> Iterator[Evidence]:
    """What is known of those that have not called it."""
    be = "is" if session.is_live else "was"
    for rank in found.causes[:_LIMIT]:
        if rank in found.waiting:
            continue
        if doing := doing_of(session, rank).text:
            yield Evidence(text=f"rank {rank} {be} {doing}", rank=rank)
        if rank in endings and endings[rank].part not in _FROM_OUTSIDE:
            yield Evidence(text=f"rank {rank} {endings[rank].how}", rank=rank)


def _advice(found: JoinWait) -> str:
    late = [rank for rank in found.causes if rank not in found.waiting]
    return f"see what {say_ranks(late, 3)} did before init_process_group" if late else ""

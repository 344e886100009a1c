"""Ranks that others wait for and that will not arrive: returned, left, gone, or too late.

A rank that is late because it waits itself is a victim, unless it has destroyed the group of the op; the
chain of waits is followed to its end. A rank there that is alive and busy is a stall while there is time, and
missing once the waits of the others have timed out, or once the job is over.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from distdbg.diagnose.chains import ChainEnd, chain_ends, sites_of
from distdbg.diagnose.debugged import is_debugged
from distdbg.diagnose.doing import traits_of_doing
from distdbg.diagnose.find.crossed_calls import WrongPeerFact, taken_messages, unmatched_messages
from distdbg.diagnose.find.diverging_calls import DifferenceText, tell_parting
from distdbg.diagnose.find.exit_call import exit_call, exit_site
from distdbg.diagnose.find.not_relayed import not_relayed_messages
from distdbg.diagnose.find.used_wrong_group import used_wrong_group
from distdbg.diagnose.finding import Evidence, Finding, FindingKind, Severity, Waits
from distdbg.diagnose.last_op import last_op
from distdbg.diagnose.matching import Matched
from distdbg.diagnose.ops import NEVER
from distdbg.diagnose.session import GroupProgress, RankLog, Session
from distdbg.diagnose.traits import NO_TRAITS, Advice, Trait
from distdbg.diagnose.wording import fit, known_ns, say_ranks, say_s, short_site, site_of, verb
from distdbg.record.format import Exit, Flag, Status

_MAX_TOLD: Final = 4


def find(session: Session, matched: Matched, waits: Waits) -> list[Finding]:
    findings = []
    for end in chain_ends(session, waits):
        for how, ranks in _divide(session, end).items():
            findings.append(_finding(session, matched, waits, end, how, ranks))
    return findings


def tell_who_came_late(finding: Finding, session: Session, matched: Matched) -> Finding:
    """Name ranks that called the op after all, when the others had given it up: 'never' is wrong."""
    if finding.kind is not FindingKind.MISSING_RANK or not finding.ranks or not finding.seq:
        return finding
    for index, group in enumerate(session.groups):
        if group.label != finding.group:
            continue
        calls = matched.of(index).at(finding.seq)
        late = [calls[rank] for rank in finding.ranks if rank in calls]
        if not all(f" {session.name_of(op)}, " in finding.what for op in late):
            continue  # another op: an aside has a number of its own
        what = finding.what
        if len(late) == len(finding.ranks):
            what = fit(what.replace(" never called ", " came too late to ", 1))
        lines = [
            Evidence(
                text=f"rank {op.rank} called it when the others had given up",
                rank=op.rank,
                op=op,
                site=site_of(session, op),
                at_ns=known_ns(
                    session.time_ns(op.rank, session.ranks[op.rank].ops.issued_ns[op.at])
                ),
            )
            for op in late[:_MAX_TOLD]
        ]
        return replace(finding, what=what, evidence=(*finding.evidence, *lines))
    return finding


def _divide(session: Session, end: ChainEnd) -> dict[str, tuple[int, ...]]:
    """The missing among the ranks at the end of a chain, by how they are missing."""
    found: dict[str, list[int]] = {}
    for rank in end.ranks:
        how = missing_how(session, end, rank)
        if how:
            found.setdefault(how, []).append(rank)
    return {how: tuple(ranks) for how, ranks in found.items()}


_UNKNOWN: Final = "unknown"
_LATE: Final = "late"
#: How a rank is missing whose program is over.
_ENDED: Final = ("returned", "exited")


def missing_how(session: Session, end: ChainEnd, rank: int) -> str:
    """'returned', 'left', 'destroyed the group' ..., or _LATE, _UNKNOWN; '' for a rank of another finder."""
    log = session.ranks.get(rank)
    if log is None:
        return _UNKNOWN
    if log.exit is Exit.RAISED or log.has_failed:
        return ""  # dead
    if log.exit is Exit.RETURNED:
        return "returned"
    if log.exit is Exit.LEFT:
        return "left"
    if log.end is not None or (log.activity is not None and log.activity.state.is_over):
        return "exited"
    if _has_closed(session, end, log):
        return "destroyed the group"
    if log.activity is not None and log.activity.state.is_stuck:
        return ""
    if is_debugged(log):  # it will call it when its user lets it
        return ""
    return "" if is_benign(session) else _LATE


def is_benign(session: Session) -> bool:
    """Whether a rank that is not there yet may still come, or might have, had nobody ended the job."""
    return session.was_killed or (session.is_live and session.cut is not Status.TIMEOUT)


def _has_closed(session: Session, end: ChainEnd, log: RankLog) -> bool:
    return _closed(session, end, log) is not None


def _closed(session: Session, end: ChainEnd, log: RankLog) -> GroupProgress | None:
    """How far the rank had come on the group of the op when it destroyed that group; None: it has not."""
    group = _group_of(session, end)
    progress = log.progress.get(group) if group is not None else None
    return progress if progress is not None and progress.closed_ns is not None else None


def _group_of(session: Session, end: ChainEnd) -> int | None:
    op = end.op
    if op is None:
        return None
    index = session.ranks[op.rank].ops.group[op.at]
    return index if index >= 0 else None


def _finding(
    session: Session,
    matched: Matched,
    waits: Waits,
    end: ChainEnd,
    how: str,
    ranks: tuple[int, ...],
) -> Finding:
    astray = _astray(session, matched, waits, end, how)
    cause = next((miss for miss in astray if miss.cause), None)
    parted = DifferenceText() if cause else _parted(session, matched, end, how, ranks)
    direct = tuple(sorted({edge.rank for edge in end.direct}))
    place = session.name_of(end.op) if end.op else end.edge.text
    group = _group_of(session, end)
    blamed = cause.ranks if cause else direct if parted.extra else () if how is _UNKNOWN else ranks
    return Finding(
        kind=FindingKind.MISSING_RANK,
        severity=Severity.NOTE if how is _UNKNOWN and session.is_live else Severity.ERROR,
        what=(
            _what_astray(cause, how, ranks)
            if cause
            else _what_extra(parted.extra, ranks, how, direct, place)
            if parted.extra
            else _what_parted(session, end, how, ranks, direct, place, parted.tail)
        ),
        ranks=blamed,
        victims=tuple(rank for rank in end.waiters if rank not in blamed),
        group=session.groups[group].label if group is not None else "",
        seq=_seq_of(session, end),
        # A rank that did something else began to wait before the rank it waits for went.
        at_ns=_at_ns(session, end, how, ranks) if blamed == ranks else end.since_ns,
        evidence=(
            *(miss.evidence for miss in astray if cause),
            *(_evidence_of(session, end, rank) for rank in ranks[:_MAX_TOLD]),
            *parted.evidence,
            *(miss.evidence for miss in astray if not cause),
            *_doings(session, ranks),
            *last_ops(session, ranks),
            *wait_evidence(session, end),
        ),
        advice=next((miss.advice for miss in astray if miss.advice), "")
        or _advice_of_exit(session, how, ranks)
        or parted.advice
        or _advice_of_none(session, end, how, ranks)
        or _advice(how, ranks, _other_part(session, end), _left_at(session, end, ranks)),
        numbers=_numbers(session, end, ranks) | ({"parted": parted.seq} if parted.seq else {}),
        traits=NO_TRAITS if cause or parted.extra else traits_of_doing(session, ranks),
    )


def _astray(
    session: Session,
    matched: Matched,
    waits: Waits,
    end: ChainEnd,
    how: str,
) -> list[WrongPeerFact]:
    """Explain why ranks wait: messages that went elsewhere, or to another recv; calls on a wrong group."""
    if how is _UNKNOWN:
        return []
    behind = [edge for rank in end.waiters for edge in waits.get(rank, ())]
    if not is_message(session, end):
        return used_wrong_group(session, matched, end.direct, behind)
    taken = taken_messages(session, end.direct)
    unmatched = unmatched_messages(session, end.direct, behind)
    return [*taken, *unmatched, *(() if taken else not_relayed_messages(session, end.direct))]


def _what_astray(cause: WrongPeerFact, how: str, ranks: tuple[int, ...]) -> str:
    """The cause, and how those that are waited for are gone, who did nothing wrong."""
    gone = f"; {say_ranks(ranks, 3)} {how}" if how is not _LATE else ""
    return fit(cause.cause[0], *cause.cause[1:], gone)


def _what_extra(
    extra: str, ranks: tuple[int, ...], how: str, direct: tuple[int, ...], place: str
) -> str:
    """Most ranks agree that there was nothing left to call."""
    waited = verb(direct, "it waited", "they waited")
    return fit(
        f"{extra} than {say_ranks(ranks, 3)}, which {how} while {waited} for them in {place}"
    )


def _what_parted(
    session: Session,
    end: ChainEnd,
    how: str,
    ranks: tuple[int, ...],
    direct: tuple[int, ...],
    place: str,
    tail: str,
) -> str:
    """What they did before they went comes first: it is the cause."""
    what = _what(session, end, how, ranks, direct, place)
    gone = f"{say_ranks(ranks, 3)} {how} "
    did = tail.removeprefix(f": {verb(ranks, 'it', 'they')} ")
    if tail and did != tail and what.startswith(gone):
        they = verb(ranks, "it", "they")
        return fit(f"{say_ranks(ranks, 3)} {did}", f"; {they} {how} {what.removeprefix(gone)}")
    return fit(what, tail)


def _parted(
    session: Session, matched: Matched, end: ChainEnd, how: str, ranks: tuple[int, ...]
) -> DifferenceText:
    """Where those that made fewer calls than the waiting ranks part from them."""
    group, seq = _group_of(session, end), _seq_of(session, end)
    behind = [rank for rank in ranks if behind_by(session, end, rank)]
    if how is _UNKNOWN or group is None or not seq or not behind:
        return DifferenceText()
    direct = sorted({edge.rank for edge in end.direct})
    ended_at = exit_site(session, behind[0]) if how in _ENDED else ""
    return tell_parting(
        session, matched, group, behind, direct, is_over=how is not _LATE, ended_at=ended_at
    )


def _what(
    session: Session,
    end: ChainEnd,
    how: str,
    ranks: tuple[int, ...],
    direct: tuple[int, ...],
    place: str,
) -> str:
    is_past = session.cut is not None or not session.is_live
    did = "waited" if is_past else verb(direct, "waits", "wait")
    waiting = f"{say_ranks(direct, 3)} {did}"
    if how is _UNKNOWN:
        return fit(
            f"nothing is known of {say_ranks(ranks, 3)}, for which {waiting}", f" in {place}"
        )
    if how is not _LATE:
        return fit(
            f"{say_ranks(ranks, 3)} {how} while {waiting} for {verb(ranks, 'it', 'them')} in {place}"
        )
    if is_message(session, end):
        is_recv = end.op is not None and session.kind_of(end.op) == "recv"
        never = "never sent to" if is_recv else "never received from"
        return fit(
            f"{say_ranks(ranks, 3)} {never} {say_ranks(direct, 3)}, waiting in {place}",
            _since(session, end),
        )
    return fit(
        f"{say_ranks(ranks, 3)} never called {place}, in which {waiting}",
        _since(session, end),
    )


def is_message(session: Session, end: ChainEnd) -> bool:
    op = end.op
    return op is not None and bool(session.ranks[op.rank].ops.flags[op.at] & Flag.MESSAGE)


def _since(session: Session, end: ChainEnd) -> str:
    since = end.since_ns
    if since is None or session.now_ns == NEVER:
        return ""
    return f" for {say_s(session.now_ns - since)}"


def _seq_of(session: Session, end: ChainEnd) -> int:
    op = end.op
    if op is None or is_message(session, end):
        return 0
    return session.ranks[op.rank].ops.seq[op.at]


def _at_ns(session: Session, end: ChainEnd, how: str, ranks: tuple[int, ...]) -> int | None:
    """When they went; else since when they are waited for."""
    if how not in (_LATE, _UNKNOWN):
        times = [session.time_ns(rank, session.ranks[rank].exit_ns) for rank in ranks]
        times = [time for time in times if time != NEVER]
        if times:
            return min(times)
    return end.since_ns


def _evidence_of(session: Session, end: ChainEnd, rank: int) -> Evidence:
    log = session.ranks.get(rank)
    if log is None:
        return Evidence(text=f"the record of rank {rank} is missing", rank=rank)
    closed = _closed(session, end, log)
    at = f" at {closed.closed_at}" if closed is not None and closed.closed_at else ""
    if log.exit is not None and log.exit_ns != NEVER:
        text = {
            Exit.LEFT: f"left: it called destroy_process_group{at}",
            Exit.RETURNED: "returned from its program",
        }
        call = exit_call(session, rank) if log.exit is Exit.RETURNED else None
        how = text.get(log.exit, "raised")
        return Evidence(
            text=f"rank {rank} {how}" if call is None else _say_call(call),
            rank=rank,
            at_ns=known_ns(session.time_ns(rank, log.exit_ns)),
        )
    if log.end is not None:
        at_ns = known_ns(session.time_ns(rank, log.end.ended_ns))
        call = exit_call(session, rank)  # os._exit(0) leaves no other word
        ended = f"rank {rank} {log.end.how}" if call is None else _say_call(call)
        return Evidence(text=ended, rank=rank, at_ns=at_ns)
    if closed is not None and closed.closed_ns is not None:
        return Evidence(
            text=f"rank {rank} called destroy_process_group{at}",
            rank=rank,
            site=closed.closed_at,
            at_ns=known_ns(session.time_ns(rank, closed.closed_ns)),
        )
    behind = behind_by(session, end, rank)
    group = _group_of(session, end)
    if not behind or group is None:  # an aside is not counted among the ops of its group
        return Evidence(text=f"rank {rank} has not reached it", rank=rank)
    label = session.groups[group].label
    seq = _seq_of(session, end) - behind
    calls = f"its last op there is #{seq}" if seq else "it has called no collective there"
    count = f"{behind} op" if behind == 1 else f"{behind} ops"
    return Evidence(text=f"rank {rank} is {count} behind on group '{label}': {calls}", rank=rank)


def _say_call(call: Evidence) -> str:
    """'rank 1 called sys.exit(0) at train.py:8 (main)'."""
    return call.text.replace(": called ", " called ", 1)


def _doings(session: Session, ranks: Sequence[int]) -> Iterator[Evidence]:
    """What an agent saw them do instead."""
    for rank in ranks[:_MAX_TOLD]:
        log = session.ranks.get(rank)
        seen = None if log is None else log.activity
        if seen is not None and seen.site and not seen.state.is_over:
            site, since = short_site(seen.site), session.time_ns(rank, seen.since_ns)
            yield Evidence(text=f"rank {rank} was in {site}", rank=rank, site=site, at_ns=since)


def behind_by(session: Session, end: ChainEnd, rank: int) -> int | None:
    """How many ops of the group a rank has yet to call; None where that cannot be told."""
    seq, group, log = _seq_of(session, end), _group_of(session, end), session.ranks.get(rank)
    if not seq or group is None or log is None or group not in log.progress:
        return None
    return max(seq - log.progress[group].issued_seq, 0)


def last_ops(session: Session, ranks: Sequence[int]) -> list[Evidence]:
    """What the first few of the ranks called last."""
    found = [last_op(session, rank) for rank in ranks[:_MAX_TOLD]]
    return [one for one in found if one is not None]


def wait_evidence(session: Session, end: ChainEnd) -> list[Evidence]:
    """Where they are waited for."""
    found = []
    for text, site, ranks in list(sites_of(end))[:_MAX_TOLD]:
        first = next(e for e in end.direct if e.rank == ranks[0] and e.text == text)
        where = f" at {site}" if site else ""
        found.append(
            Evidence(
                text=f"{say_ranks(ranks)} {verb(ranks, 'waits', 'wait')} in {text}{where}",
                rank=ranks[0],
                ranks=tuple(ranks),
                op=first.op,
                site=site,
                at_ns=first.since_ns,
            )
        )
    return found


def _numbers(session: Session, end: ChainEnd, ranks: Sequence[int]) -> dict[str, float]:
    numbers: dict[str, float] = {"waiting": float(len(end.waiters))}
    if end.since_ns is not None and session.now_ns != NEVER:
        numbers["waited_s"] = max(session.now_ns - end.since_ns, 0) / 1e9
    behind = [behind_by(session, end, rank) for rank in ranks]
    known = [one for one in behind if one is not None]
    if known:
        numbers["behind"] = float(max(known))
    return numbers


def _advice_of_none(session: Session, end: ChainEnd, how: str, ranks: tuple[int, ...]) -> str:
    """Where they called nothing on the group at all, and the others made only their first call."""
    site = site_of(session, end.op).partition(" (")[0] if end.op is not None else ""
    if how in (_LATE, _UNKNOWN) or _seq_of(session, end) != 1 or not site:
        return ""
    if _left_at(session, end, ranks):
        return ""
    if any(behind_by(session, end, rank) != 1 for rank in ranks):
        return ""
    logs = [session.ranks[rank] for rank in ranks]
    if any(len(log.ops) or log.lost.get("ops") for log in logs):
        return ""
    return (
        f"{say_ranks(ranks, 3)} made no op at all: see what keeps {verb(ranks, 'it', 'them')} from {site}: a "
        "condition, or a loop with zero rounds"
    )


def _advice_of_exit(session: Session, how: str, ranks: tuple[int, ...]) -> str:
    """Where a rank alone ended its program by a call; ''."""
    sites = {exit_site(session, rank) for rank in ranks} if how in _ENDED else set()
    site = sites.pop() if len(sites) == 1 else ""
    if not site:
        return ""
    return f"see why {site} ends the program of {say_ranks(ranks, 3)}: all ranks have to decide that alike"


def _other_part(session: Session, end: ChainEnd) -> str:
    """What a message that is waited for lacks; '' of a collective."""
    if end.op is None or not is_message(session, end):
        return ""
    return "sending" if session.kind_of(end.op) == "recv" else "receiving"


def _left_at(session: Session, end: ChainEnd, ranks: tuple[int, ...]) -> str:
    """'train.py:95', where they destroyed the group of the op at one line; ''."""
    logs = [session.ranks.get(rank) for rank in ranks]
    closed = [None if log is None else _closed(session, end, log) for log in logs]
    sites = {"" if far is None else far.closed_at.partition(" (")[0] for far in closed}
    return sites.pop() if len(sites) == 1 else ""


def _advice(how: str, ranks: tuple[int, ...], other_part: str, left_at: str) -> str:
    whom = say_ranks(ranks, 3)
    if how is _UNKNOWN:
        process = verb(ranks, "its process", "their processes")
        return f"add the record of {whom}, or look at {process}: the cause is there or beyond"
    if how is _LATE:
        whose = verb(ranks, "its", "their")
        return f"see what {whom} did after {whose} last op: it took another branch, or is slow"
    did = f"left at {left_at}" if left_at else "ended"
    if other_part:
        return Advice(f"see why {whom} {did} without {other_part} the message", Trait.ENDED_WITHOUT)
    return Advice(
        f"all ranks of a group must call the same ops: see why {whom} {did} without making this call",
        Trait.ENDED_WITHOUT,
    )

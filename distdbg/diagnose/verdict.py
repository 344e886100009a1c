"""The verdict: runs all finders, puts the cause before its consequences, gives each rank a role. Pure.

    verdict = diagnose(session)

A finding is put below another (`follows`) when it would not be there without it: an op that timed out
below the deadlock that it waited in. What can explain what
is a table by kind (`_EXPLAINS`); it also takes that they have a rank in common, and that the cause is
not known to have come later. What is left on top is sorted by severity, by how direct it is, by time
where the clocks are good enough, then by rank; never by the order of reading. While ranks wait for one that
may still arrive, that comes before errors that the program caught and survived.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from distdbg.diagnose.endings import endings_of, swept_away
from distdbg.diagnose.failures import failures_of
from distdbg.diagnose.find import (
    dead,
    dead_child,
    deadlock,
    diverged,
    failed_op,
    latent,
    latent_before,
    leaks,
    message_race,
    mismatch,
    missing,
    missing_records,
    nan_source,
    no_gradient,
    not_joined,
    not_reduced,
    order_inversion,
    out_of_batches,
    slow_link,
    stale_receive,
    stall,
    stopped,
    straggler,
    stuck,
    suspicion,
    thread_error,
    waits_to_join,
    while_handling_error,
)
from distdbg.diagnose.finding import Edge, Finding, FindingKind, Role, Severity, Verdict, Waits
from distdbg.diagnose.last_moment import DEATH_NS, last_moment, matched_at
from distdbg.diagnose.matching import Matched, match
from distdbg.diagnose.ops import NEVER
from distdbg.diagnose.session import RankLog, Session
from distdbg.diagnose.traits import Trait
from distdbg.diagnose.waits import find_waits
from distdbg.diagnose.wording import fit, say_ranks
from distdbg.record.format import Exit

Finder = Callable[[Session, Matched, Waits], list[Finding]]

#: Those that look at the whole session.
FINDERS: Final[tuple[Finder, ...]] = (
    mismatch.find,
    dead.find,
    not_joined.find,
    waits_to_join.find,
    nan_source.find,
    diverged.find,
    failed_op.find,
    stopped.find,
    straggler.find,
    slow_link.find,
    order_inversion.find,
    latent.find,
    not_reduced.find,
    leaks.find,
    message_race.find,
    suspicion.find,
    missing_records.find,
)
#: Those that look at waits: at the last moment before ops began to fail, where any did.
WAIT_FINDERS: Final[tuple[Finder, ...]] = (
    deadlock.find,
    missing.find,
    stuck.find,
    stall.find,
)

_HANGS: Final = frozenset(
    (FindingKind.DEADLOCK, FindingKind.MISSING_RANK, FindingKind.STUCK_RANK, FindingKind.STALL)
)
_ENDS: Final = frozenset((FindingKind.FAILED_OP, FindingKind.STOPPED))
_LEFT: Final = frozenset((FindingKind.LEAKED_WORK, FindingKind.LEAKED_GROUP))
#: What a finding of one kind can be the cause of.
_EXPLAINS: Final[Mapping[FindingKind, frozenset[FindingKind]]] = {
    FindingKind.MISMATCH: _HANGS | _ENDS | _LEFT,
    FindingKind.DEAD_RANK: _HANGS | _ENDS | _LEFT,
    FindingKind.DEADLOCK: frozenset((FindingKind.MISSING_RANK, FindingKind.STALL)) | _ENDS | _LEFT,
    FindingKind.STUCK_RANK: frozenset(
        (FindingKind.MISSING_RANK, FindingKind.STALL, FindingKind.DEAD_RANK)
    )
    | _ENDS
    | _LEFT,
    FindingKind.NAN_SOURCE: _ENDS,
    FindingKind.DIVERGED: _ENDS,
    FindingKind.MISSING_RANK: frozenset((FindingKind.STALL, FindingKind.DEAD_RANK)) | _ENDS | _LEFT,
    FindingKind.STOPPED: frozenset((FindingKind.STALL, FindingKind.FAILED_OP)) | _LEFT,
    FindingKind.FAILED_OP: frozenset(
        (FindingKind.STALL, FindingKind.STOPPED, FindingKind.FAILED_OP)
    ),
    FindingKind.STALL: frozenset(),
}
#: The more direct a cause, the earlier; what is not here comes after them.
_ORDER: Final = (
    FindingKind.MISMATCH,
    FindingKind.DEAD_RANK,
    FindingKind.DEADLOCK,
    FindingKind.STUCK_RANK,
    FindingKind.MISSING_RANK,
    FindingKind.NAN_SOURCE,
    FindingKind.DIVERGED,
    FindingKind.STOPPED,
    FindingKind.FAILED_OP,
    FindingKind.STALL,
)
#: Causes come before mere consequences whatever their times.
_LATE: Final = frozenset((FindingKind.FAILED_OP, FindingKind.STOPPED, FindingKind.STALL))
#: Warnings of these kinds, and notes, are of what is over: the ranks have gone on.
_OVER: Final = frozenset(
    (
        FindingKind.FAILED_OP,
        FindingKind.NAN_SOURCE,
        FindingKind.DIVERGED,
        FindingKind.SUSPICION,
        FindingKind.LEAKED_WORK,
        FindingKind.LEAKED_GROUP,
        FindingKind.BUFFER_RACE,
        FindingKind.MESSAGE_RACE,
    )
)
_SEVERITIES: Final = tuple(Severity)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictWithWaits:
    """A verdict, and the waits that it stands on; edges by rank."""

    verdict: Verdict
    waits: dict[int, tuple[Edge, ...]]
    """The waits of now."""
    waits_before: dict[int, tuple[Edge, ...]]
    """The waits before ops began to fail; the same where none has failed."""


def diagnose(session: Session) -> Verdict:
    """What is wrong with a job, and which of it is the cause."""
    return diagnose_with_waits(session).verdict


def diagnose_with_waits(session: Session) -> VerdictWithWaits:
    """Diagnose, and return the waits it was proven from: matching the ops of ranks is most of the work."""
    if list(session.ranks) != sorted(session.ranks):
        session = replace(session, ranks=dict(sorted(session.ranks.items())))
    matched = match(session)
    moment = last_moment(session)
    then = matched_at(matched, session, moment)
    waits = find_waits(moment, then)
    waits_now = waits if moment is session else find_waits(session, matched)
    found = [finding for find in FINDERS for finding in find(session, matched, waits)]
    found += [finding for find in WAIT_FINDERS for finding in find(moment, then, waits)]
    if moment is not session:
        found = [missing.tell_who_came_late(finding, session, matched) for finding in found]
        found += _found_since(session, matched, waits_now, found)
    found = no_gradient.tell_no_gradients(found, session)
    found = [out_of_batches.tell_out_of_batches(finding, session) for finding in found]
    until_ns = moment.now_ns if moment is not session else NEVER
    found = [thread_error.tell_thread_error(finding, session) for finding in found]
    found = latent_before.tell_latent_before(stale_receive.tell_stale_receive(found), session)
    found = [dead_child.tell_dead_child(finding, session) for finding in found]
    found = [while_handling_error.tell_handled(finding, session) for finding in found]
    tops = _put_below(session, _with_said(found, session.said), until_ns)
    tops = _soften_stops(session, tops)
    root = _root(tops)
    if root is not None:
        tops = [root, *(finding for finding in tops if finding is not root)]
    verdict = Verdict(
        what=root.what if root is not None else _what_else(session),
        root=root,
        findings=tuple(tops),
        roles=_roles(session, root),
        lacks=_lacks(session, root),
    )
    return VerdictWithWaits(verdict=verdict, waits=waits_now, waits_before=waits)


def _found_since(
    session: Session,
    matched: Matched,
    waits: Waits,
    before: Sequence[Finding],
) -> Iterator[Finding]:
    """What ranks wait for now, where some have given up before: a hang may outlive a caught error."""
    known = {(finding.kind, finding.ranks, finding.group, finding.seq) for finding in before}
    for find in WAIT_FINDERS if waits else ():
        for finding in find(session, matched, waits):
            if (finding.kind, finding.ranks, finding.group, finding.seq) not in known:
                yield finding


def _with_said(found: Sequence[Finding], said: Sequence[Finding]) -> list[Finding]:
    """What logs state of something that was found as well is more evidence of it."""
    whole = list(found)
    for one in said:
        if one.kind is FindingKind.DEADLOCK and _is_found(one, found):
            continue
        same = (one.kind, set(one.ranks))
        at = next((i for i, f in enumerate(found) if (f.kind, set(f.ranks)) == same), None)
        if at is None or not one.ranks:
            whole.append(one)
        else:
            whole[at] = replace(whole[at], evidence=(*whole[at].evidence, *one.evidence))
    return whole


def _is_found(proof: Finding, found: Sequence[Finding]) -> bool:
    """Whether a deadlock that was proven before is one of these: the records show it as well."""
    return any(
        one.kind is FindingKind.DEADLOCK
        and not set(proof.ranks).isdisjoint((*one.ranks, *one.victims))
        for one in found
    )


# ------------------------------------------------------------------------- cause and consequence


def _put_below(session: Session, found: Sequence[Finding], until_ns: int) -> list[Finding]:
    """Those that nothing explains, in order, with what follows from each below it.

    `until_ns`: when the waits that were looked at ended; NEVER: they go on.
    """
    ordered = _in_order(session, found)
    below: dict[int, list[Finding]] = {}
    tops: list[int] = []
    for at, finding in enumerate(ordered):
        cause = next((i for i in tops if _explains(session, ordered[i], finding, until_ns)), None)
        if cause is None:
            tops.append(at)
        else:
            below.setdefault(cause, []).append(finding)
    return [replace(ordered[at], follows=(*ordered[at].follows, *below.get(at, ()))) for at in tops]


def _soften_stops(session: Session, tops: Sequence[Finding]) -> list[Finding]:
    """A job that was ended while nothing was wrong has no fault: that it was ended is a note."""
    said = {finding.what for finding in session.said}
    stops = [f for f in tops if f.kind is FindingKind.STOPPED and f.what not in said]
    rest = [f for f in tops if f not in stops]
    has_errors = any(f.severity is Severity.ERROR for f in rest)
    softened = [_softened(stop, has_errors) for stop in stops]
    at = next((i for i, f in enumerate(rest) if f.severity is Severity.NOTE), len(rest))
    return [*rest[:at], *(note for notes in softened for note in notes), *rest[at:]]


def _softened(stop: Finding, has_errors: bool) -> list[Finding]:
    """The stop with what it interrupted; waits that were not long enough to call them a hang are notes."""
    waits = [f for f in stop.follows if f.kind is FindingKind.STALL]
    # What failed since is how it ended; what ranks waited for was before.
    below = [
        replace(f, severity=Severity.NOTE) for f in stop.follows if f.kind is not FindingKind.STALL
    ]
    stop = replace(stop, severity=Severity.NOTE, follows=tuple(below))
    if has_errors:
        return [stop, *waits]
    if not waits:
        return [replace(stop, what=fit(stop.what, "; no rank waited for a late one"))]
    longest = max(waits, key=lambda f: f.numbers.get("waited_s", 0.0))
    state = longest.what.partition("; then ")[0].replace(" waited ", " had waited ", 1)
    reported = replace(
        stop,
        what=fit(f"{stop.what}; {state}"),
        evidence=(*longest.evidence, *stop.evidence),
        ranks=longest.ranks,
        victims=longest.victims,
        traits=longest.traits,
        advice=longest.advice
        or f"if that was too long, see what {say_ranks(longest.ranks, 3)} did there"
        + (f"; {stop.advice}" if stop.advice else ""),
    )
    return [reported, *(f for f in waits if f is not longest)]


def _explains(session: Session, cause: Finding, other: Finding, until_ns: int) -> bool:
    if other.kind not in _EXPLAINS.get(cause.kind, frozenset()):
        return False
    if other.kind is FindingKind.DEAD_RANK and not _is_end_of_all(session, cause, other):
        return False
    if cause.severity is Severity.NOTE and other.severity is not Severity.NOTE:
        return False
    if cause.kind is FindingKind.STOPPED:
        is_common = True
    elif cause.kind is other.kind:  # two errors: the second names a rank that had the first
        is_common = not set(other.ranks).isdisjoint(cause.victims)
    else:
        blamed = other.ranks or other.victims
        if other.kind is FindingKind.FAILED_OP:  # its rank is to blame, or waited in it
            blamed = (*other.ranks, *other.victims)
        is_common = not {*cause.ranks, *cause.victims}.isdisjoint(blamed)
    if not is_common:
        return False
    if cause.at_ns is None or other.kind in _LEFT:
        return True
    error_ns = _clock_error_ns(session, cause, other)
    if other.kind in _HANGS:  # a wait begins before what makes it last
        return until_ns == NEVER or cause.at_ns <= until_ns + DEATH_NS + error_ns
    # Others feel a death before it is written down, and are told of a leaver before it writes it down.
    is_end = cause.kind in (FindingKind.DEAD_RANK, FindingKind.MISSING_RANK)
    if is_end and set(cause.ranks) & set(other.ranks):
        error_ns += DEATH_NS
    return other.at_ns is None or cause.at_ns <= other.at_ns + error_ns


def _is_end_of_all(session: Session, cause: Finding, other: Finding) -> bool:
    """Whether a hung job was killed as a whole: that is how it ended, and not why it hung."""
    everybody = {rank for rank, log in session.ranks.items() if log.has_failed}
    is_whole = len(everybody) > 1 and everybody == set(other.ranks)
    return is_whole and cause.severity is Severity.ERROR


def _clock_error_ns(session: Session, *findings: Finding) -> int:
    ranks = {r for finding in findings for r in (*finding.ranks, *finding.victims)}
    logs = [session.ranks[rank] for rank in ranks if rank in session.ranks]
    if len({log.host for log in logs}) <= 1:
        return 0
    return 2 * max((log.clock_error_ns or 0 for log in logs), default=0)


def _in_order(session: Session, found: Sequence[Finding]) -> list[Finding]:
    """By severity and directness, then time; those too close for the clocks by kind."""
    error_ns = _clock_error_ns(session, *found)
    is_waiting = any(finding.kind in _HANGS for finding in found)
    failed = [f.at_ns for f in found if f.kind is FindingKind.FAILED_OP and f.at_ns is not None]
    stopped = [f.at_ns for f in found if f.kind is FindingKind.STOPPED and f.at_ns is not None]
    # A person may end what an op had failed in before.
    is_late = bool(failed and stopped) and min(failed) + error_ns < min(stopped)
    keys = {id(finding): _key(finding, is_waiting, is_late) for finding in found}
    ordered = sorted(found, key=lambda f: keys[id(f)])
    result: list[Finding] = []
    while ordered:
        first = ordered[0]
        near = [
            f
            for f in ordered
            if keys[id(f)][:2] == keys[id(first)][:2] and _is_near(first, f, error_ns)
        ]
        best = min(near, key=lambda f: (_place(f.kind), keys[id(f)]))
        result.append(best)
        ordered.remove(best)
    return result


def _key(
    finding: Finding, is_waiting: bool, is_stop_late: bool
) -> tuple[int, int, int, int, tuple[int, ...], str, int, str]:
    weight = _SEVERITIES.index(finding.severity)
    if is_waiting and _is_over(finding):
        weight += len(_SEVERITIES)  # it explains nothing that ranks wait in now
    place = _place(finding.kind)
    if finding.kind is FindingKind.STOPPED and is_stop_late:
        place = _place(FindingKind.FAILED_OP) + 1
    return (
        weight,
        place if finding.kind in _LATE or finding.kind not in _ORDER else 0,
        2**63 if finding.at_ns is None else finding.at_ns,
        _place(finding.kind),
        finding.ranks,
        finding.group,
        finding.seq,
        finding.what,
    )


def _is_over(finding: Finding) -> bool:
    """Whether it is past, and the ranks went on."""
    if finding.severity is Severity.NOTE:
        return finding.kind not in _HANGS
    return finding.severity is Severity.WARNING and finding.kind in _OVER


def _is_near(first: Finding, other: Finding, error_ns: int) -> bool:
    if first.at_ns is None or other.at_ns is None:
        return first.at_ns == other.at_ns
    return other.at_ns - first.at_ns <= error_ns


def _place(kind: FindingKind) -> int:
    return _ORDER.index(kind) if kind in _ORDER else len(_ORDER) + list(FindingKind).index(kind)


# --------------------------------------------------------------------------------------- words


def _root(tops: Sequence[Finding]) -> Finding | None:
    return next(
        (
            f
            for f in tops
            if f.severity is not Severity.NOTE or f.kind in (FindingKind.STALL, FindingKind.STOPPED)
        ),
        None,
    )


def _what_else(session: Session) -> str:
    """Why there is no root cause."""
    blind = session.ranks_without_record()
    count, ranks = sum(len(log.ops) for log in session.ranks.values()), len(session.ranks)
    said = (
        f"no fault found in {ranks:,} rank{'s' * (ranks != 1)} and {count:,} op{'s' * (count != 1)}"
    )
    if session.went_well_unused():
        said = f"{say_ranks(blind)} ended with code 0 and left no record: no op is known"
    elif blind and len(blind) == ranks:
        said = f"no record of {say_ranks(blind)} could be read: only their ends are known"
    elif blind:
        said += f"; no record of {say_ranks(blind)} could be read"
    if missing_ranks := session.missing_ranks():
        said += f"; nothing is known of {say_ranks(missing_ranks)}"
    return said


def _roles(session: Session, root: Finding | None) -> dict[int, Role]:
    everybody = {*range(session.world_size), *session.ranks}
    roles = dict.fromkeys(sorted(everybody), Role.BYSTANDER)
    if root is None:
        return roles
    for finding in _all_of(root):
        for rank in (*finding.ranks, *finding.victims):
            roles[rank] = Role.VICTIM
    if root.severity is Severity.ERROR:
        for rank in swept_away(endings_of(session, failures_of(session))):
            roles[rank] = Role.VICTIM
    for rank in root.ranks:
        roles[rank] = Role.ROOT
    return roles


def _all_of(finding: Finding) -> Iterator[Finding]:
    yield finding
    for below in finding.follows:
        yield from _all_of(below)


def _lacks(session: Session, root: Finding | None) -> tuple[str, ...]:
    lacks = list(session.lacks)
    unknown = session.missing_ranks()
    if unknown:
        lacks.append(f"nothing is known of {say_ranks(unknown)}: no record of it was read")
    if root is None:
        return tuple(dict.fromkeys(lacks))
    logs = [session.ranks[rank] for rank in root.ranks if rank in session.ranks]
    if root.kind is FindingKind.MISSING_RANK:
        blind = [
            log.rank
            for log in logs
            if log.activity is None and not _went_well(log) and not _has_closed(session, root, log)
        ]
        if blind:
            lacks.append(f"no agent saw what {say_ranks(blind)} did after the last op")
    # Which groups are made is decided by all ranks alike, and of two threads by chance: no side is wrong.
    if (
        root.kind is FindingKind.MISMATCH
        and not root.ranks
        and not root.has(Trait.TWO_THREADS)
        and not root.what.startswith("new_group")
    ):
        lacks.append("no side of the mismatch has a majority: the calls do not show which is wrong")
    cut = [log.rank for log in logs if log.lost.get("gaps")]
    if cut:
        lacks.append(f"parts of the record of {say_ranks(cut)} cannot be read")
    if len({log.host for log in session.ranks.values()}) > 1 and any(
        log.clock_error_ns is None for log in logs
    ):
        lacks.append("the clocks of the hosts were not compared: the order of events is uncertain")
    return tuple(dict.fromkeys(lacks))


def _went_well(log: RankLog) -> bool:
    is_said = log.exit in (Exit.RETURNED, Exit.LEFT)
    return is_said or (log.end is not None and not log.end.is_failure)


def _has_closed(session: Session, root: Finding, log: RankLog) -> bool:
    """Whether the rank destroyed the group that others waited in: that is what it did."""
    return any(
        far.closed_ns is not None and session.groups[group].label == root.group
        for group, far in log.progress.items()
    )

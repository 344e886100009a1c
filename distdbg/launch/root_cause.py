"""Which rank failed first, and who are its victims. Pure.

When one rank fails, the others fail a moment later: they lose a peer, are aborted, or are ended by the
launcher. Time alone does not show who was first: hosts have clocks of their own, and a rank that holds
much memory is gone long after those whom its end has woken. So what a rank reports about itself comes first:

    cause       it names no other rank, and was not terminated           the earliest of these is it
    leaver      it ended with code 0 while others still needed it        as a cause
    suspect     it gave up waiting for another rank, lost some           only without the two above
                connection and cannot say to whom, or found its
                group broken
    victim      it names another rank as the cause                       only if no other is left
    terminated  by the launcher, because of another rank                 never
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from distdbg.launch.evidence import LostRankEvidence
from distdbg.record.carried_traceback import words_of_failed

#: What libraries say when the other end of a connection is gone, and not who it was.
_LOST_CONNECTION = re.compile(
    r"connection (?:was )?(?:closed|reset)|broken pipe"
    r"|remote process exited|communicator was aborted|socket closed",
    re.IGNORECASE,
)

#: ... and our own errors that say so.
_LOST: Final = frozenset(("DistNetworkError", "DistStoreError", "PeerLost", "RankLeft"))

#: The error of a rank whose group another one has broken: a consequence, as that one failed before.
_BROKEN_GROUP = re.compile(r"^CollectiveError: .* cannot run: rank \d+ ")

#: What each rank says of itself in words that are alike else.
_ITSELF = re.compile(r" \(this is rank \d+\)$")


class LossRole(StrEnum):
    """What a rank that is gone has to do with the failure of the job."""

    CAUSE = "cause"
    LEAVER = "leaver"
    SUSPECT = "suspect"
    VICTIM = "victim"
    TERMINATED = "terminated"
    FINE = "fine"


@dataclass(frozen=True, slots=True, kw_only=True)
class RootCause:
    """The ranks that failed first, and the others. Each tuple is in the order of time."""

    role: LossRole
    """The role of the first; VICTIM: the ranks that they name are not known to have failed."""
    first: tuple[LostRankEvidence, ...]
    """More than one only if they gave the same reason."""
    others: tuple[LostRankEvidence, ...] = ()
    """Failed too, and not because of the first as far as is known."""
    victims: tuple[LostRankEvidence, ...] = ()
    """Failed because of it."""
    terminated: tuple[LostRankEvidence, ...] = ()
    """Terminated by the launcher."""

    @property
    def is_elsewhere(self) -> bool:
        """Whether all that failed did so because of others, of whom nothing is known here."""
        return self.role in (LossRole.VICTIM, LossRole.SUSPECT, LossRole.TERMINATED)

    @property
    def how(self) -> str:
        """What the first did, in words that follow its name."""
        if self.role is LossRole.LEAVER:
            return "ended with exit code 0 while other ranks still needed it"
        return self.first[0].how

    @property
    def named(self) -> frozenset[int]:
        """The ranks that the first name or waited for."""
        ranks = frozenset(evidence.rank for evidence in self.first)
        named = frozenset().union(*(e.because_of | e.waits_for for e in self.first))
        return named - ranks


def find_root_cause(evidence: Sequence[LostRankEvidence]) -> RootCause | None:
    """Judge all ranks that are gone; None: none of them failed."""
    by_role = sort_by_role(evidence)
    for roles in (
        (LossRole.CAUSE, LossRole.LEAVER),
        (LossRole.SUSPECT,),
        (LossRole.VICTIM,),
        (LossRole.TERMINATED,),
    ):
        candidates = _in_time(e for role in roles for e in by_role[role])
        if candidates:
            break
    else:
        return None
    earliest = _end_of_waits(candidates[0], candidates)
    role = next(role for role in LossRole if earliest in by_role[role])
    first = [e for e in candidates if e is earliest or _is_same(e, earliest)]
    known = {e.rank for e in first}

    def rest(*roles: LossRole) -> tuple[LostRankEvidence, ...]:
        return _in_time(e for one in roles for e in by_role[one] if e.rank not in known)

    return RootCause(
        role=role,
        first=tuple(first),
        others=rest(LossRole.CAUSE),
        victims=rest(LossRole.SUSPECT, LossRole.VICTIM),
        terminated=rest(LossRole.TERMINATED),
    )


def _end_of_waits(
    one: LostRankEvidence, candidates: Iterable[LostRankEvidence]
) -> LostRankEvidence:
    """The last in a chain of waits: the one whose awaited rank did not give up itself."""
    by_rank = {each.rank: each for each in candidates if each.waits_for}
    passed, end = {one.rank}, one
    if not one.waits_for:
        return one
    while end.waits_for <= by_rank.keys():
        end = min((by_rank[rank] for rank in end.waits_for), key=_time_of)
        if end.rank in passed:
            return one  # they waited for each other
        passed.add(end.rank)
    return end


def count_failed(found: RootCause | None) -> RootCause | None:
    """Count those among its victims that had failed because of it before the launcher ended them."""
    if found is None or found.role is not LossRole.CAUSE:
        return found
    failed = {one.rank for one in found.terminated if one.error is not None and one.because_of}
    return replace(
        found,
        victims=_in_time([*found.victims, *(e for e in found.terminated if e.rank in failed)]),
        terminated=tuple(e for e in found.terminated if e.rank not in failed),
    )


def sort_by_role(evidence: Sequence[LostRankEvidence]) -> dict[LossRole, list[LostRankEvidence]]:
    """The ranks that are gone, by their role."""
    first_own_ns = min(
        (e.failed_wall_ns for e in evidence if e.end.is_failure and not e.end.was_asked),
        default=None,
    )
    roles: dict[LossRole, list[LostRankEvidence]] = {role: [] for role in LossRole}
    passed_on = passed_on_role([one.reason for one in evidence])
    for one in evidence:
        roles[passed_on.get(one.reason) or _role_of(one, first_own_ns)].append(one)
    failed = [one for role in (LossRole.SUSPECT, LossRole.VICTIM) for one in roles[role]]
    missed = frozenset().union(*(one.because_of | one.waits_for for one in failed))
    for one in [
        one for one in roles[LossRole.FINE] if one.rank in missed and not one.end.was_asked
    ]:
        roles[LossRole.FINE].remove(one)
        roles[LossRole.LEAVER].append(one)
    return roles


def passed_on_role(reasons: Sequence[str]) -> dict[str, LossRole]:
    """The roles of ranks by what they say, where one has an error that it has passed on to others.

    They raise it at one time, and any of them may have ended the job.
    """
    known = set(reasons) - {""}
    failed = {reason: words for reason in known if (words := words_of_failed(reason)) in known}
    return dict.fromkeys(failed, LossRole.VICTIM) | dict.fromkeys(failed.values(), LossRole.CAUSE)


def _role_of(one: LostRankEvidence, first_own_ns: int | None) -> LossRole:
    if one.end.was_asked and not _failed_before_asked(one, first_own_ns):
        return LossRole.TERMINATED
    if not one.end.is_failure:
        return LossRole.FINE
    if one.because_of:
        return LossRole.VICTIM
    is_consequence = _LOST_CONNECTION.search(one.reason) or _BROKEN_GROUP.match(one.reason)
    if one.waits_for or one.error_type in _LOST or is_consequence:
        return LossRole.SUSPECT
    return LossRole.CAUSE


def _failed_before_asked(one: LostRankEvidence, first_own_ns: int | None) -> bool:
    """Whether a rank that the launcher wanted to end had failed by itself already, as the first."""
    if one.end.signal is not None or first_own_ns is None or not one.reason:
        return False  # crashes on the way out are common
    return one.failed_wall_ns <= first_own_ns


def _is_same(one: LostRankEvidence, other: LostRankEvidence) -> bool:
    # 'exited with code 1' is too little to be called the same.
    mine, its = (_ITSELF.sub("", each.reason) for each in (one, other))
    return bool(mine) and mine == its


def _in_time(evidence: Iterable[LostRankEvidence]) -> tuple[LostRankEvidence, ...]:
    return tuple(sorted(evidence, key=_time_of))


def _time_of(one: LostRankEvidence) -> tuple[int, int]:
    return one.failed_wall_ns, one.rank

"""Errors of ops, from the columns and from the words that ranks recorded. Pure.

    failures = failures_of(session)        rank -> its errors, in the order of time

An op that failed has a status; most have a message as well, as JSON of the error. Errors without an op
(a store, a rendezvous, a message whose entry was overwritten) are in `RankLog.found`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from distdbg.diagnose.ops import NEVER, OpRef
from distdbg.diagnose.session import RankLog, RecordedProblem, Session
from distdbg.diagnose.traits import Advice, Trait
from distdbg.record.entries import STATUS_ERRORS
from distdbg.record.format import Exit, Flag, Status

#: Errors as ranks write them into `found`; anything else there is a remark.
ERRORS: Final = frozenset(STATUS_ERRORS.values()) | {"RankLeft", "RendezvousError", "InternalError"}
_FAILED: Final = re.compile(b"[^\\x00\\xff]")
_MAX_EACH: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One error of one rank."""

    rank: int
    type: str
    """'OpTimeout'."""
    what: str
    """Its first line; '' when only the status is known."""
    at_ns: int
    """On the session's clock; NEVER."""
    named: tuple[int, ...] = ()
    """The ranks that it names: those missing, lost, odd."""
    how: str = ""
    """How a lost rank ended: 'exited with code 3'."""
    kind: str = ""
    group: str = ""
    """Label."""
    seq: int = 0
    details: tuple[str, ...] = ()
    hint: str = ""
    op: OpRef | None = None
    went_on: bool = False
    """Whether the rank's later ops went well: it caught the error and got over it."""

    @property
    def advice(self) -> Advice:
        """The hint of the error, and what it is about as far as the rank has said it."""
        is_of_group = self.kind == "new_group" and self.type in ("MismatchError", "RankLeft")
        return Advice(self.hint, *((Trait.GROUPS,) if is_of_group else ()))


#: The errors of each rank, in order.
Failures = Mapping[int, tuple[Failure, ...]]


def failures_of(session: Session) -> dict[int, tuple[Failure, ...]]:
    """Each rank's errors; ranks without any are absent."""
    found = {}
    for rank, log in sorted(session.ranks.items()):
        errors = _of_rank(session, rank, log)
        if errors:
            found[rank] = errors
    return found


def _of_rank(session: Session, rank: int, log: RankLog) -> tuple[Failure, ...]:
    statuses = log.ops.status.tobytes()
    failed = [match.start() for match in _FAILED.finditer(statuses)]
    if not failed and not any(one.type in ERRORS for one in log.found):
        return ()
    if len(failed) > 2 * _MAX_EACH:
        failed = failed[:_MAX_EACH] + failed[-_MAX_EACH:]
    last_good_ns = _last_good_ns(log, statuses)
    errors, reported = [], set()
    for at in failed:
        error = _of_op(session, log, at, last_good_ns)
        errors.append(error)
        reported.add((error.type, error.what))
    for one in log.found:
        if one.type in ERRORS and (one.type, one.what) not in reported:
            reported.add((one.type, one.what))
            errors.append(_of_words(session, rank, one, last_good_ns))
    return tuple(sorted(errors, key=lambda error: error.at_ns))


def _last_good_ns(log: RankLog, statuses: bytes) -> int:
    """When the last op was issued that went well."""
    at = statuses.rfind(bytes([Status.OK]))
    return max(log.last_good_ns, NEVER if at < 0 else log.ops.issued_ns[at])


def _of_op(session: Session, log: RankLog, at: int, last_good_ns: int) -> Failure:
    ops = log.ops
    status = ops.status[at]
    text = ops.errors.get(at, "")
    words = read_words(text)
    own_ns = ops.ended_ns[at]
    op = OpRef(log.rank, at)
    group = session.group_of(op)
    what = str(words.get("what") or text.partition("\n")[0])
    return Failure(
        rank=log.rank,
        type=str(words.get("type") or STATUS_ERRORS.get(status, "DistBackendError")),
        what=what,
        at_ns=session.time_ns(log.rank, own_ns),
        named=_ranks(words.get("ranks")),
        how=str(words.get("how") or ""),
        kind=session.kind_of(op),
        group=group.label if group else "",
        seq=0 if ops.flags[at] & Flag.MESSAGE else ops.seq[at],
        details=_lines(words.get("details")),
        hint=str(words.get("hint") or ""),
        op=op,
        went_on=_went_on(log, what, own_ns, last_good_ns),
    )


def _of_words(session: Session, rank: int, one: RecordedProblem, last_good_ns: int) -> Failure:
    return Failure(
        rank=rank,
        type=one.type,
        what=one.what,
        at_ns=session.time_ns(rank, one.at_ns),
        named=one.ranks,
        how=one.how,
        kind=one.kind,
        group=one.group,
        seq=max(one.seq, 0),
        details=one.details,
        hint=one.hint,
        went_on=_went_on(session.ranks[rank], one.what, one.at_ns, last_good_ns),
    )


def _went_on(log: RankLog, what: str, own_ns: int, last_good_ns: int) -> bool:
    """Whether an op went well after an error; one of another thread does not help who ends with it."""
    if NEVER in (own_ns, last_good_ns) or last_good_ns <= own_ns:
        return False
    return not (log.exit is Exit.RAISED and what and what in log.exit_what)


def read_words(text: str) -> dict[str, Any]:
    """The facts of an error from its JSON; {} for text that is none."""
    if not text.startswith("{"):
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def last_of(failures: Failures, rank: int) -> Failure | None:
    """The error after which nothing went well any more on a rank."""
    errors = failures.get(rank, ())
    return errors[-1] if errors and not errors[-1].went_on else None


def are_over(failures: Failures, type: str, what: str, ops: Collection[OpRef]) -> bool:
    """Whether all ranks have got over an error, that of these words or of these ops."""
    mine = [
        error
        for errors in failures.values()
        for error in errors
        if error.type == type and (error.op in ops or (what and error.what == what))
    ]
    return bool(mine) and all(error.went_on for error in mine)


def _ranks(value: object) -> tuple[int, ...]:
    return tuple(r for r in value if type(r) is int and r >= 0) if isinstance(value, list) else ()


def _lines(value: object) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else ()

"""Failed ops: timeouts, lost peers, network, store. Their causes have finders of their own.

One finding for all ranks whose op failed alike. Mismatches, NaNs and replicas that differ have files of
their own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from distdbg.diagnose.doing import doing_then
from distdbg.diagnose.failures import Failure, failures_of
from distdbg.diagnose.find.phrases import as_evidence
from distdbg.diagnose.finding import Evidence, Finding, FindingKind, Severity, Waits
from distdbg.diagnose.matching import Matched
from distdbg.diagnose.ops import NEVER
from distdbg.diagnose.session import Session
from distdbg.diagnose.stops import is_by_hand
from distdbg.diagnose.wording import fit, known_ns, say_ranks, say_s, site_of, verb
from distdbg.record.batches import JOIN_ENDED

#: Told by other finders.
_ELSEWHERE: Final = frozenset(
    ("MismatchError", "NonFiniteError", "DivergedError", "KeyboardInterrupt")
)
_DID: Final = {
    "OpTimeout": "timed out",
    "PeerLost": "lost a peer",
    "RankLeft": "could not complete",
    "DistNetworkError": "lost a connection",
    "DistStoreError": "failed in the store",
    "CollectiveError": "could not run: its group was broken",
    "BufferChangedError": "saw its array change",
    "UsageError": "got wrong arguments",
    "JobAborted": "was aborted",
}
_ADVICE: Final = {
    "OpTimeout": "see what the ranks that did not reach it were doing; raise timeout= if they were only slow",
    "DistNetworkError": "look at the network between the hosts of these ranks",
    "DistStoreError": "look at the process that serves the store, usually that of rank 0",
    "BufferChangedError": "wait for the op before writing to its array",
    "UsageError": "the call itself is wrong: see its error message",
}
_MAX_TOLD: Final = 8


def find(session: Session, matched: Matched, waits: Waits) -> list[Finding]:
    failures = failures_of(session)
    alike: dict[tuple[object, ...], list[Failure]] = defaultdict(list)
    for errors in failures.values():
        for error in errors:
            if error.type not in _ELSEWHERE and not is_by_hand(error):
                name = session.name_of(error.op) if error.op else (error.kind, error.seq)
                key = (error.type, error.group, name, error.named, error.went_on)
                alike[key].append(error)
    return [_finding(session, errors) for errors in alike.values()]


def _finding(session: Session, errors: Sequence[Failure]) -> Finding:
    errors = sorted(errors, key=lambda e: (e.at_ns == NEVER, e.at_ns, e.rank))
    first = errors[0]
    ranks = tuple(sorted({error.rank for error in errors}))
    # All ranks are told of a changed array, also the one that changed it.
    reported = set() if first.type == "BufferChangedError" or _is_join(first) else set(ranks)
    named = tuple(sorted(set(first.named) - reported))
    return Finding(
        kind=FindingKind.FAILED_OP,
        severity=Severity.WARNING if first.went_on else Severity.ERROR,
        what=_what(session, first, ranks, named),
        ranks=named if first.type != "UsageError" else ranks,
        victims=tuple(r for r in ranks if r not in named) if first.type != "UsageError" else (),
        group=first.group,
        seq=first.seq,
        at_ns=known_ns(first.at_ns),
        evidence=(
            tuple(as_evidence(line) for line in first.details)
            if _is_join(first)  # who was where: the ranks' words are alike
            else tuple(_evidence(session, error) for error in errors[:_MAX_TOLD])
        ),
        advice=first.advice or _ADVICE.get(first.type, ""),
    )


def _is_join(error: Failure) -> bool:
    """Whether Join has ended all ranks since one ran out of batches."""
    return error.op is None and error.kind == JOIN_ENDED


def _what(session: Session, first: Failure, ranks: tuple[int, ...], named: tuple[int, ...]) -> str:
    if _is_join(first):
        return fit(first.what)
    if first.op is not None:
        name = session.name_of(first.op)
    else:
        number = f" #{first.seq}" if first.seq else ""
        group = f" on group '{first.group}'" if first.group else ""
        name = f"{first.kind}{number}{group}" if first.kind else "an op"
    did = _DID.get(first.type, f"failed with {first.type}")
    head = f"{name} {did} on {say_ranks(ranks, 3)}"
    if first.type in ("OpTimeout", "PeerLost", "RankLeft") and named:
        did_not = {"OpTimeout": "did not reach it"}.get(
            first.type, first.how or verb(named, "was lost", "were lost")
        )
        after = ""
        if first.type == "OpTimeout" and first.op is not None:
            ops = session.ranks[first.rank].ops
            issued, ended = ops.issued_ns[first.op.at], ops.ended_ns[first.op.at]
            after = f" after {say_s(ended - issued)}" if NEVER not in (issued, ended) else ""
        seen = ""
        if first.type == "OpTimeout" and len(named) == 1:
            doing = doing_then(session, named[0], first.at_ns)
            seen = f", {doing}" if doing else ""
        return fit(head, after, f": {say_ranks(named, 3)} {did_not}", seen)
    return fit(head, f": {first.what}" if first.what else "")


def _evidence(session: Session, error: Failure) -> Evidence:
    site = site_of(session, error.op) if error.op else ""
    what = error.what or (session.name_of(error.op) if error.op else error.kind)
    where = f" at {site}" if site else ""
    return Evidence(
        text=f"rank {error.rank}: {error.type}: {what}{where}",
        rank=error.rank,
        op=error.op,
        site=site,
        at_ns=known_ns(error.at_ns),
    )

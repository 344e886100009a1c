"""Hangs and mismatches in DDP whose cause is a parameter that a rank did not use.

DDP without `find_unused_parameters` reduces a bucket when all of its gradients are there. A rank whose
backward pass leaves one out never calls that bucket's all_reduce, and goes on to something else: the others
wait for it, or find it in another op. The watched rank has written down, in the same step, which parameters
got no gradient (`torch_bridge.training`); here that leads the finding.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from distdbg.diagnose.finding import Evidence, Finding, FindingKind
from distdbg.diagnose.session import RankLog, Session
from distdbg.diagnose.traits import Advice, FactKind, Trait
from distdbg.diagnose.wording import fit, say_ranks, verb
from distdbg.record.entries import MarkEntry, SpanBegin
from distdbg.record.known_marks import BACKWARD, NO_GRADIENT

_KINDS: Final = frozenset((FindingKind.MISSING_RANK, FindingKind.MISMATCH, FindingKind.DEAD_RANK))
_BUCKET: Final = "DDP bucket "
#: What DDP says one step later.
_LATE: Final = "finished reduction in the prior iteration"
_MAX_NAMED: Final = 2
#: Errors that no parameter causes.
_OWN_REASONS: Final = ("DistNetworkError", "DistStoreError", "UsageError")
#: Ops of a rank that are looked at for a bucket: several may be in flight.
_MAX_LAST: Final = 64


class _Unused(NamedTuple):
    """What one rank left out in its last backward pass."""

    rank: int
    names: str
    step: int
    at_ns: int


def tell_no_gradients(found: Sequence[Finding], session: Session) -> list[Finding]:
    """The findings, led by the parameters that were not used where that explains them."""
    reported = [tell_no_gradient(finding, session) for finding in found]
    if any(one is not finding for one, finding in zip(reported, found, strict=True)):
        return reported
    # The rank that left them out may end before anybody is seen to wait for it.
    return [
        _lead(one, session)
        if one.kind is FindingKind.FAILED_OP and one.ranks and not _has_own_reason(one)
        else one
        for one in reported
    ]


def _has_own_reason(finding: Finding) -> bool:
    """Whether its error is explained by the network, the store, or the call itself."""
    return any(f": {name}: " in fact.text for fact in finding.evidence for name in _OWN_REASONS)


def tell_no_gradient(finding: Finding, session: Session) -> Finding:
    """The finding, led by the parameters that were not used, where that explains it."""
    return _lead(finding, session) if finding.kind in _KINDS else finding


def _lead(finding: Finding, session: Session) -> Finding:
    involved = finding.ranks or finding.victims
    found = [one for rank in involved if (one := _last_unused(session, rank)) is not None]
    if not found or not _is_about_ddp(session, finding):
        return finding
    first = found[0]
    alike = [one.rank for one in found if (one.names, one.step) == (first.names, first.step)]
    if finding.victims and not finding.ranks and len(alike) == len(finding.victims):
        return finding  # all alike: nobody differs in this
    return replace(
        finding,
        what=fit(
            f"{say_ranks(alike, 3)} did not use {_head(first.names)} in step {first.step}",
            f", whose DDP bucket {verb(alike, 'it', 'they')} never reduced",
        ),
        ranks=tuple(alike),
        numbers={**finding.numbers, "step": float(first.step)},
        victims=tuple(
            rank for rank in sorted({*finding.ranks, *finding.victims}) if rank not in alike
        ),
        evidence=(
            *(
                Evidence(
                    text=f"rank {one.rank} gave no gradient to {one.names} in step {one.step}",
                    rank=one.rank,
                    at_ns=one.at_ns,
                    kind=FactKind.NO_GRADIENT,
                    detail=one.names,
                )
                for one in found
            ),
            # How it died is in the evidence of a death.
            *(() if finding.kind is FindingKind.DEAD_RANK else (Evidence(text=finding.what),)),
            *finding.evidence,
        ),
        advice=Advice(
            "use all parameters on every rank, or DistributedDataParallel(..., find_unused_parameters=True)",
            Trait.UNUSED_PARAMETERS,
        ),
    )


def _last_unused(session: Session, rank: int) -> _Unused | None:
    """The mark of its last backward pass; None where that used all."""
    log = session.ranks.get(rank)
    for note in reversed(log.notes if log is not None else ()):
        name = getattr(note, "name", None) or ""
        if isinstance(note, SpanBegin) and name == BACKWARD:
            return None
        if isinstance(note, MarkEntry) and name.startswith(NO_GRADIENT):
            step = int(note.value) if note.value is not None else 0
            at_ns = session.time_ns(rank, note.issued_ns)
            return _Unused(rank, name.removeprefix(NO_GRADIENT), step, at_ns)
    return None


def _is_about_ddp(session: Session, finding: Finding) -> bool:
    """Whether somebody is in a bucket's all_reduce, or DDP has raised for one that is missing."""
    logs = [session.ranks[r] for r in (*finding.ranks, *finding.victims) if r in session.ranks]
    return any(_LATE in log.exit_what for log in logs) or any(
        comm.startswith(_BUCKET) for log in logs for comm in _last_comms(session, log)
    )


def _last_comms(session: Session, log: RankLog) -> Iterable[str]:
    return (session.comms[comm] for comm in log.ops.comm[-_MAX_LAST:])


def _head(names: str) -> str:
    listed: Sequence[str] = names.split(", ")
    if len(listed) <= _MAX_NAMED:
        return names
    return f"{', '.join(listed[:_MAX_NAMED])} and others"

"""The source of NaN or Inf: the first op that was given one, and the ranks that got it from there.

The check raises before anything is written, so a first report is a source. A later one is another
source only where nothing could have carried the values there: a rank that has met a rank with NaN in an
op since, on whatever group, may have them from it. Only the ops between the first report and the last
are followed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from distdbg.diagnose.failures import Failures, are_over, failures_of
from distdbg.diagnose.find.phrases import as_evidence, at_site, called, few
from distdbg.diagnose.finding import Evidence, Finding, FindingKind, Severity, Waits
from distdbg.diagnose.matching import Matched
from distdbg.diagnose.ops import NEVER, NONE, OpRef
from distdbg.diagnose.session import RecordedProblem, Session
from distdbg.diagnose.wording import say_ranks, site_of
from distdbg.record.entries import KIND_LABELS
from distdbg.record.format import Flag, Status

_ERROR: Final = "NonFiniteError"
_MAX_OPS: Final = 200_000
_SEND: Final = KIND_LABELS.index("send")
_RECV: Final = KIND_LABELS.index("recv")
#: What only the root gives to others, and what only the root gets.
_FROM_ROOT: Final = tuple(KIND_LABELS.index(kind) for kind in ("broadcast", "scatter"))
_TO_ROOT: Final = tuple(KIND_LABELS.index(kind) for kind in ("reduce", "gather"))


@dataclass(slots=True)
class _Report:
    """One op that was given NaN or Inf, as all its ranks tell it."""

    at_ns: int
    ranks: tuple[int, ...]
    """Whose inputs had it."""
    group: str
    seq: int
    found: RecordedProblem | None = None
    ops: list[OpRef] = field(default_factory=list)
    followers: list[_Report] = field(default_factory=list)


def find(session: Session, matched: Matched, waits: Waits) -> list[Finding]:
    """The sources of NaN and Inf."""
    reports = _reports(session)
    if not reports:
        return []
    sources = [reports[0]]
    if len(reports) > 1:
        sources = _sources(session, reports)
    failures = failures_of(session)
    return [_say(session, source, _are_over(failures, source)) for source in sources]


def _are_over(failures: Failures, source: _Report) -> bool:
    """Whether the ranks have caught it and what followed from it, and went on."""
    return all(
        are_over(failures, _ERROR, one.found.what if one.found else "", one.ops)
        for one in (source, *source.followers)
    )


def _reports(session: Session) -> list[_Report]:
    ops: dict[tuple[str, int], list[OpRef]] = defaultdict(list)
    reported: dict[tuple[str, int], list[tuple[int, RecordedProblem]]] = defaultdict(list)
    for rank, log in session.ranks.items():
        if Status.NONFINITE in log.ops.status:
            for at, status in enumerate(log.ops.status):
                if status == Status.NONFINITE:
                    group = session.group_of(OpRef(rank, at))
                    ops[group.label if group else "", log.ops.seq[at]].append(OpRef(rank, at))
        for found in log.found:
            if found.type == _ERROR:
                reported[found.group, found.seq].append((rank, found))
    reports = []
    for key in dict.fromkeys((*reported, *ops)):
        mine, refs = reported.get(key, []), ops.get(key, [])
        times = [session.time_ns(rank, found.at_ns) for rank, found in mine] + [
            session.time_ns(op.rank, session.ranks[op.rank].ops.issued_ns[op.at]) for op in refs
        ]
        words = mine[0][1] if mine else None
        ranks = words.ranks if words else tuple(sorted(op.rank for op in refs))
        known = [time for time in times if time != NEVER]
        reports.append(_Report(min(known, default=0), ranks, *key, words, refs))
    return sorted(reports, key=lambda report: report.at_ns)


# --------------------------------------------------------------------------------------- who has it from whom


def _sources(session: Session, reports: Sequence[_Report]) -> list[_Report]:
    sources: list[_Report] = []
    #: Rank -> the report from which it has it.
    carriers: dict[int, _Report] = {}
    moves = _moves(session, reports[0].at_ns, reports[-1].at_ns)
    move = next(moves, None)
    for report in reports:
        while move is not None and move[0] <= report.at_ns:
            _, givers, takers = move
            source = next((carriers[rank] for rank in givers if rank in carriers), None)
            if source is not None:
                for rank in takers:
                    carriers.setdefault(rank, source)
            move = next(moves, None)
        origin = next((carriers[rank] for rank in report.ranks if rank in carriers), None)
        if origin is None:
            sources.append(report)
        else:
            origin.followers.append(report)
        for rank in report.ranks:
            carriers.setdefault(rank, origin or report)
    return sources


_Move = tuple[int, tuple[int, ...], tuple[int, ...]]
"""When, from which ranks, to which."""


def _moves(session: Session, since_ns: int, until_ns: int) -> Iterator[_Move]:
    """The ops that ended well in that time, in order."""
    found: dict[tuple[int, int], _Move] = {}
    messages: list[_Move] = []
    budget = _MAX_OPS
    for rank, log in session.ranks.items():
        ops = log.ops
        for at, ended in enumerate(ops.ended_ns):
            if (
                ended == NEVER
                or ops.status[at]
                or not since_ns <= ended + log.offset_ns <= until_ns
            ):
                continue
            budget -= 1
            if budget < 0:
                break
            kind, group = ops.kind[at], ops.group[at]
            if ops.flags[at] & Flag.MESSAGE:
                if kind == _RECV:
                    source = ops.source[at] if ops.source[at] != NONE else ops.peer[at]
                    messages.append((ended + log.offset_ns, (source,), (rank,)))
            elif (
                not ops.flags[at] & Flag.ASIDE
                and group != NONE
                and (group, ops.seq[at]) not in found
            ):
                members = tuple(session.members(group))
                root = session.forms[ops.form[at]].root
                givers = (root,) if kind in _FROM_ROOT and root is not None else members
                takers = (root,) if kind in _TO_ROOT and root is not None else members
                found[group, ops.seq[at]] = (ended + log.offset_ns, givers, takers)
    yield from sorted((*found.values(), *messages))


# --------------------------------------------------------------------------------------- what is said


def _say(session: Session, source: _Report, are_over: bool) -> Finding:
    guilty = [op for op in source.ops if op.rank in source.ranks]
    found = source.found
    label = session.name_of(source.ops[0]) if source.ops else f"op #{source.seq}"
    site = at_site(session, guilty[0]) if guilty else ""
    what = found.what if found else f"{label} was given NaN or Inf by {say_ranks(source.ranks)}"
    followers = sorted({rank for each in source.followers for rank in each.ranks})
    victims = sorted({op.rank for op in source.ops} | set(followers))
    evidence = [
        called(session, op, f"rank {op.rank} gave it to {label} at {site_of(session, op) or '?'}")
        for op in guilty[:4]
    ]
    evidence += [as_evidence(line) for line in (found.details if found else ())]
    evidence += [
        Evidence(
            text=(
                f"later {say_ranks(each.ranks)} gave NaN or Inf to op #{each.seq} on group "
                f"'{each.group}', after an op with {say_ranks(source.ranks)}"
            ),
            at_ns=each.at_ns,
        )
        for each in source.followers
    ]
    return Finding(
        kind=FindingKind.NAN_SOURCE,
        severity=Severity.WARNING if are_over else Severity.ERROR,
        what=what,
        ranks=tuple(source.ranks),
        victims=tuple(rank for rank in victims if rank not in source.ranks),
        group=source.group,
        seq=source.seq,
        at_ns=source.at_ns,
        evidence=few(evidence),
        advice=(
            found.hint
            if found and found.hint
            else f"see what {say_ranks(source.ranks)} computed before{site}"
        ),
        numbers={"followers": float(len(source.followers))},
    )

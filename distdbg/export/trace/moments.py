"""What happened to a rank beside its ops: marks, spans, findings and its end, for any format of traces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from distdbg.diagnose.finding import Finding
from distdbg.diagnose.ops import NEVER
from distdbg.diagnose.session import RankLog, RecordedProblem
from distdbg.export.run_clock import bound
from distdbg.export.trace.lanes import OPEN, find_nested_lanes
from distdbg.record.entries import Event, MarkEntry, SpanBegin, SpanEnd
from distdbg.record.format import Exit
from distdbg.record.printable import shorten

if TYPE_CHECKING:
    from distdbg.export.reading import RunStart

Facts = Mapping[str, str | int | float]
_MAX_TEXT: Final = 4_000
#: Ranks that a finding is shown on.
_MAX_RANKS: Final = 8
_EXITS: Final = {
    Exit.LEFT: "left its groups",
    Exit.RETURNED: "the program ended",
    Exit.RAISED: "raised",
}


@dataclass(frozen=True, slots=True)
class Moment:
    """Something at one time, on the run's clock."""

    at_ns: int
    name: str
    category: str
    facts: Facts = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Span:
    """`span()` of a program; `end_ns` is OPEN for one that did not end."""

    begin_ns: int
    end_ns: int
    name: str
    lane: int
    facts: Facts


def marks_of(log: RankLog) -> Iterator[Moment]:
    for note in log.notes:
        if isinstance(note, MarkEntry):
            facts: dict[str, str | int | float] = _site(note)
            if note.value is not None:
                facts["value"] = note.value
            yield Moment(note.issued_ns + log.offset_ns, note.name or "mark", "mark", facts)


def values_of(log: RankLog) -> dict[str, list[tuple[int, float]]]:
    """Times and numbers of marks that came with one, by name."""
    found: dict[str, list[tuple[int, float]]] = {}
    for note in log.notes:
        if isinstance(note, MarkEntry) and note.value is not None:
            # A damaged clock may have any time; a column of times has 64 bits for each.
            at_ns = bound(note.issued_ns + log.offset_ns)
            found.setdefault(note.name or "mark", []).append((at_ns, note.value))
    return found


def spans_of(log: RankLog) -> list[Span]:
    """By begin; each thread has lanes of its own. A span whose begin is not there any more is left out."""
    ends = {note.begin: note.issued_ns for note in log.notes if isinstance(note, SpanEnd)}
    threads: dict[int, list[tuple[int, int, SpanBegin]]] = {}
    for note in log.notes:
        if isinstance(note, SpanBegin):
            begin_ns = note.issued_ns + log.offset_ns
            end_ns = ends.get(note.number)
            until_ns = OPEN if end_ns is None else max(end_ns + log.offset_ns, begin_ns)
            threads.setdefault(note.thread, []).append((begin_ns, until_ns, note))
    found = []
    first = 0
    for thread, spans in sorted(threads.items()):
        spans.sort(key=lambda span: (span[0], -span[1]))
        lanes = find_nested_lanes([span[:2] for span in spans])
        for (begin_ns, end_ns, note), lane in zip(spans, lanes, strict=True):
            facts = {**_site(note), "thread": thread}
            found.append(Span(begin_ns, end_ns, note.name or "span", first + lane, facts))
        first += max(lanes) + 1
    return sorted(found, key=lambda span: (span.begin_ns, -span.end_ns))


def in_order(spans: Iterable[Span]) -> Iterator[tuple[Span, bool]]:
    """Each span twice, for its begin and (True) its end, those of one lane nested; open ones have no end."""
    lanes: dict[int, list[Span]] = {}
    for span in spans:
        lanes.setdefault(span.lane, []).append(span)
    for mine in lanes.values():
        stack: list[Span] = []
        for span in mine:
            while stack and stack[-1].end_ns < span.begin_ns:
                yield stack.pop(), True
            yield span, False
            stack.append(span)
        for span in reversed(stack):
            if span.end_ns != OPEN:
                yield span, True


def moments_of_run(
    start: RunStart, findings: Iterable[Finding], about: Facts | None = None
) -> list[Moment]:
    """What was found of a start of the job, and its last sign of life, with facts about it."""
    moments = [to_moment(finding, start) for finding in findings]
    if (end_ns := start.end_ns()) != NEVER:
        words = "now" if start.session.is_live else "last sign of life"
        moments.append(Moment(end_ns, words, "end", about or {}))
    return moments


def findings_of(log: RankLog, findings: Iterable[Finding], start: RunStart) -> list[Moment]:
    """What a rank wrote into its own record, how it ended, and what was found of it."""
    named = (finding for finding in findings if log.rank in finding.ranks[:_MAX_RANKS])
    return [*_recorded_findings(log), *(to_moment(finding, start) for finding in named)]


def _recorded_findings(log: RankLog) -> Iterator[Moment]:
    for found in log.found:
        at_ns = log.began_ns if found.at_ns == NEVER else found.at_ns
        name = found.type or "error"
        yield Moment(at_ns + log.offset_ns, name, "error", _found_facts(found))
    if log.exit is not None and log.exit_ns != NEVER:
        what = f"{_EXITS.get(log.exit, 'ended')} {log.exit_what}".rstrip()
        facts = {"where": log.exit_where} if log.exit_where else {}
        yield Moment(log.exit_ns + log.offset_ns, what, "end", facts)
    if log.end is not None:
        facts = {"seen by": log.end.by}
        yield Moment(log.end.ended_ns + log.offset_ns, log.end.how, "end", facts)


def _found_facts(found: RecordedProblem) -> Facts:
    facts: dict[str, str | int | float] = {
        "what": shorten(found.what, _MAX_TEXT),
        "kind": found.kind,
        "group": found.group,
        "seq": found.seq,
        "ranks": ",".join(map(str, found.ranks[:64])),
        "details": "\n".join(found.details)[:_MAX_TEXT],
        "hint": found.hint,
    }
    return {name: value for name, value in facts.items() if value}


def to_moment(finding: Finding, start: RunStart) -> Moment:
    """A finding of the diagnosis; one that has no time of its own is of the end.

    One from before what is wanted of a run stands at its beginning.
    """
    from distdbg.errors import format_ranks

    facts: dict[str, str | int | float] = {
        "severity": str(finding.severity),
        "what": finding.what,
        "ranks": format_ranks(finding.ranks) if finding.ranks else "",
        "victims": format_ranks(finding.victims) if finding.victims else "",
        "group": finding.group,
        "seq": finding.seq,
        "advice": finding.advice,
        "evidence": "\n".join(fact.text for fact in finding.evidence)[:_MAX_TEXT],
    }
    since_ns, _ = start.window()
    at_ns = finding.at_ns if finding.at_ns not in (None, NEVER) else start.end_ns()
    at_ns = max(at_ns or 0, since_ns or 0)
    kept = {name: value for name, value in facts.items() if value}
    return Moment(at_ns, f"{finding.kind}: {finding.what}", "finding", kept)


def _site(event: Event) -> dict[str, str | int | float]:
    return {"site": str(event.site)} if event.site else {}

"""Log records of what went wrong: findings of the diagnosis, errors of ranks, ends, and starts anew.

A finding is also a span without a length in the trace of the op that it is about, so that it is seen where
one looks at the op; the log record has the ids of that span.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from distdbg.diagnose.finding import Finding, FindingKind, Severity
from distdbg.diagnose.session import Session
from distdbg.export.otel import attributes as names
from distdbg.export.otel.ids import COLLECTIVE, Numbering, root_span_id, span_id
from distdbg.export.otel.model import LogData, OtelSeverity, SpanData, Value
from distdbg.record.ends import RankEnd

_LEVELS: Final = {
    Severity.ERROR: OtelSeverity.ERROR,
    Severity.WARNING: OtelSeverity.WARN,
    Severity.NOTE: OtelSeverity.INFO,
}
_MAX_RANKS: Final = 64
_MAX_LINES: Final = 8
_MAX_LETTERS: Final = 2000
#: What a rank writes that is no error of an op.
_WARNINGS: Final = ("Suspicion", "LeakedWork", "LeakedGroup", "BufferRace", "MessageRace")
FINDING: Final = "distdbg.finding"
RANK_ERROR: Final = "distdbg.rank.error"
RANK_END: Final = "distdbg.rank.end"
START: Final = "distdbg.start"


def find_op(run: str, start: int, group: str, seq: int) -> tuple[int, int]:
    """Trace and root span of a collective, by the name of its group; zeros for none."""
    if not group or seq <= 0:
        return 0, 0
    trace_id = Numbering(run, start, group, COLLECTIVE).trace_id(seq)
    return trace_id, root_span_id(trace_id)


def key_of_finding(finding: Finding) -> tuple[FindingKind, tuple[int, ...], str, int]:
    """What makes it another finding: not how long it lasts by now."""
    return (finding.kind, finding.ranks, finding.group, finding.seq)


def log_of_finding(
    finding: Finding, *, trace_id: int, parent_id: int, wall_ns: int, number: int
) -> LogData:
    """The log record of one finding. `number` tells findings about one op apart."""
    kind, severity = str(finding.kind), str(finding.severity)
    values: dict[str, Value] = {names.FINDING: kind, names.SEVERITY: severity}
    if finding.severity is Severity.ERROR:
        values[names.ERROR_TYPE] = kind
    if finding.ranks:
        values[names.RANKS] = finding.ranks[:_MAX_RANKS]
    if finding.victims:
        values[names.VICTIMS] = finding.victims[:_MAX_RANKS]
    if finding.group:
        values[names.GROUP] = _text(finding.group)
    if finding.seq:
        values[names.SEQ] = finding.seq
    if finding.evidence:
        values[names.EVIDENCE] = tuple(_text(one.text) for one in finding.evidence[:_MAX_LINES])
    if finding.advice:
        values[names.ADVICE] = _text(finding.advice)
    return LogData(
        at_ns=wall_ns,
        level=_LEVELS[finding.severity],
        body=_text(finding.what),
        event=FINDING,
        attributes=values,
        trace_id=trace_id,
        span_id=span_id(trace_id, -1, f"finding {kind}", number) if parent_id else 0,
    )


def span_of_finding(log: LogData, *, parent_id: int) -> SpanData:
    """The span in the trace of the op that a finding is about; of no rank, but of the agent."""
    return SpanData(
        name=str(log.attributes[names.FINDING]),
        trace_id=log.trace_id,
        span_id=log.span_id,
        parent_id=parent_id,
        began_ns=log.at_ns,
        ended_ns=log.at_ns,
        rank=-1,
        attributes={**log.attributes, names.ROLE: "finding"},
        error=log.body if log.level is OtelSeverity.ERROR else None,
    )


def group_names(session: Session) -> dict[str, str]:
    """The names of the groups by what messages call them; '' where that is several."""
    found: dict[str, str] = {}
    for group in session.groups:
        found[group.label] = "" if group.label in found else group.name
    return found


def spans_of_findings(
    run: str, session: Session, findings: Iterable[Finding], end_ns: int
) -> Iterator[SpanData]:
    """Those of a run that is exported; one without a time of its own is of the end."""
    groups = group_names(session)
    for number, finding in enumerate(findings, 1):
        name = groups.get(finding.group, "")
        trace_id, parent_id = find_op(run, session.attempt, name, finding.seq)
        if not trace_id:
            continue
        log = log_of_finding(
            finding,
            trace_id=trace_id,
            parent_id=parent_id,
            wall_ns=end_ns if finding.at_ns is None else finding.at_ns,
            number=number,
        )
        yield span_of_finding(log, parent_id=parent_id)


def log_of_error(
    words: str, *, rank: int, run: str, start: int, groups: Mapping[str, str], wall_ns: int
) -> LogData:
    """The log record of what a rank wrote into its record in words: an error, or what its check noticed.

    `groups`: the names of the groups by what messages call them, where that is one.
    """
    try:
        facts = json.loads(words)
    except (ValueError, RecursionError):
        facts = None
    if not isinstance(facts, dict):
        facts = {"what": words}
    kind, what = str(facts.get("type") or ""), str(facts.get("what") or words)
    if not kind:  # what ended the program, as Python says it
        first, _, rest = what.partition(": ")
        if first.isidentifier():
            kind, what = first, rest
    values: dict[str, Value] = {names.RANK: rank}
    is_error = kind not in ("", *_WARNINGS)
    if kind:
        values[names.ERROR_TYPE if is_error else names.FINDING] = kind
    group, seq = str(facts.get("group") or ""), facts.get("seq")
    if group:
        values[names.GROUP] = group
    trace_id = parent_id = 0
    if type(seq) is int and seq > 0:
        values[names.SEQ] = seq
        if facts.get("kind") not in ("send", "recv"):
            trace_id, parent_id = find_op(run, start, groups.get(group, ""), seq)
    details = facts.get("details")
    if isinstance(details, list) and details:
        values[names.EVIDENCE] = tuple(map(str, details[:_MAX_LINES]))
    if facts.get("hint"):
        values[names.ADVICE] = str(facts["hint"])
    return LogData(
        at_ns=wall_ns,
        level=OtelSeverity.ERROR if is_error else OtelSeverity.WARN,
        body=what[:_MAX_LETTERS],
        event=RANK_ERROR,
        attributes=values,
        trace_id=trace_id,
        span_id=span_id(trace_id, rank) if parent_id else 0,
        rank=rank,
    )


def log_of_end(end: RankEnd) -> LogData:
    level = OtelSeverity.INFO
    if end.is_failure:
        level = OtelSeverity.WARN if end.was_asked else OtelSeverity.ERROR
    values: dict[str, Value] = {names.RANK: end.rank, names.HOW: end.how}
    if end.exit_code is not None:
        values[names.EXIT_CODE] = end.exit_code
    return LogData(
        at_ns=end.wall_ns,
        level=level,
        body=f"rank {end.rank} {end.how}",
        event=RANK_END,
        attributes=values,
        rank=end.rank,
    )


def log_of_start(start: int, wall_ns: int) -> LogData:
    """The launcher has started the ranks again."""
    return LogData(
        at_ns=wall_ns,
        level=OtelSeverity.WARN,
        body=f"the ranks were started again: start {start}",
        event=START,
        attributes={names.START: start},
    )


def _text(text: str) -> str:
    """Names of files may be no UTF-8, and protobuf takes nothing else; a plain text in any case."""
    return text.encode("utf-8", "backslashreplace").decode()

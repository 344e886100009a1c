"""A record as text for people. Pure: from what a reader gives to lines; clock and liveness are arguments.

Files may come from anywhere, so nothing of them reaches a terminal but printable characters.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator

from distdbg.record.durations import duration_text, nbytes_text
from distdbg.record.entries import (
    ContextEntry,
    Counter,
    Event,
    FindingEntry,
    Group,
    MarkEntry,
    OpEntry,
    Record,
    SpanBegin,
    SpanEnd,
    label_of_kind,
)
from distdbg.record.format import Exit
from distdbg.record.printable import printable
from distdbg.record.rank_words import Clock
from distdbg.record.recorded_frame import RecordedFrame

_LEVELS = ("off", "info", "detail")


def render(record: Record, clock: Clock, *, is_live: bool, most_events: int) -> list[str]:
    """Return the lines for one record; `most_events` of its events, the last ones."""
    lines = [
        *_head(record),
        f"  {_describe_end(record, clock, is_live=is_live)}",
        *_groups(record),
        *_in_flight(record, clock),
        *_waits(record, clock),
        *_events(record, most_events),
        *_findings(record),
        *(f"  not readable: {gap.why} (events {gap.first}-{gap.last})" for gap in record.gaps),
    ]
    return [printable(line) for line in lines]


def error_words(text: str | None, *, has_details: bool = False) -> str:
    """The words of an error, which are JSON in a record."""
    if not text:
        return "(the words are gone)" if has_details or text is None else ""
    try:
        facts = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if not isinstance(facts, dict):
        return text
    kind, what = facts.get("type"), facts.get("what")
    first = f"{kind}: {what}" if kind else str(what or text)
    where = facts.get("where")
    if where:
        first += f", at {where}"
    details = facts.get("details")
    if not has_details or not isinstance(details, list):
        return first
    return "\n".join([first, *(f"  {line}" for line in details)])


def format_duration(nanoseconds: int) -> str:
    """'250 ns', '1.02 us', '33.6 ms', '3.1 s'."""
    return duration_text(nanoseconds / 1e9)


def format_nbytes(nbytes: int) -> str:
    """'8 B', '4.0 KiB', '1.5 MiB'."""
    return nbytes_text(nbytes)


def quantile_ns(buckets: Iterable[int], share: float) -> int | None:
    """What that share of all values lies below, by their powers of two; None without values.

    The last bucket is open: what lies in it has no such limit, and the bucket's beginning is given.
    """
    counts = list(buckets)
    wanted = sum(counts) * share
    if not wanted:
        return None
    reached = 0
    for index, count in enumerate(counts[:-1]):
        reached += count
        if reached >= wanted:
            return 1 << (index + 1)
    return 1 << (len(counts) - 1)


# ---------------------------------------------------------------------------------------- sections


def _head(record: Record) -> Iterator[str]:
    header = record.header
    began = _wall(header.wall_ns)
    level = record.state.level
    yield (
        f"rank {header.rank} of {header.world_size} on {header.host or 'an unnamed host'}, "
        f"pid {header.pid}, began {began}"
    )
    yield f"  {record.path}, run {header.run}"
    yield f"  command: {' '.join(header.argv)}"
    yield (
        f"  distdbg {header.distdbg_version or 'of an unknown version'}, "
        f"Python {header.python_version}, level {_LEVELS[level] if level < 3 else level}"
    )


def _wall(wall_ns: int) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(wall_ns // 10**9))
    except (OSError, OverflowError, ValueError):
        return "at an unknown time"


def _describe_end(record: Record, clock: Clock, *, is_live: bool) -> str:
    state = record.state
    if state.exit is None:
        seen = clock.ago(state.heartbeat_ns)
        if is_live:
            return f"runs; last seen in an op {seen}"
        how = "ended without a reason in its record (killed or crashed), or runs elsewhere"
        return f"{how}; last seen {seen}"
    when = clock.ago(state.exit_ns)
    if state.exit is Exit.RAISED:
        return f"raised {error_words(state.exit_text) or 'an exception'}, {when}"
    if state.exit is Exit.LEFT:
        return f"left its groups {when}" + ("; the process is still running" if is_live else "")
    return f"its program returned {when}"


def _groups(record: Record) -> Iterator[str]:
    for group in record.groups:
        yield f"group {_label(group)}: ranks {group.ranks}, here {group.rank}, {group.backend}"
        progress = record.progress.get(group.number)
        if progress is not None:
            state = f"{progress.issued_seq} collectives issued, {progress.ended_seq} ended"
            if progress.closed_ns is not None:
                at = progress.closed_at
                state += f", destroyed at {_short(at)}" if at is not None else ", destroyed"
            if progress.broken is not None:
                state += f", broken: {error_words(progress.broken) or 'the words are gone'}"
            yield f"  {state}"
        for counter in record.counters:
            if counter.group == group.number:
                yield f"  {_describe_counter(counter)}"
    if record.state.lost_counters:
        yield f"  {record.state.lost_counters} ops are in no counter: too many to keep at one time"


def _label(group: Group) -> str:
    return f"'{group.desc or group.name}'"


def _describe_counter(counter: Counter) -> str:
    what = label_of_kind(counter.kind) or f"kind {counter.kind}"
    if counter.dtype:
        what += f" {counter.dtype}"
    parts = [f"{what}: {counter.ended} ended"]
    if counter.failed:
        parts.append(f"{counter.failed} failed")
    parts.append(format_nbytes(counter.nbytes))
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        limit_ns = quantile_ns(counter.duration_buckets, share)
        if limit_ns is not None:
            parts.append(f"{name} < {format_duration(limit_ns)}")
    parts.append(f"longest {format_duration(counter.longest_ns)}")
    if counter.duration_ns:
        waited = counter.wait_ns / counter.duration_ns
        parts.append(f"waited {format_duration(counter.wait_ns)} ({min(waited, 1):.0%})")
    return ", ".join(parts)


def _in_flight(record: Record, clock: Clock) -> Iterator[str]:
    ops = [op for op in record.ops if op.ended_ns is None]
    if not ops:
        return
    yield "in flight"
    for op in sorted(ops, key=lambda op: op.number):
        yield f"  {_describe_op(op)} {clock.since(op.issued_ns)}"
        yield from (f"    {frame}" for frame in op.stack)


def _waits(record: Record, clock: Clock) -> Iterator[str]:
    ops = {op.number: op for op in record.ops}
    for wait in record.state.work_waits:
        op = ops.get(wait.number)
        if op is not None and op.ended_ns is not None:
            continue  # just now
        what = f"{op.name} #{op.seq}" if op is not None else f"event {wait.number}"
        at = f", at {_short(wait.site)}" if wait.site else ""
        yield f"thread {wait.thread} waits for {what} {clock.since(wait.since_ns)}{at}"
    if record.state.lost_waits:
        yield f"  {record.state.lost_waits} waits were not kept: too many at one time"


def _events(record: Record, most_events: int) -> Iterator[str]:
    events = sorted(record.events, key=lambda event: event.number)
    shown = events[-most_events:] if most_events else []
    if not shown:
        return
    yield f"last {len(shown)} of {record.state.last_number} events, seconds after the beginning"
    began = record.header.monotonic_ns
    for event in shown:
        yield f"  {(event.issued_ns - began) / 1e9:+.6f} {_describe_event(event)}"


def _describe_event(event: Event) -> str:
    at = f" at {_short(event.site)}" if event.site else ""
    match event:
        case OpEntry():
            took = ""
            if event.ended_ns is not None:
                took = f" {format_duration(event.ended_ns - event.issued_ns)}"
            return f"{_describe_op(event)} {event.status_label.replace('_', ' ')}{took}{at}"
        case MarkEntry():
            value = "" if event.value is None else f" {event.value:g}"
            return f"mark {event.name}{value}{at}"
        case SpanBegin():
            return f"span {event.name} begins{at}"
        case SpanEnd():
            return f"span {event.name or f'of event {event.begin}'} ends"
        case FindingEntry():
            return f"finding: {error_words(event.text).splitlines()[0]}"
        case ContextEntry():
            if not event.trace_id:
                return f"thread {event.thread} is in no span of the program's traces"
            return f"thread {event.thread} is in span {event.span_id} of trace {event.trace_id}"
        case _:
            return "an event"


def _describe_op(op: OpEntry) -> str:
    words = [f"{op.name} #{op.seq}"]
    if op.group is not None:
        words.append(f"on group {_label(op.group)}")
    if op.is_message:
        peer = "any" if op.peer is None else op.peer
        words.append(f"with group rank {peer}, tag {op.tag}")
    form = op.form
    if form is not None and form.dtype:
        shapes = [*form.inputs.items, *form.outputs.items][:1]
        shape = f"[{','.join(map(str, shapes[0]))}]" if shapes else ""
        words.append(f"{form.dtype}{shape}")
    if op.is_async:
        words.append("async")
    if op.comm:
        words.append(f"({op.comm})")
    return " ".join(words)


def _short(frame: RecordedFrame) -> str:
    return str(frame._replace(file=frame.file.rsplit("/", 1)[-1]))


def _findings(record: Record) -> Iterator[str]:
    texts: dict[str, str] = {}  # an op's error and the finding about it have the same words
    for event in record.events:
        words = event.error if isinstance(event, OpEntry) else None
        words = event.text if isinstance(event, FindingEntry) else words
        if words:
            texts.setdefault(words, error_words(words, has_details=True))
    if texts:
        yield "errors and findings"
    for text in texts.values():
        yield from (f"  {line}" for line in text.splitlines())

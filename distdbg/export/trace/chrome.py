"""A run as Chrome's JSON trace: for chrome://tracing, ui.perfetto.dev, speedscope and others.

    {"displayTimeUnit": "ns", "otherData": {...}, "traceEvents": [
    {"ph":"M","name":"process_name","pid":4711,"tid":0,"args":{"name":"rank 3 n14"}},
    {"ph":"X","name":"all_reduce","cat":"all_reduce","ts":80.335,"dur":219.666,"pid":4711,"tid":1,"args":{...}},
    {"ph":"s","name":"all_reduce","cat":"flow","id":"0x...","ts":80.335,"pid":4711,"tid":1}, ...
    ]}

The same as `trace.perfetto` in the older format: times are microseconds from the first record, a track is a
thread of its process, an arrow runs from the rank that came first to a collective over the others to the one
that came last. What did not end lasts until the last sign of life. One line is one event, written as it is
made. The Perfetto format is smaller, exact beyond a few hours, and has what this one lacks: prefer it where
the reader takes both.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import numpy as np

from distdbg.diagnose.ops import NEVER
from distdbg.export.findings import find_findings
from distdbg.export.trace.arrivals import Arrivals
from distdbg.export.trace.counts import Series, count
from distdbg.export.trace.lanes import OPEN
from distdbg.export.trace.moments import (
    Moment,
    findings_of,
    marks_of,
    moments_of_run,
    spans_of,
)
from distdbg.export.trace.shared_arguments import facts_of, find_combos, kind_of, name_of
from distdbg.export.trace.slices import RankSlices, choose_pids, to_slices, wait_name, wait_words
from distdbg.record.format import Flag

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from distdbg.diagnose.finding import Finding
    from distdbg.diagnose.session import RankLog
    from distdbg.export.reading import OpenedRun, RunStart

_CHUNK: Final = 8_192
#: Combinations of facts that are kept; more are made anew.
_MAX_TEXTS: Final = 50_000
#: Numbers of threads, which stand for tracks: those of ops come before.
_SPANS: Final = 1_000_000
_MARKS: Final = 2_000_000
_FINDINGS: Final = 2_000_001
#: The digits below a microsecond.
_RESTS: Final = tuple(f".{ns:03}" for ns in range(1_000))
#: The process of what belongs to no rank.
_RUN_PID: Final = 0x7FFF_FF00


def write(run: OpenedRun, output: BinaryIO) -> None:
    times = [at_ns for start in run.starts if (at_ns := start.first_ns()) != NEVER]
    zero_ns = min(times, default=0)
    about = {
        "run": run.name,
        "source": run.source,
        "began_wall_ns": zero_ns,
        "by": "distdbg export",
    }
    output.write(
        b'{"displayTimeUnit": "ns", "otherData": '
        + json.dumps(about).encode()
        + b', "traceEvents": [\n{"ph":"M","name":"distdbg","pid":0,"tid":0,"args":{}}'
    )
    texts: dict[tuple[int, ...], tuple[str, str]] = {}
    for start in run.starts:
        texts.clear()  # they have numbers of the tables of a start
        _StartWriter(start, output, zero_ns, texts).write()
    output.write(b"\n]}\n")


class _StartWriter:
    def __init__(
        self,
        start: RunStart,
        output: BinaryIO,
        zero_ns: int,
        texts: dict[tuple[int, ...], tuple[str, str]],
    ) -> None:
        self._start = start
        self._output = output
        self._zero_ns = zero_ns
        self._end_ns = start.end_ns()
        self._pids = choose_pids(start)
        self._arrivals = Arrivals()
        #: Only of what is wanted: an arrow has to begin somewhere.
        self._arrows = Arrivals()
        self._texts = texts

    def write(self) -> None:
        """All of it: first what is of no rank, then rank by rank."""
        for log in self._start.read_all():
            self._arrivals.add(log)
            if (wanted := self._start.choose(log)) is not None:
                self._arrows.add(wanted)
        findings = find_findings(self._start)
        self._write_run(findings)
        for order, log in enumerate(self._start.read()):
            self._write_rank(log, findings, order)

    def _put(self, events: Iterable[str]) -> None:
        """Each is the text of one event."""
        data = ",\n".join(events)
        if data:
            self._output.write(f",\n{data}".encode("utf-8", "backslashreplace"))

    def _write_run(self, findings: list[Finding]) -> None:
        session = self._start.session
        which = f" start {session.attempt}" if session.attempts > 1 else ""
        pid = _RUN_PID + session.attempt
        self._put(_name_process(pid, f"run {session.run or session.source}{which}", "", -1))
        self._put([_name_thread(pid, _FINDINGS, "findings", 0)])
        moments = moments_of_run(self._start, findings)
        self._put(self._instants(pid, _FINDINGS, moments, scope="g"))

    def _write_rank(self, log: RankLog, findings: list[Finding], order: int) -> None:
        start = self._start
        pid = self._pids.get(log.rank, log.pid)
        which = f" start {start.number}" if start.session.attempts > 1 else ""
        labels = f"pid {log.pid}" if log.pid else ""
        name = f"rank {log.rank}{which} {log.host}".rstrip()
        self._put(_name_process(pid, name, labels, order))
        slices = to_slices(start.session, log, self._arrivals)
        if len(slices.begins):
            self._put(
                _name_thread(pid, at + 1, track.name, track.order)
                for at, track in enumerate(slices.tracks)
            )
            self._write_ops(pid, slices)
        self._write_spans(pid, log)
        found = findings_of(log, findings, self._start)
        for tid, words, moments in (
            (_MARKS, "marks", list(marks_of(log))),
            (_FINDINGS, "findings", found),
        ):
            if moments:
                self._put([_name_thread(pid, tid, words, tid)])
                self._put(self._instants(pid, tid, moments, scope="t"))
        series = count(start.session, slices, self._end_ns)
        for one in series:
            self._put(self._counters(pid, one))

    # ---------------------------------------------------------------------------------------- events

    def _write_ops(self, pid: int, slices: RankSlices) -> None:
        """The op, then the arrow that begins or ends in it, then the wait within it."""
        which, texts = self._op_texts(slices)
        phases = self._phases(slices)
        ends = np.where(slices.ends == OPEN, self._end_ns, slices.ends)
        ends = np.maximum(ends, slices.begins)
        waited = np.minimum(slices.waited_until, ends)
        columns = (
            which,
            np.frombuffer(slices.log.ops.seq, np.int64),
            waited - slices.begins,
            slices.has_wait,
            slices.waits_for,
            slices.track + 1,
            slices.flows,
            phases,
            slices.has_transfer,
        )
        times = (slices.begins - self._zero_ns, ends - slices.begins, waited - slices.begins)
        waits = {
            late: wait_name((late,)) if late >= 0 else "waits"
            for late in np.unique(slices.waits_for).tolist()
        }
        for low in range(0, len(slices.begins), _CHUNK):
            part = [column[low : low + _CHUNK].tolist() for column in columns]
            words = [_all_us(column[low : low + _CHUNK]) for column in times]
            events: list[str] = []
            for at, row in enumerate(zip(*part, *words, strict=True), low):
                text, seq, wait, has_wait, late, tid, flow, phase, comes, ts, dur, waited_us = row
                head, more = texts[text]
                where = f'"pid":{pid},"tid":{tid}'
                events.append(
                    f'{head},"ts":{ts},"dur":{dur},{where},'
                    f'"args":{{"seq":{seq},"wait_ns":{wait}{more}}}}}'
                )
                if phase and not comes:
                    events.append(_flow(phase, flow, ts, where))
                if has_wait:
                    if slices.waited_until[at] == OPEN:
                        name = wait_words(slices, at)
                    else:
                        name = waits[late]
                    events.append(
                        f'{{"ph":"X","name":"{name}","cat":"wait","ts":{ts},"dur":{waited_us},'
                        f"{where}}}"
                    )
                if comes:
                    came_ns = int(slices.begins[at]) - self._zero_ns + wait
                    left_ns = int(ends[at] - slices.begins[at]) - wait
                    ts = _us(came_ns)
                    events.append(
                        f'{{"ph":"X","name":"transfer","cat":"transfer","ts":{ts},'
                        f'"dur":{_us(left_ns)},{where}}}'
                    )
                    events.append(_flow(phase, flow, ts, where))
            self._put(events)

    def _op_texts(self, slices: RankSlices) -> tuple[NDArray[np.int64], list[tuple[str, str]]]:
        """Which text each op has, and the texts: of the event's beginning, and of its facts."""
        session, ops = self._start.session, slices.log.ops
        combos = find_combos(ops)
        if len(self._texts) > _MAX_TEXTS:
            self._texts.clear()
        found = []
        for at, key in zip(combos.examples, combos.keys, strict=True):
            text = self._texts.get(key) if key else None
            if text is None:
                name = _json(name_of(session, ops, at))
                head = f'{{"ph":"X","name":{name},"cat":{_json(kind_of(session, ops, at))}'
                facts = facts_of(session, ops, at)
                more = "".join(f",{_json(word)}:{_json(value)}" for word, value in facts.items())
                text = head, more
                if key:
                    self._texts[key] = text
            found.append(text)
        return combos.index, found

    def _phases(self, slices: RankSlices) -> NDArray[np.int8]:
        """What each op is to its arrow: index into `_PHASES`."""
        log = slices.log
        ops = log.ops
        found = np.zeros(len(ops), np.int8)
        groups, seqs = np.frombuffer(ops.group, np.int32), np.frombuffer(ops.seq, np.int64)
        messages = (np.frombuffer(ops.flags, np.uint8) & Flag.MESSAGE) != 0
        joined = (slices.flows != 0) & ~messages
        for group in np.unique(groups[joined]).tolist():
            mine = joined & (groups == group)
            first = self._arrows.first_of(group, seqs[mine])
            last = self._arrows.last_of(group, seqs[mine])
            phases = np.where(first == log.rank, 1, np.where(last == log.rank, 3, 2))
            found[mine] = np.where(first == last, 0, phases)
        with_arrow = messages & (slices.flows != 0)
        found[with_arrow] = np.where(slices.is_receiver, 3, 1)[with_arrow]
        found[~slices.has_flow & ~slices.has_transfer] = 0
        return found

    def _write_spans(self, pid: int, log: RankLog) -> None:
        spans = spans_of(log)
        lanes = sorted({span.lane for span in spans})
        self._put(_name_thread(pid, _SPANS + lane, "spans", _SPANS + lane) for lane in lanes)
        events = []
        for span in spans:
            is_open = span.end_ns == OPEN
            end_ns = max(self._end_ns, span.begin_ns) if is_open else span.end_ns
            event = {
                "ph": "X",
                "name": f"{span.name} (did not end)" if is_open else span.name,
                "cat": "span",
                "ts": (span.begin_ns - self._zero_ns) / 1_000,
                "dur": (end_ns - span.begin_ns) / 1_000,
                "pid": pid,
                "tid": _SPANS + span.lane,
                "args": span.facts,
            }
            events.append(_json(event))
        self._put(events)

    def _instants(self, pid: int, tid: int, moments: list[Moment], *, scope: str) -> list[str]:
        return [
            _json(
                {
                    "ph": "i",
                    "s": scope,
                    "name": moment.name,
                    "cat": moment.category,
                    "ts": (moment.at_ns - self._zero_ns) / 1_000,
                    "pid": pid,
                    "tid": tid,
                    "args": _finite(moment.facts),
                }
            )
            for moment in moments
        ]

    def _counters(self, pid: int, series: Series) -> list[str]:
        head = f'{{"ph":"C","name":{_json(series.name)},"pid":{pid}'
        unit = _json(series.unit or "value")
        return [
            f'{head},"ts":{_us(at_ns - self._zero_ns)},"args":{{{unit}:{value!r}}}}}'
            for at_ns, value in series.changes()
            if np.isfinite(value)
        ]


#: What an op is to an arrow: nothing, its begin, on its way, its end (in the slice that is open then).
_PHASES: Final = ("", '"s"', '"t"', '"f","bp":"e"')


def _flow(phase: int, flow: int, ts: str, where: str) -> str:
    """Binds to the slice before it, which begins at the same time."""
    return (
        f'{{"ph":{_PHASES[phase]},"name":"flow","cat":"flow","id":"{flow:#x}","ts":{ts},{where}}}'
    )


def _us(ns: int) -> str:
    """Microseconds, exactly."""
    if ns < 0:
        return f"{ns / 1_000:.3f}"
    return f"{ns // 1_000}.{ns % 1_000:03}"


def _all_us(ns: NDArray[np.int64]) -> list[str]:
    """`_us` of many."""
    if len(ns) and ns.min() < 0:
        return list(map(_us, ns.tolist()))
    whole, rest = np.divmod(ns, 1_000)
    return [
        f"{one}{_RESTS[other]}" for one, other in zip(whole.tolist(), rest.tolist(), strict=True)
    ]


def _json(value: Any) -> str:
    return json.dumps(_in_letters(value), separators=(",", ":"))


def _in_letters(value: Any) -> Any:
    """Bytes of names that are no letters as '\\udcff' in words: half a letter is no JSON for many readers."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {name: _in_letters(one) for name, one in value.items()}
    return value


def _finite(facts: Mapping[str, str | int | float]) -> dict[str, str | int | float]:
    """JSON has no NaN and no infinity."""
    return {
        name: str(value) if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in facts.items()
    }


def _name_process(pid: int, name: str, labels: str, order: int) -> list[str]:
    events = [_metadata(pid, 0, "process_name", {"name": name})]
    if labels:
        events.append(_metadata(pid, 0, "process_labels", {"labels": labels}))
    events.append(_metadata(pid, 0, "process_sort_index", {"sort_index": order}))
    return events


def _name_thread(pid: int, tid: int, name: str, order: int) -> str:
    first = _metadata(pid, tid, "thread_name", {"name": name})
    return f"{first},\n{_metadata(pid, tid, 'thread_sort_index', {'sort_index': order})}"


def _metadata(pid: int, tid: int, name: str, args: Mapping[str, object]) -> str:
    return _json({"ph": "M", "name": name, "pid": pid, "tid": tid, "args": args})

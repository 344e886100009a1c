"""A run as a Perfetto trace: TrackEvents in protobuf, for ui.perfetto.dev and trace_processor.

    run 20261121-...                  findings of the diagnosis, the last sign of life
    rank 3 n14                        a process per rank; per group a track with its collectives:
      dp   |-all_reduce-------------|     seq, shapes, site, status ... are its arguments
           |-waits for rank 5-|           what of it was waiting for the rank that came last
      dp: messages, dp: other waits, spans, marks, findings, counters

The collectives of all ranks with one (group, seq) have one flow id, and so have a send and its recv: it is a
hash of what they have in common, so ranks are written one after the other, each forgotten before the next.
What did not end has a begin and no end; the readers draw it to the end of the trace.

Times count from the first record, as BOOTTIME; a snapshot of the clocks says what wall time that was. Most
bytes are written by columns (`rows`), a chunk of ops at a time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, BinaryIO, Final

import numpy as np

from distdbg.diagnose.ops import NEVER
from distdbg.export.findings import find_findings
from distdbg.export.trace import packets
from distdbg.export.trace.arrivals import Arrivals
from distdbg.export.trace.counts import Series, count
from distdbg.export.trace.lanes import OPEN
from distdbg.export.trace.moments import (
    Moment,
    findings_of,
    in_order,
    marks_of,
    moments_of_run,
    spans_of,
)
from distdbg.export.trace.packets import Interned, InternTable, TrackEventType
from distdbg.export.trace.protobuf_columns import Blobs, Fixed, join, width_of
from distdbg.export.trace.shared_arguments import Combos, facts_of, find_combos, kind_of, name_of
from distdbg.export.trace.slices import RankSlices, choose_pids, to_slices, wait_name, wait_words

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from distdbg.diagnose.finding import Finding
    from distdbg.diagnose.session import RankLog
    from distdbg.export.reading import OpenedRun, RunStart

#: Ops that are written at once.
_CHUNK: Final = 16_384
#: Combinations of facts that are kept; more are made anew.
_MAX_BLOBS: Final = 50_000
#: Bytes of the length of what is shorter than 2 MiB: a packet, an event.
_LENGTH: Final = 3
_NOTES: Final = 1_000


def write(run: OpenedRun, output: BinaryIO) -> None:
    _Writer(run, output).write()


class _Writer:
    def __init__(self, run: OpenedRun, output: BinaryIO) -> None:
        self._run = run
        self._output = output
        self._interned = Interned()
        self._last_track = 0
        self._last_order = 0
        times = [at_ns for start in run.starts if (at_ns := start.first_ns()) != NEVER]
        #: Wall time of time 0 of the trace; nothing is at 0, which means "no time" to some readers.
        self._zero_ns = min(times, default=1) - 1
        self._blobs: dict[tuple[int, ...], bytes] = {}
        self._waits: dict[int, int] = {}

    def write(self) -> None:
        clocks = {packets.BOOTTIME: 1, packets.REALTIME: self._zero_ns + 1}
        self._output.write(packets.opening(clocks) + packets.ordered_processes())
        for start in self._run.starts:
            self._blobs.clear()  # they have numbers of the tables of a start
            _StartWriter(self, start).write()

    # -------------------------------------------------------------------------------- for one start

    def next_track(self) -> int:
        self._last_track += 1
        return self._last_track

    def next_order(self) -> int:
        """The place of a process among all of them."""
        self._last_order += 1
        return self._last_order

    def put(self, data: bytes) -> None:
        """Packets, after the words that they have numbers of."""
        if new := self._interned.flush():
            self._output.write(new)
        self._output.write(data)

    def put_moments(self, track: int, moments: Iterable[Moment]) -> None:
        data = [
            packets.event(
                self._interned,
                TrackEventType.INSTANT,
                track,
                moment.at_ns - self._zero_ns,
                moment.name,
                category=moment.category,
                values=moment.facts,
            )
            for moment in moments
        ]
        self.put(b"".join(data))

    def put_spans(self, log: RankLog, parent: int) -> None:
        tracks: dict[int, int] = {}
        data = []
        for span, is_end in in_order(spans_of(log)):
            if span.lane not in tracks:
                tracks[span.lane] = self.next_track()
                data.append(packets.track(tracks[span.lane], "spans", parent=parent, order=_NOTES))
            kind = TrackEventType.SLICE_END if is_end else TrackEventType.SLICE_BEGIN
            at_ns = span.end_ns if is_end else span.begin_ns
            name = span.name if span.end_ns != OPEN else f"{span.name} (did not end)"
            data.append(
                packets.event(
                    self._interned,
                    kind,
                    tracks[span.lane],
                    at_ns - self._zero_ns,
                    "" if is_end else name,
                    category="" if is_end else "span",
                    values=None if is_end else span.facts,
                )
            )
        self.put(b"".join(data))

    def put_series(self, parent: int, order: int, series: Series) -> None:
        track = self.next_track()
        unit = packets.counter_unit(series.unit)
        data = [packets.track(track, series.name, parent=parent, order=order, more=unit)]
        data += [packets.counter(track, t - self._zero_ns, v) for t, v in series.changes()]
        self.put(b"".join(data))

    def put_ops(self, start: RunStart, slices: RankSlices, parent: int) -> None:
        """All ops of a rank, by columns."""
        uuids = np.array([self.next_track() for _ in slices.tracks], np.int64)
        self.put(
            b"".join(
                packets.track(uuid, track.name, parent=parent, order=track.order)
                for uuid, track in zip(uuids.tolist(), slices.tracks, strict=True)
            )
        )
        combos = find_combos(slices.log.ops)
        blobs = Blobs.of(self._make_blobs(start, slices, combos))
        waits = self._name_waits(slices)
        for first in range(0, len(slices.begins), _CHUNK):
            chosen = np.arange(first, min(first + _CHUNK, len(slices.begins)))
            self._put_chunk(slices, chosen, uuids, blobs, combos, waits)

    def _make_blobs(self, start: RunStart, slices: RankSlices, combos: Combos) -> list[bytes]:
        session, ops = start.session, slices.log.ops
        if len(self._blobs) > _MAX_BLOBS:
            self._blobs.clear()
        found = []
        for at, key in zip(combos.examples, combos.keys, strict=True):
            blob = self._blobs.get(key) if key else None
            if blob is None:
                category = self._interned.number(InternTable.CATEGORIES, kind_of(session, ops, at))
                name = self._interned.number(InternTable.NAMES, name_of(session, ops, at))
                blob = packets.uint(3, category) + packets.uint(10, name)
                blob += packets.facts(self._interned, facts_of(session, ops, at))
                if key:
                    self._blobs[key] = blob
            found.append(blob)
        return found

    def _name_waits(self, slices: RankSlices) -> NDArray[np.int64]:
        """The number of the name of each op's wait."""
        found = np.empty(len(slices.begins), np.int64)
        ranks, inverse = np.unique(slices.waits_for, return_inverse=True)
        numbers = []
        for rank in ranks.tolist():
            if rank not in self._waits:
                words = wait_name((rank,)) if rank >= 0 else "waits"
                self._waits[rank] = self._interned.number(InternTable.NAMES, words)
            numbers.append(self._waits[rank])
        found[:] = np.array(numbers, np.int64)[inverse] if len(numbers) else 0
        for at in np.flatnonzero(slices.waited_until == OPEN).tolist():
            found[at] = self._interned.number(InternTable.NAMES, wait_words(slices, at))
        return found

    def _put_chunk(
        self,
        slices: RankSlices,
        chosen: NDArray[np.int64],
        uuids: NDArray[np.int64],
        blobs: Blobs,
        combos: Combos,
        waits: NDArray[np.int64],
    ) -> None:
        """Ops that have the same packets (a wait, an end, a flow, or none) have one layout."""
        layout = (
            slices.has_wait[chosen] * 1
            + slices.has_flow[chosen] * 2
            + slices.has_transfer[chosen] * 4
            + (slices.ends[chosen] == OPEN) * 8
            + (slices.waited_until[chosen] == OPEN) * 16
        )
        for code in np.unique(layout).tolist():
            mine = chosen[layout == code]
            layouter = _Layout(self._interned, self._zero_ns, slices, mine, uuids)
            head = layouter.head(blobs.lengths[combos.index[mine]], has_flow=bool(code & 2))
            tail = layouter.tail(
                waits[mine],
                has_wait=bool(code & 1),
                has_end=not code & 8,
                has_transfer=bool(code & 4),
                waits_on=bool(code & 16),
            )
            self.put(join(head, blobs, combos.index[mine], tail))


class _Layout:
    """The packets of some ops: begin, wait, end."""

    def __init__(
        self,
        interned: Interned,
        zero_ns: int,
        slices: RankSlices,
        mine: NDArray[np.int64],
        uuids: NDArray[np.int64],
    ) -> None:
        self._interned = interned
        self._slices = slices
        self._mine = mine
        self._count = len(mine)
        self._uuids = uuids[slices.track[mine]]
        self._uuid_width = width_of(self._uuids)
        self._begins = np.maximum(slices.begins[mine] - zero_ns, 1)
        ends, waited = slices.ends[mine], slices.waited_until[mine]
        self._ends = np.where(ends == OPEN, 1, np.maximum(ends - zero_ns, 1))
        self._waited = np.where(waited == OPEN, 1, np.maximum(waited - zero_ns, 1))
        self._time_width = max(map(width_of, (self._begins, self._ends, self._waited)))

    def head(self, blob_nbytes: NDArray[np.int64], *, has_flow: bool) -> Fixed:
        """The begin of each op, up to what its blob says."""
        event = Fixed(self._count)
        self._begin_event(event, TrackEventType.SLICE_BEGIN)
        self._fact(event, "seq", np.maximum(np.frombuffer(self._slices.log.ops.seq, np.int64), 0))
        waited = self._slices.waited_until - self._slices.begins
        self._fact(event, "wait_ns", np.where(self._slices.waited_until == OPEN, 0, waited))
        if has_flow:
            self._flow(event)
        head = Fixed(self._count)
        fields = 1 + self._time_width + len(packets.SEQUENCE) + len(packets.NEEDS_NAMES)
        nbytes = blob_nbytes + event.nbytes
        head.const(b"\x0a")
        head.varint(nbytes + fields + 1 + _LENGTH, _LENGTH)
        self._packet(head, self._begins, packets.NEEDS_NAMES)
        head.const(b"\x5a")
        head.varint(nbytes, _LENGTH)
        head.append(event)
        return head

    def tail(
        self,
        waits: NDArray[np.int64],
        *,
        has_wait: bool,
        has_end: bool,
        has_transfer: bool,
        waits_on: bool,
    ) -> Fixed:
        """The wait, what came then, and the end."""
        tail = Fixed(self._count)
        if has_wait:
            event = Fixed(self._count)
            self._begin_event(event, TrackEventType.SLICE_BEGIN)
            event.const(b"\x50")
            event.varint(waits, width_of(waits))
            event.const(packets.uint(3, self._interned.number(InternTable.CATEGORIES, "wait")))
            self._whole(tail, self._begins, event, packets.NEEDS_NAMES)
        if has_wait and not waits_on:
            self._end(tail, self._waited)
        if has_transfer:
            event = Fixed(self._count)
            self._begin_event(event, TrackEventType.SLICE_BEGIN)
            event.const(packets.uint(10, self._interned.number(InternTable.NAMES, "transfer")))
            event.const(packets.uint(3, self._interned.number(InternTable.CATEGORIES, "transfer")))
            self._flow(event)
            self._whole(tail, self._waited, event, packets.NEEDS_NAMES)
            if has_end:
                self._end(tail, self._ends)
        if has_end:
            self._end(tail, self._ends)
        return tail

    def _end(self, to: Fixed, times: NDArray[np.int64]) -> None:
        event = Fixed(self._count)
        self._begin_event(event, TrackEventType.SLICE_END)
        self._whole(to, times, event, b"")

    def _whole(self, to: Fixed, times: NDArray[np.int64], event: Fixed, flags: bytes) -> None:
        """A packet of known length."""
        inner = Fixed(self._count)
        self._packet(inner, times, flags)
        inner.const(b"\x5a" + packets.varint(event.nbytes))
        inner.append(event)
        to.const(b"\x0a" + packets.varint(inner.nbytes))
        to.append(inner)

    def _packet(self, to: Fixed, times: NDArray[np.int64], flags: bytes) -> None:
        to.const(b"\x40")
        to.varint(times, self._time_width)
        to.const(packets.SEQUENCE + flags)

    def _begin_event(self, to: Fixed, kind: TrackEventType) -> None:
        to.const(packets.uint(9, kind) + b"\x58")
        to.varint(self._uuids, self._uuid_width)

    def _fact(self, to: Fixed, name: str, values: NDArray[np.int64]) -> None:
        mine = values[self._mine]
        width = width_of(mine)
        number = packets.uint(1, self._interned.number(InternTable.FACT_NAMES, name))
        to.const(b"\x22" + packets.varint(len(number) + 1 + width) + number + b"\x20")
        to.varint(mine, width)

    def _flow(self, to: Fixed) -> None:
        to.const(packets.tag(47, 1))
        to.fixed64(self._slices.flows[self._mine])


class _StartWriter:
    def __init__(self, writer: _Writer, start: RunStart) -> None:
        self._writer = writer
        self._start = start
        self._end_ns = start.end_ns()
        self._arrivals = Arrivals()
        self._pids = choose_pids(start)

    def write(self) -> None:
        """All of it: first what is of no rank, then rank by rank."""
        for log in self._start.read_all():
            self._arrivals.add(log)
        findings = find_findings(self._start)
        self._write_run(findings)
        for log in self._start.read():
            self._write_rank(log, findings)

    def _write_run(self, findings: list[Finding]) -> None:
        writer, session = self._writer, self._start.session
        which = f" start {session.attempt}" if session.attempts > 1 else ""
        root, track = writer.next_track(), writer.next_track()
        facts: dict[str, str | int | float] = {
            "run": session.run,
            "source": session.source,
            "attempt": session.attempt,
            "world_size": session.world_size,
            "ranks": len(self._start.ranks),
        }
        name = f"run {session.run or session.source}{which}"
        writer.put(packets.track(root, name) + packets.track(track, "findings", parent=root))
        moments = moments_of_run(self._start, findings, facts)
        writer.put_moments(track, moments)

    def _write_rank(self, log: RankLog, findings: list[Finding]) -> None:
        writer, start = self._writer, self._start
        process = writer.next_track()
        labels = [f"pid {log.pid}"] if log.pid else []
        which = ""
        if start.session.attempts > 1:
            which = f" start {start.number}"
            labels.append(which.strip())
        name = f"rank {log.rank}{which} {log.host}".rstrip()
        about = packets.process(
            self._pids.get(log.rank, log.pid),
            name,
            labels=tuple(labels),
            command=" ".join(log.argv)[:1_000],
        )
        writer.put(
            packets.track(process, order=writer.next_order(), has_ordered_children=True, more=about)
        )
        slices = to_slices(start.session, log, self._arrivals)
        if len(slices.begins):
            writer.put_ops(start, slices, process)
        writer.put_spans(log, process)
        self._write_moments(log, findings, process)
        series = count(start.session, slices, self._end_ns)
        if series:
            # Readers that sort the tracks of a process by name would put them between those of ops.
            counters = writer.next_track()
            named = packets.track(
                counters, "counters", parent=process, order=_NOTES + 10, has_ordered_children=True
            )
            writer.put(named)
            for order, one in enumerate(series):
                writer.put_series(counters, order, one)

    def _write_moments(self, log: RankLog, findings: list[Finding], process: int) -> None:
        writer = self._writer
        found = findings_of(log, findings, self._start)
        for order, (name, moments) in enumerate(
            (("marks", list(marks_of(log))), ("findings", found))
        ):
            if moments:
                track = writer.next_track()
                writer.put(packets.track(track, name, parent=process, order=_NOTES + 1 + order))
                writer.put_moments(track, moments)

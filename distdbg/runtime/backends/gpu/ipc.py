"""Ipc: one op in which the ranks of a host read and write each other's memory on the GPU.

    the program's stream --event--> this rank's stream --shared event--> the streams of the peers
    meeting     each rank's row: where its arrays are, what is new, what was retired
    (meeting    only where somebody had to open something: whether all could)
    the GPU     copies and reductions; the host waits for them, and looks after the peers meanwhile
    meeting     all are done: now arrays may be written again, and freed

What an op decides, every rank decides from the same rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from distdbg.check.explain import describe, explain_mismatch
from distdbg.check.foreign.table import MOST_WORDS, Table
from distdbg.check.logs import get_logger
from distdbg.errors import MismatchError
from distdbg.runtime.backends.gpu.chunks import Block, Job
from distdbg.runtime.backends.gpu.driver import Driver
from distdbg.runtime.backends.gpu.exports import Exports
from distdbg.runtime.backends.gpu.kernels import Kernels
from distdbg.runtime.backends.gpu.mappings import Mappings
from distdbg.runtime.backends.gpu.meeting import Meeting, Topic
from distdbg.runtime.backends.gpu.moves import Given, Side, gives, moves, takes, target
from distdbg.runtime.backends.gpu.rows import NOTHING, Entry, Row, fits, pack, unpack
from distdbg.runtime.dtypes import Dtype
from distdbg.runtime.reduce_op import ReduceOp

_log = get_logger("runtime")


@dataclass(slots=True)
class Order:
    """One op for the GPU."""

    topic: Topic
    job: Job
    op: ReduceOp | None
    #: After what the program had queued when it called.
    ready: Any


class Ipc:
    """Of one rank in one group. Used by one thread at a time."""

    def __init__(self, driver: Driver, meeting: Meeting, stream: Any) -> None:
        self._driver = driver
        self._meeting = meeting
        self._stream = stream
        self._event: Any = None
        self._exports = Exports(driver)
        self._mappings = Mappings(driver)
        self._kernels = Kernels(driver)
        self._is_first = True
        #: Whether all ranks can open each other's memory, as far as is known.
        self.is_on = True

    def run(self, order: Order, await_event: Callable[[Any], None]) -> bool:
        """Carry it out. False: this op has to go another way, on all ranks alike."""
        meeting, driver, rank = self._meeting, self._driver, self._meeting.rank
        job = order.job
        side = Side(job.kind, rank, meeting.size, order.topic.call.root, job.inputs, job.outputs)
        driver.wait_for(self._stream, order.ready.ptr)
        rows = self._meet(order, side)
        if not self._open(order.topic, rows):
            self.is_on = False
            self.close()
            return False
        unable = [index for index, row in enumerate(rows) if row.why_not]
        if unable:
            _log.debug("rank %s: %s", meeting.names[unable[0]], rows[unable[0]].why_not)
            return False
        for event in self._mappings.events():
            driver.wait_for(self._stream, event)
        self._queue(side, order, rows)
        await_event(driver.event(self._stream))
        meeting.gate(order.topic)
        return True

    def _meet(self, order: Order, side: Side) -> list[Row]:
        """What all ranks say of their memory; they mean the same op."""
        meeting = self._meeting
        mine = pack(self._row(side, order.job), meeting.size)
        try:
            rows = [unpack(data, meeting.size) for data in meeting.exchange(order.topic, mine)]
            if not fits(rows):
                raise self._difference(order, rows)
        except BaseException:
            self._exports.untold()
            raise
        self._exports.told()
        return rows

    def close(self) -> None:
        """Leave nothing open of other ranks."""
        self._mappings.close_all()
        self._exports.forget()

    # ------------------------------------------------------------------------------ the rows

    def _row(self, side: Side, job: Job) -> Row:
        row = Row(
            takes=takes(side),
            factor=1.0 if job.factor is None else job.factor,
        )
        written = target(side)
        try:
            if self._is_first:
                self._event = self._driver.shared_event()
                row.event = self._driver.event_handle(self._event)
            self._event.record(self._stream)
            row.gives = [self._entry(block) for block in gives(side)]
            row.target = NOTHING if written is None else self._entry(written)
        except Exception as error:  # noqa: BLE001 - CUDA's or the driver's: the arrays go another way
            row.why_not = str(error).splitlines()[0] if str(error) else type(error).__name__
            row.gives = [Entry(-1, 0, block.nbytes) for block in gives(side)]
        new, row.retired = self._exports.news()
        row.new = [(export.number, export.handle) for export in new]
        return row

    def _entry(self, block: Block) -> Entry:
        if not block.nbytes:
            return NOTHING
        number, offset = self._exports.place(block.address)
        return Entry(number, offset, block.nbytes)

    def _open(self, topic: Topic, rows: Sequence[Row]) -> bool:
        """Open and close what the others say; whether all ranks could."""
        meeting = self._meeting
        has_failed = False
        for owner, row in enumerate(rows):
            if owner == meeting.rank:
                continue
            for number in row.retired:
                self._mappings.close(owner, number)
            try:
                if self._is_first:
                    self._mappings.open_event(owner, row.event)
                for number, handle in row.new:
                    self._mappings.open(owner, number, handle)
            except Exception as error:  # noqa: BLE001 - the ranks hear of it below, and go another way
                has_failed = True
                _log.warning(
                    "GPU arrays of group '%s' go through the host: memory of rank %s cannot be opened: %s",
                    meeting.name, meeting.names[owner], str(error),
                )  # fmt: skip
        if not self._is_first and not any(row.new for row in rows):
            return True
        self._is_first = False
        told = meeting.exchange(topic, bytes([not has_failed]))
        return all(word == b"\1" for word in told)

    # ------------------------------------------------------------------------------- the GPU

    def _queue(self, side: Side, order: Order, rows: Sequence[Row]) -> None:
        job = order.job
        given = [
            Given(
                self._source(owner, row.for_rank(side.rank), side),
                self._target(owner, row, side),
            )
            for owner, row in enumerate(rows)
        ]
        copies, reductions = moves(side, given, job.dtype.itemsize)
        for target_at, source_at, nbytes in copies:
            self._driver.copy(target_at, source_at, nbytes, self._stream)
        for reduction in reductions:
            assert order.op is not None  # of a reduction
            factors = [_rounded(row.factor, job.dtype) for row in rows]
            self._kernels.queue(reduction, job.dtype, order.op.op, factors, self._stream)

    def _source(self, owner: int, entry: Entry, side: Side) -> Block | None:
        if owner == side.rank:
            own = gives(side)
            if not own:
                return None
            return own[0] if len(own) == 1 else own[side.rank]
        return self._opened(owner, entry)

    def _target(self, owner: int, row: Row, side: Side) -> Block | None:
        if owner == side.rank:
            return target(side)
        return None if row.target.export < 0 else self._opened(owner, row.target)

    def _opened(self, owner: int, entry: Entry) -> Block:
        if entry.export < 0:
            return Block(0, 0)
        return Block(self._mappings.address(owner, entry.export, entry.offset), entry.nbytes)

    def _difference(self, order: Order, rows: Sequence[Row]) -> MismatchError:
        """Sizes of blocks that differ between giver and taker; each rank adds the line that called."""
        meeting, call, itemsize = self._meeting, order.topic.call, order.job.dtype.itemsize
        size, own = meeting.size, rows[meeting.rank]
        words = describe(
            {"kind": call.kind.label},
            call.function[:MOST_WORDS],
            [own.for_rank(reader).nbytes // itemsize for reader in range(size)],
            [nbytes // itemsize for nbytes in own.takes or [0] * size],
        )
        site = json.dumps(meeting.call_site()).encode()
        table = Table(words + b', "call_site": ' + site + b"}", size)
        told = meeting.exchange(order.topic, table.mine.tobytes())
        return explain_mismatch(
            [text.rstrip(b"\0") for text in told],
            group=meeting.name,
            seq=order.topic.seq,
            names=meeting.names,
            this_rank=meeting.names[meeting.rank],
        )


def _rounded(factor: float, dtype: Dtype) -> float:
    """As an element of the dtype, so far as a double can tell."""
    kind = dtype.to_numpy()
    if dtype.is_complex:
        kind = Dtype.float32.to_numpy() if dtype is Dtype.complex64 else Dtype.float64.to_numpy()
    return float(kind.type(factor)) if dtype.is_floating or dtype.is_complex else factor

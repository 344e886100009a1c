"""OnGpu: how an op of our own engine finds what carries it out when its arrays are on a GPU.

A group has an engine for such ops from the first of them on that does not go whole through the host; it is
recorded as a group of its own, whose ops have numbers of their own.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any

from distdbg.errors import DistError, UsageError, format_ranks
from distdbg.native import Group, RecordedOp
from distdbg.ops.call import Call, Kind
from distdbg.ops.engine import Engine, Pending
from distdbg.runtime.arrays.device_arrays import is_on_device
from distdbg.runtime.backends.gpu import capabilities, driver
from distdbg.runtime.backends.gpu.issued_record import IssuedRecord
from distdbg.runtime.backends.gpu.routes import MESSAGE_FROM_NBYTES, MOST_RANKS, GpuRoute, choose
from distdbg.runtime.backends.recorded import RecordedEngine, RecordedPending
from distdbg.runtime.process.debugger_seam import on_other_rules

if TYPE_CHECKING:
    from distdbg.runtime.backends.cpu import CpuEngine
    from distdbg.runtime.backends.gpu.messages import GpuMessages
    from distdbg.runtime.backends.gpu.transfer import Transfer
    from distdbg.runtime.groups.group import ProcessGroup
    from distdbg.runtime.store import Store


class OnGpu:
    """Of one group of our own engine."""

    def __init__(
        self, group: ProcessGroup, store: Store, host: Group, *, is_one_host: bool
    ) -> None:
        self._group = group
        self._store = store
        self._host = host
        self._is_one_host = is_one_host
        self._lock = threading.Lock()  # protects the rest
        self._best: GpuRoute | None = None
        self._engine: Any = None
        self._messages: GpuMessages | None = None
        #: By the rank, as far as it was asked: whether messages may stay on the device.
        self._takers: dict[int, bool] = {}
        self._is_small_too = False
        #: Of the engine's ops in the record.
        self._number = 0
        #: Ops that this rank had on the host before it had that engine, and other ranks on a GPU.
        self._skipped = 0

    def try_run(self, engine: CpuEngine, call: Call) -> int | None:
        """Carry it out; None: the host does, with the arrays as a whole."""
        if call.kind < Kind.SEND:
            better = self.engine_for(call)
            return None if better is None else better.run(call)
        found = self._transfer_for(engine, call)
        return None if found is None else found[0].run(engine, found[1])

    def try_submit(self, engine: CpuEngine, call: Call) -> Pending | None:
        """Start it; None: the host does."""
        if call.kind < Kind.SEND:
            better = self.engine_for(call)
            return None if better is None else better.submit(call)
        found = self._transfer_for(engine, call)
        return None if found is None else found[0].submit(engine, found[1])

    def engine_for(self, call: Call) -> Engine | None:
        """What carries it out; None: the host does, with the arrays as a whole."""
        if self._way(call) is GpuRoute.WHOLE:
            return None
        arrays = (*call.inputs, *call.outputs)
        if not all(is_on_device(array) for array in arrays):
            raise UsageError(
                f"{call.name or call.kind.label}: some of its arrays are on the host and some on a GPU"
            )
        with self._lock:
            if self._engine is None:
                self._engine = self._make()
                for _ in range(self._skipped):
                    self._engine.skip_number()
            engine: Engine = self._engine
            return engine

    def set_timeout(self, timeout_s: float) -> None:
        """Hand it on."""
        self._tell("set_timeout", timeout_s)

    def set_level(self, level: int) -> None:
        """Hand it on."""
        self._tell("set_level", level)

    def abort(self, reason: str) -> None:
        """Hand it on."""
        self._tell("abort", reason)

    def skip_number(self) -> None:
        """Other ranks have an op on a GPU that this one had on the host: all were told."""
        with self._lock:
            if self._engine is None:
                self._skipped += 1
            else:
                self._engine.skip_number()

    def leave_because(self, why: str, at_once: bool) -> None:
        """Say why this rank is about to leave."""
        inner = getattr(self._engine, "inner", self._engine)
        if inner is not None:
            with suppress(DistError):
                inner.leave_because(why, at_once)

    def close(self) -> None:
        """End what is in flight, and leave; idempotent."""
        messages, self._messages = self._messages, None
        if messages is not None:
            messages.close()
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.close()
            if self._group.world.recorder is not None and self._number:
                self._group.world.recorder.close_group(self._number)

    def _transfer_for(self, engine: CpuEngine, call: Call) -> tuple[GpuMessages, Transfer] | None:
        """A message that need not be on the host as a whole, as far as this rank can know."""
        own, peer = self._group.rank(), call.peer
        nbytes = int((call.inputs or call.outputs)[0].nbytes)
        if self._host.options != 0 or peer == own or not nbytes or not driver.is_likely():
            return None
        from distdbg.runtime.backends.gpu import (
            chunks,  # a rank without a GPU loads neither
        )
        from distdbg.runtime.backends.gpu.messages import GpuMessages

        stages = nbytes > chunks.CHUNK_NBYTES
        offers = (
            (nbytes >= MESSAGE_FROM_NBYTES or capabilities.takes_small_too())
            and self._takes_messages(engine, own)
            and (call.kind is not Kind.SEND or self._takes_messages(engine, peer))
        )
        if not (stages or offers):
            return None
        with self._lock:
            if self._messages is None:
                self._messages = GpuMessages(driver.load(), self._host, self._group.label, own)
            messages = self._messages
        transfer = messages.prepare(call, offers=offers, stages=stages)
        return None if transfer is None else (messages, transfer)

    def _takes_messages(self, engine: CpuEngine, rank: int) -> bool:
        found = self._takers.get(rank)
        if found is None:
            found = rank in engine.ranks_here and capabilities.takes_messages(self._store, rank)
            self._takers[rank] = found
        return found

    def _way(self, call: Call) -> GpuRoute:
        size = self._group.size()
        if self._best is None:
            # What looks into arrays or compares outputs does it on the host.
            looks = self._host.options != 0
            best = capabilities.best_way(self._store, size, is_one_host=self._is_one_host)
            best = min(best, GpuRoute.CHUNKS) if size > MOST_RANKS else best
            self._is_small_too = capabilities.takes_small_too()
            self._best = GpuRoute.WHOLE if looks else best
        return choose(call, self._best, size, is_small_too=self._is_small_too)

    def _make(self) -> Engine:
        from distdbg.runtime.backends.gpu.engine import GpuEngine

        group = self._group
        engine: Engine = GpuEngine(
            driver.load(), group, self._store, self._way, self._host, self._break_host
        )
        recorder = group.world.recorder
        if recorder is None:
            return engine
        self._number = recorder.add_group(
            f"{group.group_name}/gpu", f"{group.label} (gpu)",
            format_ranks(group.ranks, group.size()), "gloo",
            group.size(), group.rank(), int(group.timeout_s * 1e9),
        )  # fmt: skip
        recorded = _Recorded(
            engine, recorder, self._number, group.ranks, group.world.control,
            partial(on_other_rules, group),
        )  # fmt: skip
        recorded.skip_rules()
        return recorded

    def _break_host(self, reason: str) -> None:
        """The group is one: what ends its ops on a GPU ends those on the host."""
        with suppress(Exception):  # it may be broken or closed already
            self._host.abort(reason[:200])

    def _tell(self, method: str, value: object) -> None:
        engine = self._engine
        if engine is not None:
            getattr(engine, method)(value)


class _Recorded(RecordedEngine):
    """The record of such ops: started when all ranks have come, ended when the group's thread has seen it.

    Whether anybody waits for them or not.
    """

    def skip_number(self) -> None:
        super().skip_number()
        inner: Any = self.inner  # a GpuEngine
        inner.skip_number()

    def skip_rules(self) -> None:
        """Whoever looks at the group's ops has looked at the first one by the breakpoints armed now."""
        self._seen_rules = self._clock.break_generation

    def run(self, call: Call) -> int:
        return super().run(copy(call))  # some are shared, and each has a side of its own

    def submit(self, call: Call) -> Pending:
        pending = super().submit(copy(call))
        if isinstance(pending, RecordedPending):
            inner: Any = pending.inner  # a GpuPending
            inner.when_ended(pending.note_end)
        return pending

    def _begin(self, call: Call, flags: int) -> RecordedOp:
        op = super()._begin(call, flags)
        call.side = IssuedRecord(op.started, op.measured)
        return op

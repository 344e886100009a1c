"""Which of our groups is beside which of torch's, and the ops of each that are in flight."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from distdbg.errors import DistBackendError, DistError
from distdbg.native import NativeError
from distdbg.ops.call import Kind
from distdbg.ops.engine import Pending
from distdbg.runtime.api.marks import span
from distdbg.runtime.api.monitored_barrier import monitored_barrier
from distdbg.runtime.groups.levels import level_of
from distdbg.runtime.handles.work import NO_DEADLINE
from distdbg.torch_bridge.tap.callers import is_blocking_recv
from distdbg.torch_bridge.tap.calls import TapCall
from distdbg.torch_bridge.tap.engine import TapEngine, TorchGroupEngine
from distdbg.torch_bridge.tap.in_flight import InFlight
from distdbg.torch_bridge.tap.lane import FastLane, LaneOp, key_of, lane_of
from distdbg.torch_bridge.tap.lane_message import LaneMessage, compare_owed
from distdbg.torch_bridge.tap.nvtx import Ranges
from distdbg.torch_bridge.training.ddp import armed, bucket_of
from distdbg.torch_bridge.training.naming import named

#: How long the end of a group waits for what torch's threads still tell us of its last ops.
_PATIENCE_S = 2.0
#: How long after its connections have closed a process may take to count as ended.
_ENDING_S = 0.5


class TappedGroup:
    """One group of torch's with ours beside it."""

    def __init__(self, theirs: TorchGroupEngine, group: Any, groups: TappedGroups) -> None:
        self.theirs = theirs
        self.groups = groups
        self.group = group
        self.rank = int(theirs.group.rank())
        self._in_flight: dict[int, InFlight] = {}
        #: Ops that have a callback which has not run.
        self.followed: set[object] = set()
        #: The short way of its ops.
        self.lane: FastLane | None = lane_of(self)
        #: The op that the record says is waited for in C++, and where it says so.
        self._waits_for = 0
        self._wait_place = -1
        #: Protects who ends an op, and the failed ones.
        self._lock = threading.RLock()
        self._failed: list[tuple[float, InFlight, BaseException]] = []

    def dispatch(self, call: TapCall, bucket: str | None = None) -> Any:
        """Check, record and start an op; what torch's op returns. `bucket` None: DDP was not asked yet."""
        if bucket is None and armed and call.kind is Kind.ALL_REDUCE:
            bucket = bucket_of(self.theirs.group.group_name, call.inputs[0].shape.numel())
        if bucket:
            with named(bucket):
                return self._dispatch(call)
        if call.kind is Kind.RECV:
            call.is_async = not is_blocking_recv()
        return self._dispatch(call)

    def _dispatch(self, call: TapCall) -> Any:
        lane = self.lane
        key = None if lane is None else key_of(call)
        if lane is None or key is None:
            return self.dispatch_long(call)
        known = lane.find(key)
        if known is None:
            make = partial(TapCall, call.kind, (), (), call.op, call.root, name=call.name)
            known = lane.know(key, call, make)
        limit_ns = -1 if call.timeout_s is None else int(call.timeout_s * 1e9)
        result = lane.launch(lane, known, call.is_async, limit_ns, True, "", call.start, ())
        return self.dispatch_long(call) if result is NotImplemented else result

    def dispatch_long(self, call: TapCall) -> Any:
        """The same for an op that has no short way."""
        try:
            pending = self.group.engine.submit(call)
        except DistError as error:
            if call.result is None and self.groups.is_off():
                if call.refusal is not None:
                    raise call.refusal from None
                return call.start()
            raise _plain(error) from None
        self._go_on()
        work, result = call.work, call.result
        if work is not None:
            self._remember(call, pending, work)
        else:  # torch has nothing to wait for: to the program it has ended
            note = getattr(pending, "note_end", None)
            if note is not None:
                note()
        call.start = _started
        return result

    def _go_on(self) -> None:
        """What the short way had to leave to this one was looked at."""
        lane = self.lane
        if lane is not None and self.group.engine is lane.recorded:
            lane.ops.go_on()

    def _remember(self, call: TapCall, pending: Pending, work: Any) -> None:
        if type(work) not in self.groups.work_classes:
            self.groups.on_work_class(type(work))
        key = id(work)
        in_flight = self._in_flight
        ref = weakref.ref(work, lambda _: in_flight.pop(key, None))
        op = in_flight[key] = InFlight(call, pending, ref)
        if call.is_async:
            self._follow(op, work)

    def _follow(self, op: InFlight, work: Any) -> None:
        """Have torch tell the end of an op that perhaps nobody waits for in Python."""

        def ended(future: Any) -> None:
            try:
                error: BaseException | None = None
                try:
                    future.value()
                except Exception as theirs:  # noqa: BLE001 - whatever it is, it is the op's
                    error = theirs
                if error is None:
                    op.note_end()
                else:
                    self.fail(op, error)
            finally:
                self.followed.discard(op)

        try:
            future = work.get_future()
        except RuntimeError:
            return  # this kind of op has none
        queued = op.call.queued
        if queued is not None and queued.is_queued and future.done():
            # Where it has failed, or torch has no such stream, it calls back.
            with suppress(Exception):
                op.note_queued(future)
                return
        self.followed.add(op)
        future.add_done_callback(ended)

    def fail(self, op: InFlight, error: BaseException) -> None:
        """It has failed in torch; the record waits for a better reason, for a moment."""
        with self._lock:
            self._failed.append((time.monotonic(), op, error))

    def _settle_failed(self, age_s: float) -> None:
        """Look for the reason of ops that failed in torch; record those that are so old."""
        with self._lock:
            failed = list(self._failed)
        for since, op, error in failed:
            checked = op.call.checked
            if checked is not None and self.verdict is None:
                with suppress(DistError):  # then it is the verdict
                    checked.watch(grace_ns=0)
            verdict = self.verdict
            if verdict is None and time.monotonic() - since < age_s:
                continue
            with self._lock:
                if (since, op, error) not in self._failed:
                    continue  # another thread looks as well, and was first
                self._failed.remove((since, op, error))
            op.note_end(error if verdict is None else verdict)

    def take(self, work: Any) -> InFlight | None:
        """The op of this Work, which its caller waits for now; None when it is none of ours."""
        op = self._in_flight.get(id(work))
        if op is None or op.work() is not work:
            return None
        with self._lock:
            op.is_taken = True
        del self._in_flight[id(work)]
        return op

    def adopt(self, key: int, op: InFlight) -> None:
        """One of the short way that has not ended for a while: look after it from here on."""
        self._in_flight[key] = op

    def disown(self, key: int, op: InFlight) -> None:
        """Somebody has waited for it meanwhile."""
        if self._in_flight.get(key) is op:
            del self._in_flight[key]

    def look_after_waits(self, age_ns: int) -> None:
        """See how waits are that nobody but torch can end."""
        engine = getattr(self.group.engine, "inner", self.group.engine)
        if isinstance(engine, TapEngine):
            engine.look_after_waits()
        if self.lane is None:
            return
        now = time.monotonic_ns()
        for message in list(self.lane.message_waits.values()):
            if now - message.op.issued_ns >= age_ns:
                message.look_after(now)
        if self.lane.owed:
            compare_owed(self.lane)
        if not self.lane.waits:
            return
        for op in list(self.lane.waits.values()):
            work = op.work()
            if work is None or now - op.op.issued_ns < age_ns:
                continue
            op.wide = op.widen(work)
            op.wide.pending.done()

    def look_after(self, blocked: int) -> None:
        """See how ops are that nobody waits for in Python: end those that cannot end well.

        `blocked`: the thread that waits in C++, so it is for these; 0: none.
        """
        self._settle_failed(_ENDING_S)
        is_waiting = False
        for key, op in list(self._in_flight.items()):
            torchs = op.call.pending
            if torchs is None or torchs.is_released:
                continue
            if any(op is failed for _, failed, _ in self._failed):
                continue
            if op.work() is None:
                self.disown(key, op)  # nobody can wait for it any more
                continue
            if torchs.done():
                with self._lock, suppress(DistError):
                    if not op.is_taken:
                        op.note_done(torchs.error)
            else:
                op.pending.done()
                if blocked and op.call.is_async and not is_waiting:
                    self._tell_wait(getattr(op.pending, "number", 0), blocked)
                    is_waiting = True
        if not is_waiting:
            self._tell_wait(0)

    def _tell_wait(self, number: int, thread: int = 0) -> None:
        """Record which op a thread waits for in C++; 0: none."""
        if number == self._waits_for:
            return
        recorder = self.group.world.recorder
        if recorder is not None:
            recorder.end_wait(self._wait_place)
            self._wait_place = recorder.begin_wait(number, thread) if number else -1
        self._waits_for = number

    @property
    def verdict(self) -> DistError | None:
        """Why it cannot be used any more."""
        engine = getattr(self.group.engine, "inner", self.group.engine)
        return engine.verdict if isinstance(engine, TapEngine) else None

    @property
    def asked_to_stop(self) -> str:
        """See TapEngine.asked_to_stop."""
        engine = getattr(self.group.engine, "inner", self.group.engine)
        return engine.asked_to_stop if isinstance(engine, TapEngine) else ""

    def stop_watching(self, why: str) -> None:
        """See TapEngine.stop_watching."""
        engine = getattr(self.group.engine, "inner", self.group.engine)
        if isinstance(engine, TapEngine):
            with suppress(DistError, NativeError):  # it was closed
                engine.stop_watching(why)

    def monitored_barrier(
        self, timeout: Any, wait_all_ranks: bool, function: Callable[[], Any]
    ) -> Any:
        """One of torch's, after one of ours where ops are compared."""
        with span("monitored_barrier"):
            if level_of(self.group.world).value > 0 and self.group.size() > 1:
                monitored_barrier(self.group, timeout, wait_all_ranks)
            return function()

    def drain(self) -> None:
        """Wait a little until torch's threads have told all ends: they need the GIL for it."""
        deadline = time.monotonic() + _PATIENCE_S
        while self.followed and time.monotonic() < deadline:
            time.sleep(0.001)
        self._tell_wait(0)
        self._in_flight.clear()


class TappedGroups:
    """All of this process, by torch's names of groups."""

    def __init__(self) -> None:
        self.by_name: dict[str, TappedGroup] = {}
        #: By torch's own objects.
        self.lanes: dict[Any, FastLane] = {}
        #: Ops on the short way of all groups, by the id of their Work.
        self.lane_ops: dict[int, LaneOp] = {}
        #: The classes of Work whose wait is ours, and what makes it so.
        self.work_classes: set[type] = set()
        self.on_work_class: Callable[[type], None] = self.work_classes.add
        #: Torch's function that takes the Work out of what a c10d op returns.
        self.unbox_work: Any = None
        #: Called where another rank watches no longer, with the reason.
        self.on_asked_to_stop: Callable[[str], None] = self.stop
        self._is_off = False
        #: What shows the ops to a profiler; None: none is shown.
        self.ranges: Ranges | None = None

    def add(self, theirs: TorchGroupEngine, group: Any) -> None:
        """Ours is beside theirs from here on."""
        tapped = self.by_name[theirs.group.group_name] = TappedGroup(theirs, group, self)
        if tapped.lane is not None:
            self.lanes[theirs.group] = tapped.lane
        if self.ranges is not None:
            self.ranges.show_ops(tapped)

    def of(self, theirs: Any) -> TappedGroup | None:
        """What is beside a group of torch's."""
        return self.by_name.get(getattr(theirs, "group_name", ""))

    def remove(self, theirs: Any) -> TappedGroup | None:
        """Watch it no longer."""
        tapped = self.by_name.pop(getattr(theirs, "group_name", ""), None)
        if tapped is not None:
            self.lanes.pop(tapped.theirs.group, None)
        return tapped

    def all(self) -> list[TappedGroup]:
        """All that are watched."""
        return list(self.by_name.values())

    def clear(self) -> None:
        """Watch none."""
        self.by_name.clear()
        self.lanes.clear()
        self.lane_ops.clear()

    def drain(self) -> None:
        """See Tapped.drain."""
        for tapped in self.all():
            tapped.drain()

    def take(self, work: Any) -> InFlight | None:
        """See Tapped.take."""
        for tapped in self.by_name.values():
            op = tapped.take(work)
            if op is not None:
                return op
        return None

    def wait_for(self, op: InFlight, work: Any) -> None:
        """Wait as its caller; what torch raises is raised as it is."""
        torchs = op.call.pending
        torchs.attach(work)
        try:
            op.pending.wait(NO_DEADLINE)
        except DistError as error:
            if not torchs.has_ended and self.is_off():
                torchs.wait(NO_DEADLINE)
                return
            raise _plain(error) from None

    def is_off(self) -> bool:
        """Whether this rank watches no longer; does so from here on where another rank does."""
        if not self._is_off:
            why = next(filter(None, (tapped.asked_to_stop for tapped in self.all())), "")
            if why:
                self.on_asked_to_stop(why)
        return self._is_off

    def stop(self, why: str) -> None:
        """Watch none; the other ranks are told, or they would wait for this one."""
        self._is_off = True
        for tapped in self.all():
            tapped.stop_watching(why)
        self.clear()

    def look_after_lanes(self, age_ns: int) -> None:
        """Hand over the ops that have gone on for so long to those that watch them; forget lost ones."""
        for tapped in self.all():
            tapped.look_after_waits(age_ns)
        now = time.monotonic_ns()
        for key, op in list(self.lane_ops.items()):
            work = op.work()
            if work is None:
                self.lane_ops.pop(key, None)
            elif now - op.op.issued_ns < age_ns or type(op) is LaneMessage:
                continue  # who waits for a message does so in Python, and is looked after then
            elif work.is_completed():
                # One that is followed ends by its future, one that is not by whoever waits for it.
                is_known = op.held is None or op.held is True
                if not is_known and op not in op.lane.tapped.followed:
                    op.held = None
                    op.op.left_device()
                    op.op.ended()
            else:
                wide = op.widen(work)
                op.lane.tapped.adopt(key, wide)
                if self.lane_ops.get(key) is not op or self.lane_ops.pop(key, None) is not op:
                    op.lane.tapped.disown(key, wide)

    def explain(self) -> DistError | None:
        """Why torch has failed, where we know more: it often notices first that a peer is gone."""
        deadline = time.monotonic() + _ENDING_S
        while True:
            for tapped in self.all():
                if tapped.verdict is None:
                    tapped.look_after(0)
                if tapped.verdict is not None:
                    tapped.look_after(0)  # the ops that failed of it get it as their reason
                    return tapped.verdict
            if time.monotonic() > deadline:
                return None
            time.sleep(0.01)


def _plain(error: DistError) -> BaseException:
    if not isinstance(error, DistBackendError):
        return error
    cause = error.__cause__
    return error if cause is None or isinstance(cause, DistError) else cause


def _started() -> Any:
    raise AssertionError("this op was started before")

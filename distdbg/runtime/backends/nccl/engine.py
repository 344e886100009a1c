"""NcclEngine: one group's ops as calls of NCCL, queued on a stream of the group's own.

    the caller's stream  ---ready event--->  the group's stream: NCCL  ---event at the end--->  who waits

Messages that are in no batch have communicators and streams of their own (pairs.py).

What is compared between ranks is put around it, as around any other backend (backends/checked).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, NoReturn

from distdbg.control.clock import JobClock
from distdbg.errors import (
    DistBackendError,
    DistError,
    InternalError,
    OpTimeout,
    UsageError,
    format_error,
)
from distdbg.ops.call import Call, Kind
from distdbg.ops.dtypes import Dtype
from distdbg.ops.engine import Pending
from distdbg.runtime.arrays.capture import refuse_capture
from distdbg.runtime.arrays.device_arrays import device_buffer
from distdbg.runtime.arrays.torch_arrays import is_tensor
from distdbg.runtime.backends.nccl.calling import NcclQueue
from distdbg.runtime.backends.nccl.destroying import destroy_all
from distdbg.runtime.backends.nccl.device_side import DeviceSide
from distdbg.runtime.backends.nccl.ending import CommunicatorEnding
from distdbg.runtime.backends.nccl.failures import to_error
from distdbg.runtime.backends.nccl.library import NcclLibrary
from distdbg.runtime.backends.nccl.options import NcclOptions
from distdbg.runtime.backends.nccl.pairs import Open, Pair
from distdbg.runtime.backends.nccl.pending import NcclChannel, NcclPending
from distdbg.runtime.backends.nccl.streams import Streams, current_stream, record
from distdbg.runtime.backends.nccl.watchdog import watchdog
from distdbg.runtime.handles.work import NO_DEADLINE

#: Whose communicator a message takes.
GROUPS: Final = "group"
PAIRS: Final = "pair"
#: How long close() waits for a thread that NCCL does not let go of.
_PATIENCE_S: Final = 2.0
#: The check around it knows better who is late, and looks half a second after the limit.
_SLACK_NS: Final = 2_000_000_000


class NcclEngine:
    """Implements Engine; see distdbg/ops/engine.py."""

    #: Messages match in order, whatever their tags.
    distdbg_ignores_tags = True
    #: Ops end after run() has returned, and so may their errors.
    distdbg_ends_later = True

    def __init__(
        self,
        library: NcclLibrary,
        open_communicator: Open,
        *,
        name: str,
        rank: int,
        size: int,
        timeout_s: float,
        clock: JobClock,
        options: NcclOptions,
        is_alone: bool,
        guess_device: Callable[[], int] | None = None,
        watch_members: Callable[[], Callable[[], None]] | None = None,
    ) -> None:
        self.library: Final = library
        #: What messages call the group.
        self.name: Final = name
        self.clock: Final = clock
        self.options: Final = options
        #: How it is given up.
        self.ending: Final = CommunicatorEnding(library.nccl)
        self.ending.on_give_up = self._break_off
        self._rank = rank
        self._calling = NcclQueue(library, self.ending, rank, size)
        self._open = open_communicator
        self._guess_device = guess_device
        #: Begins to look after the members of the group, until its limit.
        self._watch_members = watch_members
        self._timeout_ns = int(timeout_s * 1e9)
        #: Whether nothing is put around it.
        self._is_alone = is_alone
        self._slack_ns = 0 if is_alone else _SLACK_NS
        #: One communicator takes calls in one order, from one thread at a time; also protects what follows.
        self._order = threading.RLock()
        #: The group's communicator, when it is made, and its stream.
        self.comm: Any = None
        self.streams: Streams | None = None
        #: By the peer.
        self._pairs: dict[int, Pair] = {}
        self._pairs_lock = threading.Lock()  # protects it
        #: The device of the group's arrays on this rank, when one is known.
        self._device: int | None = None
        self._in_flight: set[NcclPending] = set()
        #: Ops whose calls NCCL gets together at the end of a block, and whose thread that is.
        self._block: list[NcclPending] | None = None
        self._block_thread = 0
        self._is_group_open = False
        self._is_closed = False
        #: Whether all members have made the communicator with the group.
        self.is_bound = False
        watchdog.enter()

    # ------------------------------------------------------------------------------- Engine

    def run(self, call: Call) -> int:
        """Queue the op; what the caller queues from now on comes after it."""
        pending = self._start(call)
        pending.wait(NO_DEADLINE)
        return pending.source_rank()

    def run_watched(self, call: Call, watch: Callable[[], None]) -> int:
        """The same; `watch` is asked as long as the op runs."""
        pending = self._start(call, watch)
        pending.wait_watched(watch)
        return pending.source_rank()

    def submit(self, call: Call) -> Pending:
        """Queue the op; the caller's stream goes on beside it."""
        return self._start(call)

    def submit_watched(self, call: Call, watch: Callable[[], None]) -> Pending:
        """The same; `watch` is asked from before NCCL gets the op, which may block the host."""
        return self._start(call, watch)

    def check(self, call: Call) -> None:
        """Raise what is wrong with the call on this rank alone; asked before others are involved."""
        side = self.side_of(call)
        if call.kind is Kind.RECV and call.peer < 0:
            raise UsageError(
                f"{call.name or 'recv'}: NCCL receives from a named rank, not from any",
                hint="give src=, or use a group with backend 'gloo'",
            )
        buffers = [*side.inputs, *side.outputs]
        devices = {buffer.device for buffer in buffers}
        if self._device is not None and buffers:
            devices.add(self._device)
        if len(devices) > 1:
            raise UsageError(
                f"{call.name or call.kind.label}: an array is on cuda:{buffers[0].device}, and the group "
                f"'{self.name}' of this rank on cuda:{max(devices - {buffers[0].device})}",
                hint="move the array, or init_process_group(device_id=...) for another device",
            )
        if buffers:
            self._calling.wire_and_op(call, Dtype(buffers[0].dtype), buffers[0].device)

    def set_timeout(self, timeout_s: float) -> None:
        """Set the limit for ops that bring none of their own."""
        self._timeout_ns = int(timeout_s * 1e9)

    def set_level(self, level: int) -> None:
        """At OFF nobody else looks at the limit of an op."""
        self._slack_ns = 0 if self._is_alone or level == 0 else _SLACK_NS

    def abort(self, reason: str) -> None:
        """End what the device has of this group. Other ranks are told by the check."""
        self.ending.take_unreported()  # who ends it knows, or is the check, which tells its cause
        self.ending.give_up(reason)

    def close(self) -> None:
        """Let what is in flight end (each op has a deadline), then destroy the communicator.

        Raises what has ended an op and was told to nobody: no op comes after it that could.
        """
        if self._is_closed:
            return
        self._is_closed = True
        for pending in list(self._in_flight):
            with suppress(DistError):  # whoever waits for that Work is told
                pending.wait_on_host()
        comms = [pair.close(_PATIENCE_S) for pair in self._pairs.values()]
        comms.append(self.comm)
        self.ending.ask_no_more()
        if self.given_up is None:
            self._destroy([comm for comm in comms if comm is not None])
        self.comm = None
        watchdog.leave()
        unreported = self.ending.take_unreported()
        if unreported is not None:
            raise unreported

    # ------------------------------------------------------------------------------- blocks

    def _destroy(self, comms: Sequence[Any]) -> None:
        until_ns = self.clock.now_ns() + self._timeout_ns
        look = self._watch_members() if comms and self._watch_members is not None else None

        def watch() -> None:
            if look is not None:
                look()
            elif self.clock.now_ns() > until_ns:
                raise OpTimeout(f"not all ranks have destroyed group '{self.name}'")

        if comms:
            destroy_all(comms, watch, self.ending, f"the NCCL communicator of '{self.name}'")

    def begin_block(self) -> None:
        """NCCL gets the ops that this thread starts from now on together."""
        self._order.acquire()
        self._block = []
        self._block_thread = threading.get_ident()

    def end_block(self) -> None:
        """NCCL gets them now."""
        try:
            block, self._block = self._block or [], None
            reported: DistError | None = None
            if self._is_group_open:
                self._is_group_open = False
                reported = self._attempt(self.ending.end_group, block)
            for pending in block:
                if not pending.is_over and reported is None:
                    finish = partial(self._calling.finish, pending, self._made_streams())
                    reported = self._attempt(finish, block)
            if reported is not None:
                raise reported
        finally:
            self._order.release()

    def _attempt(
        self, function: Callable[[], None], block: Sequence[NcclPending]
    ) -> DistError | None:
        """Call what is for all ops of the block; what goes wrong ends them all."""
        try:
            function()
        except Exception as error:  # noqa: BLE001 - other ranks have the op: whatever it was, it ends the group
            what = block[0].what if block else f"group '{self.name}'"
            reported: DistError = self.failed(error, what)
            for pending in block:
                pending.end(reported)
            return reported
        return None

    # ------------------------------------------------------------------------------- one op

    def prepare(self, call: Call) -> None:
        """Look at the arrays, on the thread that calls: its stream is the one to come after."""
        outputs = [
            device_buffer(x, writable=call.kind is not Kind.BROADCAST or self._rank != call.root)
            for x in call.outputs
        ]
        inputs = outputs
        if call.inputs is not call.outputs:
            inputs = [device_buffer(x) for x in call.inputs]
        arrays = [*call.inputs, *call.outputs]
        is_torchs = bool(arrays) and is_tensor(arrays[0])
        buffers = [*inputs, *outputs]
        device = buffers[0].device if buffers else self._own_device()
        with self.library.cupy.cuda.Device(device):
            stream = current_stream(self.library.cupy, device, is_torchs)
            refuse_capture(call.name or call.kind.label, stream)
            ready = record(self.library.cupy, stream)
        call.side = DeviceSide(inputs, outputs, stream, ready, is_torchs, device)

    def side_of(self, call: Call) -> DeviceSide:
        """What prepare() has made of it."""
        if call.side is None:
            self.prepare(call)
        if not isinstance(call.side, DeviceSide):
            raise InternalError(f"{call.kind.label} has no side on the device")
        return call.side

    def bind(self, device: int) -> None:
        """Make the communicator now, on this device; all members do."""
        with self._order:
            self._communicator(device)
        self.is_bound = True

    @property
    def device(self) -> int:
        """The number of the group's device; of one that is bound."""
        return self._own_device()

    def communicator_at_rest(self) -> Any:
        """The communicator of a bound group, when the device has nothing of it."""
        for pending in list(self._in_flight):
            with suppress(DistError):  # whoever waits for that Work is told
                pending.wait_on_host()
        return self.comm

    @property
    def given_up(self) -> str | None:
        """Why the group cannot be used any more."""
        return self.ending.reason

    def order_after(self, pending: NcclPending) -> None:
        """Queue: this thread's stream goes on after the op."""
        streams, side = pending.channel.streams, pending.side
        assert streams is not None  # something was queued
        with streams.on_device():
            current_stream(self.library.cupy, streams.device, side.is_torchs).wait_event(
                pending.ended
            )

    def check_communicator(self, channel: NcclChannel, what: str) -> None:
        """Raise the error that NCCL has found by itself."""
        comm = channel.comm
        if comm is None or self.given_up is not None:
            return
        try:
            self.ending.ask(comm)
        except Exception as error:
            raise self.failed_later(error, what, comm) from error

    def _break_off(self) -> None:
        """What the device is about to let go of has not ended well."""
        for pending in list(self._in_flight):
            pending.side.break_off()

    def forget(self, pending: NcclPending) -> None:
        """It is over."""
        self._in_flight.discard(pending)

    def _start(self, call: Call, watch: Callable[[], None] | None = None) -> NcclPending:
        what = f"{call.name or call.kind.label} on group '{self.name}'"
        if self._is_closed:
            raise UsageError(f"{what}, which was destroyed")
        self.check(call)
        side = self.side_of(call)
        pair = self._pair_of(call)
        if pair is not None:
            return self._start_in_pair(pair, call, side.device, watch)
        with self._order:
            self._check_usable(what)
            comm = self._communicator(side.device, watch)
            streams = self._made_streams()
            if self._block is not None and not self._is_group_open:
                # Not before: a communicator cannot be made inside of a group of calls.
                self.ending.start_group()
                self._is_group_open = True
            pending = self._enter(call, self, watch)
            try:
                self._calling.queue(pending, streams, comm, is_in_block=self._block is not None)
                if self._block is None:
                    self._calling.finish(pending, streams)
                else:
                    self._block.append(pending)
            except Exception as error:  # noqa: BLE001 - as in _attempt()
                self._end_badly(pending, error, comm)
            if self._block is None:
                self._raise_if_broken_off(pending)
        return pending

    def _start_in_pair(
        self, pair: Pair, call: Call, device: int, watch: Callable[[], None] | None
    ) -> NcclPending:
        """Beside what the group's own communicator does, which may wait for ranks that wait for this one."""
        pending = self._enter(call, pair, watch)
        try:
            self._check_usable(pending.what)
            self._device = device
            pair.start(pending, device)
        except Exception as error:  # noqa: BLE001 - as in _attempt()
            self._end_badly(pending, error, pair.comm)
        if pending.queued is None:
            self._raise_if_broken_off(pending)
        return pending

    def _enter(
        self, call: Call, channel: NcclChannel, watch: Callable[[], None] | None
    ) -> NcclPending:
        """An op that NCCL is about to get, which is looked after from now on."""
        limit_ns = self._timeout_ns if call.timeout_s is None else int(call.timeout_s * 1e9)
        side = self.side_of(call)
        pending = NcclPending(self, channel, call, side, limit_ns, self._slack_ns)
        pending.watch = watch
        self._in_flight.add(pending)
        # Before NCCL has it: a call of NCCL waits on the host for peers that it is not connected with.
        watchdog.add(pending)
        return pending

    def _raise_if_broken_off(self, pending: NcclPending) -> None:
        if self.given_up is not None:
            pending.wait_on_host()  # NCCL's call may have come back because it was broken off
            pending.raise_error()

    def message_route(self, is_in_batch: bool) -> str:
        """Whose communicator a message takes: both sides have to mean the same one."""
        return GROUPS if is_in_batch or self.is_bound else PAIRS

    def _pair_of(self, call: Call) -> Pair | None:
        """Whose communicator the call takes; None: the group's."""
        is_in_batch = self._block is not None and self._block_thread == threading.get_ident()
        is_message = call.kind >= Kind.SEND and call.peer != self._rank
        if not is_message or self.message_route(is_in_batch) == GROUPS:
            return None
        with self._pairs_lock:
            pair = self._pairs.get(call.peer)
            if pair is None:
                pair = self._pairs[call.peer] = Pair(self, self._open, self._rank, call.peer)
        return pair

    def _check_usable(self, what: str) -> None:
        reason = self.given_up
        if reason is None:
            return
        unreported = self.ending.take_unreported()
        if unreported is not None:
            raise unreported
        raise DistBackendError(
            f"{what} cannot run: {reason.splitlines()[0]}",
            details=["the group is unusable; destroy it and create a new one"],
        )

    def _end_badly(self, pending: NcclPending, error: Exception, comm: Any) -> NoReturn:
        """Raise why an op was not queued, or not all of it, after all is in order again."""
        if isinstance(error, DistError) and not pending.is_over and self.given_up is None:
            self._in_flight.discard(pending)  # NCCL has not got it, and the group goes on
            watchdog.remove(pending)
            raise error
        block = (self._block or []) if pending.channel is self else []
        if pending.channel is self and self._is_group_open:
            # A communicator is not aborted inside of a group of calls.
            self._is_group_open = False
            with suppress(Exception):  # it says the same, or less
                self.ending.end_group()
        if self.given_up is not None:
            pending.wait_on_host()  # which knows better why NCCL failed
        pending.raise_error()
        reported = self.failed(error, pending.what, comm)
        for each in (*block, pending):
            each.end(reported)
        raise reported from error

    def _communicator(self, device: int, watch: Callable[[], None] | None = None) -> Any:
        """All members make it in their first op; `watch`: asked meanwhile, since one may have given up."""
        if self.comm is None:
            streams = Streams(self.library, device, self.options.is_high_priority_stream)
            try:
                comm = self._open(device, watch or _no_watch)
            except BaseException as error:
                # Not once more: the others have used up the id, or wait with it.
                self.ending.give_up(format_error(error))
                raise
            self.comm, self.streams, self._device = comm, streams, device
            self.ending.watch_over(comm)
            self._check_usable(f"group '{self.name}'")
        return self.comm

    def _made_streams(self) -> Streams:
        assert self.streams is not None  # made with the communicator
        return self.streams

    def _own_device(self) -> int:
        """Of an op without arrays: the group's, or the one that the program has chosen."""
        if self._device is not None:
            return self._device
        chosen = int(self.library.cupy.cuda.Device().id)
        if chosen or self._guess_device is None:
            return chosen
        return self._guess_device()

    def failed_later(self, error: Exception, what: str, comm: Any) -> DistBackendError:
        """The same, found while nobody waits for the op: the next one raises it."""
        reported = to_error(error, what, self.library, comm)
        self.ending.give_up(reported.what, reported)
        return reported

    def failed(self, error: Exception, what: str, comm: Any = None) -> DistBackendError:
        """What is raised for an error of NCCL or CUDA; the group is given up."""
        reported = to_error(error, what, self.library, comm or self.comm)
        self.ending.give_up(reported.what)
        return reported


def _no_watch() -> None:
    """Of a communicator that is made without an op."""

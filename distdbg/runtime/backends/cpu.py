"""The CPU engine: carries out the ops of one group through shared memory and between hosts (native/core).

Policy and words are here; bytes move in native code. One call of an op that was seen before costs
a view per array and one native call.

    Call -> views -> Group.run, which keeps plans by dtype and shape, and asks compile.py for new
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

from distdbg.check.options import BUFFERS, ORDER
from distdbg.check.suspicion import Suspicion, explain_suspicion, record_suspicion, warn
from distdbg.config import read_setting
from distdbg.control.clock import FREE_CLOCK, JobClock
from distdbg.errors import DistError, InternalError, MismatchError, UsageError
from distdbg.log.logs import get_logger
from distdbg.native import Control, KnownCalls, Message, NativeError, Op, Recorder, View
from distdbg.ops.call import Call, Kind
from distdbg.ops.engine import Engine, Pending
from distdbg.ops.sites import call_site
from distdbg.record.handled_error import raise_instead
from distdbg.record.writing import write_error
from distdbg.runtime.arrays.buffers import as_input, as_output
from distdbg.runtime.backends import staging
from distdbg.runtime.backends.failures import Where, tell_backward, to_public
from distdbg.runtime.backends.pending import NO_DEADLINE, CpuPending, finish
from distdbg.runtime.backends.place_check import is_elsewhere
from distdbg.runtime.backends.planner import Planner, message_form
from distdbg.runtime.backends.self_messages import is_alone, refuse
from distdbg.runtime.backends.shared_memory import connect
from distdbg.runtime.members.member_liveness import MemberProcess, NewGroupMembers
from distdbg.runtime.net.between import HostLinks
from distdbg.runtime.plan import Topology
from distdbg.runtime.plan.problem import (
    IN_PLACE_NBYTES,
    IN_PLACE_SHARED_CORES_NBYTES,
    SLOTS_NBYTES,
)

if TYPE_CHECKING:
    from distdbg.runtime.backends.on_device import OnDevice
    from distdbg.runtime.process.debugger_seam import Through
    from distdbg.runtime.store import Store

_log = get_logger("runtime")

_monotonic_ns = time.monotonic_ns

# On the hot path a global name costs less than an attribute of the enum.
_ALL_REDUCE = Kind.ALL_REDUCE
_BARRIER = Kind.BARRIER
_BROADCAST = Kind.BROADCAST
_SEND = Kind.SEND


#: The fault of an op that did nothing but find other breakpoints armed.
_BREAK = "break"
_BREAKING = ("timeout", "peer_lost", "network", "broken", "system", "interrupted", "aborted")

#: Through the slots in at most one round for so many bytes of a slot; what takes more goes
#: directly. Each round costs a gate, so the small slots of large groups pay for fewer rounds.
_ROUND_NBYTES = 4096


class CpuEngine:
    """Implements Engine; see distdbg/ops/engine.py."""

    records_itself = True
    #: For api/known_calls.py; of this class alone, since another one may carry out ops otherwise.
    knows_calls = True

    def __init__(
        self,
        store: Store,
        rank: int,
        size: int,
        timeout_s: float,
        group_name: str,
        global_ranks: Sequence[int],
        ranks_here: int | None = None,
        members: Sequence[MemberProcess] = (),
        recorder: Recorder | None = None,
        record_group: int = 0,
        where: Where = lambda rank: None,
        clock: JobClock = FREE_CLOCK,
        control: Control | None = None,
        on_other_rules: Through | None = None,
        doing: Where = lambda rank: None,
        tell_more: Callable[[DistError], object] = lambda error: None,
    ) -> None:
        self._is_closed = True  # until there is something to close
        #: For arrays on a GPU that are not copied to the host as a whole.
        self.on_gpu: OnDevice | None = None
        self._rank = rank
        self._size = size
        self._name = group_name
        self._recorder = recorder
        #: This group's number in the record.
        self._record_group = record_group
        #: What is known of a rank that does not come, for messages.
        self._where = where
        self._doing = doing
        #: Adds to an error what the records of the ranks show of its cause.
        self._tell_more = tell_more
        self._global_ranks = list(global_ranks)
        self._timeout_ns = _to_ns(timeout_s)
        processes = [life.process for life in members]
        self._between = HostLinks(store, rank, processes)
        try:
            joined = connect(
                store,
                rank=rank,
                size=size,
                group_name=group_name,
                ranks_here=ranks_here or size,
                single_copy=bool(read_setting("DISTDBG_SINGLE_COPY")),
                deadline_ns=clock.now_ns() + self._timeout_ns,
                clock=clock,
                control=control,
                lives=NewGroupMembers(group_name, global_ranks, members),
                between=self._between,
            )
        except BaseException:
            self._between.close()
            raise
        self.group = joined.group
        #: Asked by an op that has found other breakpoints armed.
        self._on_other_rules = on_other_rules
        if on_other_rules is not None:
            self.group.notice_breakpoints()
        if recorder is not None:
            self.group.set_recorder(recorder, record_group, message_form)
        slot_nbytes = self.group.slot_nbytes
        topology = Topology(
            single_copy=self.group.single_copy,
            slot_nbytes=slot_nbytes,
            slots_nbytes=min(SLOTS_NBYTES, slot_nbytes // _ROUND_NBYTES * slot_nbytes),
            ways=joined.ways,
            hosts=self._between.hosts,
            link=joined.link,
            overrides=joined.overrides,
            in_place_nbytes=IN_PLACE_NBYTES
            if joined.has_own_core
            else IN_PLACE_SHARED_CORES_NBYTES,
        )
        self._in_flight: list[CpuPending] = []
        self._sweep_at = 1
        # Bound once: making a bound method costs as much as a look-up in a large table.
        self._native_run = self.group.run
        self._native_transfer = self.group.transfer
        self._native_submit = self.group.submit
        self._plan_maker = Planner(rank, size, self._global_ranks, topology).make
        #: Called with each suspicion, after it was logged.
        self.on_suspicion: Callable[[Suspicion], None] | None = None
        options = self.group.options
        self.compares_order = bool(options & ORDER)
        self._guards_buffers = bool(options & BUFFERS)
        #: Knows the calls that need none of what is below; None: all do.
        self.known_calls: KnownCalls | None = None
        if options == 0 and read_setting("DISTDBG_KNOWN_CALLS"):
            self.known_calls = KnownCalls(self.group)
            self.known_calls.limit_ns = self._timeout_ns
        self._is_closed = False

    @property
    def is_one_host(self) -> bool:
        """Whether all ranks are on one host."""
        return not self._between.hosts

    @property
    def ranks_here(self) -> Sequence[int]:
        """The group ranks of this rank's host."""
        hosts = self._between.hosts or [range(self._size)]
        return next(host for host in hosts if self._rank in host)

    @property
    def single_copy(self) -> bool:
        """Whether ranks reach each other's memory directly."""
        return self.group.single_copy

    # ------------------------------------------------------------------------ Engine

    def run(self, call: Call) -> int:
        """Carry out `call`, blocking; a recv returns the group rank it came from."""
        kind = call.kind
        if kind >= _SEND:
            return self._run_message(call)
        # Written out for the usual few arrays: each Python call costs a tenth of the op.
        in_views: tuple[View, ...]
        out_views: tuple[View, ...]
        outputs = call.outputs
        try:
            if call.inputs is outputs:
                if kind is _ALL_REDUCE:
                    in_views = out_views = (as_output(outputs[0]),)
                elif kind is _BARRIER:
                    in_views = out_views = ()
                else:
                    in_views, out_views = self._views(call)
            elif len(outputs) == 1 == len(call.inputs):
                in_views, out_views = (as_input(call.inputs[0]),), (as_output(outputs[0]),)
            else:
                in_views, out_views = self._views(call)
        except UsageError:
            if not staging.is_for_device(call):
                raise
            return staging.run(self, call, self.on_gpu)
        op = call.op
        try:
            left_to_do = self._native_run(
                kind | (call.root + 1) << 16 | (0 if op is None else op.code << 8),
                in_views,
                out_views,
                self._timeout_ns if call.timeout_s is None else _to_ns(call.timeout_s),
                call,
                self._plan_maker,
                call.extra,
            )
        except NativeError as error:
            if error.fault == _BREAK:
                return self.other_rules().run(call)
            self.fail(call, error, self.group.started_ns)
        if left_to_do:
            finish(out_views)
            self.tell_suspicions()
        return -1

    def submit(self, call: Call) -> Pending:
        """Start `call`; it progresses on a thread of its own, which needs no GIL."""
        limit_ns = self.limit_ns(call)
        started_ns = _monotonic_ns()
        handle: Op | Message
        views: Sequence[View]
        inputs: tuple[View, ...]
        outputs: tuple[View, ...]
        try:
            if call.kind >= _SEND:
                handle, views = self._post(call, limit_ns)
            else:
                if call.kind is _ALL_REDUCE and call.inputs is call.outputs:
                    inputs = outputs = (as_output(call.outputs[0]),)
                    views = outputs
                else:
                    inputs, outputs = self._views(call)
                    views = [*inputs, *outputs]
                op = call.op
                handle = self._native_submit(
                    call.kind | (op.code << 8 if op is not None else 0) | (call.root + 1) << 16,
                    inputs,
                    outputs,
                    limit_ns,
                    call,
                    self._plan_maker,
                    call.extra,
                )
        except UsageError:
            if not staging.is_for_device(call):
                raise
            return staging.submit(self, call, self.on_gpu)
        except NativeError as error:
            if error.fault == _BREAK:
                return self.other_rules().submit(call)
            self.fail(call, error, started_ns)
        pending = CpuPending(self, call, handle, views, started_ns)
        if self._guards_buffers:
            pending.started_at = call_site()
        self.keep(pending)
        return pending

    def keep(self, pending: CpuPending) -> None:
        """Native code writes to the arrays until the op has ended, even if its Work is dropped."""
        # Swept each time it has doubled: at every op, thousands in flight would cost seconds.
        if len(self._in_flight) >= self._sweep_at:
            self._in_flight[:] = [each for each in self._in_flight if not each.has_settled()]
            self._sweep_at = 2 * len(self._in_flight) + 1
        self._in_flight.append(pending)

    def limit_ns(self, call: Call) -> int:
        """How long the call may take."""
        return self._timeout_ns if call.timeout_s is None else _to_ns(call.timeout_s)

    def _post(self, call: Call, limit_ns: int) -> tuple[Message, Sequence[View]]:
        is_send = call.kind is _SEND
        view = as_input(call.inputs[0]) if is_send else as_output(call.outputs[0])
        return self.group.post(is_send, view, call.peer, call.tag, limit_ns), (view,)

    def forget(self, pending: CpuPending) -> None:
        """An op has ended that was waited for: most often it is the last that was started."""
        in_flight = self._in_flight
        if in_flight and in_flight[-1] is pending:
            last = in_flight.pop()
            if last is not pending:  # of another thread, started this moment
                in_flight.append(last)

    def set_timeout(self, timeout_s: float) -> None:
        """Set the limit for ops that bring none of their own."""
        self._timeout_ns = _to_ns(timeout_s)
        if self.known_calls is not None:
            self.known_calls.limit_ns = self._timeout_ns
        if self.on_gpu is not None:
            self.on_gpu.set_timeout(timeout_s)

    def set_level(self, level: int) -> None:
        """Hand it to native code, which publishes it with each op."""
        try:
            self.group.set_level(level)
        except NativeError as error:
            raise self._refusal(error) from None
        if self.on_gpu is not None:
            self.on_gpu.set_level(level)

    def abort(self, reason: str) -> None:
        """Break the group on all its ranks."""
        if self.on_gpu is not None:
            self.on_gpu.abort(reason)
        try:
            self.group.abort(reason)
        except NativeError as error:
            raise self._refusal(error) from None

    def _refusal(self, error: NativeError) -> UsageError:
        return UsageError(f"group '{self._name}': {error}")

    def leave_because(self, why: str, at_once: bool) -> None:
        """Say why this rank is about to leave; `at_once`: ops in flight elsewhere end with RankLeft."""
        if self.on_gpu is not None:
            self.on_gpu.leave_because(why, at_once)
        self.group.leave_because(why, at_once)

    def __del__(self) -> None:
        # Collected with ops in flight: native code must let go of their arrays before those go.
        if not self._is_closed:
            self.group.close()
            self._between.close()

    def find_left(self) -> list[int]:
        """Return the group ranks that have left the group."""
        return [rank for rank, facts in enumerate(self.group.facts()) if facts[3]]

    def how_left(self, rank: int) -> str:
        """Return how a rank that has left, or whose process has ended, came to that."""
        return self.group.how_left(rank)

    def close(self) -> None:
        """Let what is in flight end (each op has a deadline), then leave."""
        if self._is_closed:
            return
        self._is_closed = True
        if self.known_calls is not None:
            self.known_calls.unfold_begun()
        try:
            for pending in self._in_flight:
                with suppress(DistError):  # whoever waits for that Work is told
                    pending.wait(NO_DEADLINE)
            if self.on_gpu is not None:
                self.on_gpu.close()
        finally:
            self.group.close()
            self._between.close()
            self._in_flight.clear()
            self._recorder = None  # its file closes with the last group

    # ------------------------------------------------------------------- collectives

    def _views(self, call: Call) -> tuple[tuple[View, ...], tuple[View, ...]]:
        if call.inputs is call.outputs:
            # In place: one view is both. The root of a broadcast only reads its array.
            views: tuple[View, ...]
            if call.kind is _BROADCAST and self._rank == call.root:
                views = (as_input(call.inputs[0]),)
            else:
                views = tuple([as_output(x) for x in call.outputs])
            return views, views
        return (
            tuple([as_input(x) for x in call.inputs]),
            tuple([as_output(x) for x in call.outputs]),
        )

    def tell_suspicions(self) -> None:
        """Warn of ops that ranks may have issued in different orders; the ops were carried out."""
        for facts in self.group.take_suspicions():
            suspicion = explain_suspicion(facts, group=self._name, global_ranks=self._global_ranks)
            warn(suspicion, self._global_ranks[self._rank])
            if self._recorder is not None:
                record_suspicion(self._recorder, self._record_group, suspicion)
            if self.on_suspicion is not None:
                self.on_suspicion(suspicion)

    # ---------------------------------------------------------------- point to point

    def _run_message(self, call: Call) -> int:
        is_send = call.kind is _SEND
        try:
            view = as_input(call.inputs[0]) if is_send else as_output(call.outputs[0])
        except UsageError:
            if not staging.is_for_device(call):
                raise
            return staging.run(self, call, self.on_gpu)
        limit_ns = self.limit_ns(call)
        if (
            call.peer == self._rank
            and not self.group.meets_itself(is_send, call.tag)
            and is_alone()
        ):
            raise refuse(is_send, self._global_ranks[self._rank], call.tag, self._name)
        try:
            source = self._native_transfer(is_send, view, call.peer, call.tag, limit_ns)
        except NativeError as error:
            if error.fault == _BREAK:
                return self.other_rules().run(call)
            self.fail(call, error, self.group.started_ns, self.group.last_message)
        if view.finish is not None and not is_send:
            view.finish()
        return source

    # ------------------------------------------------------------------- breakpoints

    def next_seq(self, call: Call) -> int:
        """The number that `call` will have if it is the next."""
        if call.kind >= _SEND:
            return self.group.count_messages(call.kind is _SEND, call.peer) + 1
        return self.group.issued + 1

    def other_rules(self) -> Engine:
        """Nothing was sent: what carries out the op, now that other breakpoints are armed."""
        assert self._on_other_rules is not None  # only then native code looks
        return self._on_other_rules(self)

    # ------------------------------------------------------------------------ errors

    def fail_known(self, call: Call, error: NativeError) -> NoReturn:
        """Raise the error of an op that native code carried out alone."""
        message = self.group.last_message if call.kind >= _SEND else None
        self.fail(call, error, self.group.started_ns, message)

    def fail(
        self,
        call: Call,
        error: NativeError,
        started_ns: int,
        message: Message | None = None,
        goes_on: bool = False,
        started_at: str | None = None,
    ) -> NoReturn:
        public = to_public(
            error,
            call,
            group=self.group,
            name=self._name,
            rank=self._rank,
            global_ranks=self._global_ranks,
            waited_s=(_monotonic_ns() - started_ns) / 1e9,
            message=message,
            goes_on=goes_on,
            where=self._where,
            doing=self._doing,
            host=self._between.host_name,
            started_at=started_at,
        )
        self._tell_more(public)
        if self.on_gpu is not None and isinstance(public, MismatchError) and is_elsewhere(public):
            self.on_gpu.skip_number()
        if self._recorder is not None and started_at is None:
            tell_backward(public, self._recorder.comm, call.name or call.kind.label)
        if self._recorder is not None and not goes_on:
            number = error.number if message is None else message.number
            breaks = error.fault in _BREAKING
            write_error(self._recorder, self._record_group, number, public, breaks)
        _log.info("%s", public.what, rank=self._global_ranks[self._rank])
        if isinstance(public, InternalError):
            raise public from error
        # All that native code knew is in the public error, which says more; its own text above it
        # would be the first that the user reads.
        try:
            raise_instead(public, error)
        finally:
            del public, error  # no cycle keeps the arrays of the op


def _to_ns(seconds: float) -> int:
    return min(int(seconds * 1e9), NO_DEADLINE // 2)

"""TorchEngine hands ops back to torch; TapEngine is the check around it.

The check is that of other backends (runtime/backends/checked). What differs: torch has started the op when
the tap returns, and who waits for it may be Python (Work.wait), C++ (DDP's reducer, functional collectives)
or nobody.

Levels
    OFF, INFO   as in runtime/backends/checked
    DETAIL      a blocking op starts when all ranks have agreed. One that its caller does not wait for waits
                for the agreement for a moment only: two ranks may start ops on two groups in different
                orders, and wait for them later. Where the moment is over it starts as at INFO. So does a
                bucket of DDP or an op of an FSDP unit that a pass before has started at its place, but for
                the first of a pass: there the ranks meet.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from distdbg.control.clock import JobClock
from distdbg.errors import DistError, MismatchError, OpTimeout, UsageError, format_ranks
from distdbg.native import NativeError
from distdbg.ops.call import Call, Kind
from distdbg.ops.engine import Engine, Pending
from distdbg.record.format import Status
from distdbg.record.writing import status_of
from distdbg.runtime.backends.checked.agreement import Agreement
from distdbg.runtime.backends.checked.backend_error import failed
from distdbg.runtime.backends.checked.checked_engine import DETAIL, CheckedEngine
from distdbg.runtime.backends.checked.checked_pending import (
    CheckedPending,
    OpWatch,
    is_usable_after,
    replace_intact,
)
from distdbg.runtime.handles.work import NO_DEADLINE
from distdbg.torch_bridge.tap.calls import TapCall
from distdbg.torch_bridge.tap.pending import TorchPending
from distdbg.torch_bridge.tap.queued import device_of, queued_ops
from distdbg.torch_bridge.tap.sockets import shut_down
from distdbg.torch_bridge.tap.torch_functions import real_wait, unboxed_work

if TYPE_CHECKING:
    from collections.abc import Callable

    from distdbg.native import TappedOps
    from distdbg.runtime.backends.checked.agreement import Agreement
    from distdbg.runtime.backends.checked.control import ControlGroup
    from distdbg.runtime.backends.checked.traits import Traits

#: How long an op that nobody waits for yet waits at DETAIL for the agreement of all.
MOMENT_NS = 100_000_000
#: What may start without waiting for all at DETAIL: a bucket that is not the first, an op of an FSDP unit.
_FORESEEN = re.compile(r"DDP bucket [1-9]|FSDP (root )?unit")
#: How a rank begins that tells the others that it watches no longer.
UNWATCHED = "watches this job no longer: "
#: How long a wait in torch goes on before the peers are looked at; then longer.
_FIRST_SLICE_S = 0.02
_SLICE_S = 0.1


@dataclass(slots=True)
class TorchGroupEngine:
    """A group of torch's."""

    group: Any
    sockets: dict[int, int] = field(default_factory=dict)
    """The connections that torch made with it, see sockets.py."""


class TorchEngine:
    """Implements Engine for one group of torch's: each Call brings its own way to start it."""

    #: Torch's futures tell when a collective has ended.
    tells_ends = True

    def __init__(self, theirs: TorchGroupEngine, clock: JobClock) -> None:
        self.theirs = theirs
        self.clock = clock
        self.real_wait = real_wait
        self.work_of: Callable[[Any], Any] = unboxed_work
        self.checked_by = TapEngine
        #: A wait of NCCL's is for the stream of the thread that waits.
        name = str(theirs.group.name()).lower()
        self.distdbg_is_bound_to_thread = "gloo" not in name
        #: Where their futures are done when the device has the op in its queue: only that knows its end.
        self.queued = queued_ops() if name.endswith(("nccl", "xccl")) else None

    def run(self, call: Call) -> int:
        """Start and wait."""
        pending = self.submit(call)
        pending.wait(2**63 - 1)
        return pending.source_rank()

    def submit(self, call: Call) -> Pending:
        """Hand it back to torch."""
        assert isinstance(call, TapCall)
        if self.queued is not None:
            device = device_of((*call.inputs, *call.outputs))
            call.queued = self.queued.begin(device, call.is_async)
        try:
            call.result = call.start()
        except Exception as error:
            call.refusal = error
            raise
        call.work = call.result if call.is_method else self.work_of(call.result)
        pending = TorchPending(call.work, call.kind, call.peer, self.real_wait)
        call.pending = pending
        return pending

    def set_timeout(self, timeout_s: float) -> None:
        """Do nothing: torch has it."""

    def set_level(self, level: int) -> None:
        """Do nothing: the check has it."""

    def abort(self, reason: str) -> None:
        """End what waits in torch: by its own abort, and of gloo, which has none, by its connections."""
        self.break_off(Status.BROKEN)
        try:
            self.theirs.group.abort()
        finally:
            shut_down(self.theirs.sockets)

    def break_off(self, status: Status) -> None:
        """The group is given up: what its device has not done by now ends like this."""
        if self.queued is not None:
            self.queued.broken_off(int(status))

    def close(self) -> None:
        """Do nothing: torch destroys its group itself."""


class ShortWay(Protocol):
    """The way of most ops, past this engine (lane.py)."""

    ops: TappedOps

    def settle(self) -> list[Agreement]:
        """The agreements that have not ended well so far."""
        ...

    def unsettled(self) -> list[Agreement]:
        """The same; they stay there."""
        ...

    def close(self) -> None:
        """Nothing comes any more."""
        ...


class TapEngine(CheckedEngine):
    """CheckedEngine for ops that torch starts on the caller's thread."""

    tells_ends = True

    def __init__(
        self, engine: Engine, control: ControlGroup, traits: Traits, name: str, level: int
    ) -> None:
        super().__init__(engine, control, traits, name, level)
        #: The short way of this group's ops.
        self.lane: ShortWay | None = None
        #: What is to be looked after while a thread waits in torch, and what was found.
        self._waits: dict[int, tuple[OpWatch, list[DistError]]] = {}

    def submit(self, call: Call) -> Pending:
        """Start `call`; at DETAIL after the agreement of all."""
        self._begin(call)
        if call.kind >= Kind.SEND:
            is_waited_for = call.kind is Kind.RECV and not getattr(call, "is_async", True)
            return self.messages.submit(call, is_waited_for and self.level == DETAIL)
        with self.order:
            if self.level != DETAIL:
                agreement = self.begin_agreement(call)
                self._unsettled.append(agreement)
                return self._started(call, agreement, agreement.seq)
            if not getattr(call, "is_async", True):
                return self._started(call, None, self._agree(call))
            agreement = self.begin_agreement(call)
            try:
                agreement.wait(self.clock.now_ns() + MOMENT_NS)
            except UsageError:
                raise
            except OpTimeout as error:
                if agreement.error is error:
                    raise self._break(error) from error.__cause__
                self._unsettled.append(agreement)
                return self._started(call, agreement, agreement.seq)
            except DistError as error:
                if not is_usable_after(error):
                    reported = self.control.reported_mismatch() or error
                    raise self._break(reported) from error.__cause__
                self._tell_early(error)
                raise
            return self._started(call, None, agreement.seq)

    def _agree(self, call: Call) -> int:
        try:
            return super()._agree(call)
        except MismatchError as error:
            self._tell_early(error)
            raise

    def _tell_early(self, error: DistError) -> None:
        """Say who may not have waited: another rank that had a bucket of DDP at its place.

        It gives the group up itself: if this rank did so first, that one would not hear of both lines.
        """
        if (
            self.level != DETAIL
            or not isinstance(error, MismatchError)
            or not is_usable_after(error)
        ):
            return
        own = self.control.names[self.control.rank]
        sites = [site for side in error.sides for site in side["sites"]]
        early = {r for site in sites if _FORESEEN.search(site["function"]) for r in site["ranks"]}
        if early - {own}:
            who = f"rank{'s' if len(early - {own}) > 1 else ''} {format_ranks(early - {own})}"
            replace_intact(error, f"{who} may have started the op: then the group is unusable")

    def carry_out_wait(self, pending: Pending, watch: OpWatch) -> None:
        """Wait on this thread, in slices, where torch allows that."""
        if not isinstance(pending, TorchPending):
            super().carry_out_wait(pending, watch)
            return
        if self._is_bound or not pending.can_be_sliced:
            self._wait_in_torch(pending, watch)
            return
        slice_s = _FIRST_SLICE_S
        try:
            while not pending.wait_slice(slice_s):
                watch()
                slice_s = _SLICE_S
        except DistError:
            raise
        except Exception as error:
            self.explain(error, watch)
            raise failed(self.engine, watch.call, error) from error

    def _wait_in_torch(self, pending: TorchPending, watch: OpWatch) -> None:
        """Wait without a look around: the thread that looks after ops has one (`look_after_waits`)."""
        trouble: list[DistError] = []
        self._waits[id(watch)] = (watch, trouble)
        try:
            pending.wait(NO_DEADLINE)
        except DistError:
            raise
        except Exception as error:
            if trouble:
                raise trouble[0] from error
            self.explain(error, watch)
            raise failed(self.engine, watch.call, error) from error
        finally:
            del self._waits[id(watch)]
        if trouble:
            raise trouble[0]

    def look_after_waits(self) -> None:
        """End those that cannot end well: torch gives the op up when the group is aborted."""
        for watch, trouble in list(self._waits.values()):
            try:
                watch()
            except DistError as error:
                trouble.append(error)

    def _started(self, call: Call, agreement: Agreement | None, seq: int) -> CheckedPending:
        watch = self.watcher(call, seq, agreement, self.clock.now_ns())
        pending = CheckedPending(self, call, agreement, self.start(call, watch), watch)
        if isinstance(call, TapCall):
            call.checked = pending
        return pending

    def disagreed(self, call: Call, error: NativeError, started_ns: int) -> DistError:
        """What an agreement of the short way means for the group that has failed: the error to raise."""
        try:
            self.control.fail(call, error, started_ns)
        except MismatchError as reported:
            if not is_usable_after(reported):
                self._break(reported)
            self._tell_early(reported)
            return reported
        except UsageError as reported:
            return reported
        except DistError as reported:
            return self._break(self.control.reported_mismatch() or reported)

    @property
    def is_unwatched(self) -> bool:
        """Whether a rank watches no longer: then nobody agrees on anything any more, and ops only pass."""
        return self.asked_to_stop != ""

    @property
    def asked_to_stop(self) -> str:
        """Which rank watches no longer, and why; empty: all do."""
        cause = None if self._is_closed else self.control.native.cause()
        if cause is None or not cause[4].startswith(UNWATCHED):
            return ""
        rank = self.control.names[cause[1]]
        return (
            cause[4] if rank == self.control.names[self.control.rank] else f"rank {rank} {cause[4]}"
        )

    def stop_watching(self, why: str) -> None:
        """Tell the other ranks that this one does; their ops in torch go on."""
        self.control.abort(UNWATCHED + why)

    def _settle(self, agreement: Agreement) -> None:
        try:
            super()._settle(agreement)
        except DistError:
            if not self.is_unwatched:
                raise

    def _break(self, error: DistError) -> DistError:
        if not self.is_unwatched:
            if isinstance(self.engine, TorchEngine):
                self.engine.break_off(status_of(error))
            return super()._break(error)
        self._cause = self._cause or error  # torch's group is as well as it was
        return error

    def unsettled(self) -> list[Agreement]:
        """Also those of the short way."""
        own = super().unsettled()
        return own if self.lane is None else own + self.lane.unsettled()

    def settle(self) -> None:
        """Raise the error of an agreement that failed after its op had returned, on either way."""
        if self.lane is not None:
            with self.order:
                self._unsettled += self.lane.settle()
        super().settle()

    def _begin(self, call: Call) -> None:
        if self.lane is not None and not self.lane.ops.are_all_well():
            self.settle()
        super()._begin(call)

    def _await_agreements(self) -> None:
        if self.lane is not None:
            self._unsettled += self.lane.settle()
            self.lane.close()
            self.lane = None
        super()._await_agreements()

    @property
    def verdict(self) -> DistError | None:
        """Why the group cannot be used any more."""
        return self._cause

"""Lane: the short way of an op, in as few steps as its record and its agreement need.

    methods.py    the method of torch's group that Python calls, and what its arguments mean
    Lane          one native call (`Lane.launch`) begins the op in the record, starts the agreement, and
                  hands the op to torch
    LaneOp        until somebody waits for it

What an op looks like is worked out once for each kind, shape, dtype and so on (`Known`). All that is unusual
takes the long way: an op that has not ended when it is waited for (`LaneOp.widen`), a group that is
broken, breakpoints. The order of ops on both ways is one, since both count and start under the same lock.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from distdbg.errors import DistError
from distdbg.log.logs import get_logger
from distdbg.native import Form, NativeError, Plan, TappedOp, TappedOps
from distdbg.ops.call import Kind
from distdbg.runtime.backends.checked.agreement import Agreement
from distdbg.runtime.backends.checked.backend_error import failed
from distdbg.runtime.backends.checked.checked_pending import CheckedPending
from distdbg.runtime.backends.recorded import RecordedEngine, RecordedPending
from distdbg.torch_bridge.tap.calls import TapCall
from distdbg.torch_bridge.tap.engine import MOMENT_NS, TapEngine, TorchEngine, TorchGroupEngine
from distdbg.torch_bridge.tap.foreseen import Foreseen
from distdbg.torch_bridge.tap.in_flight import InFlight
from distdbg.torch_bridge.tap.pending import TorchPending, can_be_sliced
from distdbg.torch_bridge.tap.queued import device_of

if TYPE_CHECKING:
    from collections.abc import Callable

_log = get_logger("torch")

#: Looks that are known at once; a program that never repeats one starts again.
_MOST_KNOWN = 1024
#: Messages that a device waits for. More are not compared.
_MOST_OWED = 4096


class LaneGroups(Protocol):
    """All groups that are watched (groups.py)."""

    def is_off(self) -> bool:
        """Whether they are watched no longer."""
        ...


class LaneGroup(Protocol):
    """The group whose ops take the short way (groups.py)."""

    theirs: TorchGroupEngine
    group: Any
    followed: set[object]

    @property
    def groups(self) -> LaneGroups: ...

    def fail(self, op: InFlight, error: BaseException) -> None:
        """An op has failed in torch; the record waits for a better reason, for a moment."""
        ...

    def dispatch(self, call: TapCall) -> Any:
        """Check, record and start an op of the long way; what torch's op returns."""
        ...

    def adopt(self, key: int, op: InFlight) -> None:
        """Look after an op that has not ended for a while."""
        ...

    def disown(self, key: int, op: InFlight) -> None:
        """Somebody has waited for it meanwhile."""
        ...


class MessageWait(Protocol):
    """A message that somebody waits for in torch (lane_message.py)."""

    op: TappedOp

    def look_after(self, now_ns: int) -> None:
        """End the wait for it when it cannot end well."""
        ...


class KnownLook:
    """What all ops of one look have in common."""

    __slots__ = ("device", "form", "is_sliced", "make", "plan")

    def __init__(
        self, make: Callable[[], TapCall], form: Form, plan: Plan | None, device: int
    ) -> None:
        #: Makes a Call without arrays, for the long way and for messages.
        self.make = make
        self.form = form
        self.plan = plan
        #: Where they are done: see queued.py.
        self.device = device
        self.is_sliced = False


class LaneOp:
    """An op that torch has, found again by its Work."""

    __slots__ = ("held", "known", "lane", "op", "seq", "wide", "work")

    def __init__(self, lane: FastLane, known: KnownLook, op: TappedOp, seq: int) -> None:
        self.lane = lane
        self.known = known
        self.op = op
        self.seq = seq
        self.work: Any = None
        #: The Work of one that perhaps only C++ has, until its end is known; True: it has ended well.
        self.held: Any = None
        #: As the long way has it, once its wait has lasted for a while.
        self.wide: InFlight | None = None

    def on_failure(self, future: Any) -> None:
        """It has failed in torch."""
        try:
            future.value()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the op's
            self.lane.tapped.fail(self.widen(None), error)
        self.held = None
        self.lane.tapped.followed.discard(self)

    def widen(self, work: Any) -> InFlight:
        """The same op as the long way has it; `work` None: nobody waits for it."""
        if self.wide is not None:
            return self.wide
        lane = self.lane
        call = self.known.make()
        pending = call.pending = TorchPending(work, call.kind, call.peer, lane.real_wait)
        call.is_async = True
        wide: Any = pending
        engine = lane.checked
        if engine is not None:
            agreement: Agreement | None = None
            handle: Any = self.op.agreement
            if handle is not None:
                agreement = Agreement(lane.control, call, self.seq, None, self.op.issued_ns)
                agreement.handle = handle
            wide = call.checked = CheckedPending(engine, call, agreement, pending)
            if agreement is None:
                wide.watch = engine.watcher(call, self.seq, None, engine.clock.now_ns())
        recorded: Any = RecordedPending(wide, lane.recorded, self.op, lane.recorder)
        return InFlight(call, recorded, self.work)


class FastLane:
    """The short way of one group; `launch` reads its attributes."""

    #: What `launch` makes of each op.
    op_class = LaneOp

    def __init__(self, tapped: LaneGroup, recorded: RecordedEngine) -> None:
        inner = recorded.inner
        self.tapped = tapped
        self.recorded = recorded
        self.recorder = recorded.recorder
        #: Torch's name of the group.
        self.name = str(tapped.theirs.group.group_name)
        self.checked = inner if isinstance(inner, TapEngine) else None
        engine = inner.engine if isinstance(inner, TapEngine) else inner
        assert isinstance(engine, TorchEngine)
        self.engine = engine
        self.real_wait = engine.real_wait
        self.is_bound = engine.distdbg_is_bound_to_thread
        #: gloo copies what all ranks have gathered, on a thread of its own, see methods.py.
        self.copies = not self.is_bound
        self.control: Any = None
        self.order = threading.Lock()
        self.seqs: Any = None
        if self.checked is not None:
            self.control = self.checked.control
            self.checked.lane = self
            self.order = self.checked.order
            self.seqs = self.control.seqs
        native = None if self.control is None else self.control.native
        page = tapped.group.world.native_control
        #: Who waits in torch and cannot look around: NCCL is waited for by the thread that wants it. What
        #: cannot end well, the thread that looks after ops ends by torch's abort. None: a wait may give up
        #: and be tried again, so whoever waits looks himself.
        self.waits: dict[int, LaneOp] | None = None
        if self.is_bound or self.checked is None:
            self.waits = {}
        #: Messages that somebody waits for in torch: as above, on all backends.
        self.message_waits: dict[int, MessageWait] = {}
        #: Those that a device waits for, until their senders have said what they send.
        self.owed: deque[tuple[Any, Any]] = deque()
        self._has_left_out = False
        #: Their native part, with the first of them (lane_message.py).
        self.messages: Any = None
        self.ops = TappedOps(self.recorder, recorded.group_number, native, page, engine.queued)
        #: Starts an op: see native/bindings/tap_py.cpp.
        self.launch: Callable[..., Any] = self.ops.launch
        self._own_launch = self.launch  # kept: it is known by its place in memory
        self.ops.set_own_launch(self._own_launch)
        #: Which op of an FSDP unit is expected, see foreseen.py.
        self.foreseen = Foreseen()
        self._known: dict[object, KnownLook] = {}
        #: What is known of ops of this look; None: nothing yet.
        self.find = self._known.get

    def know(self, key: object, call: TapCall, make: Callable[[], TapCall]) -> KnownLook:
        """Work out what ops of this look have in common; `make` makes the like of `call`, without arrays."""
        plan = self.control.plan(call) if self.control is not None else None
        device = device_of((*call.inputs, *call.outputs))
        known = KnownLook(make, self.recorded.form_of(call), plan, device)
        known.is_sliced = can_be_sliced(call.kind) and not self.is_bound
        self.keep(key, known)
        return known

    def keep(self, key: object, known: KnownLook) -> None:
        """Find it again for the next op of this look."""
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[key] = known

    def owe(self, known: KnownLook, note: Any) -> None:
        """Compare this message when its sender has said what it sends."""
        if len(self.owed) < _MOST_OWED:
            self.owed.append((known, note))
        elif not self._has_left_out:
            self._has_left_out = True
            _log.warning(
                "group '%s': %d received messages have senders that are late; what comes beyond them is not "
                "compared with what its sender sent",
                self.tapped.group.label,
                _MOST_OWED,
            )

    def on_unstarted(
        self, op: TappedOp, known: KnownLook, seq: int, has_agreed: bool, error: BaseException
    ) -> bool:
        """An op has begun and torch has not got it, because of this error; whether to go the long way.

        Raises the reason, where torch only says that a connection or communicator is gone.
        """
        if not isinstance(error, Exception) or isinstance(error, DistError):
            self.recorded.end(op, error)
            return isinstance(error, DistError) and not has_agreed and self.tapped.groups.is_off()
        reported = self._reason(LaneOp(self, known, op, seq), error)
        self.recorded.end(op, reported or failed(self.engine, known.make(), error))
        if reported is not None and not self.tapped.groups.is_off():
            raise reported from error
        return False

    def _reason(self, op: LaneOp, error: Exception) -> DistError | None:
        engine = self.checked
        if engine is None or not engine.can_explain_start(error):
            return None
        checked = op.widen(None).call.checked
        assert checked is not None  # as there is an engine that checks
        try:
            engine.explain(error, checked.watch)
        except DistError as better:
            return better
        return None

    def agree(self, op: TappedOp, known: KnownLook, limit_ns: int) -> None:
        """At DETAIL, before torch gets it: wait for the agreement of all."""
        engine = self.checked
        assert engine is not None
        assert known.plan is not None
        try:
            handle: Any = op.agreement
            if handle is None:
                self.ops.agree(op, known.plan, limit_ns)
                return
            try:
                self.control.native.wait_op(handle, engine.clock.now_ns() + MOMENT_NS)
            except NativeError as error:
                if error.fault != "timeout":
                    raise
                if not handle.done:
                    return  # as at INFO: two ranks may start ops on two groups in different orders
                # It has ended since that wait gave up: what became of it is its own to say.
                self.control.native.wait_op(handle, engine.clock.now_ns() + MOMENT_NS)
        except NativeError as error:
            self.ops.forget(op)
            raise engine.disagreed(known.make(), error, op.issued_ns) from error.__cause__

    def settle(self) -> list[Agreement]:
        """The agreements that have not ended well so far, for who settles them."""
        return self._agreements(self.ops.take_unsettled())

    def unsettled(self) -> list[Agreement]:
        """The same; they stay here."""
        return self._agreements(self.ops.unsettled())

    def _agreements(self, unsettled: list[Any]) -> list[Agreement]:
        found = []
        for handle, known, seq, issued_ns in unsettled:
            agreement = Agreement(self.control, known.make(), seq, None, issued_ns)
            agreement.handle = handle
            found.append(agreement)
        return found

    def raise_trouble(self) -> None:
        """Raise the error of an agreement that has failed after its op had started."""
        if self.checked is not None:
            self.checked.settle()

    def close(self) -> None:
        """Nothing comes any more."""
        self.ops.close()
        if self.messages is not None:
            self.messages.close()


def lane_of(tapped: LaneGroup) -> FastLane | None:
    """The short way of a group, where it has one: its ops are recorded and nothing else is around them."""
    engine = tapped.group.engine
    if type(engine) is not RecordedEngine or not isinstance(engine.inner, (TapEngine, TorchEngine)):
        return None
    return FastLane(tapped, engine)


def key_of(call: TapCall) -> object | None:
    """What a call of the long way looks like; None: it has no short way."""
    if call.part is not None or call.kind >= Kind.SEND or call.kind is Kind.ALL_TO_ALL:
        return None
    outputs = () if call.outputs is call.inputs else call.outputs
    try:
        return (
            call.kind,
            call.name,
            None if call.op is None else call.op.code,
            call.root,
            *[(x.shape, x.dtype, x.device, x.stride()) for x in call.inputs],
            None,
            *[(x.shape, x.dtype, x.device, x.stride()) for x in outputs],
        )
    except (AttributeError, RuntimeError):
        return None  # a tensor without strides

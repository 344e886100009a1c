"""CheckedEngine: the engine of a backend that is not ours, with our check beside it.

    CheckedEngine.run(call)
        ControlGroup   the ranks agree on the op through shared memory of our own
        engine         the backend carries it out

Levels
    OFF     the op starts at once and nobody looks at the agreement. It is still on its way, so that
            ranks may change the level at different ops and keep counting alike.
    INFO    the op starts at once; a difference is raised where the op is waited for, or at the next
            op. By then the backend has moved bytes for different ops on different ranks, so
            it is aborted and the group cannot be used any more.
    DETAIL  the op starts when all ranks have agreed, so a difference leaves no trace. Async ops are
            started by a thread of the group, after their agreements and in order.

Hanging backends. The caller never waits inside the backend: a thread does (hands.py), and the caller
looks after the peers and the deadline. Only a backend that is bound to the caller's thread
(traits.py) is called there; then another thread looks, and aborts it.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from functools import partial

from distdbg.check.control import GRACE_NS, Agreement, ControlGroup
from distdbg.check.hands import SLICE_S, Hands
from distdbg.check.lane import Lane
from distdbg.check.messages import Messages
from distdbg.check.traits import Traits
from distdbg.errors import (
    CollectiveError,
    DistBackendError,
    DistError,
    MismatchError,
    OpTimeout,
    PeerLost,
    UsageError,
)
from distdbg.runtime.call import Call, Kind
from distdbg.runtime.engine import Engine, Pending
from distdbg.runtime.work import NO_DEADLINE

OFF, INFO, DETAIL = 0, 1, 2

_SEND = Kind.SEND
#: How long close() and abort() wait for a backend that was given up.
_PATIENCE_S = 2.0
#: An agreement in a broken group ends within this.
_SOON_NS = 1_000_000_000
#: How long after its connections have closed a process may take to count as ended.
_ENDING_NS = 300_000_000
#: Agreements that nobody has waited for are looked through when there are so many.
_UNSETTLED = 64


class CheckedEngine:
    """Implements Engine around another one; see distdbg/runtime/engine.py."""

    def __init__(
        self, engine: Engine, control: ControlGroup, traits: Traits, name: str, level: int
    ) -> None:
        self.engine = engine
        self._control = control
        self._is_bound = traits.is_bound_to_thread
        self._hands = Hands(name)
        self._lane = Lane(name)
        #: The order in which ops are agreed on is the order in which they start.
        self._order = threading.Lock()
        self._level = level
        self._unsettled: list[Agreement] = []
        #: Why the group cannot be used any more.
        self._cause: DistError | None = None
        self._is_closed = False
        self._messages = Messages(self, control, traits.ignores_tags)
        control.set_level(level)

    # ------------------------------------------------------------------------------ Engine

    def run(self, call: Call) -> int:
        """Carry out `call`, blocking."""
        self._begin(call)
        if call.kind >= _SEND:
            return self._messages.run(call)
        if not self._lane.is_idle:
            pending = self.submit(call)  # behind the asynchronous ones
            pending.wait(NO_DEADLINE)
            return pending.source_rank()
        with self._order:
            if self._level == DETAIL:
                return self.carry_out(call, self._agree(call))
            agreement = self._control.submit(call)
            self._unsettled.append(agreement)
            if self._level == OFF:
                return self.engine.run(call)
            source = self.carry_out(call, agreement.seq, agreement)
        self.settle()
        return source

    def submit(self, call: Call) -> Pending:
        """Start `call`, at DETAIL when all have agreed; returns at once."""
        self._begin(call)
        if call.kind >= _SEND:
            return self._messages.submit(call)
        with self._order:
            if (self._level == DETAIL and not self._is_bound) or not self._lane.is_idle:
                agreement = self._control.submit(call)
                pending = CheckedPending(self, call, agreement, None)
                self._lane.put(partial(self._start_later, pending))
                return pending
            agreement = self._control.submit(call)
            self._unsettled.append(agreement)
            return CheckedPending(self, call, agreement, self.start(call))

    def set_timeout(self, timeout_s: float) -> None:
        """Set the limit for ops that bring none of their own."""
        self._control.set_timeout(timeout_s)
        self.engine.set_timeout(timeout_s)

    def set_level(self, level: int) -> None:
        """Check the ops from now on so closely: 0 OFF, 1 INFO, 2 DETAIL."""
        self._level = level
        self._control.set_level(level)
        tell = getattr(self.engine, "set_level", None)  # younger than the other methods
        if tell is not None:
            tell(level)

    def find_left(self) -> list[int]:
        """Return the group ranks that have left the group."""
        return self._control.find_left()

    def abort(self, reason: str) -> None:
        """Break the group: every op in flight on every rank ends with an error."""
        self._control.abort(reason)
        self._abort_backend(reason)

    def close(self) -> None:
        """Let what is in flight end, shut the backend down, then leave the control group."""
        if self._is_closed:
            return
        self._is_closed = True
        patience_s = None if self._cause is None else _PATIENCE_S  # each op has a deadline
        try:
            self._lane.drain(patience_s)
            self._await_agreements()
            self._messages.drain()
            started_ns = time.monotonic_ns()
            if self._is_bound:
                self.engine.close()
            else:
                self._hands.carry_out(self.engine.close, partial(self._watch_close, started_ns))
        except DistError:
            if self._cause is None:  # else it was told before, and nothing more can be done
                raise
        finally:
            self._control.close()
            self._lane.close(0.0 if self._cause is not None else _PATIENCE_S)
            # Also those left behind: when the peers are gone they often come back, and a thread that
            # comes back from C++ while Python ends takes the process down.
            self._hands.close(_PATIENCE_S)
            self._unsettled.clear()

    def _await_agreements(self) -> None:
        """The others need this rank's word on ops that it has done already; each has a deadline."""
        for agreement in self._unsettled:
            with suppress(DistError):  # they are told; here nothing comes after it
                agreement.wait(NO_DEADLINE)

    # ----------------------------------------------------------------------------- one op

    def _begin(self, call: Call) -> None:
        """Raise what is known to be wrong with the group or the call, before anything is sent."""
        if self._cause is not None:
            what = self._control.op_text(call, 0)
            raise CollectiveError(
                f"{what} cannot run: {self._cause.what}",
                kind=call.kind.label,
                details=["the group is unusable; destroy it and create a new one"],
            ) from self._cause
        check = getattr(self.engine, "check", None)
        if check is not None:
            check(call)
        if len(self._unsettled) >= _UNSETTLED or (self._unsettled and self._level == INFO):
            self.settle()

    def settle(self) -> None:
        """Raise the error of an agreement that failed after its op had returned."""
        with self._order:
            agreements = self._unsettled
            self._unsettled = [each for each in agreements if not each.done()]
        for agreement in agreements:
            if agreement.done():
                self._settle(agreement)

    def _settle(self, agreement: Agreement) -> None:
        try:
            agreement.wait(NO_DEADLINE)
        except MismatchError as error:
            if self._level == OFF:
                return
            raise self._break(_as_started(error)) from error.__cause__
        except DistError as error:
            if self._level == OFF:
                return
            raise self._break(error) from error.__cause__

    def _agree(self, call: Call) -> int:
        try:
            return self._control.agree(call)
        except MismatchError as error:
            if not is_usable_after(error):
                self._break(error)
            raise
        except UsageError:
            raise
        except DistError as error:
            told = self._control.told_mismatch() or error
            raise self._break(told) from error.__cause__

    def carry_out(self, call: Call, seq: int, agreement: Agreement | None = None) -> int:
        """Let the backend do the op, and wait for it, but not alone."""
        watch = self.watcher(call, seq, agreement, time.monotonic_ns())
        try:
            if self._is_bound:
                release = partial(self._abort_backend, "a peer is gone, or it is too late")
                return self._hands.keep_watch(partial(self.engine.run, call), watch, release)
            return self._hands.carry_out(partial(self.engine.run, call), watch)
        except DistBackendError as error:
            self._explain(error, watch)
            raise
        except DistError:
            raise
        except Exception as error:
            self._explain(error, watch)
            raise _failed(self.engine, call, error) from error

    def start(self, call: Call) -> Pending:
        """Give the op to the backend."""
        try:
            return self.engine.submit(call)
        except DistError:
            raise
        except Exception as error:
            raise _failed(self.engine, call, error) from error

    def _start_later(self, pending: CheckedPending) -> None:
        """On the lane."""
        agreement = pending.agreement
        assert agreement is not None  # what waits in the lane waits for it
        try:
            agreement.wait(NO_DEADLINE)
        except DistError as error:
            if not (isinstance(error, UsageError) or is_usable_after(error)):
                self._break(error)
            pending.fail(error)
            return
        try:
            pending.go(self.start(pending.call))
        except DistError as error:
            pending.fail(error)

    # ---------------------------------------------------------------------------- watching

    def watcher(self, call: Call, seq: int, agreement: Agreement | None, started_ns: int) -> Watch:
        """What to call again and again while the backend has the op."""
        return Watch(self, self._control, call, seq, agreement, started_ns)

    def pending(self, call: Call) -> Pending:
        """Start a point to point op."""
        return CheckedPending(self, call, None, self.start(call))

    def carry_out_wait(self, pending: Pending, watch: Watch) -> None:
        """Wait for an op of the backend without end, but not alone."""
        try:
            if self._is_bound:
                release = partial(self._abort_backend, "a peer is gone, or it is too late")
                self._hands.keep_watch(partial(pending.wait, NO_DEADLINE), watch, release)
            else:
                self._hands.carry_out(partial(pending.wait, NO_DEADLINE), watch)
        except DistBackendError as error:
            self._explain(error, watch)
            raise
        except DistError:
            raise
        except Exception as error:
            self._explain(error, watch)
            raise _failed(self.engine, watch.call, error) from error

    def _explain(self, error: Exception, watch: Watch) -> None:
        """Raise a better error for this one of the backend, where there is one.

        A backend often notices first that a peer is gone, and cannot tell which and why.
        """
        deadline_ns = time.monotonic_ns() + _ENDING_NS
        while True:
            try:
                watch(grace_ns=0)
            except DistError as better:
                raise better from error
            if not self._control.can_tell_death or time.monotonic_ns() > deadline_ns:
                return
            time.sleep(0.01)  # a process that is ended closes its connections a moment before

    def on_trouble(self, error: DistError) -> DistError:
        """Give the group up for this error."""
        return self._break(error)

    @property
    def is_watching(self) -> bool:
        """Whether agreements are looked at while their ops run."""
        return self._level != OFF

    @property
    def level(self) -> int:
        """OFF, INFO or DETAIL."""
        return self._level

    def _watch_close(self, started_ns: int) -> None:
        waited_s = (time.monotonic_ns() - started_ns) / 1e9
        if self._cause is not None and waited_s > _PATIENCE_S:
            raise DistBackendError(
                f"the backend did not shut down within {waited_s:.1f} s; it was given up"
            )

    def _break(self, error: DistError) -> DistError:
        if self._cause is None:
            self._cause = error
            with suppress(DistError):
                self._control.abort(error.what)
            self._abort_backend(error.what)
        return error

    def _abort_backend(self, reason: str) -> None:
        started_ns = time.monotonic_ns()

        def watch() -> None:
            if time.monotonic_ns() - started_ns > _PATIENCE_S * 1e9:
                raise OpTimeout("abort did not return")

        with suppress(Exception):  # the reason is told by whoever calls this
            self._hands.carry_out(partial(self.engine.abort, reason), watch)


class Watch:
    """Looks after one op that the backend has: raises what must end the wait for it."""

    __slots__ = ("_agreement", "_control", "_engine", "_seq", "_started_ns", "call")

    def __init__(
        self,
        engine: CheckedEngine,
        control: ControlGroup,
        call: Call,
        seq: int,
        agreement: Agreement | None,
        started_ns: int,
    ) -> None:
        self._engine = engine
        self._control = control
        self.call = call
        self._seq = seq
        self._agreement = agreement
        self._started_ns = started_ns

    def __call__(self, grace_ns: int = GRACE_NS) -> None:
        if not self._engine.is_watching:
            return
        try:
            agreement = self._agreement
            if agreement is not None and agreement.done():
                self._agreement = None
                _await_started(agreement, NO_DEADLINE)
            try:
                self._control.look(self.call, self._seq, self._started_ns, grace_ns)
            except CollectiveError:
                if agreement is not None:  # it knows better, and ends soon in a broken group
                    with suppress(OpTimeout):
                        _await_started(agreement, time.monotonic_ns() + _SOON_NS)
                raise
        except DistError as error:
            raise self._engine.on_trouble(error) from error.__cause__

    def begin(self) -> None:
        """Count the time of the op from now."""
        self._started_ns = time.monotonic_ns()


class CheckedPending:
    """An op in flight: first its agreement, then the backend's own handle."""

    __slots__ = ("_engine", "_error", "_foreign", "_has_started", "agreement", "call", "watch")

    def __init__(
        self,
        engine: CheckedEngine,
        call: Call,
        agreement: Agreement | None,
        foreign: Pending | None,
    ) -> None:
        self._engine = engine
        self._error: DistError | None = None
        self._foreign = foreign
        self.call = call
        self.agreement = agreement
        seq = agreement.seq if agreement is not None else 0
        self.watch = engine.watcher(
            call, seq, agreement if foreign is not None else None, time.monotonic_ns()
        )
        self._has_started = threading.Event()
        if foreign is not None:
            self._has_started.set()

    def go(self, foreign: Pending) -> None:
        """All have agreed and the backend has the op now."""
        self.watch.begin()
        self._foreign = foreign
        self._has_started.set()

    def fail(self, error: DistError) -> None:
        """The backend never gets the op."""
        self._error = error
        self._has_started.set()

    def done(self) -> bool:
        """Whether the op has ended, well or badly; never blocks."""
        if not self._has_started.is_set():
            return False
        if self._error is not None or self._foreign is None or self._foreign.done():
            return True
        try:
            self.watch()
        except DistError as error:
            self._error = error
        return self._error is not None

    def wait(self, deadline_ns: int) -> None:
        """Block until the op has ended; raise its error. At the deadline: OpTimeout."""
        if not self._has_started.is_set():
            self._wait_start(deadline_ns)
        if self._error is not None:
            raise self._error
        foreign = self._foreign
        assert foreign is not None  # or there is an error
        try:
            if deadline_ns == NO_DEADLINE and self._engine.is_watching and not foreign.done():
                self._engine.carry_out_wait(foreign, self.watch)
            else:
                foreign.wait(deadline_ns)
        except DistError as error:
            if deadline_ns == NO_DEADLINE or foreign.done():
                self._error = error
            raise
        self._engine.settle()

    def source_rank(self) -> int:
        """The group rank a finished recv got its message from; -1 for other ops."""
        return self._foreign.source_rank() if self._foreign is not None else -1

    def _wait_start(self, deadline_ns: int) -> None:
        """Until the lane has started the op, or knows why not."""
        agreement = self.agreement
        assert agreement is not None  # what waits in the lane waits for it
        try:
            agreement.wait(deadline_ns)
        except DistError:
            if not agreement.done():
                raise  # only this wait has given up
        self.watch.begin()
        while not self._has_started.wait(SLICE_S):
            if time.monotonic_ns() >= deadline_ns:
                raise OpTimeout(
                    f"{self.call.kind.label} did not start in time; it goes on",
                    kind=self.call.kind.label,
                    seq=agreement.seq,
                )
            if agreement.done():
                try:
                    self.watch()
                except DistError as error:
                    self._error = error
                    return


def is_usable_after(error: DistError) -> bool:
    """Whether the group goes on after it: the ranks differ, and all are still there."""
    return isinstance(error, MismatchError) and not isinstance(error, PeerLost)


def _await_started(agreement: Agreement, deadline_ns: int) -> None:
    """Wait for the agreement on an op that the backend has already."""
    try:
        agreement.wait(deadline_ns)
    except MismatchError as error:
        raise _as_started(error) from error.__cause__


def _as_started(error: MismatchError) -> MismatchError:
    """A difference that was found when the backend had the op already."""
    if is_usable_after(error):
        error.details = [line for line in error.details if "still usable" not in line]
        error.details.append(
            "the op had been started (level INFO): outputs may hold anything, and the group is "
            "unusable"
        )
        error.hint = error.hint or "DISTDBG_DEBUG=detail compares before an op is started"
    return error


def _failed(engine: Engine, call: Call, error: Exception) -> DistBackendError:
    return DistBackendError(
        f"{call.kind.label} failed in {type(engine).__name__}: {type(error).__name__}: {error}".splitlines()[
            0
        ]
    )

"""CheckedPending: one checked op: its agreement, then the backend's own handle."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from distdbg.errors import (
    CollectiveError,
    DistBackendError,
    DistError,
    MismatchError,
    OpTimeout,
    PeerLost,
    UsageError,
)
from distdbg.ops.call import Call
from distdbg.ops.engine import Pending
from distdbg.runtime.backends.checked.agreement import Agreement
from distdbg.runtime.backends.checked.control import GRACE_NS, ControlGroup
from distdbg.runtime.backends.checked.worker_threads import SLICE_S
from distdbg.runtime.handles.work import NO_DEADLINE

if TYPE_CHECKING:
    from distdbg.control.clock import JobClock

#: Asked of an op that the backend has, and whether its limit is over; raises what must end it.
LookAhead = Callable[[bool], None]

#: Held while an op gets its error: it has one, however many threads wait for it.
_ENDING = threading.Lock()

#: Why the backend has an op that not all have agreed on.
AT_INFO = "level INFO"
BEFORE_ALL = "before all had agreed"
#: An agreement in a broken group ends within this.
_SOON_NS = 1_000_000_000


class PendingChecks(Protocol):
    """What an op in flight needs of the check of its group (checked_engine.py)."""

    clock: JobClock

    @property
    def is_watching(self) -> bool:
        """Whether agreements are looked at while their ops run."""
        ...

    @property
    def when_started(self) -> str:
        """Return why an op was started that not all ranks have agreed on."""
        ...

    def watcher(
        self, call: Call, seq: int, agreement: Agreement | None, started_ns: int
    ) -> OpWatch:
        """What to call again and again while the backend has the op."""
        ...

    def carry_out_wait(self, pending: Pending, watch: OpWatch) -> None:
        """Wait for an op of the backend without end, but not alone."""
        ...

    def settle(self) -> None:
        """Raise the error of an agreement that failed after its op had returned."""
        ...

    def note_raised(self, error: DistError) -> None:
        """The program has this error."""
        ...

    def on_trouble(self, error: DistError) -> DistError:
        """Give the group up for this error."""
        ...

    def explain(self, error: Exception, watch: OpWatch) -> None:
        """Raise a better error for this one of the backend, where there is one."""
        ...

    def failed(self, call: Call, error: Exception) -> DistBackendError:
        """What is raised for an error of the backend."""
        ...


class OpWatch:
    """Looks after one op that the backend has: raises what must end the wait for it."""

    __slots__ = (
        "_agreement", "_control", "_engine", "_seq", "_started_ns", "call", "look_ahead",
    )  # fmt: skip

    def __init__(
        self,
        engine: PendingChecks,
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
        self.look_ahead: LookAhead | None = None

    def __call__(self, grace_ns: int = GRACE_NS) -> None:
        if not self._engine.is_watching:
            return
        try:
            agreement = self._agreement
            if agreement is not None and agreement.done():
                self._agreement = None
                await_started(agreement, NO_DEADLINE, self._engine.when_started)
            if self.look_ahead is not None:
                self.look_ahead(False)
            try:
                self._control.look(self.call, self._seq, self._started_ns, grace_ns)
            except CollectiveError as error:
                if self.look_ahead is not None and isinstance(error, OpTimeout):
                    self.look_ahead(True)
                if agreement is not None:  # it knows better, and ends soon in a broken group
                    with suppress(OpTimeout):
                        self._await_soon(agreement)
                raise
        except DistError as error:
            raise self._engine.on_trouble(error) from error.__cause__

    @property
    def is_agreeing(self) -> bool:
        """Whether the ranks have yet to agree on the op: the agreement ends when one of them leaves."""
        return self._agreement is not None and not self._agreement.done()

    def _await_soon(self, agreement: Agreement) -> None:
        deadline_ns = self._engine.clock.now_ns() + _SOON_NS
        await_started(agreement, deadline_ns, self._engine.when_started)

    def number(self, seq: int) -> None:
        """The op has a number now."""
        self._seq = seq

    def begin(self, agreement: Agreement | None = None) -> None:
        """Count the time of the op from now; `agreement`: look at this too."""
        self._agreement = agreement
        self._started_ns = self._engine.clock.now_ns()


class CheckedPending:
    """An op in flight: first its agreement, then the backend's own handle."""

    __slots__ = (
        "_engine", "_error", "_foreign", "_has_started", "agreement", "call", "is_in_turn", "watch",
    )  # fmt: skip

    def __init__(
        self,
        engine: PendingChecks,
        call: Call,
        agreement: Agreement | None,
        foreign: Pending | None,
        watch: OpWatch | None = None,
    ) -> None:
        self._engine = engine
        self._error: DistError | None = None
        self._foreign = foreign
        self.call = call
        self.agreement = agreement
        #: Whether it waits in the lane without an agreement.
        self.is_in_turn = False
        seq = agreement.seq if agreement is not None else 0
        self.watch = watch or engine.watcher(
            call, seq, agreement if foreign is not None else None, engine.clock.now_ns()
        )
        #: Set when the backend has it, or never gets it; None: it has had it from the beginning.
        self._has_started = threading.Event() if foreign is None else None
        if foreign is not None:
            _hand_over(foreign, self.watch)

    def agree(self, agreement: Agreement) -> None:
        """An op of a block gets its number at the end of that."""
        self.agreement = agreement
        self.watch.number(agreement.seq)

    def go(self, foreign: Pending, agreement: Agreement | None = None) -> None:
        """The backend has the op now; `agreement`: not all have agreed yet."""
        assert self._has_started is not None  # of an op that waits in the lane, or in a block
        self.watch.begin(agreement)
        self._foreign = foreign
        self._has_started.set()
        _hand_over(foreign, self.watch)

    def fail(self, error: DistError) -> None:
        """The backend never gets the op."""
        assert self._has_started is not None  # as above
        self._error = error
        self._has_started.set()

    def done(self) -> bool:
        """Whether the op has ended, well or badly; never blocks."""
        if self._has_started is not None and not self._has_started.is_set():
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
        if self._has_started is not None and not self._has_started.is_set():
            self._wait_start(self._has_started, deadline_ns)
        if self._error is not None:
            self._engine.note_raised(self._error)
            raise self._error
        foreign = self._foreign
        assert foreign is not None  # or there is an error
        try:
            if deadline_ns == NO_DEADLINE and self._engine.is_watching and not foreign.done():
                self._engine.carry_out_wait(foreign, self.watch)
            else:
                self._wait_in_backend(foreign, deadline_ns)
        except DistError as error:
            if deadline_ns != NO_DEADLINE and not foreign.done():
                error = self._better_at_limit(error)
                self._engine.note_raised(error)
                raise error from error.__cause__
            with _ENDING:
                self._error = self._error or error
            if self._error is error:
                self._engine.note_raised(error)
                raise
        if self._error is not None:  # another thread, which waited too, was first
            self._engine.note_raised(self._error)
            raise self._error
        self._engine.settle()

    def _better_at_limit(self, error: DistError) -> DistError:
        """What is known of an op whose limited wait is over: it may never end."""
        if self._engine.is_watching:
            try:
                self.watch(grace_ns=0)
            except DistError as better:
                with _ENDING:
                    self._error = self._error or better
                return self._error
        return error

    def _wait_in_backend(self, foreign: Pending, deadline_ns: int) -> None:
        try:
            foreign.wait(deadline_ns)
        except DistError:
            raise
        except Exception as error:  # it may have failed because a peer has given the group up
            if self._engine.is_watching:
                try:
                    self._engine.settle()  # the difference may be that of an op before
                except DistError as better:
                    raise better from error
                self._engine.explain(error, self.watch)
            raise self._engine.failed(self.call, error) from error

    def source_rank(self) -> int:
        """The group rank a finished recv got its message from; -1 for other ops."""
        return self._foreign.source_rank() if self._foreign is not None else -1

    def _wait_start(self, has_started: threading.Event, deadline_ns: int) -> None:
        """Until the lane has started the op, or knows why not."""
        agreement = self.agreement
        if agreement is None and not self.is_in_turn:
            raise UsageError(
                f"{self.call.name or self.call.kind.label} is waited for inside of the block it is part of",
                hint="wait when the block has ended, which is when its ops are started",
            )
        try:
            if agreement is not None:
                agreement.wait(deadline_ns)
        except DistError:
            if agreement is not None and not agreement.done():
                raise  # only this wait has given up
        self.watch.begin()
        while not has_started.wait(SLICE_S):
            if self._engine.clock.now_ns() >= deadline_ns:
                raise OpTimeout(
                    f"{self.call.kind.label} did not start in time; it continues",
                    kind=self.call.kind.label,
                    seq=-1 if agreement is None else agreement.seq,
                )
            if agreement is None or agreement.done():
                try:
                    self.watch()
                except DistError as error:
                    self._error = error
                    return


def _hand_over(foreign: Pending, watch: OpWatch) -> None:
    """An op that goes on by itself is looked after by its backend, whether anybody waits or not."""
    keep = getattr(foreign, "keep_watch", None)
    if keep is not None:
        keep(watch)


def is_usable_after(error: DistError) -> bool:
    """Whether the group goes on after it: the ranks differ, and all are still there."""
    return isinstance(error, MismatchError) and not isinstance(error, PeerLost)


def await_started(agreement: Agreement, deadline_ns: int, when: str) -> None:
    """Wait for the agreement on an op that the backend has already."""
    try:
        agreement.wait(deadline_ns)
    except MismatchError as error:
        raise as_started(error, when) from error.__cause__


def find_difference(
    agreements: Iterable[Agreement], clock: JobClock, when: str
) -> MismatchError | None:
    """What ranks called differently, where the group has ended and some of these may be just about to."""
    deadline_ns = clock.now_ns() + _SOON_NS
    for agreement in agreements:
        try:
            agreement.wait(deadline_ns)
        except MismatchError as error:
            if is_usable_after(error):
                return as_started(error, when)
        except DistError:
            continue
    return None


def as_started(error: MismatchError, when: str) -> MismatchError:
    """A difference that was found when the backend had the op already; `when`: why it had."""
    if is_usable_after(error):
        replace_intact(
            error,
            f"the op had been started ({when}): outputs may hold anything, and the group is unusable",
        )
        if when == AT_INFO:
            error.hint = error.hint or "DISTDBG_DEBUG=detail compares before an op is started"
    return error


def replace_intact(error: MismatchError, words: str) -> None:
    """Say this of a difference in place of that the group is still usable."""
    error.details = [line for line in error.details if "still usable" not in line]
    error.details.append(words)

"""CheckedEngine: the engine of another backend, with our check beside it.

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

Hanging backends. The caller never waits inside the backend: a thread does (worker_threads.py), and the
caller looks after the peers and the deadline. Only a backend that is bound to the caller's thread
(traits.py) is called there; then another thread looks, and aborts it. The caller also calls an engine that
looks around while it blocks (`run_watched`, `wait_watched`): that saves two changes of threads for each op.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from functools import partial

from distdbg.errors import (
    CollectiveError,
    DistBackendError,
    DistError,
    JobAborted,
    MismatchError,
    OpTimeout,
    PeerLost,
    UsageError,
)
from distdbg.ops.call import Call, Kind
from distdbg.ops.engine import Engine, Pending
from distdbg.record.durations import duration_text
from distdbg.runtime.backends.checked.agreement import Agreement
from distdbg.runtime.backends.checked.backend_error import failed, raise_better
from distdbg.runtime.backends.checked.block import Block
from distdbg.runtime.backends.checked.checked_pending import (
    AT_INFO,
    BEFORE_ALL,
    CheckedPending,
    LookAhead,
    OpWatch,
    as_started,
    find_difference,
    is_usable_after,
)
from distdbg.runtime.backends.checked.control import ControlGroup
from distdbg.runtime.backends.checked.message_way import MessageWay
from distdbg.runtime.backends.checked.messages import Messages
from distdbg.runtime.backends.checked.start_queue import StartQueue
from distdbg.runtime.backends.checked.traits import Traits
from distdbg.runtime.backends.checked.worker_threads import WorkerThreads
from distdbg.runtime.backends.reported_difference import words_for_others
from distdbg.runtime.handles.work import NO_DEADLINE

OFF, INFO, DETAIL = 0, 1, 2
#: How long close() and abort() wait for a backend that was given up.
_PATIENCE_S = 2.0
#: A process counts as ended so long after its connections have closed, at the latest.
_ENDING_NS = 300_000_000
#: What a backend raises for arguments, whatever the peers do.
_OWN_FAULTS = (TypeError, ValueError)
#: Agreements that nobody has waited for are looked through when there are so many.
_UNSETTLED = 64


class CheckedEngine:
    """Implements Engine around another one; see distdbg/ops/engine.py."""

    def __init__(
        self, engine: Engine, control: ControlGroup, traits: Traits, name: str, level: int
    ) -> None:
        self.engine = engine
        self.control = control
        #: The time of the job.
        self.clock = control.clock
        self._is_bound = traits.is_bound_to_thread
        self._ends_later = traits.ends_later
        self._run_watched = getattr(engine, "run_watched", None)
        self._submit_watched = getattr(engine, "submit_watched", None)
        #: Whose communicator a message takes, where there are several.
        self._message_route = getattr(engine, "message_route", None)
        self._hands = WorkerThreads(name)
        self._lane = StartQueue(name)
        #: The order in which ops are agreed on is the order in which they start.
        self.order = threading.Lock()
        #: OFF, INFO or DETAIL.
        self.level = level
        self._unsettled: list[Agreement] = []
        #: Why the group cannot be used any more.
        self._cause: DistError | None = None
        #: Whether an op has raised it; what the messages' thread finds, none has.
        self._is_raised = False
        self._is_closed = False
        #: Ops that the backend is to get together, by the thread that submits them.
        self._blocks: dict[int, Block] = {}
        self.messages = Messages(self, control, traits)
        control.set_level(level)

    # ------------------------------------------------------------------------------ Engine

    def run(self, call: Call) -> int:
        """Carry out `call`, blocking."""
        try:
            return self._run(call)
        except DistError as error:
            self.note_raised(error)
            raise

    def note_raised(self, error: DistError) -> None:
        """The program has this error, which may be another op's word of the same cause."""
        is_news = error is self._cause or (self._ends_later and self._cause is not None)
        self._is_raised = self._is_raised or is_news

    def _run(self, call: Call) -> int:
        self._begin(call)
        is_message = call.kind >= Kind.SEND
        if not self._lane.is_idle and (not is_message or self.way_of(call).is_in_order):
            pending = self.submit(call)  # behind the asynchronous ones
            pending.wait(NO_DEADLINE)
            return pending.source_rank()
        if is_message:
            return self.messages.run(call)
        with self.order:
            if self.level == DETAIL:
                return self.carry_out(call, self._agree(call))
            agreement = self.begin_agreement(call)
            self._unsettled.append(agreement)
            if self.level == OFF:
                return self.engine.run(call)
            source = self.carry_out(call, agreement.seq, agreement)
        self.settle()
        return source

    def submit(self, call: Call) -> Pending:
        """Start `call`, at DETAIL when all have agreed; returns at once."""
        self._begin(call)
        if call.kind >= Kind.SEND:
            return self.messages.submit(call)
        block = self._blocks.get(threading.get_ident())
        if block is not None:
            return block.add(call)
        with self.order:
            if (self.level == DETAIL and not self._is_bound) or not self._lane.is_idle:
                agreement = self.begin_agreement(call)
                pending = CheckedPending(self, call, agreement, None)
                self._lane.put(partial(self._start_later, pending))
                return pending
            agreement = self.begin_agreement(call)
            self._unsettled.append(agreement)
            watch = self.watcher(call, agreement.seq, agreement, self.clock.now_ns())
            return CheckedPending(self, call, agreement, self.start(call, watch), watch)

    def begin_block(self) -> None:
        """The backend gets the ops that this thread submits until end_block() together, if it can."""
        if hasattr(self.engine, "begin_block"):
            self._blocks[threading.get_ident()] = Block(self)

    def end_block(self) -> None:
        """It gets them now, or at DETAIL when all ranks have agreed on each."""
        block = self._blocks.pop(threading.get_ident(), None)
        if block is None:
            return
        if not block.has_agreements:
            if self._lane.is_idle or not block.is_in_order:
                block.start_now()
            else:
                block.wait_for_turn()
                self._lane.put(block.start_in_turn)
            return
        with self.order:
            block.begin_agreements()
            if self.level == DETAIL or not self._lane.is_idle:
                self._lane.put(block.start_agreed)
            else:
                self._unsettled.extend(block.start_now())

    def set_timeout(self, timeout_s: float) -> None:
        """Set the limit for ops that bring none of their own."""
        self.control.set_timeout(timeout_s)
        self.engine.set_timeout(timeout_s)

    def set_level(self, level: int) -> None:
        """Check the ops from now on so closely: 0 OFF, 1 INFO, 2 DETAIL."""
        self.level = level
        self.control.set_level(level)
        tell = getattr(self.engine, "set_level", None)  # younger than the other methods
        if tell is not None:
            tell(level)

    def find_left(self) -> list[int]:
        """Return the group ranks that have left the group."""
        return self.control.find_left()

    def leave_because(self, why: str, at_once: bool = False) -> None:
        """Tell the others why this rank's process ends, before it does."""
        self.control.leave_because(why, at_once)

    def abort(self, reason: str) -> None:
        """Break the group: every op in flight on every rank ends with an error."""
        self._is_raised = True  # what ops find of it is no news
        self.control.abort(reason)
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
            self.messages.drain()
            started_ns = time.monotonic_ns()
            if self._is_bound:
                self.engine.close()
            else:
                self._hands.carry_out(self.engine.close, partial(self._watch_close, started_ns))
        except DistError:
            if self._cause is None:  # else it was told before, and nothing more can be done
                raise
        finally:
            self.control.close()
            self._lane.close(0.0 if self._cause is not None else _PATIENCE_S)
            # Also those left behind: when the peers are gone they often come back, and a thread that
            # comes back from C++ while Python ends takes the process down.
            self._hands.close(_PATIENCE_S)
            self._unsettled.clear()
        # An op may have been ended after its call had returned, and no op came after it that could tell.
        if self._ends_later and self._cause is not None and not self._is_raised:
            self._is_raised = True
            raise self._cause

    def _await_agreements(self) -> None:
        """The others need this rank's word on ops that it has done already; each has a deadline."""
        for agreement in self._unsettled:
            with suppress(DistError):  # they are told; here nothing comes after it
                if self._ends_later:
                    self._settle(agreement)  # close() raises it, if nobody was told
                else:
                    agreement.wait(NO_DEADLINE)

    # ----------------------------------------------------------------------------- one op

    def _begin(self, call: Call) -> None:
        """Raise what is known to be wrong with the group or the call, before anything is sent."""
        if self._cause is None or isinstance(self._cause, JobAborted):
            self.clock.check(kind=call.kind.label, group=self.control.name)
        if self._cause is not None:
            is_news = self._ends_later or isinstance(self._cause, MismatchError)
            if is_news and not self._is_raised:
                self._is_raised = True
                raise self._cause
            what = self.control.op_text(call, 0)
            raise CollectiveError(
                f"{what} cannot run: {self._cause.what}",
                kind=call.kind.label,
                details=["the group is unusable; destroy it and create a new one"],
            ) from self._cause
        check = getattr(self.engine, "check", None)
        if check is not None:
            check(call)
        if len(self._unsettled) >= _UNSETTLED or (self._unsettled and self.level == INFO):
            self.settle()

    def settle(self) -> None:
        """Raise the error of an agreement that failed after its op had returned."""
        with self.order:
            agreements = self._unsettled
            self._unsettled = [each for each in agreements if not each.done()]
        for agreement in agreements:
            if agreement.done():
                self._settle(agreement)

    def _settle(self, agreement: Agreement) -> None:
        try:
            agreement.wait(NO_DEADLINE)
        except MismatchError as error:
            if self.level == OFF:
                return
            raise self._break(as_started(error, self.when_started)) from error.__cause__
        except DistError as error:
            if self.level == OFF:
                return
            raise self._break(error) from error.__cause__

    def _agree(self, call: Call) -> int:
        try:
            return self.control.agree(call)
        except MismatchError as error:
            if not is_usable_after(error):
                self._break(error)
            raise
        except UsageError:
            raise
        except DistError as error:
            reported = self.control.reported_mismatch() or error
            raise self._break(reported) from error.__cause__

    def begin_agreement(self, call: Call) -> Agreement:
        """Start to agree; a group that another rank has given up is given up here as well."""
        try:
            return self.control.submit(call)
        except UsageError:
            raise
        except DistError as error:
            raise self._break(error) from error.__cause__

    def carry_out(self, call: Call, seq: int, agreement: Agreement | None = None) -> int:
        """Let the backend do the op, and wait for it, but not alone."""
        watch = self.watcher(call, seq, agreement, self.clock.now_ns())
        try:
            if self._run_watched is not None:
                return int(self._run_watched(call, watch))
            if self._is_bound:
                release = partial(self._abort_backend, "a peer is gone, or the deadline has passed")
                return self._hands.keep_watch(partial(self.engine.run, call), watch, release)
            return self._hands.carry_out(partial(self.engine.run, call), watch)
        except Exception as error:  # noqa: BLE001 - it is raised, or a better one
            raise_better(self, error, watch)

    def start(self, call: Call, watch: OpWatch | None = None) -> Pending:
        """Give the op to the backend; one that may block meanwhile asks the watch by itself."""
        try:
            if self._submit_watched is not None and watch is not None:
                pending: Pending = self._submit_watched(call, watch)
                return pending
            return self.engine.submit(call)
        except DistBackendError as error:
            if watch is not None:
                self.explain(error, watch)
            raise
        except DistError:
            raise
        except Exception as error:
            if watch is not None and self.can_explain_start(error):
                self.explain(error, watch)
            raise failed(self.engine, call, error) from error

    def can_explain_start(self, error: Exception) -> bool:
        """Whether peers may be why the backend refuses an op: wrong arguments are the program's own fault."""
        return self.is_watching and not isinstance(error, _OWN_FAULTS)

    def _start_later(self, pending: CheckedPending) -> None:
        """On the lane."""
        agreement = pending.agreement
        assert agreement is not None  # what waits in the lane waits for it
        try:
            agreement.wait(NO_DEADLINE)
        except DistError as error:
            self.note_disagreed(error)
            pending.fail(error)
            return
        self._start_in_turn(pending)

    def _start_in_turn(self, pending: CheckedPending) -> None:
        """On the lane."""
        try:
            pending.watch.begin()
            pending.go(self.start(pending.call, pending.watch))
        except DistError as error:
            pending.fail(error)
        except Exception as error:  # noqa: BLE001 - the lane has to go on
            pending.fail(self.failed(pending.call, error))

    def note_disagreed(self, error: DistError) -> None:
        """An agreement has failed before its op was started."""
        if not (isinstance(error, UsageError) or is_usable_after(error)):
            self._break(error)

    # ---------------------------------------------------------------------------- watching

    def watcher(
        self, call: Call, seq: int, agreement: Agreement | None, started_ns: int
    ) -> OpWatch:
        """What to call again and again while the backend has the op."""
        return OpWatch(self, self.control, call, seq, agreement, started_ns)

    def pending(self, call: Call, look_ahead: LookAhead | None = None) -> Pending:
        """Start a point to point op; `look_ahead` is asked while the backend has it."""
        block = self._blocks.get(threading.get_ident())
        if block is not None:
            op = block.add(call)
            op.watch.look_ahead = look_ahead
            return op
        watch = self.watcher(call, 0, None, self.clock.now_ns())
        watch.look_ahead = look_ahead
        if not self._lane.is_idle and self.way_of(call).is_in_order:
            op = CheckedPending(self, call, None, None, watch)
            op.is_in_turn = True
            self._lane.put(partial(self._start_in_turn, op))
            return op
        return CheckedPending(self, call, None, self.start(call, watch), watch)

    def way_of(self, call: Call) -> MessageWay:
        """By which communicator a message of now goes."""
        is_in_batch = threading.get_ident() in self._blocks
        return MessageWay.of(self._message_route, is_in_batch, self.control.begun)

    def carry_out_wait(self, pending: Pending, watch: OpWatch) -> None:
        """Wait for an op of the backend without end, but not alone."""
        wait_watched = getattr(pending, "wait_watched", None)
        try:
            if wait_watched is not None:
                wait_watched(watch)
            elif self._is_bound:
                release = partial(self._abort_backend, "a peer is gone, or the deadline has passed")
                self._hands.keep_watch(partial(pending.wait, NO_DEADLINE), watch, release)
            else:
                self._hands.carry_out(partial(pending.wait, NO_DEADLINE), watch)
        except Exception as error:  # noqa: BLE001 - it is raised, or a better one
            raise_better(self, error, watch)

    def explain(self, error: Exception, watch: OpWatch) -> None:
        """Raise a better error for this one of the backend, where there is one.

        A backend often notices first that a peer is gone, and cannot tell which and why.
        """
        deadline_ns = time.monotonic_ns() + _ENDING_NS
        while True:
            try:
                watch(grace_ns=0)
            except DistError as better:
                raise better from error
            may_know_more = self.control.can_tell_death or watch.is_agreeing
            if not may_know_more or time.monotonic_ns() > deadline_ns:
                return
            time.sleep(0.01)  # a process that is ended closes its connections a moment before

    def failed(self, call: Call, error: Exception) -> DistBackendError:
        """What is raised for an error of the backend."""
        return failed(self.engine, call, error)

    def on_trouble(self, error: DistError) -> DistError:
        """Give the group up for this error."""
        return self._break(error)

    @property
    def when_started(self) -> str:
        """Return why an op was started that not all ranks have agreed on."""
        return BEFORE_ALL if self.level == DETAIL else AT_INFO

    @property
    def is_watching(self) -> bool:
        """Whether agreements are looked at while their ops run."""
        return self.level != OFF

    def _watch_close(self, started_ns: int) -> None:
        waited_s = (time.monotonic_ns() - started_ns) / 1e9
        if self._cause is not None and waited_s > _PATIENCE_S:
            raise DistBackendError(
                f"the backend did not shut down within {duration_text(waited_s)}; it was abandoned"
            )

    def _better(self, error: DistError) -> DistError:
        """The difference that was found, for an error that only says that the group was given up.

        Or that a rank is gone: it may have heard of the difference first, and ended of it.
        """
        known = self._cause if isinstance(self._cause, MismatchError) else None
        if known is not None and known.what == error.what:
            return known  # this rank found it, and has more to say
        if self.level == OFF or not (type(error) is CollectiveError or isinstance(error, PeerLost)):
            return error
        found = known or find_difference(self.unsettled(), self.clock, self.when_started)
        return found or self.control.reported_mismatch() or error

    def unsettled(self) -> list[Agreement]:
        """The agreements that nobody has waited for, as far as they have not ended well."""
        return list(self._unsettled)

    def _break(self, error: DistError) -> DistError:
        error = self._better(error)
        if self._cause is None:
            self._cause = error
            with suppress(DistError):
                self.control.abort(words_for_others(error))
            self._abort_backend(error.what)
        return error

    def _abort_backend(self, reason: str) -> None:
        started_ns = time.monotonic_ns()

        def watch() -> None:
            if time.monotonic_ns() - started_ns > _PATIENCE_S * 1e9:
                raise OpTimeout("abort did not return")

        with suppress(Exception):  # the reason is told by whoever calls this
            self._hands.carry_out(partial(self.engine.abort, reason), watch)

"""MpiPending: an op that MPI has. Whoever waits for it looks after it, or the thread of progress.py.

MPI cannot take back a collective. So what is given up keeps its memory for good, since MPI may write there at
any time, and this process leaves without MPI_Finalize (leaving.py).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from distdbg.errors import DistBackendError, DistError, InternalError, OpTimeout
from distdbg.ops.call import Call, Kind
from distdbg.record.durations import duration_text
from distdbg.runtime.backends.mpi.any_source import AnySourceReceive
from distdbg.runtime.backends.mpi.failures import to_error
from distdbg.runtime.backends.mpi.memory import MpiRequests
from distdbg.runtime.backends.mpi.messages import check_received
from distdbg.runtime.backends.nap import PollBackoff
from distdbg.runtime.handles.work import NO_DEADLINE

if TYPE_CHECKING:
    from distdbg.control.clock import JobClock
    from distdbg.runtime.backends.mpi.collectives import MpiGroup

#: How often the check looks after the peers.
_WATCH_NS: Final = 20_000_000


class _Engine(Protocol):
    """What an op needs of the engine that started it (engine.py)."""

    mpi_group: MpiGroup
    name: str
    clock: JobClock
    given_up: str | None

    def give_up(self, reason: str) -> None:
        """Start no more ops, and let those in flight end with an error."""
        ...

    def ended(self, pending: MpiPending) -> None:
        """MPI has the op no longer."""
        ...


class MpiPending:
    """Implements Pending; see distdbg/ops/engine.py."""

    __slots__ = (
        "_deadline_ns",
        "_engine",
        "_error",
        "_is_done",
        "_limit_ns",
        "_lock",
        "_source",
        "_started",
        "call",
    )

    def __init__(self, engine: _Engine, call: Call, started: MpiRequests, limit_ns: int) -> None:
        self._engine = engine
        self.call = call
        self._started = started
        self._limit_ns = limit_ns
        self._deadline_ns = engine.clock.now_ns() + limit_ns
        #: Held by whoever asks MPI: a request may be asked for by one thread at a time.
        self._lock = threading.Lock()
        self._is_done = False
        self._error: DistError | None = None
        self._source = -1

    def done(self) -> bool:
        """Look once; whether the op has ended, well or badly."""
        if self._is_done:
            return True
        if self._lock.acquire(blocking=False):
            try:
                if not self._is_done:
                    self._look()
            finally:
                self._lock.release()
        return self._is_done

    def wait(self, deadline_ns: int) -> None:
        """Look until the op has ended; raise its error. At the deadline (job time): OpTimeout."""
        self._wait(deadline_ns, None)

    def wait_watched(self, watch: Callable[[], None]) -> None:
        """Look until the op has ended, or until `watch` raises, which is called now and then."""
        self._wait(NO_DEADLINE, watch)

    def _wait(self, deadline_ns: int, watch: Callable[[], None] | None) -> None:
        engine = self._engine
        clock = engine.clock
        nap: PollBackoff | None = None
        started_ns = watched_ns = 0
        while not self.done():
            if nap is None:
                nap = PollBackoff(engine.mpi_group.library.spins)
                started_ns, watched_ns = clock.now_ns(), time.monotonic_ns()
            now = clock.now_ns()
            # Not in the time of the job, which may stand.
            if watch is not None and time.monotonic_ns() - watched_ns > _WATCH_NS:
                watched_ns = time.monotonic_ns()
                try:
                    watch()  # it looks at the job's page as well
                except DistError as error:
                    self._give_up(error)
                    break
            if engine.given_up is not None:
                self._give_up(
                    DistBackendError(f"{self._what} cannot end: {engine.given_up.splitlines()[0]}")
                )
            elif now >= self._deadline_ns:
                late = self._late(self._limit_ns, "MPI did not carry it out")
                engine.give_up(late.what)
                self._give_up(late)
            elif now >= deadline_ns:
                raise self._late(now - started_ns, "it continues")
            else:
                if watch is None:
                    self._check_job()
                nap()
        if self._error is not None:
            raise self._error

    def _check_job(self) -> None:
        """Give up when the job was ended."""
        try:
            self._engine.clock.check(kind=self.call.kind.label, group=self._engine.name)
        except DistError as error:
            self._engine.give_up(error.what)
            self._give_up(error)

    def source_rank(self) -> int:
        """The group rank a finished recv got its message from; -1 for other ops."""
        return self._source

    @property
    def _what(self) -> str:
        return f"{self.call.name or self.call.kind.label} on group '{self._engine.name}'"

    def _late(self, waited_ns: int, state: str) -> OpTimeout:
        waited_s = waited_ns / 1e9
        return OpTimeout(
            f"{self._what} did not end within {duration_text(waited_s)}; {state}",
            kind=self.call.kind.label,
            group=self._engine.name,
            waited_s=waited_s,
        )

    def _look(self) -> None:
        """With the lock."""
        library = self._engine.mpi_group.library
        requests = self._started.requests
        for any_source in library.any_sources:
            any_source.match_all()
        try:
            while requests:
                status = library.MPI.Status() if self.call.kind is Kind.RECV else None
                if not requests[0].Test(status):
                    return
                requests.pop(0)
                if status is not None:
                    self._source = status.Get_source()
                    check_received(self._engine.mpi_group, self.call, status)
            for finish in self._started.finish:
                finish()
        except DistError as error:
            self._error = error
        except library.MPI.Exception as error:
            self._error = to_error(error, self._what, library.name)
            del requests[:1]  # of the others nothing is known
            if self.call.kind < Kind.SEND:
                self._engine.give_up(self._error.what)
        except Exception as error:  # noqa: BLE001 - raised by whoever waits
            self._error = InternalError(f"{self._what}: {type(error).__name__}: {error}")
        self._end()

    def _give_up(self, error: DistError) -> None:
        """Nobody waits for MPI any more; it may have ended just now."""
        with self._lock:
            if not self._is_done:
                self._error = error
                self._end()

    def _end(self) -> None:
        requests = self._started.requests
        if not all(isinstance(each, AnySourceReceive) and each.withdraw() for each in requests):
            self._engine.mpi_group.library.keep(self._started)
        self._started = MpiRequests([])
        self._is_done = True
        self._engine.ended(self)

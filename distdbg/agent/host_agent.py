"""The main loop of the agent: one thread, one selector, ten ticks per second.

    orders from the launcher   ->  a roster per start of the ranks  ->  rows   ->  API, other hosts
    pidfds, records, /proc     ->                                   ->  what waits -> judged -> control page

What may take long (stacks, the diagnosis) runs in a thread and is answered when it is done. The tick
becomes slower when the host has so many ranks that it would cost more than a hundredth of a core.
"""

from __future__ import annotations

import logging
import os
import select
import selectors
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from distdbg.agent.api import ApiServer
from distdbg.agent.closer_look import CloserLook
from distdbg.agent.judging.watch import LiveDiagnosis
from distdbg.agent.launcher_orders import Attempt, Order, ReportedEnd, read_order
from distdbg.agent.methods import Methods
from distdbg.agent.steering import Steering
from distdbg.control import sockets
from distdbg.follow.findings import Findings
from distdbg.follow.process_ends import Life
from distdbg.follow.roster import Roster
from distdbg.follow.status import RankStatus
from distdbg.record.ends import RankEnd
from distdbg.record.rank_state import RankState

if TYPE_CHECKING:
    from distdbg.agent.metering.metering import Metering
    from distdbg.export.outlets.exporting import AgentOutlets
    from distdbg.launch.exports import ExportOptions

_TICK_S: Final = 0.1
_MAX_TICK_S: Final = 1.0
#: The share of a core that ticks may take.
_SHARE: Final = 0.01
#: How often the other hosts are told.
_REPORT_NS: Final = 200_000_000
#: Without a launcher: how long after the last rank the agent stays, and how long it waits for a first.
_LINGER_S: Final = 0.5
_LINGER_FOR_MISSING_S: Final = 1.5
_FIRST_S: Final = 30.0
#: How long whoever reads what is said may take to make room for it.
_SAY_MS: Final = 100
#: With a launcher: more than this on its pipe without a line's end is not from a launcher.
_MAX_ORDER_NBYTES: Final = 1 << 20

_log = logging.getLogger("distdbg.agent")


class HostAgent:
    def __init__(
        self,
        folder: Path,
        run: str,
        host: str,
        *,
        expected: frozenset[int] = frozenset(),
        orders_fd: int | None = None,
        abort_on: frozenset[str] = frozenset(),
    ) -> None:
        self.folder = folder
        self.run_name = run
        self.host = host
        self.began_ns = time.monotonic_ns()
        self.selector = selectors.DefaultSelector()
        self.methods = Methods(self)
        self.server = ApiServer(self.selector, self.methods, run=run, host=host)
        self._expected = expected
        self._orders_fd = orders_fd
        self._orders = bytearray()
        self._is_leaving = False
        self._over_ns: int | None = None
        self._workers = ThreadPoolExecutor(2, thread_name_prefix="distdbg-stacks")
        #: A pool of its own: a verdict must not wait for stacks.
        self._judges = ThreadPoolExecutor(1, thread_name_prefix="distdbg-judge")
        self._done_r, self._done_w = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._done: list[Callable[[], None]] = []
        self.selector.register(self._done_r, selectors.EVENT_READ, self._on_done)
        if orders_fd is not None:
            os.set_blocking(orders_fd, False)
            self.selector.register(orders_fd, selectors.EVENT_READ, self._on_orders)
        self._closer_look = CloserLook(self.run_in_thread)
        self._abort_on = abort_on
        self._reported_ns = 0
        self.steering = Steering(self.selector, host, run)
        self.steering.on_stop = self.methods.stop_here
        self.steering.on_pipe = self.methods.pipes.on_mail
        self.steering.on_continue = self.methods.breakpoints.continue_ordered
        if orders_fd is None:
            self.steering.follow(folder)
        #: The newest start of the ranks, last; without a launcher the only one.
        self.roster: Roster = Roster(folder, host, watch=self._watch, unwatch=self._unwatch)
        self.watch: LiveDiagnosis = self._make_watch()
        #: Where the job's other hosts reach this one, as the launcher says; '' without one.
        self.addr = ""
        #: None: nothing is exported.
        self.exporting: AgentOutlets | None = None
        self._metering: Metering | None = None

    # ------------------------------------------------------------------------------- the loop

    def run(self) -> None:
        """Watch until the launcher or the last rank is gone."""
        next_ns = time.monotonic_ns()
        try:
            while not self._is_leaving:
                left_s = (next_ns - time.monotonic_ns()) / 1e9
                for key, mask in self.selector.select(max(0.0, left_s)):
                    key.data(mask)
                now_ns = time.monotonic_ns()
                if now_ns >= next_ns:
                    cpu_ns = time.thread_time_ns()
                    self.tick(now_ns)
                    cpu_s = (time.thread_time_ns() - cpu_ns) / 1e9
                    tick_s = min(max(_TICK_S, cpu_s / _SHARE), _MAX_TICK_S)
                    next_ns = now_ns + int(tick_s * 1e9)
        finally:
            self.close()

    def tick(self, now_ns: int) -> None:
        """Look at everything that does not announce itself."""
        self.roster.on_clock(*self._look_at_clock(), now_ns)
        self.roster.tick(now_ns)
        self._share_holds(now_ns)
        self._closer_look.tick(self.roster, now_ns)
        if self.roster.watched_ranks and not self.roster.is_over():
            self.steering.tick(now_ns)
            self.steering.write_clock(self.roster.watched_ranks, now_ns)
        if self.steering.has_tree and now_ns - self._reported_ns >= _REPORT_NS:
            self._reported_ns = now_ns
            self.steering.report(self.roster.rows(now_ns))
        self.server.tick(now_ns)
        self.methods.tick(now_ns)
        try:
            self.watch.tick(now_ns)
        except Exception:  # noqa: BLE001  # the ranks are watched all the same
            _log.exception("the job is no longer diagnosed")
            self.watch.drop()
        if self.exporting is not None:
            self.exporting.tick(now_ns)
        if self._orders_fd is None and self._should_leave(now_ns):
            self._is_leaving = True

    def _look_at_clock(self) -> tuple[bool, frozenset[int]]:
        if not self.roster.watched_ranks:
            return False, frozenset()
        ranks = self.steering.look()
        return self.steering.is_held, ranks

    def _share_holds(self, now_ns: int) -> None:
        states = {watched.state for watched in self.roster.watched_ranks.values()}
        self.steering.share_holds(RankState.DEBUGGED in states, now_ns)

    def leave(self) -> None:
        """End the loop soon."""
        self._is_leaving = True

    def close(self) -> None:
        try:
            self.watch.finish(time.monotonic_ns())
        except Exception:  # noqa: BLE001  # its sockets and files go all the same
            _log.exception("the job is not diagnosed at its end")
        if self._over_ns is not None:
            for path in self.roster.folder.glob(sockets.debugger_socket("*")):
                sockets.is_served(path)  # removes what a killed rank has left
        if self.exporting is not None:
            self.exporting.close()
        if self._metering is not None:
            self._metering.close()
        self.server.close()
        self.methods.pipes.close()
        self.methods.close()
        self.steering.close()
        self.roster.close()
        self._workers.shutdown(wait=False, cancel_futures=True)
        self._judges.shutdown(wait=False, cancel_futures=True)
        self.selector.close()
        os.close(self._done_r)
        os.close(self._done_w)

    # ------------------------------------------------------------------------------- what others ask

    def rows(self) -> list[RankStatus]:
        return self.roster.rows(time.monotonic_ns())

    @property
    def findings(self) -> Findings:
        """What was found among the notes of the ranks."""
        return self.methods.findings

    @property
    def ends(self) -> list[RankEnd]:
        """How ranks of the newest start ended."""
        return self.roster.ends

    @property
    def is_job_over(self) -> bool:
        """Whether several ranks were here, and all have ended."""
        return self._over_ns is not None and len(self.roster.watched_ranks) > 1

    @property
    def has_launcher(self) -> bool:
        return self._orders_fd is not None

    def export(self, exports: ExportOptions) -> None:
        """Serve and send what is asked for; what cannot be is said."""
        try:
            from distdbg.export.outlets.exporting import (
                AgentOutlets,  # with all that it needs, for who asks
            )

            self.exporting = AgentOutlets(self, exports)
        except Exception:  # noqa: BLE001  # the ranks are watched all the same
            _log.exception("nothing is exported")

    @property
    def metering(self) -> Metering:
        """What is counted for metrics, from the first time on that somebody wants it."""
        if self._metering is None:
            from distdbg.agent.metering.metering import Metering

            self._metering = Metering(self)
        return self._metering

    def post(self, call: Callable[[], None]) -> None:
        """Have it called in the loop; from any thread."""
        self._done.append(call)
        with suppress(OSError):  # full: it is being read anyway
            os.write(self._done_w, b"x")

    def run_in_thread(self, do: Callable[[], Any], then: Callable[[Future[Any]], None]) -> None:
        """Do what takes long in a thread; `then` is called here with its outcome."""
        self._submit(self._workers, do, then)

    def run_in_judge_thread(
        self, do: Callable[[], Any], then: Callable[[Future[Any]], None]
    ) -> None:
        """`run_in_thread` for the diagnosis, which stacks do not hold up."""
        self._submit(self._judges, do, then)

    def print_lines(self, lines: list[str]) -> None:
        """Tell whoever looks at the job: on the launcher's stderr, if there is one, and in the log."""
        text = "".join(f"{'' if at else 'distdbg: '}{line}\n" for at, line in enumerate(lines))
        outputs = [sys.stdout, sys.stderr] if self.has_launcher else [sys.stderr]
        for output in outputs:
            with suppress(OSError, ValueError):  # nobody reads it any more
                if _takes(output.fileno()):
                    output.write(text)
                    output.flush()

    def _submit(
        self,
        pool: ThreadPoolExecutor,
        do: Callable[[], Any],
        then: Callable[[Future[Any]], None],
    ) -> None:
        future = pool.submit(do)

        future.add_done_callback(lambda done: self.post(lambda: then(done)))

    def obey(self, order: Order) -> None:
        """Do what the launcher says."""
        match order:
            case Attempt():
                self.watch.finish(time.monotonic_ns())
                if self.exporting is not None:
                    self.exporting.finish()
                self.roster.close()
                self.addr = order.addr
                self.roster = Roster(
                    order.folder,
                    self.host,
                    attempt=order.number,
                    pids=order.pids,
                    is_reported=True,
                    watch=self._watch,
                    unwatch=self._unwatch,
                )
                self.steering.follow(order.folder)
                self.steering.join(order)
                self.methods.begin_anew()
                self.watch = self._make_watch()
                if self.exporting is not None:
                    self.exporting.begin_anew()
            case ReportedEnd(end):
                self.roster.on_reported_end(end)

    # ------------------------------------------------------------------------------- what happens

    def _watch(self, life: Life) -> None:
        self.selector.register(
            life, selectors.EVENT_READ, lambda _: self.roster.on_gone(life, time.monotonic_ns())
        )

    def _unwatch(self, life: Life) -> None:
        with suppress(KeyError, ValueError):
            self.selector.unregister(life)

    def _on_done(self, _: int) -> None:
        with suppress(BlockingIOError):
            os.read(self._done_r, 4096)
        done, self._done = self._done, []
        for call in done:
            try:
                call()
            except Exception:  # noqa: BLE001  # the others are none the worse
                _log.exception("the findings are lost")

    def _on_orders(self, _: int) -> None:
        assert self._orders_fd is not None
        try:
            data = os.read(self._orders_fd, 1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._orders += data
        if not data or len(self._orders) > _MAX_ORDER_NBYTES:
            self._is_leaving = True  # the launcher is gone, and so are its ranks
            return
        *lines, rest = self._orders.split(b"\n")
        self._orders = bytearray(rest)
        for line in lines:
            try:
                order = read_order(bytes(line))
            except ValueError as error:
                _log.warning("not an order: %s", error)
                continue
            if order is not None:
                self.obey(order)

    def _make_watch(self) -> LiveDiagnosis:
        """Make the diagnosis of the ranks of `roster`; what was found of earlier ones is over."""
        return LiveDiagnosis(
            self.host,
            self.run_name,
            self.roster,
            self.steering,
            run_in_judge_thread=self.run_in_judge_thread,
            run_in_thread=self.run_in_thread,
            print_lines=self.print_lines,
            abort_on=self._abort_on,
            findings=self.methods.recorded_findings,
        )

    def _should_leave(self, now_ns: int) -> bool:
        if not self.roster.watched_ranks:
            return now_ns - self.began_ns > _FIRST_S * 1e9
        if not self.roster.is_over():
            self._over_ns = None
            return False
        if self._over_ns is None:
            self._over_ns = now_ns
        is_complete = self._expected <= set(self.roster.watched_ranks)
        linger_s = _LINGER_S if is_complete else _LINGER_FOR_MISSING_S
        return now_ns - self._over_ns > linger_s * 1e9


def _takes(fd: int) -> bool:
    """Whether a few lines can be written without a wait: a pager may have stopped reading."""
    ready = select.poll()
    ready.register(fd, select.POLLOUT)
    return bool(ready.poll(_SAY_MS))

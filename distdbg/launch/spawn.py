"""Start processes that call a function; the first failure is raised and ends the others.

Signatures and meaning are those of torch.multiprocessing.spawn; nothing of torch is needed. Each
process also finds RANK, WORLD_SIZE and a place to meet in its environment (unless the parent's own
environment says who it is), so `init_process_group()` without arguments works in it.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import pickle
import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from distdbg.errors import UsageError
from distdbg.launch.child import Report, run_child
from distdbg.launch.failures import (
    ProcessException,
    ProcessExitedException,
    ProcessRaisedException,
)
from distdbg.launch.spawn_stop import StopSignal, ending_by_signals, print_stop, where_to_look
from distdbg.runtime.process.uncaught import print_in_blocks
from distdbg.runtime.rendezvous.process import read_start
from distdbg.runtime.rendezvous.published_store import published_path

#: Between SIGTERM and SIGKILL.
_TERM_S = 5.0
#: A process that lost a peer is a consequence; how long to look for the one that was first.
_ROOT_CAUSE_S = 1.0
_START_METHODS = ("spawn", "fork", "forkserver")

_runs = itertools.count()


@dataclass(slots=True)
class _Child:
    index: int
    process: BaseProcess
    reports: Connection
    report: Report | None = None

    def collect(self) -> None:
        """Take the exit code and the report of a process that has ended."""
        self.process.join()
        with suppress(EOFError, OSError):
            if self.reports.poll():
                self.report = Report.from_json(self.reports.recv_bytes())
        self.reports.close()


class ProcessContext:
    """The processes of one `start_processes(join=False)`."""

    def __init__(self, children: list[_Child]) -> None:
        self._children = children
        self._running = {child.process.sentinel: child for child in children}
        self._failed: list[_Child] = []  # in the order in which they ended

    @property
    def processes(self) -> list[BaseProcess]:
        return [child.process for child in self._children]

    def pids(self) -> list[int | None]:
        return [child.process.pid for child in self._children]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Wait for the processes; True when all have ended well, False if some still run.

        Returns or raises as soon as one process fails, or after `timeout` seconds. On a failure the
        others may go on for `grace_period` seconds, then they are ended, and ProcessRaisedException
        or ProcessExitedException is raised for the process that failed first. They are ended as
        well when this is interrupted.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._ending_on_error():
            while self._running and not self._failed:
                if not self._collect(deadline):
                    return False
            if not self._failed:
                return True
            self._find_root_cause()
            self._end(grace_period or 0.0)
        # Nothing else can tell what was first: who lost a peer was not.
        first = min(self._failed, key=lambda c: c.report is not None and c.report.is_consequence)
        raise _to_exception(first)

    def _collect(self, deadline: float | None) -> bool:
        """Take all that have ended; False if none has by the deadline."""
        left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
        ended = wait(list(self._running), left)
        for sentinel in ended:
            assert isinstance(sentinel, int)  # we waited for nothing else
            child = self._running.pop(sentinel)
            child.collect()
            if child.process.exitcode != 0:
                self._failed.append(child)
        return bool(ended)

    def _find_root_cause(self) -> None:
        deadline = time.monotonic() + _ROOT_CAUSE_S
        while self._running and all(c.report and c.report.is_consequence for c in self._failed):
            if not self._collect(deadline):
                return

    def _end(self, grace_s: float) -> None:
        # Processes that end from here on were ended by us, or are late: not the first to fail.
        failed = list(self._failed)
        deadline = time.monotonic() + grace_s
        while grace_s > 0 and self._running and self._collect(deadline):
            pass
        for child in self._running.values():
            child.process.terminate()
        deadline = time.monotonic() + _TERM_S
        while self._running and self._collect(deadline):
            pass
        for child in self._running.values():
            child.process.kill()
        while self._running:
            self._collect(None)
        self._failed = failed

    @contextmanager
    def _ending_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            if isinstance(error, (KeyboardInterrupt, StopSignal)):
                self._print_stop(error)
            self._end(0.0)
            raise

    def _print_stop(self, error: BaseException) -> None:
        pids = {child.index: child.process.pid for child in self._running.values()}
        print_stop(error, {index: pid for index, pid in pids.items() if pid is not None})


#: torch's other name for it.
SpawnContext = ProcessContext


def start_processes(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """Call `fn(i, *args)` in `nprocs` processes; with `join`, wait for all and return None.

    `fn` and `args` must pickle, so `fn` is defined at the top of a module. The processes do not
    outlive this one, whatever ends it.
    """
    if start_method not in _START_METHODS:
        raise UsageError(
            f"start_method={start_method!r} is unknown; expected one of {', '.join(_START_METHODS)}"
        )
    if nprocs < 1:
        raise UsageError(f"nprocs={nprocs}: at least one process is needed")
    context = multiprocessing.get_context(start_method)
    environment = _common_environment(nprocs)
    is_lasting = threading.current_thread() is threading.main_thread()
    children: list[_Child] = []
    started = ProcessContext(children)
    with started._ending_on_error():
        for index in range(nprocs):
            receiving, sending = context.Pipe(duplex=False)
            process = context.Process(  # type: ignore[attr-defined]  # all contexts have it
                target=run_child,
                args=(
                    fn,
                    index,
                    args,
                    sending,
                    environment | {"RANK": str(index), "LOCAL_RANK": str(index)},
                    os.getpid(),
                    # A fork server starts the processes itself, and lives as long as this one.
                    is_lasting and start_method != "forkserver",
                ),
                daemon=daemon,
            )
            try:
                process.start()
            except (pickle.PicklingError, AttributeError, TypeError) as error:
                receiving.close()
                raise UsageError(
                    f"spawn: fn and args cannot be sent to a new process: {error}",
                    hint="define fn at the top of a module, or use run_threads",
                ) from error
            except BaseException:
                receiving.close()
                raise
            finally:
                sending.close()
            child = _Child(index, process, receiving)
            children.append(child)
            started._running[process.sentinel] = child
    if not join:
        return started
    print_in_blocks()  # Ctrl-C and a failure show the caller's lines
    try:
        with ending_by_signals():
            while not started.join():
                pass
    finally:
        # Nobody else has these objects: free their descriptors now, not with a traceback.
        for child in children:
            child.process.close()
    return None


def spawn(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """Call `fn(i, *args)` in `nprocs` fresh processes; see `start_processes`."""
    return start_processes(fn, args, nprocs, join, daemon, start_method)


def _common_environment(nprocs: int) -> dict[str, str]:
    pid = os.getpid()
    path = published_path(f"spawn {pid}.{read_start(pid)}.{next(_runs)}")
    return {
        "WORLD_SIZE": str(nprocs),
        "LOCAL_WORLD_SIZE": str(nprocs),
        "DISTDBG_STORE": f"local://{path}",
        "DISTDBG_TOKEN": os.environ.get("DISTDBG_TOKEN") or secrets.token_hex(32),
    }


def _to_exception(child: _Child) -> ProcessException:
    pid = child.process.pid or -1
    exit_code = child.process.exitcode or 0
    ends = where_to_look({child.index: pid})
    who = f"process {child.index} (pid {pid})"
    facts: dict[str, Any] = {"error_index": child.index, "error_pid": pid, "exit_code": exit_code}
    if child.report is not None:
        lines = (*child.report.traceback.rstrip().splitlines(), *ends)
        return ProcessRaisedException(
            f"{who} raised {child.report.summary}", details=lines, **facts
        )
    if exit_code > 0:
        return ProcessExitedException(f"{who} exited with code {exit_code}", details=ends, **facts)
    try:
        name = signal.Signals(-exit_code).name
    except ValueError:
        name = f"signal {-exit_code}"
    return ProcessExitedException(
        f"{who} was terminated by {name}", signal_name=name, details=ends, **facts
    )

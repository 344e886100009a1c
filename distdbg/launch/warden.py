"""The launcher's side of the warden, the process that starts, waits for and ends all others.

    launcher ──orders, answers──▶ warden ──fork, exec──▶ rank, agent ...
             ◀────── ends ───────        ◀── wait4 ────

A launcher can be ended in ways that leave it no time to clean up. Then the warden sees its end of
the sockets fall silent and kills whatever was ever started, also what left its session or its
parent. If instead the warden is killed, the ranks die with it by the kernel's hand, and the launcher
adopts and kills what they leave.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, Self

from distdbg.errors import ConfigError, DistError, UsageError
from distdbg.launch.descendants import (
    SweepResult,
    adopt_orphans,
    find_descendants,
    kill_descendants,
    read_processes,
)
from distdbg.launch.ended import EndedChild
from distdbg.launch.stale_sockets import remove_stale
from distdbg.launch.warden_process import live_as_warden
from distdbg.launch.warden_wire import WardenChannel
from distdbg.record.durations import duration_text
from distdbg.record.ends import signal_name

Stdin = Literal["inherit", "null", "pipe"]

#: An answer takes a millisecond; a warden that is silent for so long is stopped, or not ours to save.
_ANSWER_S = 10.0
_CLOSE_S = 8.0
_SWEEP_S = 5.0
#: Between the moment when a warden hangs up and its end.
_LAST_WORDS_S = 6.0
#: The caller of spawn can mend these; the others are the system's.
_USER_ERRORS = (
    errno.ENOENT, errno.EACCES, errno.ENOTDIR, errno.ENOEXEC, errno.E2BIG, errno.EISDIR,
    errno.EPERM, errno.EINVAL, errno.ELOOP, errno.ENAMETOOLONG,
)  # fmt: skip


class WardenLost(DistError):
    """Somebody killed the warden; every process that it had started is gone with it."""

    exit_code = 5

    def __init__(self, what: str, *, pid: int = -1, details: Sequence[str] = ()) -> None:
        super().__init__(what, details=details)
        self.pid = pid


class Warden:
    """Starts children by name and tells how they ended. Not thread-safe."""

    def __init__(
        self,
        pid: int,
        orders: WardenChannel,
        ends: WardenChannel,
        older: frozenset[int],
        was_reaper: bool,
    ) -> None:
        self.pid = pid
        self._orders = orders
        self._ends = ends
        #: Children from before the warden: none of its business.
        self._older = older
        self._was_reaper = was_reaper
        self._order_id = 0
        self._stdins: dict[str, int] = {}
        #: By pid; the warden removes them, unless it is killed.
        self._sockets: dict[int, Path] = {}
        self._lost: WardenLost | None = None
        self._is_closed = False

    @classmethod
    def start(cls) -> Self:
        """Fork the warden.

        Call this early: while the process has one thread and has loaded no native code, so that
        what is forked is whole, and small.
        """
        older = frozenset(p.pid for p in find_descendants(os.getpid(), read_processes()))
        was_reaper = adopt_orphans()
        orders, theirs = socket.socketpair()
        ends, their_ends = socket.socketpair()
        launcher_pid = os.getpid()
        for stream in (sys.stdout, sys.stderr):
            with suppress(AttributeError, OSError, ValueError):
                stream.flush()
        pid = os.fork()
        if pid == 0:
            live_as_warden(theirs, their_ends, launcher_pid)
        theirs.close()
        their_ends.close()
        orders.settimeout(_ANSWER_S)
        return cls(pid, WardenChannel(orders), WardenChannel(ends), older, was_reaper)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fileno(self) -> int:
        """For a selector: readable when `events` has something to say."""
        return self._ends.fileno()

    def spawn(
        self,
        name: str,
        argv: Sequence[str],
        env: Mapping[str, str],
        *,
        cwd: str | os.PathLike[str] | None = None,
        stdin: Stdin = "inherit",
        stdout_fd: int | None = None,
        stderr_fd: int | None = None,
        cpus: Collection[int] | None = None,
        lingers_s: float = 0.0,
        socket_path: Path | None = None,
    ) -> int:
        """Start a child under a name no living one has; returns its pid once it executes.

        The program is looked for in the PATH of `env`. The child has a session of its own, default
        signals, the given descriptors (the launcher's own where None) and no others, and dies with
        the warden. With stdin="pipe", `take_stdin` gives the end to write to. When the launcher is
        gone, one that lingers is asked by SIGTERM and has so long to tidy up; others have no time.
        What a child that was killed has left at `socket_path` is removed.
        UsageError when there is no such program or it may not be executed, ConfigError when the system
        cannot start more.
        """
        folder = _folder(name, cwd)
        own: list[int] = []
        writer = None
        try:
            if stdin == "pipe":
                reader, writer = os.pipe()
                own.append(reader)
            else:
                reader = _open_or_null(0 if stdin == "inherit" else None, own)
            passed = [
                reader,
                _open_or_null(1 if stdout_fd is None else stdout_fd, own),
                _open_or_null(2 if stderr_fd is None else stderr_fd, own),
            ]
            order = {
                "do": "spawn",
                "name": name,
                "argv": list(argv),
                "env": dict(env),
                "cwd": folder,
                "cpus": None if cpus is None else sorted(cpus),
                "lingers_s": lingers_s,
                "socket": None if socket_path is None else str(socket_path),
                "descriptors": len(passed),
            }
            answer = self._ask(order, passed)
            if "pid" not in answer:
                raise _start_error(name, argv[0], folder, cpus, answer)
            pid = int(answer["pid"])
            if socket_path is not None:
                self._sockets[pid] = socket_path
            if writer is not None:
                if name in self._stdins:
                    os.close(self._stdins[name])  # of an earlier child, and never taken
                self._stdins[name], writer = writer, None
            return pid
        finally:
            for fd in own if writer is None else [*own, writer]:
                os.close(fd)

    def take_stdin(self, name: str) -> int:
        """The writing end of a child's standard input, once; the caller closes it."""
        return self._stdins.pop(name)

    def signal(self, name: str, signum: int, whole_group: bool = True) -> bool:
        """Send a signal to a child and, unless told otherwise, all of its process group.

        Returns whether it was still there.
        """
        order = {"do": "signal", "name": name, "signum": int(signum), "group": whole_group}
        return bool(self._ask(order)["ok"])

    def events(self, timeout_s: float = 0.0) -> list[EndedChild]:
        """Wait up to `timeout_s` for children to end; returns those that have, in order."""
        self._check()
        found = self._ends.take_all()
        if not found and _is_readable(self._ends, timeout_s):
            try:
                self._ends.fill()
            except (EOFError, OSError) as error:
                raise self._lose() from error
            found = self._ends.take_all()
        return [EndedChild(**message) for message in found]

    def sweep(self, keep: Collection[str] = (), timeout_s: float = _SWEEP_S) -> SweepResult:
        """SIGKILL whatever was started and still lives, but for the `keep` ones and their children.

        Orphans go too, whatever session they made for themselves. The ends of named children come
        as events.
        """
        order = {"do": "sweep", "keep": list(keep), "timeout_s": timeout_s}
        answer = self._ask(order, patience_s=timeout_s + _ANSWER_S)
        return SweepResult(tuple(answer["killed"]), tuple(answer["left"]))

    def close(self) -> None:
        """End everything and wait for the warden; blocks for seconds at most. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._lost is None:
            with suppress(OSError):
                self._orders.send({"do": "close"})
            if _wait_for(self.pid, _CLOSE_S) is None:
                self._end_all()
        self._orders.close()
        self._ends.close()
        for fd in self._stdins.values():
            os.close(fd)
        self._stdins.clear()
        adopt_orphans(self._was_reaper)

    def _ask(
        self,
        order: dict[str, Any],
        descriptors: Sequence[int] = (),
        patience_s: float = _ANSWER_S,
    ) -> dict[str, Any]:
        self._check()
        # An answer that nobody waited for, because a signal's handler raised, is passed over.
        self._order_id += 1
        try:
            self._orders.socket.settimeout(patience_s)
            self._orders.send({"id": self._order_id, **order}, descriptors)
            while True:
                answer, _ = self._orders.receive()
                if answer["id"] == self._order_id:
                    return answer
        except (EOFError, OSError) as error:
            raise self._lose(is_silent=isinstance(error, TimeoutError)) from error

    def _check(self) -> None:
        if self._lost is not None:
            raise self._lost
        if self._is_closed:
            raise UsageError("this warden was closed")

    def _lose(self, is_silent: bool = False) -> WardenLost:
        if is_silent:
            how = f"did not answer for {duration_text(_ANSWER_S)} and was killed"
        else:
            status = _wait_for(self.pid, _LAST_WORDS_S)
            how = (
                "closed its connection and was killed"
                if status is None
                else _describe_status(status)
            )
        swept = self._end_all()
        details = ["the ranks of this host died with it"]
        if swept.left:
            details.append(f"still running: {', '.join(f'pid {pid}' for pid in swept.left)}")
        self._lost = WardenLost(
            f"the process that starts and watches the ranks (pid {self.pid}) {how}",
            pid=self.pid,
            details=details,
        )
        return self._lost

    def _end_all(self) -> SweepResult:
        """Kill the warden and what it leaves, which comes to this process.

        Whatever else the launcher has started since there is a warden goes as well.
        """
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        swept = kill_descendants(time.monotonic_ns() + int(_SWEEP_S * 1e9), spare=self._older)
        for pid, path in self._sockets.items():
            remove_stale(path, pid)
        return swept


def _folder(name: str, cwd: str | os.PathLike[str] | None) -> str:
    try:
        return os.getcwd() if cwd is None else os.path.abspath(cwd)
    except FileNotFoundError:
        raise UsageError(f"cannot start {name}: the current folder has been removed") from None


def _open_or_null(fd: int | None, opened: list[int]) -> int:
    """`fd` if it is open, else the null device."""
    if fd is not None:
        try:
            os.fstat(fd)
        except OSError:
            pass
        else:
            return fd
    opened.append(os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC))
    return opened[-1]


def _is_readable(channel: WardenChannel, timeout_s: float) -> bool:
    ready = select.poll()
    ready.register(channel.fileno(), select.POLLIN)
    return bool(ready.poll(max(timeout_s, 0.0) * 1e3))


def _wait_for(pid: int, timeout_s: float) -> int | None:
    """Wait for a child; its status, or None when it has not ended within the time."""
    descriptor = os.pidfd_open(pid)
    try:
        ready = select.poll()
        ready.register(descriptor, select.POLLIN)
        if not ready.poll(timeout_s * 1e3):
            return None
    finally:
        os.close(descriptor)
    return os.waitpid(pid, 0)[1]


def _describe_status(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"was killed by {signal_name(os.WTERMSIG(status))}"
    return f"failed with exit code {os.WEXITSTATUS(status)}; what it wrote is above"


def _start_error(
    name: str, program: str, cwd: str, cpus: Collection[int] | None, answer: dict[str, Any]
) -> DistError:
    number = int(answer.get("errno", 0))
    words = answer.get("words") or os.strerror(number)
    match answer["stage"]:
        case "name":
            return UsageError(f"cannot start {name}: one of that name is running")
        case "cwd":
            return UsageError(f"cannot start {name} in {cwd}: {words}")
        case "cpus":
            return UsageError(f"cannot start {name} on the cpus {sorted(cpus or ())}: {words}")
    what = f"cannot start {name}: {program}: {words}"
    if "words" not in answer and number not in _USER_ERRORS:
        hint = None
        if number == errno.EAGAIN:
            hint = "`ulimit -u` says how many processes this user may have; raise it"
        return ConfigError(what, hint=hint)
    hint = None
    path = Path(cwd, program)
    if number == errno.EACCES and path.is_file():
        hint = f"chmod +x {program}, or run it by its interpreter"
    elif number == errno.ENOEXEC:
        hint = "a script needs a first line such as #!/usr/bin/env python3"
    elif number == errno.ENOENT and "/" in program and path.is_file():
        hint = "the file exists, but the interpreter in its first line does not"
    return UsageError(what, hint=hint)

"""The warden itself: starts children, waits for them, and ends everything when the launcher is gone.

It is forked before the launcher has threads or native code, so it may fork in its turn, and its
children may ask to die with it: PR_SET_PDEATHSIG counts from a parent *thread*, and here is only one.
It is a session of its own, deaf to the terminal's signals and to those that end a job politely:
those are the launcher's task. Its command line in `ps` is its own as well: who kills all that
look like the user's program (`pkill -9 -f train.py`) misses the one that cleans up.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import select
import selectors
import signal
import socket
import sys
import time
import traceback
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

from distdbg.errors import InternalError
from distdbg.launch.descendants import SweepResult, adopt_orphans, kill_descendants
from distdbg.launch.ended import EndedChild
from distdbg.launch.stale_sockets import remove_stale
from distdbg.launch.warden_wire import WardenChannel, to_frame

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
#: How long the last sweep may take; what is in uninterruptible I/O stays behind.
_LAST_SWEEP_S = 5.0
_DEAF_TO = (
    "SIGINT", "SIGQUIT", "SIGHUP", "SIGTERM", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGPIPE",
    "SIGUSR1", "SIGUSR2", "SIGALRM",
)  # fmt: skip


def live_as_warden(orders: socket.socket, ends: socket.socket, launcher_pid: int) -> NoReturn:
    """Turn the freshly forked process into the warden; never returns."""
    try:
        # What the launcher's objects say when they are collected is the launcher's business.
        gc.freeze()
        warden = WardenProcess(WardenChannel(orders), WardenChannel(ends), launcher_pid)
        warden.run()
    except BaseException:  # noqa: BLE001 - nobody above; the launcher's frames must not go on here
        with suppress(BaseException):
            traceback.print_exc()
            sys.stderr.flush()
        os._exit(InternalError.exit_code)
    finally:
        os._exit(0)


class WardenProcess:
    """The loop of the warden: orders come, ends go."""

    def __init__(self, orders: WardenChannel, ends: WardenChannel, launcher_pid: int) -> None:
        self._orders = orders
        self._ends = ends
        self._pid = os.getpid()
        self._prctl = ctypes.CDLL(None, use_errno=True).prctl
        self._names: dict[int, str] = {}
        """Pid to name, of the children that have not ended."""
        self._lingers_s: dict[int, float] = {}
        """Pid to time, of those that may end by themselves when the launcher is gone."""
        self._sockets: dict[int, Path] = {}
        """Pid to the Unix socket that the child may leave behind."""
        self._unsent: deque[bytes] = deque()
        """Ends that the launcher has not made room for: the warden waits for nobody."""
        self._is_closing = False
        self._launcher = os.pidfd_open(launcher_pid)
        self._settle()
        self._ends.socket.setblocking(False)
        self._wakeup, writer = socket.socketpair()
        self._wakeup.setblocking(False)
        writer.setblocking(False)
        self._writer = writer
        signal.signal(signal.SIGCHLD, _wake)
        signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        self._ignored = _ignored_signals()

    def run(self) -> None:
        """Serve until the launcher closes or is gone; then nothing is left below."""
        with selectors.DefaultSelector() as selector:
            for source in (self._orders, self._launcher, self._wakeup):
                selector.register(source, selectors.EVENT_READ, source)
            try:
                while not self._is_closing:
                    self._tell(selector)
                    ready = [key.data for key, _ in selector.select()]
                    if self._wakeup in ready:
                        self._hear_wakeup()
                    if self._orders in ready:
                        self._obey(*self._orders.receive())
                    elif self._launcher in ready:
                        return
            except (EOFError, OSError):
                return  # the launcher is gone
            finally:
                self._end_all()

    def _settle(self) -> None:
        os.setsid()
        # Should somebody have stopped the warden when the launcher dies, it still has to clean up.
        self._prctl(_PR_SET_PDEATHSIG, int(signal.SIGCONT), 0, 0, 0)
        adopt_orphans()
        for name in _DEAF_TO:
            signal.signal(signal.Signals[name], signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1):  # standard error stays, for what must not happen
            os.dup2(null, fd)
        try:
            os.fstat(2)
        except OSError:
            os.dup2(null, 2)
        kept = {0, 1, 2, self._orders.fileno(), self._ends.fileno(), self._launcher}
        for text in os.listdir("/proc/self/fd"):
            if int(text) not in kept:
                with suppress(OSError):  # the one that lists the folder
                    os.close(int(text))
        os.chdir("/")  # no file system stays busy because of it
        self._prctl(_PR_SET_NAME, b"distdbg-warden", 0, 0, 0)
        _set_command_line(f"distdbg-warden of {os.getppid()}")

    def _obey(self, order: dict[str, Any], descriptors: list[int]) -> None:
        answer: dict[str, Any]
        match order["do"]:
            case "spawn":
                answer = self._spawn(order, descriptors)
            case "signal":
                answer = {"ok": self._signal(order["name"], order["signum"], order["group"])}
            case "sweep":
                swept = self._sweep(order["keep"], order["timeout_s"])
                answer = {"killed": swept.killed, "left": swept.left}
            case _:
                self._is_closing = True
                return
        self._orders.send({"id": order["id"], **answer})

    def _spawn(self, order: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        failed = -1
        try:
            if self._pid_of(order["name"]) is not None:
                return {"stage": "name"}
            failures, failed = os.pipe2(os.O_CLOEXEC)
            try:
                pid = os.fork()
            except OSError as error:
                os.close(failures)
                return {"errno": error.errno, "stage": "fork"}
            if pid == 0:
                self._become(order, descriptors, failed)
        finally:
            for fd in (*descriptors, failed):
                with suppress(OSError):
                    os.close(fd)
        with open(failures, "rb") as pipe:
            failure = pipe.read()  # ends when the child executes, or has ended
        if failure:
            os.waitpid(pid, 0)
            said: dict[str, Any] = json.loads(failure)
            return said
        self._names[pid] = order["name"]
        if order["lingers_s"] > 0:
            self._lingers_s[pid] = order["lingers_s"]
        if order["socket"] is not None:
            self._sockets[pid] = Path(order["socket"])
        return {"pid": pid}

    def _become(self, order: dict[str, Any], descriptors: Sequence[int], failed: int) -> NoReturn:
        # In the child.
        stage = "start"
        try:
            os.setsid()
            # A process that has something to tidy up does so also when nobody is left to wait for it.
            end = signal.SIGTERM if order["lingers_s"] > 0 else signal.SIGKILL
            self._prctl(_PR_SET_PDEATHSIG, int(end), 0, 0, 0)
            if os.getppid() != self._pid:
                os._exit(1)
            _hear_all_signals(self._ignored)
            for number, fd in enumerate(descriptors):
                os.dup2(fd, number)
            if order["cpus"] is not None:
                stage = "cpus"
                os.sched_setaffinity(0, order["cpus"])
            stage = "cwd"
            os.chdir(order["cwd"])
            stage = "program"
            _execute(order["argv"], order["env"])
        except OSError as error:
            os.write(failed, json.dumps({"errno": error.errno, "stage": stage}).encode())
        except ValueError as error:
            os.write(failed, json.dumps({"words": str(error), "stage": stage}).encode())
        finally:
            os._exit(127)

    def _signal(self, name: str, signum: int, whole_group: bool) -> bool:
        pid = self._pid_of(name)
        if pid is None:
            return False
        with suppress(ProcessLookupError, PermissionError):
            (os.killpg if whole_group else os.kill)(pid, signum)
        return True

    def _pid_of(self, name: str) -> int | None:
        self._reap()  # a pid means that child only until it is waited for
        return next((pid for pid, known in self._names.items() if known == name), None)

    def _sweep(self, keep: Iterable[str], timeout_s: float) -> SweepResult:
        kept = set(keep)
        spared = [pid for pid, name in self._names.items() if name in kept]
        deadline_ns = time.monotonic_ns() + int(timeout_s * 1e9)
        return kill_descendants(deadline_ns, spare=spared, reap=self._reap)

    def _end_all(self) -> None:
        """Leave nothing: all at once, but for those that have something to tidy up."""
        if self._lingers_s:
            self._sweep([self._names[pid] for pid in self._lingers_s], _LAST_SWEEP_S)
            deadline = time.monotonic() + max(self._lingers_s.values(), default=0.0)
            for pid in self._lingers_s:
                os.kill(pid, signal.SIGTERM)
            while self._lingers_s and (left_s := deadline - time.monotonic()) > 0:
                select.select([self._wakeup], [], [], left_s)
                self._hear_wakeup()
        self._sweep((), _LAST_SWEEP_S)

    def _hear_wakeup(self) -> None:
        with suppress(BlockingIOError):
            self._wakeup.recv(4096)
        self._reap()

    def _reap(self) -> None:
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            name = self._names.pop(pid, None)
            self._lingers_s.pop(pid, None)
            if (path := self._sockets.pop(pid, None)) is not None:
                remove_stale(path, pid)
            if name is None:
                continue  # an orphan that came to us
            ended = EndedChild(
                name=name,
                pid=pid,
                status=status,
                user_s=usage.ru_utime,
                system_s=usage.ru_stime,
                max_rss_nbytes=usage.ru_maxrss * 1024,
                ended_ns=time.monotonic_ns(),
            )
            self._unsent.append(to_frame(asdict(ended)))

    def _tell(self, selector: selectors.BaseSelector) -> None:
        """Send what ends there are; the selector wakes us for the rest."""
        while self._unsent:
            try:
                sent = self._ends.socket.send(self._unsent[0])
            except BlockingIOError:
                if self._ends not in selector.get_map():
                    selector.register(self._ends, selectors.EVENT_WRITE, self._ends)
                return
            if sent < len(self._unsent[0]):
                self._unsent[0] = self._unsent[0][sent:]
            else:
                self._unsent.popleft()
        if self._ends in selector.get_map():
            selector.unregister(self._ends)


def _wake(signum: int, frame: object) -> None:
    # The wake-up descriptor does the work; Python wants a handler all the same.
    del signum, frame


def _ignored_signals() -> list[int]:
    # They stay ignored over an exec, whether the warden or a shell (nohup, &) did it.
    usual = (signal.SIG_DFL, None)
    return [n for n in signal.valid_signals() if signal.getsignal(n) not in usual]


def _hear_all_signals(ignored: Iterable[int]) -> None:
    for signum in ignored:
        signal.signal(signum, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _execute(argv: Sequence[str], env: Mapping[str, str]) -> NoReturn:
    os.execvpe(argv[0], list(argv), dict(env))


def _set_command_line(text: str) -> None:
    """Write over the command line in our memory, where /proc and so `ps` read it."""
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    begin, end = int(fields[45]), int(fields[46])
    size = end - begin
    if size > 1 and begin > 0:
        content = text.encode()[: size - 1]
        ctypes.memmove(begin, content.ljust(size, b"\0"), size)

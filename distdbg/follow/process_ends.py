"""Ends of processes: one pidfd per rank, readable the moment it exits.

A launcher knows how its children ended. Without one, the exit status is read from the zombie until its
parent reaps it, and from the pidfd afterwards (Linux 6.15).
"""

from __future__ import annotations

import fcntl
import os
import struct
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from distdbg.follow.processes import read_stat

#: linux/pidfd.h: mask, cgroup id, pid, tgid, ppid, 8 ids, exit code.
_INFO: Final = struct.Struct("<QQ3I8Ii")
_PIDFD_GET_INFO: Final = 3 << 30 | _INFO.size << 16 | 0xFF << 8 | 11
_HAS_EXIT: Final = 1 << 3
#: Between the parent's fetching the status and the pidfd's having it is a moment with neither.
_BETWEEN_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a process ended."""

    exit_code: int | None = None
    signal: int | None = None
    core_dumped: bool = False

    @classmethod
    def from_wait_status(cls, status: int) -> Outcome:
        if os.WIFSIGNALED(status):
            return cls(signal=os.WTERMSIG(status), core_dumped=os.WCOREDUMP(status))
        return cls(exit_code=os.WEXITSTATUS(status))


class Life:
    """One process, watched from now on."""

    def __init__(self, pid: int, started: int = 0) -> None:
        """ProcessLookupError when it is gone, or its pid is another's; `started` 0: not known."""
        self.pid = pid
        self._fd = os.pidfd_open(pid)
        stat = read_stat(pid)
        if stat is None or (started and stat.started != started):
            self.close()
            raise ProcessLookupError(3, "gone", str(pid))
        self.started = stat.started

    def fileno(self) -> int:
        """A descriptor that is readable when the process is gone."""
        return self._fd

    def send(self, signum: int) -> None:
        """Signal this process and no other that got its pid."""
        import signal

        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._fd, signum)

    def outcome(self) -> Outcome:
        """How it ended; to be asked when it is gone. Takes up to 0.1 s."""
        until = time.monotonic() + _BETWEEN_S
        while True:
            stat = read_stat(self.pid)
            if stat is not None and stat.started == self.started and stat.state == "Z":
                return Outcome.from_wait_status(stat.wait_status)
            status = self._ask_pidfd()
            if status is not None:
                return Outcome.from_wait_status(status)
            if time.monotonic() >= until:
                return Outcome()
            time.sleep(0.002)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _ask_pidfd(self) -> int | None:
        request = bytearray(_INFO.size)
        struct.pack_into("<Q", request, 0, _HAS_EXIT)
        try:
            fcntl.ioctl(self._fd, _PIDFD_GET_INFO, request)
        except OSError:
            return None
        values = _INFO.unpack(request)
        return int(values[-1]) if values[0] & _HAS_EXIT else None

"""ControlPage: the page of one host in a run folder, for those who write it and those who follow it.

The page is made whole under another name and then linked to its own, so nobody sees half of one; it is
private to its user. Writers take turns by a lock on it. Every process that has it open holds a shared
flock: where nobody does, the page is of a job that is over, and whoever opens it starts it afresh. So an
old abort ends no new job.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import stat
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from distdbg.control import layout
from distdbg.control.holds import USER_HOLD, Hold, HoldTable, holds_from
from distdbg.control.layout import ABORT_SET, ABORT_WRITING, PAGE, PAGE_HEAD_NBYTES, PAGE_NBYTES
from distdbg.control.state import (
    ControlState,
    check_page,
    fit_run,
    fresh_page,
    get_field,
    parse_page,
    run_as_read,
    run_of,
    unusable,
)
from distdbg.control.words import AbortWords
from distdbg.errors import RecordError

#: Locks are held for microseconds, unless their holder is stopped.
_LOCK_S = 2.0
_WRITER_S = 0.2
_PAUSE_S = 0.001
# struct flock: type, whence, start, length (0: to the end), pid (0 for locks of open files).
_FLOCK = struct.Struct("hhqqi4x")
_WRITERS = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
_NO_WRITER = _FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, 0, 0, 0)


class ControlPage:
    """One process's hold on the page of a host. Threads may share it."""

    def __init__(self, path: Path, fd: int) -> None:
        """For open(): takes over the fd."""
        self.path = path
        self._fd = fd
        self._lock = threading.Lock()  # the lock of the file is one for all threads of a process
        self._map = mmap.mmap(fd, PAGE_NBYTES)
        self._words = memoryview(self._map).cast("q")

    @classmethod
    def open(
        cls, folder: Path | str, host: str, run: str = "", *, owns_folder: bool = False
    ) -> Self:
        """Open the page of `host`, and make it where there is none.

        `run`: the name of the job, where it is known. RecordError when there is something else, or a
        page that another run still uses; a rank, which has made sure that the folder is its run's
        (`owns_folder`), puts its own in place of that.
        """
        path = Path(folder) / layout.page_name(host)
        try:
            if owns_folder:
                _put_aside(path, run)
            fd = _make_or_open(path, run)
        except OSError as error:
            raise unusable(path, error.strerror or str(error)) from error
        try:
            _hold(fd, path, run)
            return cls(path, fd)
        except OSError as error:
            os.close(fd)
            raise unusable(path, error.strerror or str(error)) from error
        except BaseException:
            os.close(fd)
            raise

    def close(self) -> None:
        """Let go of it; idempotent."""
        if self._fd < 0:
            return
        self._words.release()
        self._map.close()
        os.close(self._fd)
        self._fd = -1

    def __del__(self) -> None:
        if "_words" in self.__dict__:
            self.close()

    # Reading ---------------------------------------------------------------------------------

    def job_ns(self) -> int:
        clock = self._words[_CLOCK]
        while True:
            now = time.monotonic_ns()
            again = self._words[_CLOCK]
            if again == clock:  # else this process was stopped in between, as ranks are in pauses
                return max(now - clock, 0) if clock >= 0 else ~clock
            clock = again

    @property
    def is_paused(self) -> bool:
        """Whether the clock of the job stands."""
        return self._words[_CLOCK] < 0

    @property
    def is_aborted(self) -> bool:
        """Whether somebody has ended the job."""
        return self._words[_ABORT_STATE] == ABORT_SET

    def abort_words(self) -> AbortWords | None:
        """What was said of the abort; None when there was none."""
        if not self.is_aborted:
            return None
        return AbortWords.from_json(
            self._bytes(layout.ABORT_OFFSET, self._words[_ABORT_NBYTES], layout.MAX_ABORT_NBYTES)
        )

    def holds(self) -> tuple[Hold, ...]:
        """The holds on the clock, the longest first."""
        return holds_from(self._map[:PAGE_NBYTES])

    @property
    def break_generation(self) -> int:
        """Another number when other breakpoints are armed; odd while they are being written."""
        return self._words[_BREAK_GENERATION]

    def rules(self) -> tuple[int, bytes]:
        """The generation of the armed breakpoints and themselves; those of an odd one are not whole."""
        generation = self._words[_BREAK_GENERATION]
        nbytes = self._words[_BREAK_NBYTES]
        text = self._bytes(layout.BREAK_OFFSET, nbytes, layout.MAX_BREAK_NBYTES)
        is_same = generation == self._words[_BREAK_GENERATION]
        return (generation if is_same else generation | 1), text

    def state(self) -> ControlState:
        return parse_page(self._map[:PAGE_NBYTES], time.monotonic_ns())

    def _bytes(self, offset: int, nbytes: int, most: int) -> bytes:
        return self._map[offset : offset + nbytes] if 0 <= nbytes <= most else b""

    # Writing ---------------------------------------------------------------------------------

    def pause(self, now_ns: int | None = None) -> bool:
        """Stop the clock of the job for the user; False when it is paused. `now_ns` is monotonic."""
        return self.hold(USER_HOLD, now_ns)

    def resume(self, now_ns: int | None = None) -> bool:
        """Give back the user's hold; False when there is none. Others may hold the clock all the same."""
        return self.release(USER_HOLD, now_ns)

    def hold(self, hold: Hold, now_ns: int | None = None) -> bool:
        """Let the clock of the job stand until this is given back; False when it is held so already.

        Holds of processes that are gone are swept. RecordError when there is no room for another.
        """
        now = time.monotonic_ns() if now_ns is None else now_ns
        with self._holding(now) as table:
            table.sweep()
            try:
                return table.add(hold, now)
            except OverflowError as error:
                raise unusable(self.path, str(error)) from None

    def release(self, hold: Hold, now_ns: int | None = None) -> bool:
        """Give it back; the clock runs on when it was the last. False when it was not held so."""
        with self._holding(time.monotonic_ns() if now_ns is None else now_ns) as table:
            table.sweep()
            return table.remove(hold)

    def sweep(self, now_ns: int | None = None) -> tuple[Hold, ...]:
        """Give back what processes held that are gone; those holds. Cheap when nobody holds anything."""
        if not self.is_paused and not self.holds():
            return ()
        with self._holding(time.monotonic_ns() if now_ns is None else now_ns) as table:
            return table.sweep()

    @contextmanager
    def _holding(self, now_ns: int) -> Iterator[HoldTable]:
        """The table of holds, to change it; the clock follows, also after a writer that died between."""
        with self._writing():
            table = HoldTable(self._words)
            try:
                yield table
            finally:
                self._set_clock(any(True for _ in table), now_ns)

    def _set_clock(self, is_held: bool, now_ns: int) -> None:
        clock = self._words[_CLOCK]
        if is_held and clock >= 0:
            self._words[_PAUSED_SINCE] = now_ns
            self._words[_CLOCK] = ~max(now_ns - clock, 0)
        elif not is_held and clock < 0:
            self._words[_CLOCK] = max(now_ns - ~clock, 0)
            self._words[_PAUSED_SINCE] = 0

    def abort(self, words: AbortWords) -> bool:
        """End the job: every rank of the host raises these words. False: somebody was first."""
        text = words.to_json()
        with self._writing():
            # The holder of the lock is the only writer: an abort that is being written was never finished.
            if self._words[_ABORT_STATE] == ABORT_SET:
                return False
            self._words[_ABORT_STATE] = ABORT_WRITING
            self._map[layout.ABORT_OFFSET : layout.ABORT_OFFSET + len(text)] = text
            self._words[_ABORT_NBYTES] = len(text)
            self._words[_ABORT_STATE] = ABORT_SET
            return True

    def arm(self, rules: bytes) -> None:
        """Arm these breakpoints (JSON) in place of those before; b"" disarms."""
        if len(rules) > layout.MAX_BREAK_NBYTES:
            raise RecordError(
                f"{self.path}: breakpoints of {len(rules)} bytes; "
                f"a page holds {layout.MAX_BREAK_NBYTES}",
                path=str(self.path),
            )
        with self._writing():
            generation = self._words[_BREAK_GENERATION] | 1
            self._words[_BREAK_GENERATION] = generation
            self._map[layout.BREAK_OFFSET : layout.BREAK_OFFSET + len(rules)] = rules
            self._words[_BREAK_NBYTES] = len(rules)
            self._words[_BREAK_GENERATION] = generation + 1

    def beat(self, pid: int, now_ns: int) -> None:
        """Say that the agent of this host lives; pid 0: it leaves."""
        self._words[_AGENT_PID] = pid
        self._words[_AGENT_BEAT] = now_ns

    @contextmanager
    def _writing(self) -> Iterator[None]:
        # A writer that was stopped in the middle must not keep others from ending the job.
        with self._lock:
            is_locked = _lock_file(self._fd)
            try:
                yield
            finally:
                if is_locked:
                    fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, _NO_WRITER)


def read_page(folder: Path | str, host: str, now_ns: int | None = None) -> ControlState:
    """What a page says, without a hold on it: for jobs that may be over. RecordError when it is none."""
    path = Path(folder) / layout.page_name(host)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            data = os.pread(fd, PAGE_NBYTES + 1, 0)
        finally:
            os.close(fd)
    except OSError as error:
        raise unusable(path, error.strerror or str(error)) from error
    check_page(data, path, "")
    return parse_page(data, time.monotonic_ns() if now_ns is None else now_ns)


_CLOCK = PAGE["clock"].offset // 8
_PAUSED_SINCE = PAGE["paused_since_ns"].offset // 8
_ABORT_STATE = PAGE["abort_state"].offset // 8
_ABORT_NBYTES = PAGE["abort_nbytes"].offset // 8
_BREAK_GENERATION = PAGE["break_generation"].offset // 8
_BREAK_NBYTES = PAGE["break_nbytes"].offset // 8
_AGENT_PID = PAGE["agent_pid"].offset // 8
_AGENT_BEAT = PAGE["agent_beat_ns"].offset // 8


def _make_or_open(path: Path, run: str) -> int:
    """The fd of the page; it is there and whole, but may be anything."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    with suppress(FileNotFoundError):
        return os.open(path, flags)
    draft = path.with_name(f".{path.name}-{os.urandom(6).hex()}")
    fd = os.open(draft, flags | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(fd, fresh_page(run))
        os.link(draft, path)
    except FileExistsError:  # another one was quicker
        os.close(fd)
        return os.open(path, flags)
    except BaseException:
        os.close(fd)
        raise
    finally:
        draft.unlink(missing_ok=True)
    return fd


def _put_aside(path: Path, run: str) -> None:
    """Remove a page of another run: its ranks have left, and whoever still looks at it keeps it."""

    def is_other() -> bool:
        with suppress(RecordError):  # there is none, or what is there is not ours to remove
            host = path.name.removeprefix(layout.page_name(""))
            return read_page(path.parent, host).run not in ("", run_as_read(run))
        return False

    if not is_other():
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
    try:
        # One rank after the other, or the second would remove the new page of the first.
        _flock(folder, path, fcntl.LOCK_EX)
        if is_other():
            path.unlink()
            os.close(_make_or_open(path, run))
    finally:
        os.close(folder)


def _hold(fd: int, path: Path, run: str) -> None:
    """Take the shared hold; a page that nobody held before is started afresh."""
    about = os.fstat(fd)
    if not stat.S_ISREG(about.st_mode) or about.st_uid != os.getuid():
        raise unusable(path, "does not belong to this user")
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        pass  # in use
    else:
        data = os.pread(fd, PAGE_NBYTES + 1, 0)
        name = run
        if not name and len(data) == PAGE_NBYTES:
            name = run_of(data)
        fresh = fresh_page(name)
        if data != fresh:
            # Nobody has it mapped by our rules; a file that is no page at all is left as it is.
            is_page = PAGE_HEAD_NBYTES <= len(data) <= PAGE_NBYTES  # one of version 1 was shorter
            if data and not (is_page and get_field(data, "magic") == layout.MAGIC):
                raise unusable(path, "is not a control page, or is damaged")
            os.pwrite(fd, fresh, 0)
    _flock(fd, path, fcntl.LOCK_SH)
    if run:
        _adopt(fd, run)
    check_page(os.pread(fd, PAGE_NBYTES + 1, 0), path, run)


def _adopt(fd: int, run: str) -> None:
    """Give a page its run that was made by somebody who did not know the name."""
    start = PAGE["run"].offset
    if os.pread(fd, 1, start) == b"\0":
        os.pwrite(fd, fit_run(run), start)  # the same by all that know it


def _flock(fd: int, path: Path, how: int) -> None:
    deadline = time.monotonic() + _LOCK_S
    while True:
        try:
            fcntl.flock(fd, how | fcntl.LOCK_NB)
            return
        except OSError:
            if time.monotonic() >= deadline:
                raise unusable(path, "is locked by another process") from None
            time.sleep(_PAUSE_S)


def _lock_file(fd: int) -> bool:
    deadline = time.monotonic() + _WRITER_S
    while True:
        try:
            fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _WRITERS)
            return True
        except OSError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_PAUSE_S)

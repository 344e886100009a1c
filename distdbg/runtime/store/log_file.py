"""LogFile: the open file of a FileStore, replayed; locking, writing, and coming and going.

Locks belong to the open file, not to the process (F_OFD_SETLK), so that threads as ranks exclude each
other as well. Reading needs no lock, since a record counts only when it is whole.

Every store that opens the file enters itself and leaves when it is closed. So a file is

finished  when as many have entered as the run has ranks and all have left; the last removes it
stale     when all who have not left are processes that have ended: it is started afresh
unclear   when some of them have ended, and of the others nothing can be known from here, since they are on
          another host: an error says which file to delete
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from functools import partial

from distdbg.errors import DistStoreError, UsageError
from distdbg.record.durations import duration_text
from distdbg.runtime.process.rank_context import current_context
from distdbg.runtime.rendezvous.process import ProcessIdentity, identify_self, is_alive, is_gone
from distdbg.runtime.store.base import DEFAULT_TIMEOUT_S
from distdbg.runtime.store.file_log import (
    HEADER,
    MAGIC,
    DamagedLog,
    LogEntryKind,
    StoreChange,
    encode_record,
    read_records,
)
from distdbg.runtime.store.table import StoreTable

_FIRST_PAUSE_S = 0.0002
# A lock is held for microseconds; the kernel's own waiting (F_OFD_SETLKW) would know no deadline.
_LONGEST_PAUSE_S = 0.001
# struct flock: type, whence, start, length (0: to the end), pid (0 for locks of open files).
_FLOCK = struct.Struct("hhqqi4x")
_LOCK = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
_UNLOCK = _FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, 0, 0, 0)


class LogFile:
    """The open file, its replayed contents, and this user's entry in it. One thread at a time."""

    def __init__(self, path: str, world_size: int, timeout_s: float, *, is_counted: bool) -> None:
        self.path = path
        self.world_size = world_size
        self.table = StoreTable()
        self.mutex = threading.Lock()
        self._users = Users()
        self._id = os.urandom(16).hex()
        self._pid = os.getpid()
        self._offset = 0
        self._fd = -1
        deadline = current_context().control.now() + timeout_s
        try:
            while not self._open(deadline, is_counted):
                os.close(self._fd)
        except BaseException:
            if self._fd >= 0:
                os.close(self._fd)
            raise

    # Opening and closing -----------------------------------------------------------------------

    def _open(self, deadline: float, is_counted: bool) -> bool:
        """Enter the file at the path; False when it was replaced or removed meanwhile."""
        self._fd = -1
        try:
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise DistStoreError(f"store file {self.path}: {error.strerror}") from error
        self.table, self._users, self._offset = StoreTable(), Users(), 0
        with self._locked(deadline):
            facts = os.fstat(self._fd)
            if facts.st_uid != os.getuid():
                raise DistStoreError(f"store file {self.path} belongs to uid {facts.st_uid}")
            if not self._is_at_path(facts):
                return False
            self._check_header(facts.st_size)
            self._replay()
            me = identify_self()
            match judge(
                self._users,
                self.world_size,
                partial(is_gone, me=me),
                partial(is_alive, me=me),
            ):
                case FileState.OVER:
                    os.unlink(self.path)
                    return False
                case FileState.UNCLEAR:
                    raise DistStoreError(
                        f"store file {self.path} was left by a run that crashed, at least in part",
                        details=describe(self._users.present),
                        hint=f"if that run is over on all hosts: rm {self.path}",
                    )
                case FileState.IN_USE:
                    self._append(
                        [
                            StoreChange(
                                LogEntryKind.ENTER, self._id, to_entry(me, is_counted=is_counted)
                            )
                        ]
                    )
        return True

    def _is_at_path(self, facts: os.stat_result) -> bool:
        try:
            there = os.stat(self.path)
        except FileNotFoundError:
            return False
        return (there.st_dev, there.st_ino) == (facts.st_dev, facts.st_ino)

    def _check_header(self, nbytes: int) -> None:
        head = os.pread(self._fd, len(HEADER), 0)
        if head != HEADER:
            if head.startswith(MAGIC) and nbytes >= len(HEADER):
                version = struct.unpack_from("<I", head, len(MAGIC))[0]
                raise DistStoreError(
                    f"store file {self.path} has format {version}; this distdbg knows format 1",
                    hint=f"if no run uses it: rm {self.path}",
                )
            if nbytes >= len(HEADER) or not HEADER.startswith(head):
                raise DistStoreError(
                    f"{self.path} is not a store file; nothing was changed",
                    hint="choose a path where there is no file",
                )
            os.pwrite(self._fd, HEADER, 0)  # new, or its maker was killed at once
        self._offset = len(HEADER)

    def leave(self) -> None:
        """Say that this user is done; the last of all ranks removes the file. Idempotent."""
        with self.mutex:
            if self._fd < 0:
                return
            try:
                if os.getpid() == self._pid:
                    with self._locked(current_context().control.now() + DEFAULT_TIMEOUT_S):
                        self._replay()
                        self._append([StoreChange(LogEntryKind.LEAVE, self._id)])
                        if self._users.is_finished(self.world_size):
                            os.unlink(self.path)
            except (OSError, DistStoreError):
                pass  # removed or damaged by somebody else: nothing is left to tidy up
            finally:
                os.close(self._fd)
                self._fd = -1

    # Reading and writing -----------------------------------------------------------------------

    def refresh(self) -> None:
        """Take in what others have written."""
        self._check()
        facts = os.fstat(self._fd)
        if facts.st_size > self._offset:
            self._replay()
        elif facts.st_nlink == 0 or facts.st_size < self._offset:
            raise DistStoreError(f"store file {self.path} was removed while in use")

    def change(self, make: Callable[[StoreTable], list[StoreChange]], timeout_s: float) -> None:
        """Under the lock: have `make` look at the current table and write what it returns."""
        self._check()
        with self._locked(current_context().control.now() + timeout_s):
            if os.fstat(self._fd).st_nlink == 0:
                raise DistStoreError(f"store file {self.path} was removed while in use")
            self._replay()
            self._append(make(self.table))

    def _check(self) -> None:
        if self._fd < 0:
            raise DistStoreError(f"store file {self.path} is closed")
        if os.getpid() != self._pid:
            raise UsageError(
                f"store file {self.path} was opened before this process was forked",
                hint="open a store in the child itself, or start ranks with spawn",
            )

    def _replay(self) -> None:
        nbytes = os.fstat(self._fd).st_size - self._offset
        if nbytes <= 0:
            return
        try:
            records, consumed = read_records(os.pread(self._fd, nbytes, self._offset))
        except DamagedLog as damage:
            raise DistStoreError(
                f"store file {self.path} is damaged at byte {self._offset + damage.offset}",
                hint=f"if no run uses it: rm {self.path}",
            ) from damage
        self._offset += consumed
        for record in records:
            self._apply(record)

    def _append(self, records: list[StoreChange]) -> None:
        """Write behind the last whole record; what a killed writer left there is cut off."""
        data = b"".join(map(encode_record, records))
        if not data:
            return
        if os.fstat(self._fd).st_size > self._offset:
            os.ftruncate(self._fd, self._offset)
        written = 0
        try:
            while written < len(data):
                written += os.pwrite(self._fd, data[written:], self._offset + written)
        except OSError as error:
            os.ftruncate(self._fd, self._offset)
            raise DistStoreError(
                f"store file {self.path} cannot be written: {error.strerror}"
            ) from error
        self._offset += len(data)
        for record in records:
            self._apply(record)

    def _apply(self, record: StoreChange) -> None:
        values = self.table.values
        match record.kind:
            case LogEntryKind.SET:
                values[record.key] = record.value
            case LogEntryKind.DELETE:
                values.pop(record.key, None)
            case LogEntryKind.APPEND:
                values[record.key] = values.get(record.key, b"") + record.value
            case LogEntryKind.PUSH:
                self.table.push(record.key, record.value)
            case LogEntryKind.POP:
                self.table.pop(record.key)
            case LogEntryKind.ENTER:
                self._users.enter(record.key, record.value)
            case LogEntryKind.LEAVE:
                self._users.leave(record.key)

    @contextlib.contextmanager
    def _locked(self, deadline: float) -> Iterator[None]:
        # Not ended by an abort: who leaves a job that is over does so under the lock.
        clock = current_context().control
        begin = clock.now()
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, _LOCK)
                break
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EACCES):
                    raise DistStoreError(
                        f"store file {self.path} cannot be locked: {error.strerror}",
                        hint="the file system must support fcntl locks",
                    ) from error
            if clock.now() >= deadline:
                raise DistStoreError(
                    f"store file {self.path} is locked by another process "
                    f"for {duration_text(clock.now() - begin)}",
                    hint="a rank may be stopped (SIGSTOP, debugger) in the middle of a write",
                )
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        try:
            yield
        finally:
            fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, _UNLOCK)


class FileState(Enum):
    """What a file is to someone who opens it."""

    IN_USE = "in use"
    OVER = "over"
    UNCLEAR = "unclear"


@dataclass(slots=True)
class Users:
    """Those who have entered and not left, and how many have entered at all."""

    present: dict[str, ProcessIdentity] = field(default_factory=dict)
    entered: int = 0

    def enter(self, user: str, value: bytes) -> None:
        """Take in what to_entry() made."""
        facts = json.loads(value)
        self.entered += 1 if facts.pop("is_counted") else 0
        self.present[user] = ProcessIdentity(**facts)

    def leave(self, user: str) -> None:
        """Forget one; unknown ones are none of our business."""
        self.present.pop(user, None)

    def is_finished(self, world_size: int) -> bool:
        """Whether nobody is left, and nobody is still to come."""
        return not self.present and 0 < world_size <= self.entered


def to_entry(process: ProcessIdentity, *, is_counted: bool) -> bytes:
    """What a user writes when it enters; a clone is not counted as another rank."""
    return json.dumps({**asdict(process), "is_counted": is_counted}).encode()


def judge(
    users: Users,
    world_size: int,
    is_gone: Callable[[ProcessIdentity], bool],
    is_alive: Callable[[ProcessIdentity], bool],
) -> FileState:
    """What the file is to somebody who opens it now."""
    if users.is_finished(world_size):
        return FileState.OVER
    gone = [user for user, process in users.present.items() if is_gone(process)]
    if not gone:
        return FileState.IN_USE
    if len(gone) == len(users.present):
        return FileState.OVER
    others = [process for user, process in users.present.items() if user not in gone]
    return FileState.UNCLEAR if not any(map(is_alive, others)) else FileState.IN_USE


def describe(present: Mapping[str, ProcessIdentity], limit: int = 8) -> list[str]:
    """One line per user, for an error."""
    lines = [f"opened by pid {p.pid} on host {p.host}" for p in present.values()]
    return lines[:limit] + ([f"and {len(lines) - limit} more"] if len(lines) > limit else [])

"""FileStore: a store in a file that all ranks can lock, on one host or on a shared file system.

The file is a log (file_log.py) that every store replays into a table (log_file.py). Who waits looks at
the file's size after 0.2 ms, then less and less often, up to every 10 ms.
"""

from __future__ import annotations

import contextlib
import os
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Self

from distdbg.errors import QueueEmptyError, UsageError, WrongTypeError
from distdbg.runtime.api.integers import to_int
from distdbg.runtime.process.rank_context import current_context
from distdbg.runtime.store.base import (
    Store,
    Value,
    check_amount,
    check_key,
    check_keys,
    check_pairs,
    missing_keys,
    to_bytes,
)
from distdbg.runtime.store.file_log import KEY_NBYTES, VALUE_NBYTES, LogEntryKind, StoreChange
from distdbg.runtime.store.log_file import LogFile
from distdbg.runtime.store.table import StoreTable, add_to
from distdbg.runtime.store.timeouts import Timeout

_FIRST_PAUSE_S = 0.0002
_LONGEST_PAUSE_S = 0.01


class FileStore(Store):
    """A store in a file. With world_size given, the last of so many users removes the file.

    A file that a crashed run left behind is started afresh when all its users' processes have
    ended.
    """

    def __init__(self, file_name: str, world_size: int = -1, *, _is_counted: bool = True) -> None:
        super().__init__()
        if not isinstance(file_name, (str, os.PathLike)):
            raise WrongTypeError(f"FileStore: file_name must be a path, not {file_name!r:.80}")
        path = os.path.abspath(os.fspath(file_name))
        size = to_int("FileStore", "world_size", world_size)
        self._log = LogFile(path, size, self._timeout_s, is_counted=_is_counted)
        # Also runs at the interpreter's exit, where __del__ may not.
        self._leave = weakref.finalize(self, self._log.leave)

    @property
    def path(self) -> str:
        """The file."""
        return self._log.path

    def set(self, key: str, value: Value) -> None:
        self.multi_set([key], [value])

    def multi_set(self, keys: Sequence[str], values: Sequence[Value]) -> None:
        pairs = [(_fit_key(key), _fit(value)) for key, value in check_pairs(keys, values)]
        self._change(lambda _: [StoreChange(LogEntryKind.SET, key, value) for key, value in pairs])

    def get(self, key: str) -> bytes:
        return self.multi_get([key])[0]

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        names = check_keys(keys)

        def look(table: StoreTable) -> list[str]:
            return [key for key in names if key not in table.values]

        with self._waited_for(look, self._timeout_s) as table:
            return [table.values[key] for key in names]

    def wait(self, keys: Sequence[str], timeout: Timeout | None = None) -> None:
        names = check_keys(keys)
        with self._waited_for(lambda table: table.absent(names), self._limit(timeout)):
            return

    def check(self, keys: Sequence[str]) -> bool:
        names = check_keys(keys)
        with self._fresh() as table:
            return not table.absent(names)

    def add(self, key: str, amount: int) -> int:
        total = 0

        def make(table: StoreTable) -> list[StoreChange]:
            nonlocal total
            total = add_to(key, table.values.get(key), check_amount(amount))
            return [StoreChange(LogEntryKind.SET, key, str(total).encode())]

        _fit_key(key)
        self._change(make)
        return total

    def append(self, key: str, value: Value) -> None:
        record = StoreChange(LogEntryKind.APPEND, _fit_key(key), _fit(to_bytes(value)))
        self._change(lambda _: [record])

    def compare_set(self, key: str, expected: Value, desired: Value) -> bytes:
        answer = b""
        before, after = to_bytes(expected), _fit(to_bytes(desired))

        def make(table: StoreTable) -> list[StoreChange]:
            nonlocal answer
            answer, is_put = table.swap(key, before, after)
            return [StoreChange(LogEntryKind.SET, key, answer)] if is_put else []

        _fit_key(key)
        self._change(make)
        return answer

    def delete_key(self, key: str) -> bool:
        existed = False

        def make(table: StoreTable) -> list[StoreChange]:
            nonlocal existed
            existed = key in table.values
            return [StoreChange(LogEntryKind.DELETE, key)] if existed else []

        _fit_key(key)
        self._change(make)
        return existed

    def list_keys(self) -> list[str]:
        with self._fresh() as table:
            return table.listed()

    def queue_push(self, key: str, value: Value) -> None:
        record = StoreChange(LogEntryKind.PUSH, _fit_key(key), _fit(to_bytes(value)))
        self._change(lambda _: [record])

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        values: list[bytes] = []

        def make(table: StoreTable) -> list[StoreChange]:
            if key not in table.queues:
                return []
            values.append(table.queues[key][0])
            return [StoreChange(LogEntryKind.POP, key)]

        _fit_key(key)
        clock = current_context().control
        deadline = clock.now() + self._timeout_s
        while True:
            self._change(make)
            if values:
                return values[0]
            if not block:
                raise QueueEmptyError(f"{self._label()}: queue {key!r} is empty", keys=[key])

            def look(table: StoreTable) -> list[str]:
                return [] if key in table.queues else [key]

            with self._waited_for(look, max(0.0, deadline - clock.now())):
                pass  # another one may be quicker: the lock decides

    def queue_len(self, key: str) -> int:
        with self._fresh() as table:
            return table.queue_len(check_key(key))

    def clone(self) -> Self:
        other = type(self)(self.path, self._log.world_size, _is_counted=False)
        other._timeout_s = self._timeout_s
        return other

    def has_extended_api(self) -> bool:
        return True

    def close(self) -> None:
        self._leave()

    # Below the operations ----------------------------------------------------------------------

    def _change(self, make: Callable[[StoreTable], list[StoreChange]]) -> None:
        with self._log.mutex:
            self._log.change(make, self._timeout_s)

    @contextlib.contextmanager
    def _fresh(self) -> Iterator[StoreTable]:
        with self._log.mutex:
            self._log.refresh()
            yield self._log.table

    @contextlib.contextmanager
    def _waited_for(
        self, look: Callable[[StoreTable], list[str]], timeout_s: float
    ) -> Iterator[StoreTable]:
        """The table as soon as nothing is missing in it; other threads use the store meanwhile."""
        clock = current_context().control
        begin = clock.now()
        pause_s = _FIRST_PAUSE_S
        while True:
            with self._fresh() as table:
                missing = look(table)
                if not missing:
                    yield table
                    return
            clock.check(op=f"a wait for {self._label()}")
            waited_s = clock.now() - begin
            if waited_s >= timeout_s:
                raise missing_keys(self._label(), missing, len(missing), waited_s)
            time.sleep(clock.nap_s(timeout_s - waited_s, pause_s))
            pause_s = min(1.5 * pause_s, _LONGEST_PAUSE_S)

    def _label(self) -> str:
        return f"store file {self.path}"

    def __repr__(self) -> str:
        return f"FileStore({self.path!r})"


def _fit_key(key: str) -> str:
    nbytes = len(check_key(key).encode("utf-8", "surrogateescape"))
    if nbytes > KEY_NBYTES:
        raise UsageError(f"a key of {nbytes} bytes; a FileStore takes at most {KEY_NBYTES}")
    return key


def _fit(value: bytes) -> bytes:
    if len(value) > VALUE_NBYTES:
        raise UsageError(f"a value of {len(value)} bytes; a FileStore takes at most {VALUE_NBYTES}")
    return value

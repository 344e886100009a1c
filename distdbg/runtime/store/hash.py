"""HashStore: a store for the threads of one process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Self

from distdbg.control.clock import SLICE_S
from distdbg.errors import QueueEmptyError
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
from distdbg.runtime.store.table import StoreTable, add_to
from distdbg.runtime.store.timeouts import Timeout


class HashStore(Store):
    """Keys in this process's memory; any number of threads may use one object."""

    def __init__(self) -> None:
        super().__init__()
        self._table = StoreTable()
        self._changed = threading.Condition()

    def set(self, key: str, value: Value) -> None:
        self.multi_set([key], [value])

    def multi_set(self, keys: Sequence[str], values: Sequence[Value]) -> None:
        pairs = check_pairs(keys, values)
        with self._changed:
            self._table.values.update(pairs)
            self._changed.notify_all()

    def get(self, key: str) -> bytes:
        return self.multi_get([key])[0]

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        names = check_keys(keys)
        values = self._table.values
        with self._changed:
            self._wait_until(lambda: [key for key in names if key not in values], self._timeout_s)
            return [values[key] for key in names]

    def wait(self, keys: Sequence[str], timeout: Timeout | None = None) -> None:
        names = check_keys(keys)
        with self._changed:
            self._wait_until(lambda: self._table.absent(names), self._limit(timeout))

    def add(self, key: str, amount: int) -> int:
        with self._changed:
            total = add_to(check_key(key), self._table.values.get(key), check_amount(amount))
            self._table.values[key] = str(total).encode()
            self._changed.notify_all()
            return total

    def append(self, key: str, value: Value) -> None:
        addition = to_bytes(value)
        with self._changed:
            values = self._table.values
            values[check_key(key)] = values.get(key, b"") + addition
            self._changed.notify_all()

    def compare_set(self, key: str, expected: Value, desired: Value) -> bytes:
        with self._changed:
            answer, is_put = self._table.swap(check_key(key), to_bytes(expected), to_bytes(desired))
            if is_put:
                self._table.values[key] = answer
                self._changed.notify_all()
            return answer

    def check(self, keys: Sequence[str]) -> bool:
        names = check_keys(keys)
        with self._changed:
            return not self._table.absent(names)

    def delete_key(self, key: str) -> bool:
        with self._changed:
            return self._table.values.pop(check_key(key), None) is not None

    def list_keys(self) -> list[str]:
        with self._changed:
            return self._table.listed()

    def queue_push(self, key: str, value: Value) -> None:
        with self._changed:
            self._table.push(check_key(key), to_bytes(value))
            self._changed.notify_all()

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        queues = self._table.queues
        with self._changed:
            if not block and check_key(key) not in queues:
                raise QueueEmptyError(f"{self._label()}: queue {key!r} is empty", keys=[key])
            self._wait_until(lambda: [] if key in queues else [key], self._timeout_s)
            return self._table.pop(key)

    def queue_len(self, key: str) -> int:
        with self._changed:
            return self._table.queue_len(check_key(key))

    def clone(self) -> Self:
        # Threads may share the object itself; torch does the same.
        return self

    def has_extended_api(self) -> bool:
        return True

    def _wait_until(self, absent: Callable[[], list[str]], timeout_s: float) -> None:
        """Wait, with the lock held, until nothing is absent."""
        clock = current_context().control
        slice_s = threading.TIMEOUT_MAX if clock.is_free else SLICE_S
        begin = clock.now()
        while missing := absent():
            clock.check(op=f"a wait for {self._label()}")
            waited_s = clock.now() - begin
            if waited_s >= timeout_s:
                raise missing_keys(self._label(), missing, len(missing), waited_s)
            self._changed.wait(clock.nap_s(timeout_s - waited_s, slice_s))

    def _label(self) -> str:
        return "store in this process"

    def __repr__(self) -> str:
        return f"HashStore({len(self._table.values)} keys)"

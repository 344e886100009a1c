"""PrefixStore: a part of another store, so that its users do not meet each other's keys."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Self

from distdbg.errors import WrongTypeError
from distdbg.runtime.store.base import Store, Value, check_key, check_keys
from distdbg.runtime.store.timeouts import Timeout


class PrefixStore(Store):
    """Keys are kept as "prefix/key" in the store below; listed and counted are only its own."""

    def __init__(self, prefix: str, store: Store) -> None:
        super().__init__()
        if not isinstance(store, Store):
            raise WrongTypeError(f"a PrefixStore needs a Store, not {type(store).__name__}")
        self._prefix = check_key(prefix)
        self._store = store

    @property
    def underlying_store(self) -> Store:
        """The store below; of nested prefixes, the next one."""
        return self._store

    def _join(self, key: str) -> str:
        return f"{self._prefix}/{check_key(key)}"

    def _join_all(self, keys: Sequence[str]) -> list[str]:
        return [self._join(key) for key in check_keys(keys)]

    def set(self, key: str, value: Value) -> None:
        # A user's store is promised bytes, as by torch.
        self._store.set(self._join(key), value.encode() if isinstance(value, str) else value)

    def get(self, key: str) -> bytes:
        return self._store.get(self._join(key))

    def add(self, key: str, amount: int) -> int:
        return self._store.add(self._join(key), amount)

    def append(self, key: str, value: Value) -> None:
        self._store.append(self._join(key), value)

    def check(self, keys: Sequence[str]) -> bool:
        return self._store.check(self._join_all(keys))

    def compare_set(self, key: str, expected: Value, desired: Value) -> bytes:
        return self._store.compare_set(self._join(key), expected, desired)

    def delete_key(self, key: str) -> bool:
        return self._store.delete_key(self._join(key))

    def list_keys(self) -> list[str]:
        start = f"{self._prefix}/"
        return [key[len(start) :] for key in self._store._list_with_prefix(start)]

    def await_values(self, keys: Sequence[str], timeout: Timeout) -> list[bytes]:
        return self._store.await_values(self._join_all(keys), timeout)

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        return self._store.multi_get(self._join_all(keys))

    def multi_set(self, keys: Sequence[str], values: Sequence[Value]) -> None:
        self._store.multi_set(self._join_all(keys), values)

    def wait(self, keys: Sequence[str], timeout: Timeout | None = None) -> None:
        if timeout is None:
            self._store.wait(self._join_all(keys))
        else:
            self._store.wait(self._join_all(keys), timeout)

    def barrier(self, key: str, world_size: int, timeout: Timeout | None = None) -> None:
        self._store.barrier(self._join(key), world_size, timeout)

    def queue_push(self, key: str, value: Value) -> None:
        self._store.queue_push(self._join(key), value)

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        return self._store.queue_pop(self._join(key), block)

    def queue_len(self, key: str) -> int:
        return self._store.queue_len(self._join(key))

    def clone(self) -> Self:
        return type(self)(self._prefix, self._store.clone())

    def has_extended_api(self) -> bool:
        return self._store.has_extended_api()

    @property
    def timeout(self) -> timedelta:
        return self._store.timeout

    def set_timeout(self, timeout: Timeout) -> None:
        self._store.set_timeout(timeout)

    def _list_with_prefix(self, prefix: str) -> list[str]:
        start = f"{self._prefix}/"
        return [key[len(start) :] for key in self._store._list_with_prefix(start + prefix)]

    def _label(self) -> str:
        return self._store._label()

    def __repr__(self) -> str:
        return f"PrefixStore({self._prefix!r}, {self._store!r})"

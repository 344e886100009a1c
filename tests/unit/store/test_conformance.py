"""Every store of ours, and a minimal one as a user would write it, does what every store does."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from distdbg.errors import DistStoreError
from distdbg.runtime.store import FileStore, HashStore, PrefixStore, Store, TCPStore
from distdbg.runtime.store.base import to_bytes
from distdbg.runtime.store.table import StoreTable, add_to
from distdbg.testing.conformance.store import StoreConformance


class MinimalStore(Store):
    """The primitives, and nothing else; get does not even wait."""

    def __init__(self) -> None:
        super().__init__()
        self.table = StoreTable()
        self.lock = threading.Lock()

    def set(self, key: str, value: Any) -> None:
        with self.lock:
            self.table.values[key] = to_bytes(value)

    def get(self, key: str) -> bytes:
        self.wait([key])
        with self.lock:
            try:
                return self.table.values[key]
            except KeyError:
                raise DistStoreError(f"no key {key!r}", keys=[key]) from None

    def add(self, key: str, amount: int) -> int:
        with self.lock:
            total = add_to(key, self.table.values.get(key), amount)
            self.table.values[key] = str(total).encode()
            return total

    def check(self, keys: Sequence[str]) -> bool:
        if isinstance(keys, str):
            raise TypeError("a list of keys")
        with self.lock:
            return not self.table.absent(keys)

    def compare_set(self, key: str, expected: Any, desired: Any) -> bytes:
        with self.lock:
            answer, is_put = self.table.swap(key, to_bytes(expected), to_bytes(desired))
            if is_put:
                self.table.values[key] = answer
            return answer

    def delete_key(self, key: str) -> bool:
        with self.lock:
            return self.table.values.pop(key, None) is not None

    def list_keys(self) -> list[str]:
        with self.lock:
            return self.table.listed()


class TestHashStore(StoreConformance):
    @pytest.fixture
    def store(self) -> Store:
        return HashStore()


class TestFileStore(StoreConformance):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[Store]:
        store = FileStore(str(tmp_path / "store"))
        yield store
        store.close()


class TestTCPStore(StoreConformance):
    @pytest.fixture
    def store(self) -> Iterator[Store]:
        store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, _token=b"test")
        yield store
        store.close()


class TestPrefixStoreOverTCP(StoreConformance):
    @pytest.fixture
    def store(self) -> Iterator[Store]:
        below = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, _token=b"test")
        yield PrefixStore("some", PrefixStore("where", below))
        below.close()


class TestMinimalStore(StoreConformance):
    has_clone = False

    @pytest.fixture
    def store(self) -> Store:
        return MinimalStore()


class TestPrefixOverMinimalStore(StoreConformance):
    has_clone = False

    @pytest.fixture
    def store(self) -> Store:
        return PrefixStore("x", MinimalStore())

"""Table: keys, values and queues of an in-memory store. No locks, no waiting, no clock."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable

from distdbg.errors import UsageError
from distdbg.runtime.store.base import INTERNAL

_NUMBER = re.compile(rb"-?[0-9]{1,19}")
_LIMIT = 2**63


def add_to(key: str, value: bytes | None, amount: int) -> int:
    """What add() leaves: the number in `value` (None counts as 0) plus `amount`, in 64 bits."""
    if value is not None and not _NUMBER.fullmatch(value):
        raise not_a_number(key, value)
    total = int(value or b"0") + amount
    if not -_LIMIT <= total < _LIMIT:
        raise out_of_range(key)
    return total


def not_a_number(key: str, value: bytes) -> UsageError:
    """The error of add() on a value that is none."""
    return UsageError(f"add to key {key!r}, whose value is not a number: {value[:64]!r}")


def out_of_range(key: str) -> UsageError:
    """The error of add() that leaves 64 bits."""
    return UsageError(f"add to key {key!r} leaves the range of 64 bits")


class StoreTable:
    """The contents of a store."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.queues: dict[str, deque[bytes]] = {}

    def is_present(self, key: str) -> bool:
        """Whether check() and wait() see the key: it has a value, or a queue that is not empty."""
        return key in self.values or key in self.queues

    def absent(self, keys: Iterable[str]) -> list[str]:
        """Those of `keys` that are not there."""
        return [key for key in keys if not self.is_present(key)]

    def swap(self, key: str, expected: bytes, desired: bytes) -> tuple[bytes, bool]:
        """The answer of compare_set(), and whether `desired` is to be put."""
        current = self.values.get(key)
        if current is None:
            return (desired, True) if not expected else (expected, False)
        return (desired, True) if current == expected else (current, False)

    def push(self, key: str, value: bytes) -> None:
        """Put at the end of a queue."""
        self.queues.setdefault(key, deque()).append(value)

    def pop(self, key: str) -> bytes:
        """Take from the front of a queue that is not empty; an empty one costs nothing."""
        queue = self.queues[key]
        value = queue.popleft()
        if not queue:
            del self.queues[key]
        return value

    def queue_len(self, key: str) -> int:
        """How many values the queue holds."""
        return len(self.queues.get(key, ()))

    def listed(self, prefix: str = "") -> list[str]:
        """The users' keys that begin with `prefix`."""
        return [
            key for key in self.values if not key.startswith(INTERNAL) and key.startswith(prefix)
        ]

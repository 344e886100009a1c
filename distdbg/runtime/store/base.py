"""Store: the key-value store through which ranks find each other; the base of all stores.

A subclass, ours or a user's, gives the primitives set, get, add, check, compare_set and
delete_key. The rest (wait, append, the multi forms, barrier, queues) is made of them here, and a
subclass replaces what it can do better. Keys are text, values are bytes; text given as a value is
stored as UTF-8.

Timeouts are counted in the time of the calling rank's job, and every wait ends when the job is aborted
(distdbg/control/clock.py).

Keys that begin with a zero character are internal (those of barriers and queues): our stores
neither list nor count them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Never, Self

from distdbg.errors import DistStoreError, QueueEmptyError, UsageError, WrongTypeError
from distdbg.record.durations import duration_text
from distdbg.runtime.api.integers import to_int
from distdbg.runtime.process.rank_context import current_context
from distdbg.runtime.store.timeouts import Timeout, to_seconds

Value = str | bytes | bytearray | memoryview

DEFAULT_TIMEOUT_S = 300.0
INTERNAL = "\0"
_FIRST_PAUSE_S = 0.001
_LONGEST_PAUSE_S = 0.01


def to_bytes(value: Value) -> bytes:
    """What is stored for `value`."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise WrongTypeError(f"a store holds str or bytes, not {type(value).__name__}")


def check_key(key: str) -> str:
    """Refuse keys that are no text, most of all a str given where a list of keys is meant."""
    if not isinstance(key, str):
        raise WrongTypeError(f"a key of a store is a str, not {type(key).__name__}")
    return key


def check_keys(keys: Sequence[str]) -> list[str]:
    """As check_key, for several; one str is not taken for a list of its letters."""
    if isinstance(keys, (str, bytes)):
        raise WrongTypeError(
            f"a list of keys is needed, not {type(keys).__name__}: write [{keys!r}]"
        )
    return [check_key(key) for key in keys]


def check_pairs(keys: Sequence[str], values: Sequence[Value]) -> list[tuple[str, bytes]]:
    """The pairs of multi_set, which must be equally many."""
    if len(keys) != len(values):
        raise UsageError(f"multi_set got {len(keys)} keys and {len(values)} values")
    return list(zip(check_keys(keys), map(to_bytes, values), strict=True))


def check_amount(amount: int) -> int:
    """What add() adds."""
    return to_int("store.add", "amount", amount)


def missing_keys(store: str, keys: Sequence[str], count: int, waited_s: float) -> DistStoreError:
    """The error of every wait: which keys did not come, where, in which time."""
    shown = ", ".join(repr(key) for key in keys[:8])
    more = f" and {count - min(len(keys), 8)} more" if count > min(len(keys), 8) else ""
    return DistStoreError(
        f"{store}: waited {duration_text(waited_s)} for {'key' if count == 1 else 'keys'} {shown}{more}",
        keys=keys,
        waited_s=waited_s,
        hint="another rank sets it: look there first, or raise the store's timeout",
    )


class Store:
    """A key-value store shared by the ranks. Subclass it to bring your own."""

    _timeout_s = DEFAULT_TIMEOUT_S  # on the class, so that a subclass need not call __init__

    def __init__(self) -> None:
        self._timeout_s = DEFAULT_TIMEOUT_S

    # What a subclass gives ---------------------------------------------------------------------

    def set(self, key: str, value: Value) -> None:
        """Put `value` at `key`, whatever was there."""
        self._lacks("set")

    def get(self, key: str) -> bytes:
        """The value at `key`; waits for it up to the store's timeout."""
        self._lacks("get")

    def add(self, key: str, amount: int) -> int:
        """Add to the number at `key` (absent counts as 0) and return the sum."""
        self._lacks("add")

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all keys are there; never waits."""
        self._lacks("check")

    def compare_set(self, key: str, expected: Value, desired: Value) -> bytes:
        """Put `desired` if the value is `expected`; returns the value that is there afterwards.

        An absent key is created when `expected` is empty; otherwise `expected` itself is returned.
        """
        self._lacks("compare_set")

    def delete_key(self, key: str) -> bool:
        """Remove `key`; False when it was not there."""
        self._lacks("delete_key")

    def list_keys(self) -> list[str]:
        """All keys, in no particular order."""
        self._lacks("list_keys")

    def clone(self) -> Self:
        """Another handle of the same store, for another thread; shares keys, not connections."""
        self._lacks("clone")

    # What follows from it ----------------------------------------------------------------------

    def num_keys(self) -> int:
        """How many keys list_keys() names."""
        return len(self.list_keys())

    def wait(self, keys: Sequence[str], timeout: Timeout | None = None) -> None:
        """Return when all keys are there; DistStoreError naming the missing ones at the timeout."""
        names = check_keys(keys)
        timeout_s = self._limit(timeout)
        clock = current_context().control
        begin = clock.now()
        pause_s = _FIRST_PAUSE_S
        while not self.check(names):
            clock.check(op=f"a wait for {self._label()}")
            waited_s = clock.now() - begin
            if waited_s >= timeout_s:
                missing = [key for key in names if not self.check([key])]
                if not missing:
                    return
                raise missing_keys(self._label(), missing, len(missing), waited_s)
            time.sleep(clock.nap_s(timeout_s - waited_s, pause_s))
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def append(self, key: str, value: Value) -> None:
        """Put `value` behind what is at `key`; an absent key is created."""
        addition = to_bytes(value)
        while True:
            before = self.get(key) if self.check([key]) else b""
            after = before + addition
            if self.compare_set(key, before, after) == after:
                return

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """The values of all keys, in their order; waits for them."""
        return [self.get(key) for key in check_keys(keys)]

    def await_values(self, keys: Sequence[str], timeout: Timeout) -> list[bytes]:
        """As multi_get, with a timeout of its own: wait and multi_get in one."""
        self.wait(keys, timeout)
        return self.multi_get(keys)

    def multi_set(self, keys: Sequence[str], values: Sequence[Value]) -> None:
        """Set several keys; as many values as keys."""
        for key, value in check_pairs(keys, values):
            self.set(key, value)

    def barrier(self, key: str, world_size: int, timeout: Timeout | None = None) -> None:
        """Return when `world_size` callers have come to `key`; can be used again and again.

        Whoever times out takes its arrival back, so that a second try does not count it twice.
        """
        if world_size < 1:
            raise UsageError(f"a barrier of {world_size} callers")
        timeout_s = self._limit(timeout)
        arrived_key = f"{INTERNAL}barrier/{check_key(key)}"
        count = self.add(arrived_key, 1)
        turn = (count - 1) // world_size
        open_key = f"{arrived_key}/{turn}"
        if count % world_size == 0:
            # All have left the turn before this one, since all have come to this one.
            self.delete_key(f"{arrived_key}/{turn - 1}")
            self.set(open_key, b"1")
            return
        clock = current_context().control
        begin = clock.now()
        try:
            self.wait([open_key], timeout_s)
        except BaseException:
            arrived = self._take_back_arrival(arrived_key, (turn + 1) * world_size)
            if arrived < 0:  # the last one came just now: the barrier is open after all
                return
            waited_s = clock.now() - begin
            if waited_s < timeout_s:
                raise  # Ctrl-C, the store is gone, or the job is over
            came = arrived - turn * world_size
            raise DistStoreError(
                f"{self._label()}: {came} of {world_size} reached barrier {key!r} "
                f"within {duration_text(waited_s)}",
                keys=[key],
                waited_s=waited_s,
            ) from None

    def _take_back_arrival(self, arrived_key: str, full: int) -> int:
        """Lower the count by one and return what it was; -1 when the barrier has filled up."""
        try:
            while True:
                now = self.get(arrived_key)
                if int(now) >= full:
                    return -1
                lower = str(int(now) - 1).encode()
                if self.compare_set(arrived_key, now, lower) == lower:
                    return int(now)
        except DistStoreError:
            return 0  # the store itself is gone; the first error says so

    def queue_push(self, key: str, value: Value) -> None:
        """Put `value` at the end of queue `key`."""
        slot = self.add(f"{INTERNAL}queue/{check_key(key)}/pushed", 1)
        self.set(f"{INTERNAL}queue/{key}/{slot}", value)

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        """Take the first value of queue `key`; with block=False QueueEmptyError if there is none."""
        popped_key = f"{INTERNAL}queue/{check_key(key)}/popped"
        clock = current_context().control
        begin = clock.now()
        pause_s = _FIRST_PAUSE_S
        while True:
            # Looked up anew each time: another one may have taken the slot that was the first.
            popped = self.add(popped_key, 0)
            slot_key = f"{INTERNAL}queue/{key}/{popped + 1}"
            if self.check([slot_key]):
                before, after = str(popped).encode(), str(popped + 1).encode()
                if self.compare_set(popped_key, before, after) == after:
                    value = self.get(slot_key)
                    self.delete_key(slot_key)
                    return value
                continue
            if not block:
                raise QueueEmptyError(f"{self._label()}: queue {key!r} is empty", keys=[key])
            clock.check(op=f"a wait for {self._label()}")
            waited_s = clock.now() - begin
            if waited_s >= self._timeout_s:
                raise missing_keys(self._label(), [key], 1, waited_s)
            time.sleep(clock.nap_s(self._timeout_s - waited_s, pause_s))
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def queue_len(self, key: str) -> int:
        """How many values queue `key` holds."""
        pushed = self.add(f"{INTERNAL}queue/{check_key(key)}/pushed", 0)
        return pushed - self.add(f"{INTERNAL}queue/{key}/popped", 0)

    def has_extended_api(self) -> bool:
        """Whether append, multi_get, multi_set and queues are more than loops over get and set."""
        return False

    @property
    def timeout(self) -> timedelta:
        """How long get, wait and queue_pop wait."""
        return timedelta(seconds=self._timeout_s)

    def set_timeout(self, timeout: Timeout) -> None:
        """Change how long get, wait and queue_pop wait."""
        self._timeout_s = to_seconds(timeout)

    def close(self) -> None:
        """Let go of what the store holds; idempotent. Garbage collection does it too."""

    # For subclasses of ours --------------------------------------------------------------------

    def _list_with_prefix(self, prefix: str) -> list[str]:
        """The keys that begin with `prefix`, whole."""
        return [key for key in self.list_keys() if key.startswith(prefix)]

    def _limit(self, timeout: Timeout | None) -> float:
        return self._timeout_s if timeout is None else to_seconds(timeout)

    def _label(self) -> str:
        """How errors call this store."""
        return f"store {type(self).__name__}"

    def _lacks(self, method: str) -> Never:
        raise UsageError(
            f"{type(self).__name__} does not define {method}()",
            hint="a subclass of Store gives set, get, add, check, compare_set, delete_key; "
            "list_keys and clone where they are used",
        )

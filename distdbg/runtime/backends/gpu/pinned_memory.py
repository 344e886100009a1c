"""Memory of the host that the device reads and writes by itself: no more of it than DISTDBG_PINNED_NBYTES.

A third each is for messages that are sent in pieces, for those that are received in pieces, and for all other
ops. A message waits for room, since those that have it end as a rule. But they may be held up by a stream of
the program that goes on only after this message, so it waits for a moment alone (transfer.py). Other ops do
not wait. What finds no room takes memory that is not pinned, which is slower.
"""

from __future__ import annotations

import threading
import weakref
from collections import Counter, deque
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from distdbg.config import read_setting

if TYPE_CHECKING:
    from distdbg.runtime.backends.gpu.driver import Bytes, Driver

_NAME: Final = "DISTDBG_PINNED_NBYTES"


class Use(Enum):
    """What it is for; each has a third."""

    SENDS = "messages that are sent"
    RECEIVES = "messages that are received"
    OPS = "other ops"


_lock: Final = threading.Lock()  # protects _used
_used: Final[Counter[Use]] = Counter()
#: Freed; taken from _used by the next who asks, since the collector may free one in the middle of that.
_freed: Final[deque[tuple[Use, int]]] = deque()


def check_limit() -> None:
    """Raise ConfigError where the setting is no number: while a group is made, not in a message."""
    _share()


def try_pin(driver: Driver, nbytes: int, use: Use) -> Bytes | None:
    """New pinned memory; None: there is no room now. One message has room, however large it is."""
    if not _take(nbytes, use):
        return None
    try:
        memory = driver.pinned(nbytes)
    except BaseException:
        _freed.append((use, nbytes))
        raise
    weakref.finalize(memory, _freed.append, (use, nbytes)).atexit = False
    return memory


def pin_if_possible(driver: Driver, nbytes: int) -> Bytes:
    """New memory for an op, pinned where there is room."""
    memory = try_pin(driver, nbytes, Use.OPS)
    return not_pinned(nbytes) if memory is None else memory


def not_pinned(nbytes: int) -> Bytes:
    """Memory that CUDA copies from and to, by pinned memory of its own."""
    return np.empty(nbytes, np.uint8)


def count_if_possible(nbytes: int) -> bool:
    """Whether an op may pin so much more by other means; note_pinned() has to follow."""
    return _take(nbytes, Use.OPS)


def note_pinned(memory: Any, nbytes: int) -> None:
    """What count_if_possible() has counted is this, until it is freed."""
    weakref.finalize(memory, _freed.append, (Use.OPS, nbytes)).atexit = False


def words(use: Use) -> str:
    """What somebody waits for who was given none."""
    limit = _share()
    return f"pinned memory for {use.value}: {used(use)} of {limit} bytes are in use, a third of {_NAME}"


def used(use: Use) -> int:
    """How many bytes there are now."""
    with _lock:
        _count_freed()
        return _used[use]


def _take(nbytes: int, use: Use) -> bool:
    limit = _share()
    with _lock:
        _count_freed()
        is_only_message = use is not Use.OPS and not _used[use]
        if _used[use] + nbytes > limit and not is_only_message:
            return False
        _used[use] += nbytes
        return True


def _share() -> int:
    return int(read_setting(_NAME) or 0) // len(Use)


def _count_freed() -> None:
    while _freed:
        use, nbytes = _freed.popleft()
        _used[use] -= nbytes

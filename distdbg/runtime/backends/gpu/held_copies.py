"""What the device reads and writes by copies of ops that have failed, held until the device is done with it.

Memory that is freed may be another array's next, and memory of another process that is closed is an error of
the device. Nobody waits: whoever has something to do with a GPU next looks whether something can go.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from distdbg.runtime.backends.gpu.driver import Driver


class _Held(NamedTuple):
    driver: Driver
    #: After which the device is done with it; none: it is never known.
    events: Sequence[Any]
    memory: object
    let_go: Callable[[], object]
    #: What it was held in: ranks may be threads.
    context: Context


_lock: Final = threading.Lock()  # protects _held
_held: Final[list[_Held]] = []


def hold(
    driver: Driver, events: Sequence[Any], memory: object, let_go: Callable[[], object] = bool
) -> None:
    """Hold `memory` until the device has passed the events; then call `let_go`."""
    with _lock:
        _held.append(_Held(driver, events, memory, let_go, copy_context()))


def look() -> None:
    """Let go of what the device is done with; never blocks."""
    if not _held:
        return
    with _lock:
        over = [each for each in _held if each.context.run(_is_over, each)]
        for each in over:
            _held.remove(each)
    for each in over:
        each.context.run(each.let_go)


def _is_over(held: _Held) -> bool:
    try:
        return bool(held.events) and all(held.driver.has_passed(event) for event in held.events)
    except Exception:  # noqa: BLE001 - of CUDA, which may have ended: nothing is known
        return False

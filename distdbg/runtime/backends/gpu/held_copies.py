"""What the device reads and writes by copies of ops that have failed, held until the device is done with it.

Memory that is freed may be another array's next, and memory of another process that is closed is an error of
the device. Nobody waits: whoever has something to do with a GPU next looks whether something can go.

The garbage collector runs `__del__` in any thread that allocates, whatever locks that thread has. So hold(),
which a `__del__` may call, takes none, and look() waits for none.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from distdbg.runtime.backends.gpu.driver import Driver


@dataclass(frozen=True, slots=True, eq=False)  # arrays are not to be compared
class _Held:
    driver: Driver
    #: After which the device is done with it; none: it is never known. None: the device does not have it.
    events: Sequence[Any] | None
    memory: object
    let_go: Callable[[], object]
    #: What it was held in: ranks may be threads.
    context: Context


#: Who has it looks. Nobody waits for it: the others leave that to the next.
_looking: Final = threading.Lock()
#: Any thread adds to it, in one step; only who looks takes something out.
_held: Final[list[_Held]] = []


def hold(
    driver: Driver,
    events: Sequence[Any] | None,
    memory: object,
    let_go: Callable[[], object] = bool,
) -> None:
    """Hold `memory` until the device has passed the events; then the next look() calls `let_go`."""
    _held.append(_Held(driver, events, memory, let_go, copy_context()))


def look() -> None:
    """Let go of what the device is done with; never blocks."""
    if not _held or not _looking.acquire(blocking=False):
        return
    try:
        for each in _held.copy():
            if each.context.run(_is_over, each):
                _held.remove(each)
                each.context.run(each.let_go)
    finally:
        _looking.release()


def _is_over(held: _Held) -> bool:
    if held.events is None:
        return True
    try:
        return bool(held.events) and all(held.driver.has_passed(event) for event in held.events)
    except Exception:  # noqa: BLE001 - of CUDA, which may have ended: nothing is known
        return False

"""An op that some ranks have in this engine and others on arrays of the host: see announcements.py."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

from distdbg.errors import DistError, MismatchError
from distdbg.ops.call import Call
from distdbg.runtime.backends.checked.agreement import Agreement
from distdbg.runtime.backends.checked.checked_pending import AT_INFO, replace_intact
from distdbg.runtime.backends.checked.control import ControlGroup
from distdbg.runtime.handles.work import NO_DEADLINE

if TYPE_CHECKING:
    from distdbg.control.clock import JobClock

DETAIL: Final = 2
#: So long the others have before it is looked whether they have an op elsewhere: one that has it there, and
#: does not wait for it, may come here next.
_LOOK_NS: Final = 100_000_000
#: How long a rank that comes here with an op of the host waits for those that have it here.
_PATIENCE_S: Final = 2.0


class _Checks(Protocol):
    """What is needed of a CheckedEngine."""

    clock: JobClock
    control: ControlGroup
    order: threading.Lock

    level: int

    def on_trouble(self, error: DistError) -> DistError: ...


def agree(control: ControlGroup, call: Call) -> int:
    """Block until all ranks are known to mean the same op, on the same device; return its number."""
    if control.announcements is None:
        return control.agree(call)
    agreement = control.submit(call)
    await_agreed(agreement, control)
    return agreement.seq


def await_agreed(agreement: Agreement, control: ControlGroup) -> None:
    """Wait for an agreement before its op; another rank may have the op on the host meanwhile."""
    announced = agreement.announced
    while announced is not None:
        if control.is_done_by(agreement, control.clock.now_ns() + _LOOK_NS):
            break
        if announced.look(waits=True):
            break
    agreement.wait(NO_DEADLINE)


def come_with_op_of_host(engine: _Checks, call: Call, found: MismatchError) -> None:
    """Come here with an op that this rank has on the host: the others have it here, and are told so.

    `found`: what this rank is told.
    """
    if engine.level < DETAIL:
        replace_intact(
            found,
            f"it had been started on the GPU ({AT_INFO}): ops on GPUs are unusable in this group",
        )
    if not engine.order.acquire(timeout=_PATIENCE_S):
        return  # another thread waits for an agreement, which this one would come after
    try:
        with suppress(DistError):  # the caller has raised the same already
            agreement = engine.control.submit(call, is_announced=True)
            engine.control.is_done_by(agreement, engine.clock.now_ns() + int(_PATIENCE_S * 1e9))
            if agreement.done() and engine.level < DETAIL:
                try:
                    agreement.wait(NO_DEADLINE)
                except MismatchError as error:  # a device has begun the op
                    engine.on_trouble(error)
    finally:
        engine.order.release()

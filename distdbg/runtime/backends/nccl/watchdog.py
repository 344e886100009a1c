"""Watchdog: one thread per process that looks after the ops of all groups while the device has any.

It notices that an op has ended, that a peer is gone or the limit is over, and errors that NCCL finds by
itself. No other thread has to block for that.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import Final

from distdbg.runtime.arrays.capture import let_others_capture
from distdbg.runtime.backends.nccl.pending import NcclPending
from distdbg.runtime.handles.waits import not_waiting

#: Between two looks, for as long as the ops in flight are young; then it grows.
_FIRST_S: Final = 0.001
_LONGEST_S: Final = 0.005
_IDLE_S: Final = 1.0
#: It comes back from each look at once, unless the driver hangs.
_PATIENCE_S: Final = 2.0


class Watchdog:
    """The ops that are being queued, or were and have not been seen to end."""

    def __init__(self) -> None:
        #: Protects the rest.
        self._changed = threading.Condition()
        self._pendings: list[NcclPending] = []
        self._thread: threading.Thread | None = None
        self._has_more = False
        #: Held while ops are looked at.
        self._looking = threading.Lock()
        #: Groups that may have ops.
        self._users = 0

    def enter(self) -> None:
        """A group is made."""
        with self._changed:
            self._users += 1

    def leave(self) -> None:
        """A group is closed, and has no ops any more; the last one ends the thread."""
        with self._changed:
            self._users -= 1
            thread = self._thread if self._users == 0 else None
            self._changed.notify()
        # It may still ask the group's check, of an op that has just ended.
        if self._looking.acquire(timeout=_PATIENCE_S):
            self._looking.release()
        if thread is not None and thread is not threading.current_thread():
            thread.join(_PATIENCE_S)

    def add(self, pending: NcclPending) -> None:
        """Look after it from now on."""
        with self._changed:
            self._pendings.append(pending)
            self._has_more = True
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._work, name="distdbg-nccl-watchdog", daemon=True
                )
                self._thread.start()
            else:
                self._changed.notify()

    def remove(self, pending: NcclPending) -> None:
        """NCCL has not taken it."""
        with self._changed:
            self._pendings = [each for each in self._pendings if each is not pending]

    def _work(self) -> None:
        nap_s = _FIRST_S
        let_others_capture()
        with not_waiting():
            while True:
                with self._changed:
                    if not self._pendings:
                        self._changed.wait_for(lambda: self._pendings or not self._users, _IDLE_S)
                    if not self._pendings:
                        self._thread = None
                        return
                    pendings = list(self._pendings)
                    if self._has_more:
                        self._has_more, nap_s = False, _FIRST_S
                with self._looking:
                    over = {id(pending) for pending in pendings if _look(pending)}
                if over:
                    with self._changed:
                        self._pendings = [p for p in self._pendings if id(p) not in over]
                del pendings  # and the arrays they hold
                time.sleep(nap_s)  # the device wakes nobody
                nap_s = min(nap_s * 1.2, _LONGEST_S)


def _look(pending: NcclPending) -> bool:
    try:
        return pending.look()
    except Exception as error:  # noqa: BLE001 - the other ops are looked after all the same
        with suppress(Exception):
            pending.fail(error)
        return True


watchdog = Watchdog()

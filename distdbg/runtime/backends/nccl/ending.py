"""Ending: how a group is given up: once. Its communicators are aborted while no group of calls is open.

NCCL would end a group of calls with memory of a communicator that is gone. So what falls into one is made up
for when NCCL has got the calls.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from distdbg.errors import DistError

#: An abort that has not returned by then is not waited for.
_PATIENCE_NS: Final = 2_000_000_000
#: Those whose abort has not returned, with the ops whose arrays the device may still write to.
_late: set[CommunicatorEnding] = set()


class CommunicatorEnding:
    """Of one group."""

    def __init__(self, nccl: Any) -> None:
        self._nccl = nccl
        #: Protects the rest.
        self._lock = threading.Lock()
        #: Why the group cannot be used any more.
        self.reason: str | None = None
        #: What ended an op that the program may not wait for.
        self._unreported: DistError | None = None
        #: Those that are not aborted.
        self._comms: list[Any] = []
        #: Held while one is asked for its errors: NCCL must not free it meanwhile.
        self._asking = threading.Lock()
        #: Those that nobody is about to free.
        self._asked: list[Any] = []
        self._is_group_open = False
        self._is_abort_due = False
        self._has_aborted = False
        self._given_up_ns = 0
        #: Ops that were told before the abort had returned.
        self._held: list[object] = []
        #: Called before the communicator is aborted.
        self.on_give_up: Callable[[], object] = lambda: None

    def give_up(self, reason: str, unreported: DistError | None = None) -> None:
        """No op can end any more, nor start; `untold`: the next one raises it. The first to say so counts."""
        with self._lock:
            if self.reason is not None:
                return
            self._unreported = unreported
            self.reason = reason or "the group was aborted"
            self._given_up_ns = time.monotonic_ns()
            self._is_abort_due = True
        try:
            self.on_give_up()
        finally:
            self.abort_if_due()

    def abort_if_due(self) -> None:
        """Abort the communicators of a group that was given up, if nobody has and NCCL can bear it."""
        with self._lock:
            if not self._is_abort_due or self._is_group_open:
                return
            self._is_abort_due = False
            comms, self._comms = self._comms, []
        self.ask_no_more()
        _abort_together(comms)
        with self._lock:
            self._has_aborted = True
            self._held.clear()
            _late.discard(self)

    def hold(self, op: object) -> None:
        """Keep an op and its arrays until the abort has returned: the program is told now."""
        with self._lock:
            if not self._has_aborted:
                self._held.append(op)
                _late.add(self)

    def is_over(self) -> bool:
        """Whether ops of a group that was given up can be told: it was aborted, or that takes too long."""
        self.abort_if_due()
        is_late = time.monotonic_ns() - self._given_up_ns > _PATIENCE_NS
        return self._has_aborted or is_late

    def watch_over(self, comm: Any) -> None:
        """The group has this communicator now; it may have been given up meanwhile."""
        with self._asking:
            self._asked.append(comm)
        with self._lock:
            self._comms.append(comm)
            if self.reason is not None:
                self._is_abort_due = True
        self.abort_if_due()

    def ask(self, comm: Any) -> None:
        """Raise the error that NCCL has found by itself, if the communicator is still there."""
        with self._asking:  # it comes back at once
            if any(each is comm for each in self._asked):
                comm.check_async_error()

    def ask_no_more(self) -> None:
        """From now on communicators may be freed."""
        with self._asking:
            self._asked.clear()

    def forget(self, comm: Any) -> None:
        """It is destroyed."""
        with self._lock:
            self._comms = [each for each in self._comms if each is not comm]

    def start_group(self) -> None:
        """NCCL gets the calls of this thread together, from now on."""
        self._nccl.groupStart()
        with self._lock:
            self._is_group_open = True

    def end_group(self) -> None:
        """NCCL gets them; from here on they may block, and can be broken off."""
        with self._lock:
            self._is_group_open = False
        try:
            self._nccl.groupEnd()
        finally:
            self.abort_if_due()

    def take_unreported(self) -> DistError | None:
        """What nobody was told; whoever takes it tells."""
        with self._lock:
            unreported, self._unreported = self._unreported, None
        return unreported

    def deliver(self, error: DistError) -> None:
        """The program has this error now."""
        with self._lock:
            if error is self._unreported:
                self._unreported = None


def _abort_together(comms: Sequence[Any]) -> None:
    """Beside each other: to abort one may wait for what the device has of the others."""
    threads = [
        threading.Thread(target=_abort, args=(comm,), name="distdbg-nccl-abort", daemon=True)
        for comm in comms[1:]
    ]
    for thread in threads:
        thread.start()
    for comm in comms[:1]:
        _abort(comm)
    for thread in threads:
        thread.join()  # as long as one does not return the arrays are kept, and nobody waits: is_over()


def _abort(comm: Any) -> None:
    with suppress(Exception):  # why it is given up says more
        comm.abort()

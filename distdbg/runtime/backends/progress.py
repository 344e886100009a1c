"""Progress: a thread that looks after ops that nobody waits for, so that they go on meanwhile.

MPI and UCC have one each per process, while there is something to look after; MPI only where it may be called
from any thread.
"""

from __future__ import annotations

import threading
from typing import Protocol

from distdbg.log.logs import get_logger
from distdbg.runtime.backends.nap import PollBackoff

_log = get_logger("runtime")

_IDLE_S = 1.0


class ProgressedOps(Protocol):
    """What is looked after."""

    def done(self) -> bool:
        """Look once; whether it is over, and needs nobody any more."""
        ...


class ProgressThread:
    """The ops that were started and not yet seen to end."""

    def __init__(self, name: str) -> None:
        self._name = name
        #: Protects the rest.
        self._changed = threading.Condition()
        self._pendings: list[ProgressedOps] = []
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._has_more = False

    def add(self, pending: ProgressedOps) -> None:
        """Look after it from now on."""
        with self._changed:
            if self._is_closed:
                return
            self._pendings.append(pending)
            self._has_more = True
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
                self._thread.start()
            else:
                self._changed.notify()

    def close(self) -> None:
        """End the thread and wait for it: the library is about to be left."""
        with self._changed:
            self._is_closed = True
            self._pendings.clear()
            thread = self._thread
            self._changed.notify()
        if thread is not None:
            thread.join()

    def _work(self) -> None:
        nap = PollBackoff()
        while True:
            with self._changed:
                if not self._pendings and not self._is_closed:
                    self._changed.wait_for(lambda: self._pendings or self._is_closed, _IDLE_S)
                if not self._pendings:
                    self._thread = None
                    return
                pendings = list(self._pendings)
                if self._has_more:
                    self._has_more, nap = False, PollBackoff()
            ended = {id(pending) for pending in pendings if _is_over(pending)}
            if ended:
                with self._changed:
                    self._pendings = [each for each in self._pendings if id(each) not in ended]
            del pendings  # and the arrays they hold
            nap()


def _is_over(pending: ProgressedOps) -> bool:
    try:
        return pending.done()
    except Exception:  # noqa: BLE001 - others are looked after all the same; who waits for this one asks it
        _log.exception("an op in flight cannot be looked at")
        return True

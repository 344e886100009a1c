"""Receives from any rank as matched probes, where a library loses them as MPI_Irecv from MPI_ANY_SOURCE.

MPICH 5.0 over UCX, which it takes between hosts, does: after a few messages such a receive waits for ever,
though the message has come and a probe finds it (docs/how-to/run-over-mpi.md has a program that shows it). So
a probe finds the message here (MPI_Improbe), and the receive takes that very one.

Receives of one tag match in the order in which they were posted. MPI knows nothing of one that waits for a
probe, so those posted behind it wait here as well. Whatever comes belongs to the first of them:

    from any rank      probed for; nothing is received of a message that it has not got
    from one rank      posted when all before it have got theirs
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Any, Final


class AnySourceReceive:
    """Spelled as mpi4py's Request; has none of MPI's until it is its turn."""

    __slots__ = ("_error", "_order", "_request", "source", "spec", "tag")

    def __init__(self, order: AnySource, spec: Any, source: int, tag: int) -> None:
        self._order = order
        self._request: Any = None
        self._error: Exception | None = None
        self.spec = spec
        #: The group rank; -1: any.
        self.source = source
        self.tag = tag

    def Test(self, status: Any = None) -> bool:
        """Look once; raises MPI's Exception."""
        if self._request is None and self._error is None:
            self._order.match(self.tag)
        if self._error is not None:
            raise self._error
        return self._request is not None and bool(self._request.Test(status))

    def withdraw(self) -> bool:
        """Wait no longer; False where MPI has it already, and may write."""
        return self._order.remove(self)

    def begin(self, request: Any) -> None:
        """MPI has it now."""
        self._request = request

    def fail(self, error: Exception) -> None:
        """MPI did not take it."""
        self._error = error


class AnySource:
    """The receives of one communicator that MPI does not have yet."""

    def __init__(self, mpi: Any, comm: Any) -> None:
        self._mpi: Final = mpi
        self._comm: Final = comm
        #: Protects the queues; a probe and the receive of what it found are one step.
        self._lock = threading.Lock()
        #: By tag, in the order in which they were posted; the first is one from any rank.
        self._waiting: dict[int, deque[AnySourceReceive]] = {}

    def post(self, spec: Any, source: int, tag: int) -> Any:
        """Start a receive; what is returned has mpi4py's `Test`."""
        with self._lock:
            if source >= 0 and tag not in self._waiting:
                return self._comm.Irecv(spec, source=source, tag=tag)
            receive = AnySourceReceive(self, spec, source, tag)
            self._waiting.setdefault(tag, deque()).append(receive)
        self.match(tag)
        return receive

    def match_all(self) -> None:
        """Look for the messages of all that wait here: their senders may wait for that."""
        for tag in list(self._waiting):
            self.match(tag)

    def match(self, tag: int) -> None:
        """Give what has come to whoever is first."""
        with self._lock:
            waiting = self._waiting.get(tag)
            while waiting and self._begin(waiting[0]):
                waiting.popleft()
            if not waiting:
                self._waiting.pop(tag, None)

    def remove(self, receive: AnySourceReceive) -> bool:
        """Whether it was here still."""
        with self._lock:
            waiting = self._waiting.get(receive.tag, ())
            if receive not in waiting:
                return False
            assert isinstance(waiting, deque)
            waiting.remove(receive)
        self.match(receive.tag)  # whoever was behind it
        return True

    def _begin(self, receive: AnySourceReceive) -> bool:
        """Whether MPI has it, for better or worse. With the lock."""
        comm, spec, tag = self._comm, receive.spec, receive.tag
        try:
            if receive.source >= 0:
                receive.begin(comm.Irecv(spec, source=receive.source, tag=tag))
                return True
            message = comm.Improbe(source=self._mpi.ANY_SOURCE, tag=tag)
            if message is None:
                return False
            receive.begin(message.Irecv(spec))
        except self._mpi.Exception as error:
            receive.fail(error)
        return True


def loses_any_source(version: str) -> bool:
    """Whether a library says that it is MPICH, and may go over UCX."""
    words = version.lower()
    return words.startswith("mpich") and any(
        "ucx" in line for line in words.splitlines() if "device" in line
    )

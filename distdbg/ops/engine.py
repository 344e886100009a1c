"""The seam between the API and whatever moves bytes: an engine runs Calls for one group.

The CPU engine (`runtime/backends/cpu.py`) is ours; a registered third-party backend is made to look
like one by `runtime/backends/foreign.py`. Observers and checks wrap an Engine without knowing which it is.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Protocol

from distdbg.ops.call import Call


class Pending(Protocol):
    """An op that was started and not yet waited for."""

    def done(self) -> bool:
        """Whether the op has ended, well or badly; never blocks."""
        ...

    def wait(self, deadline_ns: int) -> None:
        """Block until the op has ended; raise its error. At the deadline (job time): OpTimeout."""
        ...

    def source_rank(self) -> int:
        """The group rank a finished recv got its message from; -1 for other ops."""
        ...


def await_end(pending: Pending, deadline_ns: int) -> None:
    """Block until an op has ended or the deadline has come, and raise neither; what it came to, wait() says.

    A Pending whose wait() makes its error of much has an `await_end` of its own.
    """
    own = getattr(pending, "await_end", None)
    if own is not None:
        own(deadline_ns)
        return
    with suppress(Exception):
        pending.wait(deadline_ns)


class Engine(Protocol):
    """Runs the ops of one group in the order given; point to point ops match on their own."""

    def run(self, call: Call) -> int:
        """Carry out `call`, blocking. A recv returns the group rank it came from, others -1."""
        ...

    def submit(self, call: Call) -> Pending:
        """Start `call` and return at once; it progresses in the background."""
        ...

    def set_timeout(self, timeout_s: float) -> None:
        """Set the limit for ops that bring none of their own."""
        ...

    def set_level(self, level: int) -> None:
        """Compare as much as the debug level says: 0 OFF, 1 INFO, 2 DETAIL; also between ops."""
        ...

    def abort(self, reason: str) -> None:
        """Break the group: every op in flight on every rank ends with an error."""
        ...

    def close(self) -> None:
        """Leave the group and free what it holds; idempotent."""
        ...

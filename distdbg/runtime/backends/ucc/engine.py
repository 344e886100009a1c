"""UccEngine: hands a group's collectives to its UccBackend, and its messages to an engine of ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distdbg.control.clock import JobClock
from distdbg.errors import UsageError
from distdbg.ops.call import Call, Kind
from distdbg.ops.dtypes import Dtype
from distdbg.ops.engine import Engine, Pending
from distdbg.runtime.api.arguments import check_arrays
from distdbg.runtime.arrays.buffers import input_of
from distdbg.runtime.backends.foreign import ForeignEngine
from distdbg.runtime.backends.ucc.backend import UccBackend, can_reduce
from distdbg.runtime.backends.ucc.library import load
from distdbg.runtime.backends.ucc.memory import check_places
from distdbg.runtime.backends.ucc.messages import make_messages
from distdbg.runtime.backends.ucc.team import Team

if TYPE_CHECKING:
    from distdbg.runtime.groups.group import ProcessGroup
    from distdbg.runtime.store import Store


class UccEngine(ForeignEngine):
    """Implements Engine around a UccBackend; takes arrays on GPUs as well. Messages go another way."""

    def __init__(
        self, backend: UccBackend, messages: Engine, timeout_s: float, clock: JobClock
    ) -> None:
        super().__init__(backend, backend.rank, backend.size, timeout_s, clock)
        self._messages = messages

    def run(self, call: Call) -> int:
        """Carry out `call`, blocking."""
        return self._messages.run(call) if call.kind >= Kind.SEND else super().run(call)

    def submit(self, call: Call) -> Pending:
        """Start `call`."""
        return self._messages.submit(call) if call.kind >= Kind.SEND else super().submit(call)

    def set_timeout(self, timeout_s: float) -> None:
        """Set the limit for ops that bring none of their own."""
        super().set_timeout(timeout_s)
        self._messages.set_timeout(timeout_s)

    def abort(self, reason: str) -> None:
        """Break it on this rank, and for messages on all."""
        super().abort(reason)
        self._messages.abort(reason)

    def close(self) -> None:
        """Leave; idempotent."""
        self._messages.close()
        super().close()

    def check(self, call: Call) -> None:
        """Raise what is wrong with the call on this rank alone; asked before others are involved."""
        what = call.name or call.kind.label
        check_places(what, [*call.inputs, *call.outputs])
        check_arrays(call, also_on_gpu=True)
        if call.op is not None:
            dtype = Dtype(input_of((*call.inputs, *call.outputs)[0]).dtype)
            if not can_reduce(call.op, dtype):
                raise UsageError(f"{what}: UCC has no {call.op.op.name} of {dtype.label}")


def make_engine(group: ProcessGroup, store: Store) -> UccEngine:
    """Make the engine of a group of at least two; all its members do."""
    backend = UccBackend(
        Team(load(), group, store), group.rank(), group.size(), group.world.control
    )
    try:
        messages = make_messages(group, store)
    except BaseException:
        backend.abort()  # the others may not leave the team
        backend.shutdown()
        raise
    return UccEngine(backend, messages, group.timeout_s, group.world.control)

"""ByDevice: the engine of a group that has one for arrays on the host and one for arrays on a GPU.

The arrays of a call pick. Ops without arrays: a barrier of a group that was made for GPUs alone waits for
the GPU, any other is one of hosts. Objects and all that the runtime itself asks other ranks are arrays on
the host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import copy
from typing import Any

from distdbg.errors import DistError, UsageError
from distdbg.ops.call import Call
from distdbg.ops.engine import Engine, Pending
from distdbg.runtime.arrays.device_arrays import is_on_device


class ByDevice:
    """Implements Engine around two; see distdbg/ops/engine.py."""

    #: Each of the two is recorded by itself.
    records_itself = True

    def __init__(
        self,
        host: Engine,
        device: Engine,
        prepare: Callable[[Call], None],
        *,
        has_device_barrier: bool,
        on_close: Callable[[], object],
    ) -> None:
        self.host = host
        self.device = device
        #: Looks at the arrays of a call on the thread that calls.
        self._prepare = prepare
        self._has_device_barrier = has_device_barrier
        self._on_close = on_close

    @property
    def inner(self) -> Engine:
        """For those who look through engines: the host's, which is ours."""
        return self.host

    def run(self, call: Call) -> int:
        """Have the arrays' engine carry it out."""
        if not self._is_for_device(call):
            return self.host.run(call)
        return self.device.run(self._prepared(call))

    def submit(self, call: Call) -> Pending:
        """Have the arrays' engine start it."""
        if not self._is_for_device(call):
            return self.host.submit(call)
        return self.device.submit(self._prepared(call))

    def next_seq(self, call: Call) -> int:
        """The number that `call` will have if it is the next."""
        engine: Any = self.device if self._is_for_device(call) else self.host
        return int(engine.next_seq(call))

    def begin_block(self) -> None:
        """The device gets the ops until end_block() together."""
        for engine in _with_method(self.device, "begin_block"):
            engine.begin_block()

    def end_block(self) -> None:
        """It gets them now."""
        for engine in _with_method(self.device, "end_block"):
            engine.end_block()

    def set_timeout(self, timeout_s: float) -> None:
        """Tell both."""
        self.host.set_timeout(timeout_s)
        self.device.set_timeout(timeout_s)

    def set_level(self, level: int) -> None:
        """Tell both."""
        self.host.set_level(level)
        self.device.set_level(level)

    def find_left(self) -> list[int]:
        """Return the group ranks that have left the group."""
        host: Any = self.host
        return list(host.find_left())

    def leave_because(self, why: str, at_once: bool = False) -> None:
        """Tell the others why this rank's process ends, in both."""
        for engine in (self.host, self.device):
            for each in _with_method(engine, "leave_because"):
                with suppress(DistError):
                    each.leave_because(why, at_once)

    def abort(self, reason: str) -> None:
        """Break both."""
        self.device.abort(reason)
        self.host.abort(reason)

    def close(self) -> None:
        """Leave both; idempotent."""
        try:
            self.device.close()
        finally:
            self.host.close()
            self._on_close()

    def _is_for_device(self, call: Call) -> bool:
        arrays = [*call.inputs, *call.outputs]
        if not arrays:
            return self._has_device_barrier
        places = {is_on_device(array) for array in arrays}
        if len(places) > 1:
            raise UsageError(
                f"{call.name or call.kind.label}: some of its arrays are on the host and some on a GPU"
            )
        return True in places

    def _prepared(self, call: Call) -> Call:
        own = copy(call)  # some are shared
        self._prepare(own)
        return own


def _with_method(engine: Any, name: str) -> Iterator[Any]:
    """The outermost of the engines around each other that has the method; none, or one."""
    while engine is not None:
        if hasattr(engine, name):
            yield engine
            return
        engine = getattr(engine, "inner", None)

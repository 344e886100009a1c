"""CpuPending: a wait that gives up in the moment in which the op ends."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NoReturn

from distdbg.errors import OpTimeout
from distdbg.native import NativeError
from distdbg.runtime.backends.cpu import CpuPending
from distdbg.runtime.call import Call, Kind


class EndsAsTheWaitGivesUp:
    """The part of a native group and of an engine that a pending op uses."""

    def __init__(self) -> None:
        self.handle = SimpleNamespace(done=False)
        self._group = self

    def wait_op(self, op: Any, deadline_ns: int) -> None:
        if not op.done:
            op.done = True  # the other ranks came right after the deadline was noticed
            raise NativeError("timeout")

    def _fail(self, *facts: object) -> NoReturn:
        raise OpTimeout("all_reduce #1 waited 0.0 s")


def test_an_op_that_ends_as_a_wait_gives_up_has_ended_well() -> None:
    engine: Any = EndsAsTheWaitGivesUp()
    pending = CpuPending(engine, Call(Kind.ALL_REDUCE, (), ()), engine.handle, (), 0)
    pending.wait(0)
    assert pending.done()
    pending.wait(0)

"""An op of the CPU engine that ends while a wait for it gives up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from distdbg.errors import OpTimeout
from distdbg.native import NativeError
from distdbg.runtime.backends.pending import NO_DEADLINE, CpuPending
from distdbg.runtime.call import Call, Kind


class EndsMeanwhile:
    """A handle that is seen to have ended when it is asked for the second time."""

    number = 0

    def __init__(self) -> None:
        self.asked = 0

    @property
    def done(self) -> bool:
        self.asked += 1
        return self.asked > 1


def test_a_wait_that_gives_up_as_the_op_ends_is_not_the_outcome_of_the_op() -> None:
    handle = EndsMeanwhile()
    waits = iter([NativeError("no time left"), None])

    def wait_op(of: Any, deadline_ns: int) -> None:
        error = next(waits)
        if error is not None:
            raise error

    def fail(*arguments: Any) -> None:
        raise OpTimeout("this wait is over")

    engine: Any = SimpleNamespace(
        group=SimpleNamespace(wait_op=wait_op), fail=fail, compares_order=False
    )
    pending = CpuPending(engine, Call(Kind.BARRIER, (), ()), handle, (), 0)  # type: ignore[arg-type]

    with pytest.raises(OpTimeout):
        pending.wait(1)
    pending.wait(NO_DEADLINE)

    assert not pending.has_failed()

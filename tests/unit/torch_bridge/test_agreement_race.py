"""An agreement that ends just as a wait for it gives up has not timed out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from distdbg.errors import OpTimeout
from distdbg.ops.call import Call, Kind
from distdbg.runtime.backends.checked.agreement import Agreement


class Control:
    """Gives up once; by then the op may have ended."""

    def __init__(self, has_ended: bool) -> None:
        self.has_ended = has_ended
        self.waits = 0

    def wait(self, agreement: Any, deadline_ns: int) -> None:
        self.waits += 1
        if self.waits == 1:
            agreement.handle.done = self.has_ended
            raise OpTimeout("waited 0.10 s")


def agreement_of(control: Control) -> Agreement:
    made: Any = Agreement(control, Call(Kind.BARRIER, (), ()), 1, None, 0)  # type: ignore[arg-type] # a stand-in
    made.handle = SimpleNamespace(done=False)
    return made  # type: ignore[no-any-return]


def test_one_that_ended_as_the_wait_gave_up_is_settled() -> None:
    agreement = agreement_of(Control(has_ended=True))
    agreement.wait(5)
    assert agreement.error is None


def test_one_that_goes_on_can_be_waited_for_again() -> None:
    agreement = agreement_of(Control(has_ended=False))
    with pytest.raises(OpTimeout):
        agreement.wait(5)
    assert agreement.error is None
    agreement.wait(5)

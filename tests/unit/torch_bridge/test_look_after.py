"""The thread that looks after ops beside the one that waits for them."""

from __future__ import annotations

import threading
import weakref
from typing import Any

import pytest

from distdbg.ops.call import Kind
from distdbg.torch_bridge.tap.calls import TapCall
from distdbg.torch_bridge.tap.groups import TappedGroup
from distdbg.torch_bridge.tap.in_flight import InFlight
from distdbg.torch_bridge.tap.pending import TorchPending


class SomeWork:
    def __init__(self) -> None:
        self.on_ask: Any = None

    def is_completed(self) -> bool:
        if self.on_ask is not None:
            self.on_ask()
        return True


class SomeRecorded:
    def __init__(self) -> None:
        self.ends = 0

    def note_end(self, error: BaseException | None = None) -> None:
        self.ends += 1


def in_flight(kind: Kind = Kind.RECV) -> tuple[TappedGroup, InFlight, SomeWork]:
    tapped = object.__new__(TappedGroup)
    tapped._lock = threading.RLock()
    tapped._failed = []
    tapped._waits_for = 0
    work: Any = SomeWork()
    call = TapCall(kind, (), ("an array",), peer=0)
    call.pending = TorchPending(work, kind, 0, None)
    recorded: Any = SomeRecorded()
    op = InFlight(call, recorded, weakref.ref(work))
    tapped._in_flight = {id(work): op}
    return tapped, op, work


@pytest.mark.parametrize(
    ("kind", "kept"), [(Kind.ALL_REDUCE, ()), (Kind.RECV, ("an array",))], ids=["op", "message"]
)
def test_one_that_nobody_waits_for_is_ended(kind: Kind, kept: tuple[str, ...]) -> None:
    tapped, op, _work = in_flight(kind)
    tapped.look_after(False)
    recorded: Any = op.pending
    assert recorded.ends == 1
    assert op.call.outputs == kept  # a message is compared when it is waited for


def test_one_that_is_waited_for_at_that_moment_keeps_its_arrays() -> None:
    tapped, op, work = in_flight()
    work.on_ask = lambda: tapped.take(work)
    tapped.look_after(False)
    recorded: Any = op.pending
    assert recorded.ends == 0
    assert op.call.outputs == ("an array",)
    assert op.call.pending.work is work


def test_a_wait_whose_work_is_released_meanwhile_goes_on_with_it() -> None:
    waited = []
    work: Any = SomeWork()
    pending = TorchPending(work, Kind.SEND, 0, waited.append)
    work.on_ask = pending.release
    assert pending.done()
    pending.attach(work)
    pending.wait(0)
    assert waited == [work]


def test_an_op_that_ends_as_a_slice_gives_up_has_not_timed_out() -> None:
    waits: list[object] = []

    def wait(work: object, limit: object = None) -> None:
        waits.append(limit)
        if limit is not None:
            raise RuntimeError("Operation timed out!")

    pending = TorchPending(SomeWork(), Kind.BARRIER, -1, wait)
    assert pending.wait_slice(0.02)
    assert pending.has_ended
    assert waits[1:] == [None]

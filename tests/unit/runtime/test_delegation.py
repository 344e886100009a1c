"""Engines around engines hand everything on: no method of the protocol may be forgotten by one."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

from distdbg.control.clock import FREE_CLOCK
from distdbg.ops.call import Call, Kind
from distdbg.ops.engine import Engine, Pending
from distdbg.ops.reduce_op import ReduceOp
from distdbg.runtime.backends.checked.checked_engine import CheckedEngine
from distdbg.runtime.backends.checked.checked_pending import CheckedPending
from distdbg.runtime.backends.checked.messages import ReceivePending
from distdbg.runtime.backends.checked.traits import Traits
from distdbg.runtime.backends.foreign import ForeignEngine, ForeignPending
from distdbg.runtime.backends.recorded import RecordedEngine, RecordedPending
from distdbg.runtime.backends.tracing import TracedPending, TracingEngine
from distdbg.runtime.handles.work import NO_DEADLINE


def methods_of(protocol: type) -> dict[str, inspect.Signature]:
    return {
        name: inspect.signature(method)
        for name, method in vars(protocol).items()
        if not name.startswith("_") and callable(method)
    }


@pytest.mark.parametrize("engine", [CheckedEngine, ForeignEngine, RecordedEngine, TracingEngine])
@pytest.mark.parametrize("name", methods_of(Engine))
def test_every_method_of_an_engine_is_there_with_its_arguments(engine: type, name: str) -> None:
    wanted = methods_of(Engine)[name]
    assert list(inspect.signature(getattr(engine, name)).parameters) == list(wanted.parameters)


@pytest.mark.parametrize(
    "pending", [CheckedPending, ReceivePending, ForeignPending, RecordedPending, TracedPending]
)
@pytest.mark.parametrize("name", methods_of(Pending))
def test_every_method_of_a_pending_is_there_with_its_arguments(pending: type, name: str) -> None:
    wanted = methods_of(Pending)[name]
    assert list(inspect.signature(getattr(pending, name)).parameters) == list(wanted.parameters)


class Ended:
    def done(self) -> bool:
        return True

    def wait(self, deadline_ns: int) -> None:
        pass

    def source_rank(self) -> int:
        return 7


class Noting:
    """An engine that writes down what reaches it."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Any]] = []

    def run(self, call: Call) -> int:
        self.seen.append(("run", call))
        return 5

    def submit(self, call: Call) -> Pending:
        self.seen.append(("submit", call))
        return Ended()

    def set_timeout(self, timeout_s: float) -> None:
        self.seen.append(("set_timeout", timeout_s))

    def set_level(self, level: int) -> None:
        self.seen.append(("set_level", level))

    def abort(self, reason: str) -> None:
        self.seen.append(("abort", reason))

    def close(self) -> None:
        self.seen.append(("close", None))


class Agreeing:
    """A control group of a rank that is alone in the world."""

    name, rank, names = "alone", 0, (0,)
    clock = FREE_CLOCK
    is_broken = can_tell_death = False

    def __getattr__(self, name: str) -> Any:
        return lambda *args: 1 if name == "agree" else None


def test_every_method_reaches_the_engine_below() -> None:
    below = Noting()
    control: Any = Agreeing()
    engine = CheckedEngine(below, control, Traits(), "alone", 2)
    x = np.ones(1)
    call = Call(Kind.ALL_REDUCE, (x,), (x,), ReduceOp.SUM)
    arguments: dict[str, tuple[Any, ...]] = {
        "run": (call,),
        "submit": (call,),
        "set_timeout": (3.0,),
        "set_level": (0,),
        "abort": ("enough",),
        "close": (),
    }
    assert set(arguments) == set(methods_of(Engine))
    engine.set_level(0)
    control.submit = lambda call: _Agreed()
    for name, args in arguments.items():
        below.seen.clear()
        result = getattr(engine, name)(*args)
        assert below.seen == [(name, args[0] if args else None)]
        if name == "run":
            assert result == 5
        if name == "submit":
            result.wait(NO_DEADLINE)
            assert result.done()
            assert result.source_rank() == 7
    below.seen.clear()
    engine.close()
    assert below.seen == []


class _Agreed:
    seq = 1

    def done(self) -> bool:
        return True

    def wait(self, deadline_ns: int) -> None:
        pass

"""A stand-in for NCCL in place of the library, and engines of a group of one over it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from distdbg.control.clock import FREE_CLOCK
from distdbg.runtime.backends.nccl import library
from distdbg.runtime.backends.nccl.engine import NcclEngine
from distdbg.runtime.backends.nccl.options import NcclOptions
from tests.unit.nccl.stand_in import Machine

LIMIT_S = 60
Make = Callable[..., NcclEngine]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    monkeypatch.setattr(library, "_library", machine.library())
    monkeypatch.setenv("DISTDBG_DEBUG", "info")
    return machine


@pytest.fixture
def make(machine: Machine) -> Iterator[Make]:
    """Makes the engine of a group of one, without a check around it."""
    made: list[NcclEngine] = []

    def make_one(timeout_s: float = LIMIT_S, open_it: Any = None) -> NcclEngine:
        lib = library.load()
        engine = NcclEngine(
            lib,
            open_it or (lambda device, *_: lib.open_communicator(1, lib.new_id(), 0)),
            name="test",
            rank=0,
            size=1,
            timeout_s=timeout_s,
            clock=FREE_CLOCK,
            options=NcclOptions(),
            is_alone=True,
        )
        made.append(engine)
        return engine

    yield make_one
    for engine in made:
        engine.abort("the test is over")
        engine.close()

"""A stand-in for the GPU of one host, whose ranks take IPC for arrays of any size."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from distdbg.runtime.backends.gpu import driver, held_copies
from tests.unit.gpu.stand_in import Machine


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    machine = Machine()
    monkeypatch.setattr(driver, "_driver", machine.driver())
    monkeypatch.setenv("DISTDBG_GPU_IPC", "always")
    yield machine
    held = list(held_copies._held)  # by tests in which a GPU hangs, or has an error
    held_copies._held.clear()
    assert machine.left_open() == 0 or held

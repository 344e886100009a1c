"""Arrays on a GPU over IPC and in chunks pass every check that groups have to pass. The GPU is a stand-in."""

from __future__ import annotations

import numpy as np
import pytest

import distdbg as dist
from distdbg.runtime.backends.gpu import chunks
from distdbg.testing.conformance.group import Api, run_checks
from tests.unit.gpu.stand_in import Machine


def all_checks(machine: Machine) -> dict[str, str]:
    return run_checks(
        Api(
            dist,
            array=lambda values, dtype: machine.array(values, np.dtype(dtype)),
            values=lambda x: x.host.tolist(),
        )
    )


@pytest.mark.parametrize("size", [1, 2, 4])
def test_over_ipc(machine: Machine, size: int) -> None:
    assert dist.run_threads(all_checks, size, machine, timeout_s=240) == [{}] * size
    if size > 1:
        assert {"open", "close", "kernel", "wait for a peer's event"} <= set(machine.names(0))


@pytest.mark.parametrize(("size", "transport"), [(2, ""), (4, ""), (3, "tcp")])
def test_in_chunks(
    machine: Machine, size: int, transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if transport:  # each rank is a host by itself
        monkeypatch.setenv("DISTDBG_TRANSPORT", transport)
    monkeypatch.setenv("DISTDBG_GPU_IPC", "off")
    monkeypatch.setattr(chunks, "CHUNK_NBYTES", 1)
    monkeypatch.setattr("distdbg.runtime.backends.gpu.capabilities.takes_small_too", lambda: True)
    assert dist.run_threads(all_checks, size, machine, timeout_s=240) == [{}] * size
    assert not {"open", "kernel"} & set(machine.names(0))

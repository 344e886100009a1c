"""What ranks open of each other's memory, when, and when they close it. The GPU is a stand-in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

import distdbg as dist
from distdbg.runtime.backends.gpu import exports
from tests.unit.gpu.stand_in import Machine

if TYPE_CHECKING:
    import pytest

#: Of an op in which nothing is new.
PLAIN = ["record for the peers", "wait for a peer's event", "kernel", "kernel"]


def test_what_is_known_is_not_opened_again(machine: Machine) -> None:
    def program() -> None:
        x = machine.array(np.ones(10))
        for _ in range(2):
            dist.all_reduce(x)
        # Another array of the pool, and the same one in another group.
        dist.all_reduce(machine.array(np.ones(10)))

    dist.run_threads(program, 2, timeout_s=240)
    for rank in (0, 1):
        names = machine.names(rank)
        assert names[:3] == ["record for the peers", "export", "open event"]
        # Rank 0 has the first half, of two words; rank 1 the rest, of a word or less.
        ops = [name for name in names if name not in ("export", "open event", "open", "close")]
        assert [name for name in ops if name != "kernel"] == PLAIN[:2] * 3
        assert names.count("export") == names.count("open") == names.count("open event") == 1
        # At the end.
        assert names[-1] == "close"


def test_memory_that_its_owner_frees_is_closed_before_new_memory_is_opened(
    machine: Machine,
) -> None:
    def program() -> None:
        for _ in range(2):
            x = machine.array(np.ones(10))
            dist.all_reduce(x)
            assert (x.host == 2).all()
            machine.free_pool()

    dist.run_threads(program, 2, timeout_s=240)
    for rank in (0, 1):
        reported = [call for call in machine.calls[rank] if call[0] in ("open", "close")]
        [first, second] = [each.buffer_id for each in machine.allocations if each.owner != rank]
        assert reported == [("open", first), ("close", first), ("open", second), ("close", second)]


def test_no_more_than_some_allocations_are_kept_open(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exports, "MOST_OPEN", 2)

    def program() -> None:
        xs = [machine.array(np.full(1 << 13, i)) for i in range(5)]  # a pool for each
        for x in (*xs, *xs):
            dist.broadcast(x, 0)
            assert (x.host == x.host[0]).all()

    dist.run_threads(program, 2, timeout_s=240)
    opened = [call for call in machine.calls[1] if call[0] == "open"]
    assert len(opened) == 10
    are_open, most = 0, 0
    for name, _ in machine.calls[1]:
        are_open += (name == "open") - (name == "close")
        most = max(most, are_open)
    assert most == 2


def test_one_gpu_of_another_process_is_used_through_what_it_gave(machine: Machine) -> None:
    """The stand-in refuses addresses of other ranks, and those that are closed."""

    def program() -> list[float]:
        other = 1 - dist.get_rank()
        groups = [dist.new_group([0, 1]), dist.group.WORLD]
        x = machine.array([1.0, 2.0])
        for each in groups:
            dist.all_reduce(x, group=each)
        dist.destroy_process_group(groups[0])
        dist.all_reduce(x)
        dist.send(x, other) if other else dist.recv(x, other)
        found: list[float] = x.host.tolist()
        return found

    assert dist.run_threads(program, 2, timeout_s=240) == [[8.0, 16.0]] * 2

"""The short way of sends and recvs: what it leaves to the long one, and what comes late."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from begin import begin

from distdbg.errors import MismatchError
from distdbg.record.reader import read_record

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.ranks, pytest.mark.slow]

#: More headers than the ring between two ranks holds.
MANY = 700


def many_before_one_is_received() -> list[Any]:
    dist = begin()
    from distdbg.torch_bridge.guarded import state

    lane = state["job"]._groups.all()[0].lane
    rank = dist.get_rank()
    found = []
    if rank == 0:
        works = [dist.isend(torch.full((2,), float(i)), 1, tag=i % 3) for i in range(MANY)]
        time.sleep(0.3)  # what found no room in the ring is on its way though nobody waits
        for work in works:
            work.wait()
        dist.send(torch.full((2,), -1.0), 1)
        dist.send(torch.full((2,), -2.0), 1)
    else:
        x = torch.zeros(2)
        late = [torch.zeros(2) for _ in range(3)]
        works = [dist.irecv(each, 0, tag=i) for i, each in enumerate(late)]
        time.sleep(0.3)  # past the look that comes every tenth of a second
        for work, each in zip(works, late, strict=True):
            work.wait()
            found.append(float(each[0]))
        for i in range(3, MANY):
            dist.recv(x, 0, tag=i % 3)
            assert float(x[0]) == i
        assert dist.recv(x) == 0  # from any source
        found.append(float(x[0]))
        dist.recv(x, 0)
        found.append(float(x[0]))
    assert not lane.message_waits
    dist.barrier()
    dist.destroy_process_group()
    return found


@pytest.mark.parametrize("level", ["info", "detail"])
def test_messages_that_come_early_late_and_from_anybody(
    watched: Callable[..., list[Any]], level: str, tmp_path: Path
) -> None:
    assert watched(many_before_one_is_received, level) == [[], [0.0, 1.0, 2.0, -1.0, -2.0]]
    for path in sorted((tmp_path / "run").glob("*.ddr")):
        ops = [op for op in read_record(path).ops if op.is_message and not op.is_aside]
        assert len(ops) == MANY + 2
        assert all(op.ended_ns is not None for op in ops)


def sends_what_nobody_expects() -> list[str]:
    dist = begin()
    rank = dist.get_rank()
    x = torch.ones(4)
    for _ in range(2):  # what was alike before is not believed of other words
        if rank == 0:
            dist.send(x, 1)
        else:
            dist.recv(x, 0)

    def last() -> None:
        if rank == 0:
            dist.send(x.double(), 1)
            dist.barrier()
        else:
            dist.recv(x, 0)

    with pytest.raises(MismatchError) as info:
        last()
    return [str(info.value)]


def test_a_message_of_another_dtype_is_told_with_both_lines(
    watched: Callable[..., list[Any]],
) -> None:
    (first,), (second,) = watched(sends_what_nobody_expects)
    assert "rank 0 sent 4 float64, rank 1 expects 4 float32" in first
    assert "rank 0 sent 4 float64, rank 1 expects 4 float32" in second
    assert "rank 1 called recv at test_short_messages.py:" in first
    assert second.count("test_short_messages.py:") == 2


def waits_late_on_a_backend_that_tells_ends() -> list[str]:
    from distdbg.torch_bridge.hook import install

    install()
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import _create_fake_pg

    from distdbg.torch_bridge.guarded import state

    is_extended = len(signature(_create_fake_pg).parameters) < 4  # not so up to torch 2.6
    dist.Backend.register_backend(
        "null", _create_fake_pg, extended_api=is_extended, devices=["cpu"]
    )
    dist.init_process_group("null")
    groups = state["job"]._groups
    peer = 1 - dist.get_rank()
    for has_short_way in (True, False):
        if not has_short_way:
            groups.lanes.clear()
        sent, received = dist.isend(torch.ones(3), peer), dist.irecv(torch.zeros(3), peer)
        time.sleep(0.3)  # past the look that comes every tenth of a second
        sent.wait()
        received.wait()
    dist.destroy_process_group()
    return []


def test_a_message_that_has_ended_long_before_its_wait(
    watched: Callable[..., list[Any]],
) -> None:
    from tests.support.ports import free_port

    env = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    assert watched(waits_late_on_a_backend_that_tells_ends, "info", more_env=env) == [[], []]

"""monitored_barrier among real processes: missing, late, killed and left ranks, on whole and part."""

from __future__ import annotations

import faulthandler
import os
import signal
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import pytest

import distdbg as dist
from distdbg.errors import OpTimeout, PeerLost, RankLeft
from distdbg.runtime.members import store_barrier
from distdbg.runtime.members.barrier_tree import find_missing
from distdbg.runtime.members.store_barrier import run_monitored_barrier
from tests.support.ports import free_port

LONG = timedelta(seconds=60)
Is = Callable[[int], bool]


def fail_to_meet(group: dist.ProcessGroup, limit_s: float, came: Sequence[int]) -> dict[str, Any]:
    """Group ranks `came` are those that come in time, however slow they are."""

    def look(size: int, arity: int, is_complete: Is, is_here: Is) -> tuple[list[int], list[int]]:
        deadline = time.monotonic() + 120
        while not all(is_complete(rank) or is_here(rank) for rank in came):
            assert time.monotonic() < deadline, f"not all of {came} have come"
            time.sleep(0.005)  # a store tells nobody of a key
        return find_missing(size, arity, is_complete, is_here)

    started = time.monotonic()
    with (
        patch.object(store_barrier, "find_missing", look),
        pytest.raises(OpTimeout) as caught,
    ):
        run_monitored_barrier(group, limit_s, arity=2)  # so that rank 1 stands above rank 3
    error = caught.value
    return {
        "what": error.what,
        "missing": error.missing,
        "arrived": error.arrived,
        "took_s": time.monotonic() - started,
        "last": error.details[-1],
    }


def one_is_missing(missing: int) -> dict[str, Any]:
    dist.init_process_group()
    group = dist.group.WORLD
    assert group is not None
    store = group.get_group_store()
    came = [rank for rank in range(4) if rank != missing]
    if dist.get_rank() == missing:
        # It comes when all others have given up, and its own limit is far away.
        store.wait([f"gave up {rank}" for rank in came])
        found = fail_to_meet(group, 60, came)
    else:
        found = fail_to_meet(group, 0.4, came)
        store.set(f"gave up {dist.get_rank()}", "")
    dist.monitored_barrier(timeout=timedelta(seconds=60))  # the group goes on
    dist.barrier()
    dist.destroy_process_group()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("missing", [0, 1, 3], ids=["root", "inner", "leaf"])
def test_all_name_the_missing_rank_which_learns_it_when_it_comes(
    ranks: Callable[..., Any], missing: int
) -> None:
    found = ranks(one_is_missing, 4, missing=missing)
    assert len({f["what"] for f in found}) == 1
    assert f" for rank {missing} of 0-3; 3 of 4 ranks arrived" in found[0]["what"]
    for rank, f in enumerate(found):
        assert f["missing"] == [missing]
        assert f["arrived"] == [r for r in range(4) if r != missing]
        if rank == missing:
            assert f["took_s"] < 30  # of its own 60 s
            assert f["last"] == "this rank arrived after the others had timed out"
        else:
            # Its own limit, then one turn for each level above it, and a slice of waiting.
            assert 0.3 < f["took_s"] < 30
            assert f["last"] == "the group is still usable"


def one_goes(how: str) -> dict[str, Any] | None:
    dist.init_process_group()
    dist.monitored_barrier()
    if dist.get_rank() == 2:
        if how == "killed":
            faulthandler.disable()  # this death is meant
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "left":
            dist.destroy_process_group()
        return None
    started = time.monotonic()
    with pytest.raises(PeerLost) as caught:
        dist.monitored_barrier(timeout=LONG)
    error = caught.value
    dist.destroy_process_group()
    return {
        "what": error.what,
        "peer": error.peer,
        "kind": error.kind,
        "is_left": isinstance(error, RankLeft),
        "took_s": time.monotonic() - started,
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "text"),
    [("killed", "died (signal 9, SIGKILL)"), ("left", "left ("), ("returned", "left (returned")],
)
def test_a_rank_that_is_gone_ends_the_barrier_at_once(
    ranks: Callable[..., Any], how: str, text: str
) -> None:
    found = ranks(one_goes, 4, how=how, expect_exit={2: -9} if how == "killed" else {})
    rest = [f for rank, f in enumerate(found) if rank != 2]
    assert len({f["what"] for f in rest}) == 1
    assert text in rest[0]["what"]
    assert "monitored_barrier #2 on group 'world'" in rest[0]["what"]
    for f in rest:
        assert (f["peer"], f["kind"]) == (2, "monitored_barrier")
        assert f["is_left"] is (how != "killed")
        assert f["took_s"] < 30  # of 60 s


def one_of_a_part_is_missing() -> dict[str, Any] | None:
    dist.init_process_group()
    group = dist.new_group([1, 2, 3], group_desc="part")
    found = None
    if dist.get_rank() in (1, 3):
        found = fail_to_meet(group, 0.3, [0, 2])
    dist.monitored_barrier(timeout=timedelta(seconds=60))
    dist.destroy_process_group()
    return found


def test_a_part_of_the_ranks_is_named_by_global_ranks(ranks: Callable[..., Any]) -> None:
    found = ranks(one_of_a_part_is_missing, 4)
    assert found[0] is None
    assert found[2] is None
    assert found[1]["what"] == found[3]["what"]
    assert "on group 'part' waited" in found[1]["what"]
    assert " for rank 2 of 1-3; 2 of 3 ranks arrived" in found[1]["what"]
    assert found[1]["missing"] == [2]


def store_is_stopped(port: int) -> float | None:
    dist.init_process_group(
        init_method=f"tcp://127.0.0.1:{port}", timeout=LONG
    )  # rank 0 serves the store
    dist.monitored_barrier()
    dist.barrier()  # now the store has served both
    if dist.get_rank() == 0:
        os.kill(os.getpid(), signal.SIGSTOP)
        return None
    server = dist.group.WORLD.members[0].identity[0]  # type: ignore[union-attr]
    started = time.monotonic()
    with pytest.raises(dist.DistStoreError, match="did not answer"):
        dist.monitored_barrier(timeout=timedelta(seconds=0.3))
    took_s = time.monotonic() - started
    os.kill(server, signal.SIGKILL)
    return took_s


@pytest.mark.slow
def test_a_store_that_does_not_answer_holds_nobody_for_long(ranks: Callable[..., Any]) -> None:
    took_s = ranks(store_is_stopped, 2, port=free_port(), expect_exit={0: -9})[1]
    assert took_s < 30

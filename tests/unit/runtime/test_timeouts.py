"""`timeout=` limits one op, whatever the group's limit is; and what is left of a group after it."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from inspect import signature
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg import config
from distdbg.errors import CollectiveError, OpTimeout, UsageError
from distdbg.ops.call import Call
from distdbg.record.rank_words import where_is
from distdbg.runtime.groups.group import ProcessGroup
from tests.support.store_ranks import REFERENCE, run_store_ranks

LIMIT_S = 0.05


def ones(count: int = 2) -> Any:
    return np.ones(count)


def in_block(group: Any, **limit: Any) -> None:
    with dist._coalescing_manager(group, **limit):
        dist.all_reduce(ones(), group=group)


def in_async_block(group: Any, **limit: Any) -> Any:
    with dist._coalescing_manager(group, async_ops=True, **limit) as block:
        dist.all_reduce(ones(), group=group)
    return block


def batch(group: Any, **limit: Any) -> Any:
    sends = [dist.P2POp(dist.isend, ones(), group=group, group_peer=1)]
    return dist.batch_isend_irecv(sends, **limit)[0]


#: Each is called on rank 0 of 2 alone; what it returns is waited for.
CALLS: dict[str, Callable[..., Any]] = {
    "all_reduce": lambda **a: dist.all_reduce(ones(), **a),
    "all_reduce of MAX": lambda **a: dist.all_reduce(ones(), dist.ReduceOp.MAX, **a),
    "all_reduce_coalesced": lambda **a: dist.all_reduce_coalesced([ones(), ones()], **a),
    "broadcast": lambda **a: dist.broadcast(ones(), group_src=0, **a),
    "reduce": lambda **a: dist.reduce(ones(), group_dst=0, **a),
    "all_gather": lambda **a: dist.all_gather([ones(), ones()], ones(), **a),
    "all_gather_into_tensor": lambda **a: dist.all_gather_into_tensor(ones(4), ones(), **a),
    "all_gather_single": lambda **a: dist.all_gather_single(ones(4), ones(), **a),
    "_all_gather_base": lambda **a: dist._all_gather_base(ones(4), ones(), **a),
    "all_gather_coalesced": lambda **a: dist.all_gather_coalesced([[ones()], [ones()]], [ones()], **a),
    "gather": lambda **a: dist.gather(ones(), [ones(), ones()], group_dst=0, **a),
    "scatter": lambda **a: dist.scatter(ones(), [ones(), ones()], group_src=0, **a),
    "reduce_scatter": lambda **a: dist.reduce_scatter(ones(), [ones(), ones()], **a),
    "reduce_scatter_tensor": lambda **a: dist.reduce_scatter_tensor(ones(), ones(4), **a),
    "reduce_scatter_single": lambda **a: dist.reduce_scatter_single(ones(), ones(4), **a),
    "_reduce_scatter_base": lambda **a: dist._reduce_scatter_base(ones(), ones(4), **a),
    "all_to_all": lambda **a: dist.all_to_all([ones(), ones()], [ones(), ones()], **a),
    "all_to_all_single": lambda **a: dist.all_to_all_single(ones(4), ones(4), **a),
    "barrier": lambda **a: dist.barrier(**a),
    "send": lambda **a: dist.send(ones(), group_dst=1, **a),
    "recv": lambda **a: dist.recv(ones(), group_src=1, **a),
    "recv from any": lambda **a: dist.recv(ones(), **a),
    "isend": lambda **a: dist.isend(ones(), group_dst=1, **a),
    "irecv": lambda **a: dist.irecv(ones(), group_src=1, **a),
    "batch_isend_irecv": batch,
    "all_gather_object": lambda **a: dist.all_gather_object([0, 0], 1, **a),
    "gather_object": lambda **a: dist.gather_object(1, [0, 0], group_dst=0, **a),
    "broadcast_object_list": lambda **a: dist.broadcast_object_list([1], group_src=0, **a),
    "scatter_object_list": lambda **a: dist.scatter_object_list([0], [1, 2], group_src=0, **a),
    "send_object_list": lambda **a: dist.send_object_list([1], group_dst=1, **a),
    "send_object_list in a batch": lambda **a: dist.send_object_list(
        [1], group_dst=1, use_batch=True, **a
    ),
    "recv_object_list": lambda **a: dist.recv_object_list([0], group_src=1, **a),
    "recv_object_list in a batch": lambda **a: dist.recv_object_list(
        [0], group_src=1, use_batch=True, **a
    ),
    "block": in_block,
    "async block": in_async_block,
    "monitored_barrier": lambda **a: dist.monitored_barrier(**a),
}  # fmt: skip
#: Those whose function takes async_op.
ASYNC = [name for name in CALLS if "async_op" in signature(getattr(dist, name, ones)).parameters]


def poll_for(is_so: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.005)  # the other rank announces nothing to this one


def finish(call: Callable[..., Any], **arguments: Any) -> None:
    work = call(**arguments)
    if work is not None:
        work.wait()


def expect_timeout(call: Callable[..., Any], **arguments: Any) -> OpTimeout:
    started = time.monotonic()
    with pytest.raises(OpTimeout) as caught:
        finish(call, **arguments)
    assert LIMIT_S * 0.9 < time.monotonic() - started < 30  # of the group's 60 s
    return caught.value


@pytest.mark.parametrize("name", [*CALLS, *(f"async {name}" for name in ASYNC)])
def test_the_timeout_of_one_op_ends_it(name: str) -> None:
    arguments = {} if name in CALLS else {"async_op": True}
    call = CALLS[name] if name in CALLS else CALLS[name.removeprefix("async ")]

    def run(rank: int) -> None:
        group = dist.new_group([0, 1], timeout=timedelta(seconds=60))
        if rank == 0:
            error = expect_timeout(call, group=group, timeout=LIMIT_S, **arguments)
            assert error.waited_s >= LIMIT_S * 0.9
            assert error.missing == ([] if name == "recv from any" else [1])
        both_are_done.wait()

    both_are_done = threading.Barrier(2)
    run_store_ranks(run, 2, backend="gloo")


def test_a_timeout_is_a_length_or_seconds() -> None:
    def run(rank: int) -> None:
        for limit in (LIMIT_S, timedelta(seconds=LIMIT_S)):
            group = dist.new_group([0, 1], timeout=timedelta(seconds=60))
            if rank == 0:
                expect_timeout(CALLS["all_reduce"], group=group, timeout=limit)
        both_are_done.wait()

    both_are_done = threading.Barrier(2)
    run_store_ranks(run, 2, backend="gloo")


Limits = list[tuple[str, float | None]]


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> Limits:
    """The name of each op that a group is asked for, and the limit that it brings."""
    seen: Limits = []
    run = ProcessGroup.run

    def note(self: ProcessGroup, call: Call, *more: Any) -> Any:
        seen.append((call.name or call.kind.name, call.timeout_s))
        return run(self, call, *more)

    monkeypatch.setattr(ProcessGroup, "run", note)
    return seen


def test_all_ops_of_an_object_form_share_one_limit(limits: Limits) -> None:
    def sent() -> list[float]:
        return [limit_s for name, limit_s in limits if name == "send_object_list" and limit_s]

    def run(rank: int) -> None:
        if rank == 0:
            dist.send_object_list([1], 1, timeout=60)
            return
        poll_for(sent, "rank 0 sends no sizes")
        time.sleep(0.35)  # of what the other rank grants for sizes and data
        dist.recv_object_list([None], 0)

    run_store_ranks(run, 2, backend="gloo", timeout_s=60)
    sizes_s, data_s = sent()
    assert sizes_s <= 60
    assert data_s <= sizes_s - 0.35


@pytest.mark.parametrize("bad", ["1", float("nan"), object()])
def test_what_is_no_length_of_time_is_refused(bad: Any) -> None:
    def run(rank: int) -> None:
        for call in (CALLS["all_reduce"], CALLS["broadcast"], CALLS["send"], CALLS["barrier"]):
            with pytest.raises(UsageError, match="timeout must be a timedelta or seconds"):
                call(group=None, timeout=bad)

    run_store_ranks(run, 2, backend="gloo")


@pytest.mark.parametrize("backend", ["gloo", REFERENCE])
def test_a_timeout_may_be_for_ever(backend: str) -> None:
    def run(rank: int) -> None:
        group = dist.new_group([0, 1], timeout=float("inf"))  # type: ignore[arg-type]  # as torch
        dist.all_reduce(ones(), timeout=float("inf"))
        dist.barrier(group, timeout=timedelta.max)
        dist.barrier(group)
        dist.monitored_barrier(group)

    run_store_ranks(run, 2, backend=backend)


def test_a_limit_of_a_block_does_not_stay_with_a_call_that_is_shared(limits: Limits) -> None:
    def run(rank: int) -> None:
        with dist._coalescing_manager(timeout=60):
            dist.barrier()
        dist.barrier()

    run_store_ranks(run, 2, backend="gloo")
    # Of each rank: the barrier of its start, that of the block, the last one.
    assert sorted(limits, key=str) == [("BARRIER", 60.0)] * 2 + [("BARRIER", None)] * 4


def blocking() -> None:
    dist.all_reduce(ones(), timeout=LIMIT_S)


def asynchronous() -> None:
    finish(CALLS["all_reduce"], async_op=True, timeout=LIMIT_S)


def message() -> None:
    dist.recv(ones(), 1, timeout=LIMIT_S)


def asynchronous_message() -> None:
    finish(dist.irecv, tensor=ones(), src=1, timeout=LIMIT_S)


@pytest.mark.parametrize("first", [blocking, asynchronous, message, asynchronous_message])
def test_after_a_timeout_every_op_fails_at_once_with_the_first_cause(
    first: Callable[[], None],
) -> None:
    def run(rank: int) -> list[str]:
        store = dist.group.WORLD.get_group_store()  # type: ignore[union-attr]
        if rank == 0:
            with pytest.raises(OpTimeout):
                first()
            store.set("timed out", "")
        else:
            store.wait(["timed out"])
        texts = []
        for name in (
            "all_reduce",
            "broadcast",
            "barrier",
            "send",
            "recv",
            "isend",
            "irecv",
            "block",
        ):
            peer = {"send": "dst", "isend": "dst", "recv": "src", "irecv": "src"}.get(name)
            arguments = {"tensor": ones(), peer: 1 - rank} if peer else {"group": None}
            started = time.monotonic()
            with pytest.raises(CollectiveError) as caught:
                finish(getattr(dist, name) if peer else CALLS[name], **arguments)
            assert time.monotonic() - started < 30  # of the group's 60 s
            assert not isinstance(caught.value, OpTimeout)
            texts.append(caught.value.what)
        both_are_done.wait()
        return texts

    both_are_done = threading.Barrier(2)
    for texts in run_store_ranks(run, 2, backend="gloo", timeout_s=60):
        for text in texts:
            assert "cannot run: rank 0 timed out" in text
            assert "#0" not in text


def test_the_variable_has_two_names() -> None:
    assert config.read_float("DISTDBG_TIMEOUT_S", {}) == 1800
    assert config.read_float("DISTDBG_TIMEOUT_S", {"DISTDBG_TIMEOUT": "7"}) == 7
    both = {"DISTDBG_TIMEOUT": "7", "DISTDBG_TIMEOUT_S": "8"}
    assert config.read_float("DISTDBG_TIMEOUT_S", both) == 8


def test_the_variable_limits_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTDBG_TIMEOUT", "0.5")  # also for the start of the group
    store = dist.HashStore()

    def run(rank: int) -> None:
        dist.init_process_group(store=store, rank=rank, world_size=1)
        with pytest.raises(OpTimeout):
            dist.recv(ones())

    run_store_ranks(run, 1, is_initialized=False)


def test_a_timeout_says_where_the_missing_rank_is() -> None:
    def run(rank: int) -> list[str]:
        other = dist.new_group([0, 1], group_desc="other")
        dist.barrier()
        if rank == 1:
            dist.recv(ones(), 0, group=other)
            return []
        folder = other.world.run_folder
        poll_for(lambda: "in recv" in str(where_is(folder, 1)), "rank 1 is not in recv")
        with pytest.raises(OpTimeout) as caught:
            dist.all_reduce(ones(), timeout=0.2)
        with pytest.raises(OpTimeout) as late:
            dist.monitored_barrier(timeout=0.2)
        dist.send(ones(), 1, group=other)
        return [caught.value.details[0], late.value.details[0]]

    line, barrier_line = run_store_ranks(run, 2, backend="gloo")[0]
    place = r"in recv .* on group 'other' for \d+(?:\.\d+)? m?s, test_timeouts\.py:\d+ \(.*run\)"
    assert re.fullmatch("rank 1 last called op #1 on this group; " + place, line), line
    assert re.fullmatch("rank 1: " + place, barrier_line), barrier_line

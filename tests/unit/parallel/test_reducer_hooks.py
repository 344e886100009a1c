"""Hooks of GradientReducer: what they give back, where they raise, and what those of distdbg promise."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg.runtime.handles.future import Future
from distdbg.runtime.parallel.hooks import Later, allreduce_hook
from tests.unit.parallel.reducer_ranks import RANKS, full, run


def test_what_a_hook_gives_back_is_checked() -> None:
    def ended(value: Any) -> Any:
        return lambda state, bucket: Later(lambda: value)

    def job(rank: int) -> None:
        tree = {"fc.w": full(2, 1), "fc.b": full(3, 1)}
        for hook, words in (
            (lambda state, bucket: 3, "returned an object of type int for DDP bucket 0 of fc"),
            (ended(None), "ended with None for DDP bucket 0 of fc, not an array"),
            (ended([]), "ended with an object of type list"),
            (ended(full(2, 0)), "ended with 2 numbers for DDP bucket 0 of fc, which has 5"),
        ):
            reducer = dist.GradientReducer(tree)
            reducer.register_comm_hook(None, hook)
            with pytest.raises(dist.UsageError, match=words) as caught:
                reducer.reduce(tree)
            assert "comm hook test_what_a_hook" in str(caught.value)
        reducer = dist.GradientReducer(tree)
        with pytest.raises(TypeError, match="the hook is no function but of type int"):
            reducer.register_comm_hook(None, 1)  # type: ignore[arg-type]  # wrong on purpose

    run(job, 1)


def test_a_hook_that_raises_leaves_the_reducer_usable() -> None:
    def job(rank: int) -> Any:
        calls = []

        def hook(state: None, bucket: dist.GradBucket) -> Any:
            calls.append(bucket.index())
            if len(calls) == 1:
                raise OSError("no disk")
            return allreduce_hook(state, bucket)

        reducer = dist.GradientReducer([full(2, 0), full(2, 0)])
        reducer.register_comm_hook(None, hook)
        with pytest.raises(OSError, match="no disk"):
            reducer.reduce([full(2, 1), full(2, 1)])
        for _ in range(2):
            averages = reducer.reduce([full(2, rank), full(2, 1)])
        return [float(one[0]) for one in averages]

    assert run(job) == [[1, 1]] * RANKS


def _sends_then_waits(state: Any, bucket: dist.GradBucket) -> Later:
    """Two ops one after the other, as PowerSGD has them."""
    first = dist.all_reduce(bucket.buffer(), async_op=True)
    assert first is not None

    def make() -> Any:
        first.wait()
        dist.all_reduce(bucket.buffer())
        return bucket.buffer()

    return Later(make)


def _sends_at_once(state: Any, bucket: dist.GradBucket) -> Later:
    dist.all_reduce(bucket.buffer())
    return Later(bucket.buffer)


def _sends_by_a_future(state: Any, bucket: dist.GradBucket) -> Any:
    work = dist.all_reduce(bucket.buffer(), async_op=True)
    assert work is not None
    return work.get_future().then(lambda ended: ended.value()[0])


@pytest.mark.parametrize(
    ("usual", "when"),
    [
        (allreduce_hook, "at its begin"),
        (_sends_at_once, "after its ops"),
        (_sends_then_waits, "in its future"),
        (_sends_by_a_future, "at its begin"),
    ],
)
def test_a_hook_that_raises_on_one_rank_is_told_in_that_pass(usual: Any, when: str) -> None:
    def job(rank: int) -> Any:
        calls = []

        def raises(future: Any) -> Any:
            future.wait()
            raise OSError("no disk")

        def hook(state: Any, bucket: dist.GradBucket) -> Any:
            calls.append(bucket.index())
            is_odd = (
                rank == 1 and len(calls) == 5
            )  # bucket 1 of the second pass in which there are 3
            if is_odd and when == "at its begin":
                raise OSError("no disk")
            found = usual(state, bucket)
            if is_odd and when == "after its ops":
                raise OSError("no disk")
            return Later(lambda: raises(found)) if is_odd else found

        tree = [full(2, rank) for _ in range(3)]
        reducer = dist.GradientReducer(tree, bucket_cap_mb=1e-6)
        reducer.register_comm_hook(None, hook)
        found = []
        for _ in range(5):
            try:
                reducer.reduce(tree)
                found.append("")
            except (OSError, dist.MismatchError) as error:
                found.append(str(error).partition("\n")[0])
        dist.assert_same(reducer.reduce([full(2, 3) for _ in range(3)]))
        gc.collect()  # an error in a future and the frame it went through hold each other
        return found

    reported = "DDP step 3 on group 'world': rank 1 gave up the pass: comm hook "
    for rank, found in enumerate(run(job)):
        assert found[:2] + found[3:] == [""] * 4
        assert found[2] == "no disk" if rank == 1 else found[2].startswith(reported), found[2]


def test_at_level_off_a_hook_that_raises_on_one_rank_ends_all_by_its_error() -> None:
    def job(rank: int) -> Any:
        dist.set_debug_level(dist.DebugLevel.OFF)
        calls = []

        def hook(state: Any, bucket: dist.GradBucket) -> Any:
            calls.append(bucket.index())
            if rank == 1 and len(calls) == 5:
                raise OSError("no disk")
            return allreduce_hook(state, bucket)

        tree = [full(2, rank) for _ in range(3)]
        reducer = dist.GradientReducer(tree, bucket_cap_mb=1e-6)
        reducer.register_comm_hook(None, hook)
        found = []
        for _ in range(4):
            try:
                reducer.reduce(tree)
                found.append("")
            except (OSError, dist.DistError) as error:
                found.append(str(error).partition("\n")[0])
        return found

    reported = "rank 1 gave up a pass of DDP: comm hook "
    for rank, found in enumerate(run(job)):
        assert found[:2] == ["", ""]
        assert found[2] == "no disk" if rank == 1 else reported in found[2], found
        assert reported in found[3]
        assert found[3].endswith("OSError: no disk in op #11")


@pytest.mark.parametrize("name", list(dist.DDPCommHookType.__members__))
def test_a_hook_has_nothing_to_do_for_empty_parameters(name: str) -> None:
    def job(rank: int) -> Any:
        reducer = dist.GradientReducer({"w": full((0, 3), 0)})
        dist.register_ddp_comm_hook(dist.DDPCommHookType[name], reducer)
        return reducer.reduce({"w": full((0, 3), 0)})["w"].shape

    assert run(job, 2) == [(0, 3)] * 2


@pytest.mark.parametrize("name", list(dist.DDPCommHookType.__members__))
def test_a_hook_averages_as_far_as_it_promises(name: str) -> None:
    def job(rank: int) -> Any:
        reducer = dist.GradientReducer({"w": full((12, 10), 0), "v": full(5, 0)})
        kind = dist.DDPCommHookType[name]
        if "POWER" in name:
            kind.value(model=reducer, state=None, start_powerSGD_iter=2)
        else:
            dist.register_ddp_comm_hook(kind, reducer)
        outer = np.outer(np.arange(12), np.arange(10)).astype(np.float32)
        sums = []
        for _ in range(8):
            averages = reducer.reduce({"w": outer * rank, "v": full(5, rank)})
            sums.append(averages["w"])
        # What one pass loses the next one makes up for, so the sum of all is what is compared.
        lost = float(np.abs(sum(sums) - outer * len(sums)).max() / outer.max())
        return lost, float(averages["v"][0]), sums[-1].tobytes()

    results = run(job)
    if name == "NOOP":
        assert [value for _, value, _ in results] == [0, 1, 2]
        return
    assert len({bits for *_, bits in results}) == 1
    limits = {"ALLREDUCE": 0.0, "POWER_SGD": 1e-4, "POWER_SGD_RANK2": 1e-4}
    limit = limits.get(name, 4.0 if "BATCHED" in name else 0.08)
    assert max(lost for lost, *_ in results) <= limit


def test_a_hook_of_the_programs_own() -> None:
    def job(rank: int) -> Any:
        seen = []

        def hook(state: list[int], bucket: dist.GradBucket) -> Any:
            state.append(bucket.index())
            seen.append((bucket.is_last(), [one.shape for one in bucket.parameters()]))
            assert np.shares_memory(bucket.gradients()[0], bucket.buffer())
            work = dist.all_reduce(bucket.buffer(), async_op=True)
            assert work is not None
            future: Future[Any] = work.get_future()
            return future

        reducer = dist.GradientReducer([full(2, 0), full((2, 2), 0)], bucket_cap_mb=1e-6)
        state: list[int] = []
        reducer.register_comm_hook(state, hook)
        with pytest.raises(dist.UsageError, match="registered already"):
            reducer.register_comm_hook(state, hook)
        for _ in range(2):
            sums = reducer.reduce([full(2, rank), full((2, 2), 1)])
        assert seen[1:] == [(False, [(2,)]), (True, [(2, 2)])]
        return [float(one.flat[0]) for one in sums], state

    assert run(job) == [([3, 3], [0, 0, 1])] * RANKS

"""At DETAIL the ranks meet before the first bucket of a pass; those that follow as ever wait for nobody."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from begin import begin

from distdbg.errors import MismatchError

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.ranks, pytest.mark.slow]

#: DDP orders its buckets anew after the first pass; the next one starts each when it is expected.
_USUAL = 4


def model_of(hooks: dict[int, Callable[[Any], None]]) -> Any:
    """Three layers, whose buckets are 2, 1 and 0; a hook runs when a layer's gradients are made."""
    from torch.nn.parallel import DistributedDataParallel

    layers = [torch.nn.Linear(64, 64) for _ in range(3)]
    for at, hook in hooks.items():
        layers[at].bias.register_hook(hook)
    return DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=0.01)


def train(model: Any) -> None:
    model(torch.ones(2, 64)).sum().backward()


def one_rank_ahead() -> None:
    """Rank 1 starts its second bucket when rank 0 has done so already."""
    dist = begin()
    from distdbg.torch_bridge.tap import lane

    rank, store = dist.get_rank(), dist.distributed_c10d._get_default_store()
    is_late = False

    def before_the_second(_: Any) -> None:
        if is_late and rank == 1:
            store.wait(["second has started"], timedelta(seconds=30))

    def after_the_second(_: Any) -> None:
        if is_late and rank == 0:
            store.set("second has started", "")

    model = model_of({1: before_the_second, 0: after_the_second})
    for _ in range(_USUAL):
        train(model)
    lane.MOMENT_NS = 120_000_000_000  # else a wait for the other rank gives up, and all goes on
    is_late = True
    train(model)
    dist.destroy_process_group()


def test_a_bucket_after_the_first_waits_for_no_rank(watched: Callable[..., list[Any]]) -> None:
    watched(one_rank_ahead)


def another_op_between_buckets() -> str:
    """Rank 1 sums something else where rank 0 reduces its second bucket."""
    dist = begin()
    rank, differs = dist.get_rank(), False

    def before_the_second(_: Any) -> None:
        if differs and rank == 1:
            dist.all_reduce(torch.ones(5))

    model = model_of({1: before_the_second})
    for _ in range(_USUAL):
        train(model)
    differs = True
    with pytest.raises(MismatchError) as raised:
        train(model)
    return str(raised.value)


def test_another_op_than_the_bucket_that_was_foreseen_is_told_on_both_ranks(
    watched: Callable[..., list[Any]],
) -> None:
    for text in watched(another_op_between_buckets):
        assert "float32[5] on rank 1" in text
        assert "float32[4160] on rank 0" in text
        assert "(DDP bucket 1 of 1)" in text
        here = re.escape(Path(__file__).name)
        assert re.search(rf"rank 0 called all_reduce .* at \S*{here}:\d+ \(train\)", text)
        assert re.search(rf"rank 1 called all_reduce at \S*{here}:\d+ .*before_the_second", text)
        assert "the group is unusable" in text
        assert "still usable" not in text
        assert "level INFO" not in text


def leaves_a_pass() -> str:
    """Rank 1 leaves a pass after its first bucket, and goes on with another op."""
    dist = begin()
    rank, leaves = dist.get_rank(), False

    def before_the_second(_: Any) -> None:
        if leaves and rank == 1:
            raise ValueError("no memory")

    model = model_of({1: before_the_second})
    for _ in range(_USUAL):
        train(model)
    leaves = True
    if rank == 1:
        with pytest.raises(ValueError, match="no memory"):
            train(model)
        leaves = False
    with pytest.raises(MismatchError) as raised:
        train(model) if rank == 0 else dist.all_reduce(torch.ones(7), async_op=True)
    return str(raised.value)


def test_a_rank_that_leaves_a_pass_is_told_at_its_next_op(
    watched: Callable[..., list[Any]],
) -> None:
    for text in watched(leaves_a_pass):
        assert "float32[7] on rank 1" in text
        assert "(DDP bucket 1 of 1)" in text
        assert "the group is unusable" in text


def fails_behind_a_difference() -> str:
    """Torch tells of the last op of rank 0 first that it has failed, when rank 1 has left."""
    dist = begin()
    from distdbg.torch_bridge.guarded import state
    from distdbg.torch_bridge.tap import lane

    rank, store = dist.get_rank(), dist.distributed_c10d._get_default_store()
    if rank == 1:
        store.wait(["both have started"], timedelta(seconds=30))
        with pytest.raises(MismatchError) as raised:
            dist.all_reduce(torch.ones(7))
        return str(raised.value)
    job: Any = state["job"]
    job._tap.stop()  # nothing but this thread looks after ops
    tapped = job.tapped()[0]
    failed: list[Any] = []
    lane.MOMENT_NS = 0  # both start before all have agreed
    fail, tapped.fail = tapped.fail, lambda *reported: failed.append(reported)
    works = [dist.all_reduce(torch.ones(4), async_op=True) for _ in range(2)]
    store.set("both have started", "")
    while len(failed) < len(works):
        time.sleep(0.001)  # torch's threads tell it
    failed.sort(key=lambda reported: reported[0].call.checked.agreement.seq, reverse=True)
    for op, error in failed:
        while not op.call.checked.agreement.done():
            time.sleep(0.001)  # the last one ends when it is seen that rank 1 has left
        fail(op, error)
    return str(state["job"]._groups.explain())


def test_a_rank_that_ends_of_a_difference_is_not_the_news(
    watched: Callable[..., list[Any]],
) -> None:
    for text in watched(fails_behind_a_difference):
        assert "float32[4] on rank 0" in text
        assert "float32[7] on rank 1" in text
        assert "rank 1 left" not in text

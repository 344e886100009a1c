"""Join: ranks with different numbers of batches, over NumPy arrays; and marks of a loop over batches."""

from __future__ import annotations

import os
import re
import threading
import warnings
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg.algorithms import join as torchs_path
from distdbg.record.entries import FindingEntry, MarkEntry
from distdbg.record.reader import read_record
from distdbg.runtime.process.world import current
from tests.support.store_ranks import run_store_ranks


class Averaging(dist.Joinable):
    """Adds up what all ranks give per step; a rank that has joined gives zeros."""

    def __init__(self, group: Any = None) -> None:
        super().__init__()
        self.group = group
        self.sums: list[float] = []
        self.joined: list[bool] = []
        self.shadowed = 0

    def step(self, value: float) -> None:
        dist.Join.notify_join_context(self)
        self.reduce(value)

    def reduce(self, value: float) -> None:
        total = np.array([value])
        dist.all_reduce(total, group=self.group)
        self.sums.append(float(total[0]))

    def join_hook(self, **kwargs: Any) -> dist.JoinHook:
        return Shadow(self, kwargs.get("weight", 0.0))

    @property
    def join_process_group(self) -> Any:
        return self.group


class Shadow(dist.JoinHook):
    def __init__(self, model: Averaging, weight: float) -> None:
        self.model = model
        self.weight = weight

    def main_hook(self) -> None:
        self.model.shadowed += 1
        self.model.reduce(self.weight)

    def post_hook(self, is_last_joiner: bool) -> None:
        self.model.joined.append(is_last_joiner)


def train(model: Averaging, steps: int, fails: bool = False, **options: Any) -> Averaging:
    with dist.Join([model], **options):
        for _ in range(steps):
            model.step(1.0)
        if fails:
            raise KeyError("no such layer")
    return model


class Plain(Averaging):
    """Its constructor forgets the base class's."""

    def __init__(self) -> None:
        self.group = None


def test_ranks_join_one_after_the_other() -> None:
    def run(rank: int) -> tuple[list[float], int, list[bool]]:
        model = train(Averaging(), 1 + 2 * rank)
        return model.sums, model.shadowed, model.joined

    sums = [3.0, 2.0, 2.0, 1.0, 1.0]
    assert run_store_ranks(run, 3, backend="gloo") == [
        (sums, 4, [False]),
        (sums, 2, [False]),
        (sums, 0, [True]),
    ]


def test_keywords_reach_the_hooks_and_only_the_first_joinable_announces() -> None:
    def run(rank: int) -> list[object]:
        first, second = Averaging(), Averaging()
        with dist.Join([first, second], weight=10.0):
            for _ in range(1 + rank):
                assert isinstance(dist.Join.notify_join_context(first), dist.Work)
                assert dist.Join.notify_join_context(second) is None
                first.reduce(1.0)
                second.reduce(2.0)
        # Outside of the block nothing is announced any more.
        assert dist.Join.notify_join_context(first) is None
        return [first.sums, second.sums]

    assert run_store_ranks(run, 2, backend="gloo") == [[[2.0, 11.0], [4.0, 12.0]]] * 2


def test_an_early_end_is_an_error_on_all_ranks_that_names_who_and_when() -> None:
    def run(rank: int) -> str:
        with pytest.raises(RuntimeError) as caught:
            train(Averaging(), 5 if rank == 1 else 2, throw_on_early_termination=True)
        assert isinstance(caught.value, dist.CollectiveError)
        assert caught.value.ranks == [0, 2]
        out, going_on = caught.value.details[:2]
        assert re.fullmatch(r"ranks 0,2 had no batch left at test_join.py:\d+ \(train\)", out)
        assert re.fullmatch(r"rank 1 began a step at test_join.py:\d+ \(Averaging.step\)", going_on)
        recorder = current().recorder
        assert recorder is not None
        recorded = read_record(os.fsdecode(recorder.path or "")).events
        assert any(
            caught.value.what in (e.text or "") for e in recorded if isinstance(e, FindingEntry)
        )
        dist.barrier()
        return caught.value.what

    found = run_store_ranks(run, 3, backend="gloo")
    assert set(found) == {
        "ranks 0,2 ran out of batches at step 3; Join ends all ranks of group 'world'"
    }


def test_even_inputs_and_a_disabled_join_need_no_shadow() -> None:
    def run(rank: int) -> list[object]:
        found: list[object] = []
        for options in ({}, {"enable": False}, {"throw_on_early_termination": True}):
            model = train(Averaging(), 3, **options)
            found.append((model.sums, model.joined))
        return found

    even = ([2.0] * 3, [True])
    expected = [even, ([2.0] * 3, []), even]
    assert run_store_ranks(run, 2, backend="gloo") == [expected] * 2


def test_a_block_may_be_entered_again_and_announces_nothing_before() -> None:
    def run(rank: int) -> list[float]:
        model = Averaging()
        block = dist.Join([model])
        model.step(1.0)
        for _ in range(2):
            with block:
                for _ in range(1 + rank):
                    model.step(1.0)
        return model.sums

    assert run_store_ranks(run, 2, backend="gloo") == [[2.0, 2.0, 1.0, 2.0, 1.0]] * 2


class Forgetful(Averaging):
    """One element of float32, as Join's own count; its main hook makes no collective."""

    def reduce(self, value: float) -> None:
        dist.all_reduce(np.array([value], np.float32))

    def join_hook(self, **kwargs: Any) -> dist.JoinHook:
        return dist.JoinHook()


def test_a_count_of_join_never_meets_an_all_reduce_of_the_program() -> None:
    def run(rank: int) -> None:
        with pytest.raises(dist.MismatchError) as caught:
            train(Forgetful(), 2 + rank)
        text = str(caught.value)
        assert "join_count on rank 0, all_reduce on rank 1" in text
        assert "rank 0 called Join (has joined) at test_join.py" in text
        assert caught.value.hint is not None
        assert "rank 0 ran out of batches and joined: main_hook must make" in caught.value.hint

    run_store_ranks(run, 2, backend="gloo")


def test_an_exception_in_the_block_is_raised_at_once() -> None:
    def run(rank: int) -> None:
        model = Averaging()
        with pytest.raises(KeyError):
            train(model, 1, fails=True)
        assert model.joined == []
        model.step(1.0)  # and nothing waits for a joined rank

    run_store_ranks(run, 2, backend="gloo")


def test_only_the_ranks_of_the_group_join() -> None:
    def run(rank: int) -> list[float]:
        pair = dist.new_group([0, 2])
        if rank == 1:
            return []
        return train(Averaging(pair), 1 + rank).sums

    assert run_store_ranks(run, 3, backend="gloo") == [[2.0, 1.0, 1.0], [], [2.0, 1.0, 1.0]]


def test_wrong_uses_are_told() -> None:
    def run(rank: int) -> None:
        with pytest.raises(ValueError, match="needs at least one Joinable"):
            dist.Join([])
        with pytest.raises(
            RuntimeError, match="the constructor of Plain has not called Joinable's"
        ):
            dist.Join([Plain()])
        with pytest.raises(TypeError, match="must be a list of Joinables, not Averaging"):
            dist.Join(Averaging())  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"joinables\[0\] must be a Joinable, not object"):
            dist.Join([object()])  # type: ignore[list-item]
        hookless = Averaging()
        hookless.join_hook = lambda **_: None  # type: ignore[method-assign, assignment]
        with pytest.raises(
            TypeError, match="join_hook of Averaging must return a JoinHook, not None"
        ):
            dist.Join([hookless])
        other = dist.new_group([0])
        with pytest.raises(ValueError, match="all joinables must have one group"):
            dist.Join([Averaging(), Averaging(other)])
        with pytest.raises(TypeError, match="abstract"):
            dist.Joinable()  # type: ignore[abstract]

    run_store_ranks(run, 1, backend="gloo")
    assert (torchs_path.Join, torchs_path.JoinHook) == (dist.Join, dist.JoinHook)
    assert torchs_path.Joinable is dist.Joinable


def test_a_rank_that_waits_for_a_thousand_steps_is_warned_once() -> None:
    caught: list[str] = []
    lock = threading.Lock()

    def keep(message: Any, *_: object, **__: object) -> None:
        with lock:
            caught.append(str(message))

    def run(rank: int) -> None:
        train(Averaging(), 1100 * rank)

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = keep
        run_store_ranks(run, 2, backend="gloo")
    assert caught == [
        "rank 0 has at least 1000 batches fewer than ranks that still have some; it only waits for them"
    ]


def test_the_batches_of_a_loop_and_its_end_are_marked() -> None:
    def run(rank: int) -> list[tuple[str | None, float | None, str]]:
        loader = dist.batches([7, 8])
        assert len(loader) == 2
        assert [list(loader), list(loader)] == [[7, 8]] * 2
        for batch in loader:
            if batch == 8:
                break
        recorder = current().recorder
        assert recorder is not None
        assert recorder.path is not None
        marks = [
            each
            for each in read_record(os.fsdecode(recorder.path)).events
            if isinstance(each, MarkEntry)
        ]
        return [(each.name, each.value, str(each.site).partition(":")[0]) for each in marks]

    (found,) = run_store_ranks(run, 1, backend="gloo")
    counted = [("batch", 1.0), ("batch", 2.0), ("out of batches", 2.0)]
    assert [each[:2] for each in found] == [*counted, *counted, *counted[:2]]
    assert all(site.endswith("test_join.py") for *_, site in found)
    with pytest.raises(TypeError, match="int cannot be iterated over"):
        dist.batches(3)  # type: ignore[arg-type]


def test_an_error_says_who_ran_out_of_batches() -> None:
    def run(rank: int) -> str:
        with pytest.raises(dist.MismatchError) as caught:
            loop_and_leave(3 if rank == 1 else 4)
        return caught.value.details[0]

    found = run_store_ranks(run, 3, backend="gloo")
    assert found == ["rank 1 ran out of batches at step 4; ranks 0,2 went on"] * 3


def loop_and_leave(count: int) -> None:
    for _ in dist.batches(range(count)):
        dist.all_reduce(np.ones(2))
    dist.barrier()

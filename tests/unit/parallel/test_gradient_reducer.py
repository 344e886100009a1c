"""GradientReducer on ranks that are threads: averages, buckets, hooks, and what is refused."""

from __future__ import annotations

import logging
from collections import defaultdict
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest

import distdbg as dist
from distdbg.record.entries import MarkEntry, OpEntry, SpanBegin
from distdbg.record.reader import read_record
from tests.unit.parallel.reducer_ranks import RANKS, full, run


def test_averages_of_a_tree_in_buckets_of_one_dtype_each() -> None:
    def job(rank: int) -> Any:
        rng = np.random.default_rng(rank)
        model = {
            "layers": [{"w": rng.normal(size=(20, 20)).astype(np.float32)} for _ in range(2)],
            "scale": rng.normal(size=3),
            "half": np.ones(5, ml_dtypes.bfloat16),
        }
        reducer = dist.GradientReducer(model, bucket_cap_mb=0.001)
        first = model["layers"][0]["w"].copy()
        buckets = [reducer.buckets]
        for _ in range(2):
            averages = reducer.reduce(
                {
                    "layers": [{"w": full((20, 20), rank)}, {"w": full((20, 20), 2 * rank)}],
                    "scale": np.full(3, 3.0 * rank),
                    "half": np.full(5, rank, ml_dtypes.bfloat16),
                }
            )
            buckets.append(reducer.buckets)
        assert averages["layers"][1]["w"].shape == (20, 20)
        found = averages["layers"][0]["w"], averages["layers"][1]["w"], averages["scale"]
        assert averages["half"].dtype == ml_dtypes.bfloat16
        values = [float(one.flat[0]) for one in (*found, averages["half"])]
        return first.tobytes(), values, buckets

    results = run(job)
    assert all(result == results[0] for result in results)
    values, buckets = results[0][1:]
    assert values == [1, 2, 3, 1]
    assert buckets[0] == buckets[1] == [["half"], ["scale"], ["layers[0].w", "layers[1].w"]]
    assert buckets[2] == [["layers[0].w"], ["layers[1].w"], ["scale"], ["half"]]


class Dense(NamedTuple):
    """A layer, as functional libraries keep them."""

    w: Any
    b: Any


class Frozen:
    """A node of a pytree that only its library can take apart."""

    def __init__(self, layers: tuple[Dense, ...]) -> None:
        self.layers = layers

    def flatten(self) -> list[Any]:
        return [array for layer in self.layers for array in layer]

    @classmethod
    def unflatten(cls, arrays: list[Any]) -> Frozen:
        pairs = zip(arrays[::2], arrays[1::2], strict=True)
        return cls(tuple(Dense(*pair) for pair in pairs))


def test_pytrees_come_back_in_their_form_and_others_as_their_leaves() -> None:
    def job(rank: int) -> Any:
        def frozen(value: float) -> Any:
            array = full(2, value)
            array.flags.writeable = False  # as JAX's
            return array

        def tree(value: float) -> Any:
            # Keys in another order, as JAX gives them back.
            head = {"b": frozen(value), "a": frozen(2 * value)}
            if not value:
                head = dict(sorted(head.items()))
            return {"layers": [Dense(frozen(value), frozen(3 * value))], "head": (head, frozen(1))}

        reducer = dist.GradientReducer(tree(0), init_sync=False)
        begin = reducer.broadcast(tree(rank), group_src=1)
        averages = reducer.reduce(tree(rank))
        assert type(averages["layers"][0]) is type(begin["layers"][0]) is Dense
        assert isinstance(averages["head"], tuple)
        shown = [
            [float(one[0]) for one in (of["layers"][0].w, of["layers"][0].b, of["head"][0]["a"])]
            for of in (begin, averages)
        ]
        model = Frozen((Dense(full(2, 0), full((2, 1), 0)), Dense(full(3, 0), full(1, 0))))
        reducer = dist.GradientReducer(model.flatten())
        gradients = Frozen(
            (Dense(full(2, rank), full((2, 1), 2)), Dense(full(3, 4), full(1, rank)))
        )
        means = Frozen.unflatten(reducer.reduce(gradients.flatten()))
        return shown, [float(one.flat[0]) for one in means.flatten()], means.layers[0].b.shape

    expected = [[1, 3, 2], [1, 3, 2]], [1, 2, 4, 1], (2, 1)
    assert run(job) == [expected] * RANKS


def test_gradients_that_come_one_by_one_are_reduced_in_the_order_of_rank_0() -> None:
    def job(rank: int) -> Any:
        names = ["a", "b", "c"]
        reducer = dist.GradientReducer({n: full(300, 0) for n in names}, bucket_cap_mb=0.001)
        for step in range(3):
            for name in sorted(names, reverse=rank == 0 or step == 2):
                reducer.ready(name, full(300, rank + step))
            averages = reducer.finish()
            assert all((averages[name] == 1 + step).all() for name in names)
        return reducer.buckets

    assert run(job) == [[["c"], ["b"], ["a"]]] * RANKS


def test_gradients_are_kept_without_synchronization() -> None:
    def job(rank: int) -> Any:
        reducer = dist.GradientReducer([full(4, 0), full(2, 0)])
        with reducer.no_sync():
            given = [full(4, rank), full(2, 1)]
            assert reducer.reduce(given)[0] is given[0]
            reducer.reduce([full(4, rank), None])
        averages = reducer.reduce([full(4, rank), None])
        again = reducer.reduce([full(4, 1), full(2, 5)])
        return [float(one[0]) for one in (*averages, *again) if one is not None]

    assert run(job) == [[3, 1, 1, 5]] * RANKS


def test_views_are_the_reducers_own_and_new_arrays_are_not() -> None:
    def job(rank: int) -> Any:
        same = []
        for is_view in (True, False):
            reducer = dist.GradientReducer([full(4, 0)], gradient_as_bucket_view=is_view)
            reducer.reduce([full(4, 0)])
            one = reducer.reduce([full(4, rank)])[0]
            two = reducer.reduce([full(4, 7)])[0]
            same.append(one is two or bool(np.shares_memory(one, two)))
        return same

    assert run(job) == [[True, False]] * RANKS


def test_what_may_be_unused() -> None:
    def job(rank: int) -> Any:
        found = []
        reducer = dist.GradientReducer(
            {"a": full(2, 0), "b": full(2, 0)}, find_unused_parameters=True
        )
        for step in range(3):
            b = full(2, 6) if (step == 1 and rank == 1) or step == 2 else None
            averages = reducer.reduce({"a": full(2, 1), "b": b})
            found.append(None if averages["b"] is None else float(averages["b"][0]))
        return found

    assert run(job) == [[None, 2, 6]] * RANKS


def test_averages_have_the_form_of_the_parameters_on_every_rank() -> None:
    def job(rank: int) -> Any:
        tree = defaultdict(list, {"a": full(2, 0), "b": (full(2, 0), full(2, 0))})
        reducer = dist.GradientReducer(tree, find_unused_parameters=True)
        averages = reducer.reduce({"b": [full(2, 6)]} if rank == 1 else {})
        assert isinstance(averages, defaultdict)
        assert averages["a"] is None
        assert averages["b"][1] is None
        reducer.ready("a", full(2, rank))
        again = reducer.finish()
        assert again["b"] == (None, None)
        return float(averages["b"][0][0]), float(again["a"][0])

    assert run(job) == [(2, 1)] * RANKS


def test_a_tree_that_cannot_be_averaged_is_refused_by_name() -> None:
    def job(rank: int) -> None:
        for value, words in (
            (np.zeros(2, np.int64), "count has dtype int64, which has no gradient"),
            (np.zeros(2, bool), "count has dtype bool"),
            (1.0, "count is not an array but of type float"),
            (np.float64(1), "count is not an array but of type float64"),
            (None, "count is None, not an array"),
        ):
            with pytest.raises(dist.UsageError, match=words):
                dist.GradientReducer({"w": full(2, 0), "count": value})
        with pytest.raises(dist.UsageError, match=r"two arrays have the name a\.b"):
            dist.GradientReducer({"a.b": full(2, 0), "a": {"b": full(2, 0)}})
        reducer = dist.GradientReducer({"w": full((), 0)})
        with pytest.raises(
            dist.UsageError, match=r"w is float32\[\], its gradient has dtype complex"
        ):
            reducer.reduce({"w": np.array(1j)})
        with pytest.raises(dist.UsageError, match="its gradient has dtype <U1"):
            reducer.reduce({"w": "x"})

    run(job, 1)


@pytest.mark.slow
def test_each_leaf_has_the_dtype_and_the_library_of_its_parameter() -> None:
    torch = pytest.importorskip("torch")

    def tree(value: float) -> Any:
        return {
            "w": torch.full((3,), value),
            "half": torch.full((4,), value, dtype=torch.float16),
            "brain": torch.full((2,), value, dtype=torch.bfloat16),
            "double": torch.full((2,), value, dtype=torch.float64),
            "array": full(2, value),
        }

    def job(rank: int) -> None:
        given = tree(float(rank))
        reducer = dist.GradientReducer(given)
        for found, value in (
            (given, 0),
            (reducer.reduce(tree(float(rank))), 1),
            (reducer.broadcast(tree(float(rank)), group_src=2), 2),
        ):
            for name, wanted in tree(float(value)).items():
                assert type(found[name]) is type(wanted)
                assert found[name].dtype == wanted.dtype
                assert found[name].tolist() == wanted.tolist()

    run(job)


def test_a_static_graph_learns_what_is_unused_in_the_first_pass() -> None:
    def job(rank: int) -> Any:
        reducer = dist.GradientReducer({"a": full(2, 0), "b": full(2, 0)}, static_graph=True)
        for _ in range(3):
            averages = reducer.reduce({"a": full(2, rank)})
        values = float(averages["a"][0])
        with pytest.raises(dist.UsageError, match="used b, which no first pass used"):
            reducer.reduce({"a": full(2, rank), "b": full(2, 1)})
        with pytest.raises(dist.UsageError, match="no rank used a"):
            reducer.reduce({})
        return values

    assert run(job) == [1] * RANKS


def test_an_error_about_one_pass_leaves_the_reducer_usable() -> None:
    def job(rank: int) -> Any:
        reducer = dist.GradientReducer({"a": full(2, 0), "b": full(2, 0)})
        reducer.reduce({"a": full(2, 1), "b": full(2, 1)})
        with pytest.raises(
            dist.MismatchError, match="rank 1 did not use b; ranks 0,2 did"
        ) as caught:
            reducer.reduce({"a": full(2, 1)} | ({} if rank == 1 else {"b": full(2, 1)}))
        assert caught.value.ranks == [1]
        return float(reducer.reduce({"a": full(2, rank), "b": full(2, 1)})["a"][0])

    assert run(job) == [1] * RANKS


def test_an_error_in_a_tree_is_told_in_that_pass_and_all_go_on() -> None:
    def job(rank: int) -> Any:
        reducer = dist.GradientReducer({"a": full(2, 0), "b": full(2, 0)})
        for step in range(3):
            gradients = {"a": full(2, rank + step), "b": full(2 + (rank == 1 and step == 1), 1)}
            if step != 1:
                averages = reducer.reduce(gradients)
            elif rank == 1:
                with pytest.raises(dist.UsageError, match=r"b is float32\[2\], its gradient has"):
                    reducer.reduce(gradients)
            else:
                with pytest.raises(dist.MismatchError, match="rank 1 gave up the pass") as caught:
                    reducer.reduce(gradients)
                assert caught.value.ranks == [1]
                assert "gave up the pass: UsageError: GradientReducer: b is" in str(caught.value)
        return float(averages["a"][0])

    assert run(job) == [3] * RANKS


def test_a_pass_is_abandoned_where_the_program_raises() -> None:
    def job(rank: int) -> Any:
        tree = {"a": full(2, 0), "b": full(2, 0)}
        reducer = dist.GradientReducer(tree, bucket_cap_mb=1e-6)
        for step in range(4):
            reducer.ready("b", full(2, step))
            if step < 2 or (step == 2 and rank == 2):
                reducer.abandon("no memory")
                continue
            reducer.ready("a", full(2, rank + step))
            if step == 2:
                with pytest.raises(dist.MismatchError, match="rank 2 gave up the pass: no memory"):
                    reducer.finish()
            else:
                averages = reducer.finish()
        reducer.ready("b", full(2, 0))
        with pytest.raises(dist.UsageError, match="b got its gradient twice"):
            reducer.ready("b", full(2, 0))
        again = reducer.reduce({"a": full(2, rank), "b": full(2, 9)})
        return [float(one[0]) for one in (*averages.values(), *again.values())]

    assert run(job) == [[4, 3, 1, 9]] * RANKS


def test_passes_without_synchronization_on_one_rank_are_told() -> None:
    def job(rank: int) -> Any:
        reducer = dist.GradientReducer([full(2, 0)])
        with reducer.no_sync() if rank == 1 else nullcontext():
            if rank == 1:
                reducer.reduce([full(2, rank)])
        with pytest.raises(dist.MismatchError, match="rank 1 kept or lost a pass") as caught:
            reducer.reduce([full(2, rank)])
        assert "1 on ranks 0,2, 2 on rank 1" in str(caught.value)
        return float(reducer.reduce([full(2, rank)])[0][0])

    assert run(job) == [1] * RANKS


def test_a_pass_that_one_rank_leaves_out_is_told_by_its_batches(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def job(rank: int) -> str:
        tree = [full(2, rank)]
        reducer = dist.GradientReducer(tree)
        for batch in dist.batches(range(5)):
            if rank == 0:
                list(dist.batches(range(3)))  # a loop of its own, as an evaluation
            if (rank, batch) != (1, 2):
                try:
                    reducer.reduce(tree)
                except dist.RankLeft as error:
                    return str(error)
        return ""

    reported = (
        "DDP step 3 on group 'world': has rank 1 skipped a pass? batches since the pass before: 1 on "
        "ranks 0,2, 2 on rank 1; gradients of different steps may be averaged"
    )
    first, odd, last = run(job)
    assert odd == ""
    for said in (first, last):
        assert said.startswith(
            "DDP step 5 on group 'world' cannot complete: rank 1 left (returned); it skipped a pass at step 3"
        )
        assert reported in said
        assert "hint: all ranks must run as many passes: see what rank 1 did before" in said
    warned = [line for line in caplog.messages if "has rank" in line]
    assert len(warned) == RANKS
    assert all(line.endswith(reported) for line in warned)


def test_accumulated_batches_and_several_passes_of_one_are_no_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def job(rank: int) -> None:
        tree = [full(2, rank)]
        reducer = dist.GradientReducer(tree)
        for _ in range(2):
            for batch in dist.batches(range(7)):
                if batch % 3 == 2:
                    reducer.reduce(tree)
                if batch == 5:
                    reducer.reduce(tree)
        for _ in dist.batches(range(3 + rank)):
            pass
        reducer.reduce(tree)

    run(job)
    assert not [line for line in caplog.messages if "has rank" in line]


def test_models_that_differ_and_arguments_that_are_wrong() -> None:
    def job(rank: int) -> None:
        with pytest.raises(dist.MismatchError, match=r"w: float32\[3\] on ranks 0-1, float32\[4\]"):
            dist.GradientReducer({"w": full(3 + (rank == 2), 0)})
        with pytest.raises(dist.MismatchError, match="option static_graph: False on ranks 0-1"):
            dist.GradientReducer({"w": full(3, 0)}, static_graph=rank == 2)
        reducer = dist.GradientReducer({"w": full(3, 0)})
        with pytest.raises(dist.UsageError, match="v is none of the parameters"):
            reducer.reduce({"v": full(3, 0)})
        with pytest.raises(
            dist.UsageError, match=r"w is float32\[3\], its gradient has shape \[4\]"
        ):
            reducer.ready("w", full(4, 0))
        for size in ("x", float("nan"), 0):
            with pytest.raises(dist.UsageError, match="the size of a bucket is more than 0 MiB"):
                dist.GradientReducer({"w": full(3, 0)}, bucket_cap_mb=size)  # type: ignore[arg-type]
        with pytest.raises(dist.UsageError, match="no parameters"):
            dist.GradientReducer({})
        with pytest.raises(dist.UsageError, match="dtype object"):
            dist.GradientReducer({"w": np.array([None])})
        frozen = full(3, rank)
        frozen.flags.writeable = False
        with pytest.raises(dist.UsageError, match="cannot be written to"):
            dist.GradientReducer({"w": frozen})

    run(job)


def test_other_values_without_synchronization_are_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def job(rank: int) -> Any:
        values = full(3, rank)
        values.flags.writeable = False
        reducer = dist.GradientReducer({"w": values}, init_sync=False)
        return float(reducer.broadcast({"w": values}, group_src=2)["w"][0])

    assert run(job) == [2] * RANKS
    assert "begins with different values" in caplog.text
    assert "'w'" in caplog.text


def test_one_rank_alone_has_its_own_gradients() -> None:
    assert run(
        lambda rank: float(dist.GradientReducer([full(1, 0)]).reduce([full(1, 5)])[0][0]), 1
    ) == [5]


def test_buckets_are_spans_and_names_of_ops_and_times_are_logged_at_level_detail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("DISTDBG_RUN_DIR", str(tmp_path))
    levels = iter((dist.DebugLevel.DETAIL, dist.DebugLevel.OFF))

    def job(rank: int) -> None:
        if rank == 0:
            level.append(next(levels))
        dist.barrier()
        dist.set_debug_level(level[-1])
        reducer = dist.GradientReducer({"fc.w": full(2, 0), "fc.b": full(2, 0)})
        for _ in range(10):
            reducer.reduce({"fc.w": full(2, 0), "fc.b": full(2, 0)})

    level: list[dist.DebugLevel] = []
    said = []
    for _ in range(2):
        with caplog.at_level(logging.INFO, logger="distdbg.parallel"):
            run(job, 2)
        said.append([line for line in caplog.messages if "beside the backward pass" in line])
        caplog.clear()
    assert [len(lines) for lines in said] == [2, 0]
    assert "DDP step 10: backward" in said[0][0]  # it knows of no forward pass

    events = read_record(tmp_path / "rank00000.ddr").events
    spans = [event.name for event in events if isinstance(event, SpanBegin)]
    assert spans == ["DDP bucket 0 of fc"] * 10
    ops = [event.comm for event in events if isinstance(event, OpEntry)]
    assert ops.count("DDP bucket 0 of fc") == 10
    assert ops.count("DDP order of buckets") == 1
    marks = [
        event.value for event in events if isinstance(event, MarkEntry) and event.name == "step"
    ]
    assert marks == list(range(1, 11))

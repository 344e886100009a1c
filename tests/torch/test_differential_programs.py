"""The random programs are legal, cover all operations, and survive JSON; no process is started."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from differential.collectives import COLLECTIVES
from differential.compare import find_differences
from differential.groups import UNSORTED, make_groups
from differential.messages import MESSAGES
from differential.programs import programs
from differential.quirks import COLLECTIVE_DTYPES, MESSAGE_DTYPES, reduce_ops
from differential.script import to_script
from differential.values import describe, make_output, make_values, scribble
from hypothesis import HealthCheck, given, settings

COMMON = settings(
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=50,
    suppress_health_check=list(HealthCheck),
)


@given(programs(3))
@COMMON
def test_a_program_survives_json_unchanged(program: dict[str, Any]) -> None:
    assert json.loads(json.dumps(program)) == program


@given(programs(4))
@COMMON
def test_steps_ask_only_for_what_torch_can_do(program: dict[str, Any]) -> None:
    for step in program["steps"]:
        assert 0 <= step["group"] < len(make_groups(4))
        assert len(step["delay"]) == 4
        if "op" in step:
            assert step["op"] in reduce_ops(step["dtype"])
        if step["do"] == "gather":
            assert not step["dtype"].startswith("complex")


@pytest.mark.slow
def test_programs_reach_every_operation_dtype_and_group() -> None:
    seen: dict[str, set[Any]] = {"do": set(), "dtype": set(), "op": set(), "group": set()}

    @given(programs(3))
    @settings(COMMON, max_examples=400)
    def collect(program: dict[str, Any]) -> None:
        for step in program["steps"]:
            for key, values in seen.items():
                if key in step:
                    values.add(step[key])

    collect()
    assert seen["do"] == {*COLLECTIVES, *MESSAGES, "illegal"}
    assert seen["dtype"] == set(MESSAGE_DTYPES)
    assert seen["op"] == {"SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"}
    assert seen["group"] == set(range(len(make_groups(3))))


@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_one_group_has_its_ranks_in_descending_order(world_size: int) -> None:
    groups = make_groups(world_size)
    assert [ranks for ranks in groups if ranks != sorted(ranks)] == [groups[UNSORTED]]


# Integers wrap around, which is the same in any order.
INEXACT = [name for name in COLLECTIVE_DTYPES if name.startswith(("float", "bfloat", "complex"))]


@pytest.mark.parametrize("dtype", INEXACT)
@pytest.mark.parametrize("n", [2, 3, 4])
def test_reductions_of_the_values_do_not_depend_on_the_order(dtype: str, n: int) -> None:
    for op in reduce_ops(dtype):
        parts = [make_values(dtype, (500,), key, op, n) for key in range(n)]
        ufunc = {"PRODUCT": np.multiply, "MIN": np.minimum, "MAX": np.maximum}.get(op, np.add)
        forward = backward = None
        for part, late in zip(parts, reversed(parts), strict=True):
            forward = part if forward is None else ufunc(forward, part)
            backward = late if backward is None else ufunc(backward, late)
        assert forward is not None
        assert backward is not None
        assert forward.dtype == parts[0].dtype
        assert forward.tobytes() == backward.tobytes()
        if op == "AVG":
            mean = (forward / n).astype(forward.dtype)
            assert (mean * n == forward).all()


def test_values_of_different_ranks_and_steps_differ() -> None:
    digests = {describe(make_values("int32", (64,), key))["sha1"] for key in range(200)}
    assert len(digests) == 200


@pytest.mark.parametrize("dtype", MESSAGE_DTYPES)
def test_a_scribbled_array_equals_no_values(dtype: str) -> None:
    array = make_values(dtype, (64,), 5)
    before = describe(array)
    scribble(array)
    assert describe(array)["sha1"] != before["sha1"]
    assert describe(make_output(dtype, (64,)))["sha1"] == describe(array)["sha1"]


def test_a_bool_that_is_not_0_or_1_is_true_and_is_told() -> None:
    odd = np.array([0, 2], dtype=np.uint8).view(bool)
    plain = describe(np.array([False, True]))
    assert describe(odd) == {**plain, "odd_bools": True}


PROGRAM = {
    "world_size": 2,
    "steps": [{"do": "barrier", "group": 0, "async": True, "delay": [0, 2]}],
}


def entry(value: int = 0, **facts: Any) -> dict[str, Any]:
    output = describe(np.array([value]))
    return {"returned": None, "outputs": [output], "changed_inputs": [], **facts}


def test_equal_results_have_no_differences() -> None:
    assert find_differences(PROGRAM, [[entry()], [entry()]], [[entry()], [entry()]]) == []


@pytest.mark.parametrize(
    ("got", "said"),
    [
        (entry(value=1), "output 0 is"),
        (entry(returned=3), "returned 3 instead of None"),
        (entry(changed_inputs=[0]), "input 0 was changed"),
        ({**entry(), "outputs": [{**entry()["outputs"][0], "odd_bools": True}]}, "bools of other"),
        ({"error": "OpTimeout", "text": "late"}, "got OpTimeout: late"),
        (None, "got None"),
    ],
)
def test_each_kind_of_difference_is_named_with_rank_and_step(got: Any, said: str) -> None:
    [line] = find_differences(PROGRAM, [[entry()], [entry()]], [[entry()], [got]])
    assert line.startswith("rank 1, step 0 (barrier): ")
    assert said in line


def test_an_error_is_a_difference_even_if_both_libraries_fail() -> None:
    failed = {"error": "RuntimeError", "text": "x"}
    assert find_differences(PROGRAM, [[failed], [failed]], [[failed], [failed]])


def test_a_program_prints_as_one_line_per_step() -> None:
    assert to_script(PROGRAM).splitlines()[1:] == [
        "step 0: barrier()  # ranks 0,1; async, waited for 0/2 steps later"
    ]

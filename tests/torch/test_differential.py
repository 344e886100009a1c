"""Random programs give the same results with distdbg as with torch gloo."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from typing import Any

import pytest
from differential.compare import find_differences
from differential.illegal import CASES
from differential.pool import Pool
from differential.programs import programs
from differential.script import to_script
from hypothesis import HealthCheck, Phase, given, settings

pytestmark = [pytest.mark.torch, pytest.mark.ranks]
if find_spec("torch") is None:
    pytest.skip("torch is not installed", allow_module_level=True)

Compare = Callable[[str, dict[str, Any]], None]


@pytest.fixture(scope="module")
def pools() -> Iterator[Callable[[str, int], Pool]]:
    opened: dict[tuple[str, int], Pool] = {}
    with ExitStack() as stack:

        def get(subject: str, world_size: int) -> Pool:
            key = (subject, world_size)
            if key not in opened:
                opened[key] = stack.enter_context(Pool(subject, world_size))
            return opened[key]

        yield get


@pytest.fixture(scope="module", params=["distdbg", "distdbg on tensors"])
def compare(request: pytest.FixtureRequest, pools: Callable[[str, int], Pool]) -> Any:
    return make_compare(pools, request.param)


def make_compare(pools: Callable[[str, int], Pool], subject: str) -> Any:
    # Started with the fixture, so that no test takes the blame for the seconds of imports.
    for world_size in (3,):
        pools("gloo", world_size), pools(subject, world_size)

    def run(program: dict[str, Any]) -> None:
        expected = pools("gloo", program["world_size"]).run(program)
        got = pools(subject, program["world_size"]).run(program)
        differences = find_differences(program, expected, got)
        assert not differences, "\n".join([to_script(program), *differences])

    return run


COMMON = settings(
    deadline=None, suppress_health_check=list(HealthCheck), database=None, print_blob=False
)


@given(programs(3))
@settings(COMMON, max_examples=60, derandomize=True)
def test_random_programs_give_the_results_of_torch(compare: Any, program: dict[str, Any]) -> None:
    compare(program)


@pytest.mark.slow
@given(programs(4, max_steps=20))
@settings(COMMON, max_examples=400)
def test_many_random_programs_give_the_results_of_torch(
    compare: Any, program: dict[str, Any]
) -> None:
    compare(program)


@given(programs(3))
@settings(COMMON, max_examples=30, derandomize=True)
def test_torch_agrees_with_itself(
    pools: Callable[[str, int], Pool], program: dict[str, Any]
) -> None:
    first, second = (pools("gloo", 3).run(program) for _ in range(2))
    assert find_differences(program, first, second) == []


@pytest.mark.parametrize("subject", ["gloo", "distdbg"])
def test_illegal_calls_are_refused_and_leave_the_group_usable(
    pools: Callable[[str, int], Pool], subject: str
) -> None:
    pool, wrong = pools(subject, 3), []
    common = {"group": 4, "async": False, "delay": [0, 0, 0]}  # 4: ranks 0 and 2
    for name, case in CASES.items():
        illegal = {"do": "illegal", "case": name, "root": 1, **common}
        program = {"world_size": 3, "steps": [illegal, {"do": "barrier", **common}]}
        results = pool.run(program)
        made = [entry for entry in (results[0][0], results[2][0]) if entry is not None]
        if not made or any(entry != made[0] or entry["raised"] != case.raises for entry in made):
            wrong.append((name, made))
        assert results[0][1] == {"returned": None, "outputs": [], "changed_inputs": []}
    assert wrong == []


def test_a_library_that_loses_an_element_is_found_and_its_program_is_short(
    pools: Callable[[str, int], Pool],
) -> None:
    failed: list[dict[str, Any]] = []

    @given(programs(3))
    @settings(COMMON, max_examples=200, derandomize=True, phases=[Phase.generate, Phase.shrink])
    def search(program: dict[str, Any]) -> None:
        expected = pools("gloo", 3).run(program)
        got = pools("gloo that lies", 3).run(program)
        if find_differences(program, expected, got):
            failed.append(program)
            raise AssertionError

    with pytest.raises(AssertionError):
        search()
    [step] = failed[-1]["steps"]
    assert step["do"] == "broadcast"
    assert not step["async"]

"""Random programs give the same results with distdbg as with torch gloo."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest
from differential.compare import find_differences
from differential.illegal import CASES
from differential.pool import Pool
from differential.programs import programs
from differential.script import to_script
from hypothesis import HealthCheck, Phase, given, settings

if TYPE_CHECKING:
    from warm_python import WarmPython

pytestmark = [pytest.mark.torch, pytest.mark.ranks]
if find_spec("torch") is None:
    pytest.skip("torch is not installed", allow_module_level=True)

#: `make stress` has more of them.
FRESH = int(os.environ.get("STRESS_TORCH_PROGRAMS", "60"))
OURS = ["distdbg", "distdbg on tensors", "distdbg through slots"]

COMMON = settings(
    deadline=None,
    database=None,
    print_blob=False,
    # The fixtures are ranks, which take any number of programs one after the other.
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def torch_ranks(warm_python: WarmPython) -> Iterator[Pool]:
    with Pool("gloo", 3, warm_python) as pool:
        yield pool


@pytest.fixture(scope="module")
def our_ranks(warm_python: WarmPython) -> Iterator[list[Pool]]:
    with start_ours(3, warm_python) as pools:
        yield pools


@pytest.fixture(scope="module")
def four_torch_ranks(warm_python: WarmPython) -> Iterator[Pool]:
    with Pool("gloo", 4, warm_python) as pool:
        yield pool


@pytest.fixture(scope="module")
def our_four_ranks(warm_python: WarmPython) -> Iterator[list[Pool]]:
    with start_ours(4, warm_python) as pools:
        yield pools


@pytest.fixture(scope="module")
def lying_ranks(warm_python: WarmPython) -> Iterator[Pool]:
    with Pool("gloo that lies", 3, warm_python) as pool:
        yield pool


@contextmanager
def start_ours(world_size: int, warm_python: WarmPython) -> Iterator[list[Pool]]:
    with ExitStack() as stack:
        yield [stack.enter_context(Pool(name, world_size, warm_python)) for name in OURS]


def compare(program: dict[str, Any], theirs: Pool, ours: list[Pool]) -> None:
    # What torch makes of a program is found out once for all that it is compared with.
    expected = theirs.run(program)
    for pool in ours:
        differences = find_differences(program, expected, pool.run(program))
        assert not differences, "\n".join(["", pool.subject, to_script(program), *differences])


@pytest.mark.slow
@given(program=programs(3))
@settings(COMMON, max_examples=100, derandomize=True)
def test_random_programs_give_the_results_of_torch(
    torch_ranks: Pool, our_ranks: list[Pool], program: dict[str, Any]
) -> None:
    compare(program, torch_ranks, our_ranks)


@pytest.mark.slow
@given(program=programs(4, max_steps=20))
@settings(COMMON, max_examples=FRESH)
def test_programs_that_no_run_has_tried_give_the_results_of_torch(
    four_torch_ranks: Pool, our_four_ranks: list[Pool], program: dict[str, Any]
) -> None:
    compare(program, four_torch_ranks, our_four_ranks)


@given(program=programs(3))
@settings(COMMON, max_examples=30, derandomize=True)
def test_torch_agrees_with_itself(torch_ranks: Pool, program: dict[str, Any]) -> None:
    compare(program, torch_ranks, [torch_ranks])


def test_torch_refuses_every_illegal_call_and_goes_on(torch_ranks: Pool) -> None:
    assert find_lenient_calls(torch_ranks) == []


@pytest.mark.parametrize("subject", OURS)
def test_we_refuse_every_illegal_call_and_go_on(our_ranks: list[Pool], subject: str) -> None:
    [pool] = [pool for pool in our_ranks if pool.subject == subject]
    assert find_lenient_calls(pool) == []


def find_lenient_calls(pool: Pool) -> list[str]:
    """The illegal calls that did not raise as they should; a barrier has to work after each."""
    common = {"group": 4, "async": False, "delay": [0, 0, 0]}  # group 4: ranks 0 and 2
    lenient = []
    for name, case in CASES.items():
        illegal = {"do": "illegal", "case": name, "root": 1, **common}
        results = pool.run({"world_size": 3, "steps": [illegal, {"do": "barrier", **common}]})
        made = [results[rank][0] for rank in (0, 2)]
        raised = {entry["raised"] for entry in made if entry is not None}
        if raised != {case.raises}:
            lenient.append(f"{name}: {made}")
        for rank in (0, 2):
            assert results[rank][1] == {"returned": None, "outputs": [], "changed_inputs": []}
    return lenient


@pytest.mark.slow
def test_a_library_that_loses_data_is_found_and_its_program_shrinks(
    torch_ranks: Pool, lying_ranks: Pool
) -> None:
    failed: list[dict[str, Any]] = []

    # Hypothesis draws also from constants of the modules that are loaded: how soon it finds one differs.
    @given(programs(3))
    @settings(COMMON, max_examples=4000, derandomize=True, phases=[Phase.generate, Phase.shrink])
    def search(program: dict[str, Any]) -> None:
        if find_differences(program, torch_ranks.run(program), lying_ranks.run(program)):
            failed.append(program)
            raise AssertionError

    with pytest.raises(AssertionError):
        search()
    [step] = failed[-1]["steps"]
    assert step["do"] == "broadcast"
    assert not step["async"]

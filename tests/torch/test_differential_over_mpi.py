"""Random programs give the same results over MPI as with torch gloo, with both libraries."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest
from differential.compare import find_differences
from differential.illegal import CASES
from differential.over_mpi import MpiPool
from differential.pool import Pool
from differential.programs import programs
from differential.script import to_script
from hypothesis import HealthCheck, given, settings

from tests.mpi.launchers import LIBRARIES

if TYPE_CHECKING:
    from warm_python import WarmPython

pytestmark = [pytest.mark.mpi, pytest.mark.ranks, pytest.mark.slow]
if find_spec("torch") is None or find_spec("mpi4py") is None:
    pytest.skip("torch or mpi4py is not installed", allow_module_level=True)

SIZE = 4
#: `make stress` has more of them.
FRESH = int(os.environ.get("STRESS_TORCH_PROGRAMS", "60"))

COMMON = settings(
    deadline=None,
    database=None,
    print_blob=False,
    # The fixtures are ranks, which take any number of programs one after the other.
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def torch_ranks(warm_python: WarmPython) -> Iterator[Pool]:
    with Pool("gloo", SIZE, warm_python) as pool:
        yield pool


@pytest.fixture(scope="module", params=LIBRARIES)
def mpi_ranks(request: pytest.FixtureRequest, warm_python: WarmPython) -> Iterator[Pool]:
    with MpiPool(request.param, SIZE, warm_python) as pool:
        yield pool


def compare(program: dict[str, Any], theirs: Pool, ours: Pool) -> None:
    differences = find_differences(program, theirs.run(program), ours.run(program))
    assert not differences, "\n".join(["", ours.subject, to_script(program), *differences])


@given(program=programs(SIZE))
@settings(COMMON, max_examples=100, derandomize=True)
def test_random_programs_give_the_results_of_torch(
    torch_ranks: Pool, mpi_ranks: Pool, program: dict[str, Any]
) -> None:
    compare(program, torch_ranks, mpi_ranks)


@given(program=programs(SIZE, max_steps=20))
@settings(COMMON, max_examples=FRESH)
def test_programs_that_no_run_has_tried_give_the_results_of_torch(
    torch_ranks: Pool, mpi_ranks: Pool, program: dict[str, Any]
) -> None:
    compare(program, torch_ranks, mpi_ranks)


def test_every_illegal_call_is_refused_and_the_group_goes_on(mpi_ranks: Pool) -> None:
    common = {"group": 4, "async": False, "delay": [0] * SIZE}  # group 4: ranks 0 and 2
    lenient = []
    for name, case in CASES.items():
        illegal = {"do": "illegal", "case": name, "root": 1, **common}
        steps = [illegal, {"do": "barrier", **common}]
        results = mpi_ranks.run({"world_size": SIZE, "steps": steps})
        made = [results[rank][0] for rank in (0, 2)]
        if {entry["raised"] for entry in made if entry is not None} != {case.raises}:
            lenient.append(f"{name}: {made}")
        for rank in (0, 2):
            assert results[rank][1] == {"returned": None, "outputs": [], "changed_inputs": []}
    assert lenient == []

"""Some of the random right programs; `python -m benchmarks.quiet` is the whole soak."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import benchmarks.quiet.program
from benchmarks.quiet.judge import run_quietly
from benchmarks.quiet.pauses import PAUSES

_PROGRAM = str(Path(benchmarks.quiet.program.__file__))
_ROOT = str(Path(__file__).parents[2])
_HONEST = ("collects", "counts", "runs_a_program", "takes_from_a_queue")
#: Steps, ranks.
_PROGRAMS = [
    *((name, 2) for name in _HONEST),  # the one that is busy, and one that waits for it
    ("collectives,late_waits,ring", 3),
    ("whoever,evaluates,monitored,stopped", 3),
]


@pytest.mark.slow
@pytest.mark.ranks
def test_nothing_is_said_of_right_programs() -> None:
    def run(at: int) -> list[str]:
        names, ranks = _PROGRAMS[at]
        argv = [_PROGRAM, str(at), "3", names]
        if names in PAUSES:
            argv = [_PROGRAM, "--pause", names]
        one = run_quietly(names, argv, ranks, {"PYTHONPATH": _ROOT, "OMP_NUM_THREADS": "1"})
        return [f"{names}: {line}" for line in one.complaints]

    with ThreadPoolExecutor(3) as pool:
        found = [line for lines in pool.map(run, range(len(_PROGRAMS))) for line in lines]
    assert found == []

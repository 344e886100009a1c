"""What a report says around the line that raised."""

from __future__ import annotations

import pytest

from distdbg.launch.evidence import LostRankEvidence
from tests.unit.launch.report_facts import ended, error, reported, terminated

TRACE = """\
Traceback (most recent call last):
  File "/job/rod.py", line 50, in sources
    q[heater.cell - self.lo] += power
    ~^^^^^^^^^^^^^^^^^^^^^^^^
IndexError: index 120 is out of bounds
"""
KNOWN = {"q": "float64[120]", "heater.cell": "= 240", "self.lo": "= 120", "step": "= 60"}


@pytest.mark.parametrize(
    ("values", "lines"),
    [
        ({("/job/rod.py", 50): KNOWN}, ["q float64[120], heater.cell = 240, self.lo = 120"]),
        ({("/job/rod.py", 51): KNOWN}, []),  # of another line
        ({("/job/rod.py", 50): {"step": "= 60"}}, []),  # not in that line
    ],
)
def test_the_variables_of_the_line_that_raised_stand_below_it(
    values: dict[tuple[str, int], dict[str, str]], lines: list[str]
) -> None:
    said = error("IndexError: index 120 is out of bounds", traceback=TRACE, values=values)
    text = reported(LostRankEvidence(end=ended(1, cause="exited", exit_code=1), error=said))
    place = "at rod.py:50 (sources): q[heater.cell - self.lo] += power"
    _, _, behind = text.partition(f"  {place}\n")
    assert [line.strip() for line in behind.splitlines() if line.startswith("    ")] == lines


def test_who_may_have_had_to_write_a_missing_file_is_named() -> None:
    said = error("FileNotFoundError: [Errno 2] No such file or directory: 'coarse.npz'")
    mine = LostRankEvidence(end=ended(1, cause="exited", exit_code=1), error=said)
    hint = (
        "hint: if {} had to write it first, put a barrier between writing and reading; a file that all "
        "use may be removed by one rank only, behind a barrier"
    )
    assert hint.format("rank 0") in reported(mine, terminated(0))
    assert hint.format("another rank") in reported(mine)


def test_what_ddp_says_of_a_gradient_that_comes_twice_is_explained() -> None:
    said = error("RuntimeError: Expected to mark a variable ready only once. This error is ...")
    text = reported(LostRankEvidence(end=ended(3, cause="exited", exit_code=1), error=said))
    assert "hint: checkpoint(..., use_reentrant=False), or no find_unused_parameters=True" in text


def test_a_work_that_is_none_is_explained() -> None:
    said = error("AttributeError: 'NoneType' object has no attribute 'wait'")
    text = reported(LostRankEvidence(end=ended(3, cause="exited", exit_code=1), error=said))
    assert "hint: an op returns None without async_op=True, and on a rank that is not in" in text

"""What variables held around the line of a stack."""

from __future__ import annotations

import pytest

from distdbg.record.recorded_frame import RecordedFrame
from distdbg.render.enclosing import parse
from distdbg.render.finding_stacks import names_around, say_left_values
from tests.support.session_builder import SessionBuilder

PROGRAM = """\
def outer(batches):
    for step in range(batches):
        if step < self.limit and not flags[step]:
            total = combine(
                grads, scale=rate, key=lambda each: each.name)
    while queue:
        pass
    done(batches)
"""
SOURCE = parse(PROGRAM.split("\n"))
assert SOURCE is not None


@pytest.mark.parametrize(
    ("line", "of_line", "names"),
    [
        (4, False, ["step", "self.limit", "flags", "range", "batches"]),
        (5, True, ["total", "combine", "grads", "rate", "step", "self.limit", "flags", "range", "batches"]),
        (7, False, ["queue"]),
        (8, False, []),
        (8, True, ["done", "batches"]),
        (99, True, []),
    ],
)  # fmt: skip
def test_the_names_of_loops_and_conditions_the_innermost_first(
    line: int, of_line: bool, names: list[str]
) -> None:
    assert SOURCE is not None
    assert names_around(SOURCE, line, of_line=of_line) == names


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([{"step": "= 14", "batches": "= 15"}] * 4, "step = 14, batches = 15"),
        (
            [{"batches": "= 15"}] + [{"batches": "= 16"}] * 3,
            "batches = 15 on rank 0; batches = 16 on ranks 1-3",
        ),
        ([{"batches": "= 15"}, {}, {}, {}], "batches = 15 on rank 0"),
        ([{"step": f"= {rank}"} for rank in range(4)], ""),  # its own on each rank
        ([{"other": "= 1"}] * 4, ""),
        ([{"other": "= nan"}, {}, {}, {}], "other = nan on rank 0"),  # wherever it stands
        ([{}] * 4, ""),
    ],
)
def test_ranks_that_differ_are_told_apart(values: list[dict[str, str]], text: str) -> None:
    assert SOURCE is not None
    build = SessionBuilder(4)
    for rank, known in enumerate(values):
        build.session.ranks[rank].left_values = {("/job/a.py", 4): known}
    frame = RecordedFrame("/job/a.py", 4, "outer")
    assert say_left_values(build.session, range(4), frame, SOURCE, of_line=False) == text
    elsewhere = RecordedFrame("/job/a.py", 5, "outer")
    assert say_left_values(build.session, range(4), elsewhere, SOURCE, of_line=False) == ""

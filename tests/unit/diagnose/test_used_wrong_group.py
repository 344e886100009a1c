"""A call that went to another group and was carried out there, with a later call of the others."""

from __future__ import annotations

import json

import pytest

from distdbg.diagnose.verdict import diagnose
from distdbg.record.format import Exit, Status
from tests.support.session_builder import SessionBuilder


def left(build: SessionBuilder, rank: int, at_s: float) -> None:
    build.exit(rank, Exit.LEFT, at_s=at_s)
    build.end(rank, at_s=at_s + 0.1, cause="exited", exit_code=0)


def _site(line: int) -> str:
    return f"/job/x.py:5 (average) < /job/x.py:{line} (main)"


def rows_and_columns(lines: tuple[int, int, int], rank_3_at_s: float = 2) -> SessionBuilder:
    """Four ranks reduce over rows, columns, rows, at these lines; rank 1 uses its row for all three.

    At 3.4 s it gives up.
    """
    build = SessionBuilder(4)
    for group, ranks in (("row0", [0, 1]), ("row1", [2, 3]), ("col0", [0, 2]), ("col1", [1, 3])):
        build.group(group, ranks)

    def call(rank: int, group: str, line: int, at_s: float) -> None:
        build.op(rank, "all_reduce", group=group, at_s=at_s, started_s=at_s + 0.1, ended_s=at_s + 0.2,
                 inputs=[(32,)], site=_site(line))  # fmt: skip

    def call_in_vain(
        rank: int, group: str, line: int, at_s: float, gone: int, answered_s: float
    ) -> None:
        what = f"all_reduce: rank {gone} left"
        error = json.dumps({"type": "RankLeft", "what": what, "ranks": [gone]})
        build.op(rank, "all_reduce", group=group, at_s=at_s, started_s=None, ended_s=answered_s,
                 inputs=[(32,)], site=_site(line), status=Status.PEER_LOST, error=error)  # fmt: skip
        build.exit(rank, Exit.RAISED, at_s=answered_s + 0.01, what="RankLeft: rank left")
        build.end(rank, at_s=answered_s + 0.02, cause="exited", exit_code=1)

    first, second, third = lines
    for rank in range(4):
        call(rank, f"row{rank // 2}", first, 1)
    call(1, "row0", second, 2)
    call(0, "col0", second, 2)
    call(2, "col0", second, 2)
    call(0, "row0", third, 3)
    left(build, 0, 3.3)
    call_in_vain(1, "row0", third, 3, 0, 3.4)
    call_in_vain(3, "col1", second, rank_3_at_s, 1, 3.5)
    call_in_vain(2, "row1", third, 3, 3, 3.6)
    return build


@pytest.mark.parametrize("rank_3_at_s", [2, 3.45], ids=["waits_for_it", "comes_when_it_gave_up"])
def test_the_rank_that_used_another_group_is_the_cause_with_the_line_that_chose_it(
    rank_3_at_s: float,
) -> None:
    verdict = diagnose(rows_and_columns((13, 14, 15), rank_3_at_s).session)
    root = verdict.root
    assert root is not None
    assert root.what == (
        "at x.py:14 rank 1 called all_reduce on group 'row0', rank 3 on group 'col1'; rank 0 left"
    )
    assert root.ranks == (1,)
    assert "see how that line chooses the group" in root.advice
    assert root.evidence[0].site == "x.py:14 (main)"
    assert not any("skipped" in one.text for one in root.evidence)


@pytest.mark.parametrize("lines", [(14, 14, 14), (14, 14, 15), (13, 14, 14)])
def test_a_line_at_which_others_use_that_group_as_well_proves_nothing(
    lines: tuple[int, int, int],
) -> None:
    root = diagnose(rows_and_columns(lines).session).root
    assert root is not None
    assert "on group 'row0', rank 3 on group" not in root.what

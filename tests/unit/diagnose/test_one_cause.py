"""One rank's leaving is one finding, whichever of the others is told first and whoever has gone by then."""

from __future__ import annotations

import json
from itertools import permutations

import pytest

from distdbg.diagnose.finding import FindingKind
from distdbg.diagnose.verdict import diagnose
from distdbg.record.format import Exit, Status
from tests.support.session_builder import SessionBuilder


def left_alone(
    build: SessionBuilder, rank: int, left: int, *, at_s: float, reported_s: float
) -> None:
    error = json.dumps(
        {"type": "RankLeft", "what": f"all_reduce #2: rank {left} left", "ranks": [left]}
    )
    build.op(
        rank,
        "all_reduce",
        at_s=at_s,
        started_s=None,
        ended_s=reported_s,
        status=Status.PEER_LOST,
        error=error,
        site="/job/x.py:6 (train)",
    )
    build.exit(rank, Exit.RAISED, at_s=reported_s + 0.01, what="RankLeft: rank left")
    build.end(rank, at_s=reported_s + 0.02, cause="exited", exit_code=1)


def trained(ranks: int) -> SessionBuilder:
    build = SessionBuilder(ranks)
    for rank in range(ranks):
        build.op(rank, "all_reduce", at_s=1, ended_s=1.1, site="/job/x.py:6 (train)")
    return build


def leave(build: SessionBuilder, rank: int, at_s: float) -> None:
    build.exit(rank, Exit.LEFT, at_s=at_s)
    build.end(rank, at_s=at_s + 0.1, cause="exited", exit_code=0)


@pytest.mark.parametrize("late_s", [2.0, 2.5, 9.0])
def test_a_rank_that_calls_the_op_after_another_was_told_waited_like_it(late_s: float) -> None:
    build = trained(3)
    leave(build, 1, 1.2)
    left_alone(build, 2, 1, at_s=1.5, reported_s=1.6)
    left_alone(build, 0, 1, at_s=late_s, reported_s=late_s + 0.1)
    verdict = diagnose(build.session)
    (finding,) = verdict.findings
    assert (finding.kind, finding.ranks, finding.victims) == (
        FindingKind.MISSING_RANK,
        (1,),
        (0, 2),
    )
    assert finding.what.startswith("rank 1 left while ranks 0,2 waited for it in all_reduce #2")


@pytest.mark.parametrize("times", list(permutations((1.2, 1.9, 6.0))))
def test_ranks_that_leave_one_after_the_other_are_one_finding(
    times: tuple[float, float, float],
) -> None:
    build = trained(4)
    for rank, at_s in zip((0, 2, 3), times, strict=True):
        leave(build, rank, at_s)
    left_alone(build, 1, 0, at_s=1.5, reported_s=1.6)  # as soon as the first of them has gone
    (finding,) = diagnose(build.session).findings
    assert (finding.kind, finding.ranks, finding.victims) == (FindingKind.MISSING_RANK, (1,), ())
    assert finding.what.startswith("rank 1 made one more call than ranks 0,2-3, which left while")
    assert not any("skipped one of them" in fact.text for fact in finding.evidence)
    assert "waited for them in all_reduce #2" in finding.what


def test_a_leaver_may_see_the_end_of_its_last_op_after_others_were_told() -> None:
    build = trained(3)
    leave(build, 0, 1.15)
    left_alone(build, 1, 0, at_s=1.16, reported_s=1.17)
    build.session.ranks[2].ops.ended_ns[-1] = 1_200_000_000
    leave(build, 2, 1.25)
    (finding,) = diagnose(build.session).findings
    assert (finding.kind, finding.ranks, finding.victims) == (FindingKind.MISSING_RANK, (1,), ())


def test_who_goes_on_with_other_ops_has_not_left_yet() -> None:
    build = trained(3)
    build.group("rest", [0, 2])
    leave(build, 1, 1.2)
    left_alone(build, 2, 1, at_s=1.5, reported_s=1.6)
    build.op(0, "barrier", group="rest", at_s=2, ended_s=3)
    leave(build, 0, 4)
    assert diagnose(build.session).findings[0].ranks == (1,)


def test_who_is_told_before_the_leaver_has_written_it_down_suffers_from_it() -> None:
    build = trained(2)
    left_alone(build, 0, 1, at_s=1.1, reported_s=1.2)
    leave(build, 1, 1.2004)
    (finding,) = diagnose(build.session).findings
    assert (finding.kind, finding.ranks, finding.victims) == (FindingKind.MISSING_RANK, (1,), (0,))
    assert [below.kind for below in finding.follows] == [FindingKind.FAILED_OP]

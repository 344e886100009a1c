from __future__ import annotations

from dataclasses import replace

from distdbg.diagnose.find import leaks
from distdbg.diagnose.finding import Finding, FindingKind, Severity
from distdbg.diagnose.matching import match
from distdbg.diagnose.session import Session
from distdbg.record.format import Exit
from tests.support.session_builder import SessionBuilder


def find(session: Session) -> list[Finding]:
    return leaks.find(session, match(session), {})


def makes_groups(*, count: int, closes: bool, ops_between: bool = True) -> Session:
    build = SessionBuilder(world_size=2)
    for step in range(count):
        name = f"phase{step}"
        group = build.group(name, (0, 1))
        for rank in (0, 1):
            build.op(rank, "new_group", at_s=step, ended_s=step + 0.1, site="train.py:5 (phase)")
            if ops_between:
                build.op(rank, "all_reduce", group=name, at_s=step + 0.2, ended_s=step + 0.3)
            if closes:
                progress = build.session.ranks[rank].progress
                progress[group] = replace(progress[group], closed_ns=step)
    return build.session


def test_an_op_in_flight_when_its_rank_returned_is_leaked() -> None:
    build = SessionBuilder(world_size=2)
    build.op(1, "all_reduce", at_s=1.0, is_async=True, site="/job/train.py:9 (main)")
    build.exit(1, Exit.RETURNED, at_s=2.0)

    (finding,) = find(build.session)

    assert finding.kind is FindingKind.LEAKED_WORK
    assert finding.severity is Severity.WARNING
    assert finding.what == "rank 1 ended with an op in flight: all_reduce #1 on group 'world'"
    assert "train.py:9 (main)" in finding.evidence[0].text


def test_an_op_in_flight_on_a_rank_that_raised_or_runs_is_none() -> None:
    build = SessionBuilder(world_size=2)
    for rank in (0, 1):
        build.op(rank, "all_reduce", at_s=1.0, is_async=True)
    build.exit(1, Exit.RAISED, at_s=2.0)

    assert find(build.session) == []


def test_groups_made_again_and_again_that_live_on_are_a_warning() -> None:
    (finding,) = find(makes_groups(count=30, closes=False))

    assert finding.kind is FindingKind.LEAKED_GROUP
    assert finding.severity is Severity.WARNING
    assert finding.ranks == (0, 1)
    assert "made 30 groups at train.py:5 (phase)" in finding.what


def test_groups_that_are_destroyed_are_none() -> None:
    assert find(makes_groups(count=30, closes=True)) == []


def test_many_groups_made_at_the_beginning_are_none() -> None:
    assert find(makes_groups(count=30, closes=False, ops_between=False)) == []


def test_a_group_alive_at_a_normal_end_is_a_note() -> None:
    build = SessionBuilder(world_size=2)
    build.group("dp", (0, 1))
    for rank in (0, 1):
        build.exit(rank, Exit.RETURNED, at_s=2.0)

    (finding,) = find(build.session)

    assert finding.severity is Severity.NOTE
    assert finding.what == "ranks 0-1 ended without destroying group 'dp'"


def test_the_default_group_may_stay_but_for_nccl() -> None:
    build = SessionBuilder(world_size=1)
    build.exit(0, Exit.RETURNED, at_s=2.0)
    assert find(build.session) == []

    build.session.groups[0] = replace(build.session.groups[0], backend="nccl")
    assert [finding.group for finding in find(build.session)] == ["world"]

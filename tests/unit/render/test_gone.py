"""Where a rank that is gone was: not in the last op that went well."""

from __future__ import annotations

import pytest

from distdbg.record.format import Exit, Status
from distdbg.record.rank_state import RankState
from distdbg.record.recorded_frame import RecordedFrame
from distdbg.render.stacks import fold_stacks, gone_from, read_site
from tests.support.session_builder import SessionBuilder


def after_two_ops() -> SessionBuilder:
    build = SessionBuilder(world_size=2)
    for step in range(2):
        build.op(0, "all_reduce", at_s=step, ended_s=step + 0.1, site="/job/a.py:5 (evaluate)")
    return build


def test_a_rank_that_was_killed_died_between_two_ops_and_its_line_is_its_last_known() -> None:
    build = after_two_ops()
    build.end(0, at_s=3, cause="signal", signal=9)
    [stack] = fold_stacks(build.session, [0])
    assert stack.what == "died after all_reduce #2 on group 'world', before #3; last known line:"
    assert stack.frames == (RecordedFrame("/job/a.py", 5, "evaluate"),)


def test_a_rank_that_raised_is_where_it_raised() -> None:
    build = after_two_ops()
    build.exit(0, Exit.RAISED, at_s=3, what="ZeroDivisionError: by zero", where="a.py:4 (norm)")
    build.end(0, at_s=3.1, cause="exited", exit_code=1)
    [stack] = fold_stacks(build.session, [0])
    assert stack.what == "raised ZeroDivisionError, after all_reduce #2 on group 'world'"
    assert stack.frames == (RecordedFrame("/job/a.py", 4, "norm"),)


def test_a_rank_that_raised_what_its_op_failed_with_is_in_that_op() -> None:
    build = after_two_ops()
    site = "/job/a.py:8 (main) < /job/a.py:9 (<module>)"
    build.op(0, "barrier", at_s=3, ended_s=3.1, status=Status.MISMATCH, site=site)
    build.exit(
        0, Exit.RAISED, at_s=3.2, what="distdbg.errors.MismatchError: x", where="a.py:8 (main)"
    )
    [stack] = fold_stacks(build.session, [0])
    assert stack.what == "raised MismatchError in barrier #3 on group 'world'"
    assert len(stack.frames) == 2


def test_a_mismatch_of_an_asynchronous_op_is_where_it_was_called() -> None:
    build = after_two_ops()
    site = "/job/a.py:8 (start) < /job/a.py:20 (train)"
    build.op(0, "broadcast", at_s=3, ended_s=3.1, status=Status.MISMATCH, site=site, is_async=True)
    build.op(0, "barrier", at_s=3.1, is_async=True, site="/job/a.py:9 (start)")
    build.exit(
        0, Exit.RAISED, at_s=3.2, what="distdbg.errors.MismatchError: x", where="a.py:30 (finish)"
    )
    [stack] = fold_stacks(build.session, [0])
    assert stack.what == (
        "raised MismatchError for broadcast #3 on group 'world', which it called here"
    )
    assert [frame.line for frame in stack.frames] == [8, 20]


def test_a_rank_that_left_has_exited() -> None:
    build = after_two_ops()
    build.end(0, at_s=3, cause="exited", exit_code=0)
    [stack] = fold_stacks(build.session, [0])
    assert stack.what == "exited after all_reduce #2 on group 'world'"


def test_a_rank_that_waited_when_it_was_ended_is_in_its_op() -> None:
    build = after_two_ops()
    build.op(0, "barrier", at_s=3)
    build.end(0, at_s=9, cause="signal", signal=15)
    assert gone_from(build.session, 0) is None


def test_where_an_agent_saw_a_rank_before_it_was_killed_is_where_it_was() -> None:
    build = after_two_ops()
    stack = (RecordedFrame("/job/data.py", 12, "load"),)
    build.seen(0, RankState.ASLEEP, since_s=2, stack=stack)
    build.end(0, at_s=3, cause="signal", signal=15)
    assert [(s.what, s.frames) for s in fold_stacks(build.session, [0])] == [("asleep", stack)]


def test_what_an_agent_saw_of_a_rank_that_is_gone_is_not_told_as_if_it_ran() -> None:
    build = after_two_ops()
    build.op(0, "barrier", at_s=3, ended_s=3.1, status=Status.TIMEOUT, site="a.py:8 (main)")
    build.seen(0, RankState.RUNNING, since_s=2, site="a.py:8 (main)")
    build.end(0, at_s=4, cause="exited", exit_code=1)
    [stack] = fold_stacks(build.session, [0])
    assert stack.what == "gave up in barrier #3 on group 'world'"


@pytest.mark.parametrize("text", ["", "somewhere", "a.py", "a.py:", ":3", "a.py:x (f)"])
def test_what_names_no_place_is_none(text: str) -> None:
    assert read_site(text) is None


def test_a_place_in_words_is_a_frame() -> None:
    assert read_site("C:/a b.py:3 (<module>)") == RecordedFrame("C:/a b.py", 3, "<module>")

"""The stacks that are shown of a finding."""

from __future__ import annotations

import io

from rich.console import Console

from distdbg.diagnose.verdict import diagnose
from distdbg.record.format import Exit, Status
from distdbg.record.rank_state import RankState
from distdbg.record.recorded_frame import RecordedFrame
from distdbg.render.finding_stacks import ReportedStack, tell_stacks
from distdbg.render.source_line import SourceLines
from distdbg.render.text import _stack, print_verdict
from tests.support.session_builder import SessionBuilder
from tests.unit.diagnose.test_mismatch import error


def test_a_line_that_calls_itself_or_a_comprehension_is_shown_once() -> None:
    build = SessionBuilder(2)
    build.op(0, "barrier", at_s=1, ended_s=2)
    build.op(1, "barrier", at_s=1, ended_s=2)
    inner = RecordedFrame("/job/a.py", 3, "count")
    frames = (
        inner,
        *[RecordedFrame("/job/a.py", 4, "count")] * 3,
        RecordedFrame("/job/a.py", 9, "main.<locals>.<listcomp>"),
        RecordedFrame("/job/a.py", 9, "main"),
    )
    build.session.ranks[0].left_stack = frames
    build.exit(0, Exit.RAISED, at_s=3, what="RecursionError: too deep", where="/job/a.py:3 (count)")
    build.end(0, at_s=4, cause="exited", exit_code=1)
    verdict = diagnose(build.session)
    assert verdict.root is not None
    assert verdict.root.advice.startswith("look at a.py:3 (count): either it calls itself")
    [reported] = tell_stacks(build.session, verdict, verdict.root, SourceLines("", 0), 60)[:1]
    assert [(one.frame.line, one.frame.function, one.notes) for one in reported.frames] == [
        (3, "count", ()),
        (4, "count", ("called by itself, again and again",)),
        (9, "main", ()),
    ]


def test_lines_that_are_those_of_the_cause_are_not_shown_again() -> None:
    build = SessionBuilder(3)
    for rank in range(3):
        site = f"/job/a.py:{4 if rank == 2 else 3} (step) < /job/a.py:9 (main)"
        said = error("it differs", ranks=[0], seq=1, group="world")
        build.op(
            rank, "all_reduce", at_s=1, ended_s=2, status=Status.MISMATCH, site=site, error=said
        )
        build.exit(rank, Exit.RAISED, at_s=2, what="MismatchError: x", where=site.split(" < ")[0])
    console = Console(width=120, file=io.StringIO())
    verdict = diagnose(build.session)
    assert verdict.root is not None
    assert verdict.root.ranks == (0,)
    print_verdict(console, build.session, verdict)
    text = console.file.getvalue()
    assert (
        "  rank 1 raised MismatchError in all_reduce #1 on group 'world', at the same lines\n"
        in text
    )
    assert text.count("/job/a.py:3 (step)\n") == 1
    assert text.count("/job/a.py:4 (step)\n") == 1


def test_the_threads_that_may_hold_the_lock_which_the_cause_waits_for_are_shown(tmp_path) -> None:
    program = tmp_path / "a.py"
    program.write_text(
        "with one_lock:\n    with two_lock:\n        pass\nf()\nwith two_lock:\n    g()\n"
    )
    build = SessionBuilder(2, now_s=60)
    build.op(0, "barrier", at_s=1, site=f"{program}:4 (main)")
    why = (
        "blocked on a lock; its thread 'saver' is at a.py:2 (save); its thread 'b' is at c.py:9 (f)"
    )
    frames = (RecordedFrame(str(program), 5, "main"),)
    build.seen(1, RankState.ASLEEP, since_s=3, site=f"{program}:5 (main)", why=why, stack=frames)
    verdict = diagnose(build.session)
    assert verdict.root is not None
    assert verdict.root.ranks == (1,)
    source = SourceLines(str(tmp_path), 1 << 62)
    reported = tell_stacks(build.session, verdict, verdict.root, source, 60)
    assert [(one.ranks, one.what, one.is_cause) for one in reported][:3] == [
        ((1,), "waits for a lock", True),
        ((1,), "thread 'saver'", True),
        ((1,), "thread 'b'", True),
    ]
    [saver] = reported[1].frames
    assert saver.notes == ("in `with one_lock` (line 1)",)


def test_what_leads_to_lines_that_are_not_shown_ends_without_a_colon() -> None:
    console = Console(width=120, file=io.StringIO())
    stack = ReportedStack(ranks=(0,), what="died; last known line:", is_cause=False, frames=())
    console.print(_stack(stack, 0, ""))
    assert console.file.getvalue() == "  rank 0 died; last known line, at the same lines\n"

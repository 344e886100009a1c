"""A verdict in twelve lines."""

from __future__ import annotations

from dataclasses import replace

import pytest
import render_examples as examples

from distdbg.diagnose.finding import Evidence, Finding, FindingKind, Role, Severity, Verdict
from distdbg.record.format import Exit
from distdbg.render.short import MAX_LINES, short_lines
from tests.support.session_builder import SessionBuilder


def test_a_missing_rank_is_told_with_who_waits_and_one_hint() -> None:
    session, verdict = examples.missing_rank()
    assert short_lines(session, verdict) == [
        "rank 3 never called all_reduce #4 on group 'world'; 3 others wait",
        "  rank 3 is in load() since 37.0 s at data.py:12 (load)",
        "  ranks 0-2 wait in all_reduce #4 on group 'world' at train.py:80 (step), for 30 s",
        "  hint: look at what rank 3 reads in load() of data.py",
    ]


def test_a_deadlock_is_told_by_its_edges_and_what_follows() -> None:
    session, verdict = examples.deadlock()
    assert short_lines(session, verdict) == [
        "deadlock of ranks 0,1: each waits for the other, and nothing can end it",
        "  rank 0 waits in recv from rank 1 (tag 5) on group 'world' at swap.py:9 (swap)",
        "  rank 1 waits in recv from rank 0 (tag 5) on group 'world' at swap.py:9 (swap)",
        "  ranks 2-3 wait in barrier #1 on group 'world' at swap.py:20 (main), for 15 s",
        "  then: ranks 2,3 timed out in barrier #1",
        "  hint: let one of them send before it receives",
    ]


def test_a_healthy_job_is_one_line() -> None:
    assert short_lines(*examples.healthy()) == ["nothing is wrong: all 12 ops have ended"]


def test_what_is_missing_is_told_when_there_is_no_cause() -> None:
    session, verdict = examples.healthy()
    verdict = replace(verdict, what="no cause was found", lacks=("rank 2 left no record",))
    assert short_lines(session, verdict)[1:] == ["  missing: rank 2 left no record"]


@pytest.mark.parametrize("count", [4, 1000])
def test_there_are_never_more_than_twelve_lines(count: int) -> None:
    build = SessionBuilder(world_size=count)
    for rank in range(count):
        build.op(rank, "recv", peer=(rank + 1) % count, site=f"a.py:{rank} (f)")
    facts = tuple(Evidence(text=f"fact {r}", rank=r) for r in range(0, count, 2))
    follows = tuple(
        Finding(kind=FindingKind.FAILED_OP, severity=Severity.ERROR, what=f"rank {r} failed")
        for r in range(count)
    )
    root = Finding(
        kind=FindingKind.MISMATCH,
        severity=Severity.ERROR,
        what="they differ",
        ranks=tuple(range(0, count, 2)),
        evidence=facts,
        follows=follows,
        advice="do not",
    )
    lacks = tuple(f"file {i} is gone" for i in range(count))
    roles = {rank: Role.VICTIM if rank % 2 else Role.ROOT for rank in range(count)}
    verdict = Verdict(what="they differ", root=root, findings=(root,), roles=roles, lacks=lacks)
    lines = short_lines(build.session, verdict)
    assert len(lines) <= MAX_LINES
    assert lines[-1] == "  hint: do not"
    assert any("more facts" in line for line in lines) == (count > 4 * 2)
    without = replace(verdict, root=None)
    assert len(short_lines(build.session, without)) <= MAX_LINES


def test_nothing_of_a_program_reaches_the_terminal_as_a_command() -> None:
    build = SessionBuilder(world_size=2)
    build.group("\x1b[2Jdp\n", [0, 1])
    for rank in (0, 1):
        build.op(rank, "barrier", group="\x1b[2Jdp\n", site="a\x07.py:3 (f)")
    root = Finding(
        kind=FindingKind.DEAD_RANK,
        severity=Severity.ERROR,
        what="rank 0 \x1b]0;x\x07 died\nreally",
        ranks=(0,),
        victims=(1,),
        advice="\r" + "x" * 10_000,
    )
    verdict = Verdict(what=root.what, root=root, findings=(root,), roles={})
    lines = short_lines(build.session, verdict)
    assert all(line.isprintable() and len(line) < 310 for line in lines)
    assert lines[0] == r"rank 0 \x1b]0;x\x07 died\nreally"


def test_a_rank_of_which_nothing_is_known_is_passed_over() -> None:
    build = SessionBuilder(world_size=4)
    build.exit(1, Exit.LEFT, at_s=3)
    build.lose(0)
    root = Finding(
        kind=FindingKind.DEAD_RANK,
        severity=Severity.ERROR,
        what="dead",
        ranks=(0, 1),
        victims=(2, 3),
    )
    verdict = Verdict(what=root.what, root=root, findings=(root,), roles={})
    assert short_lines(build.session, verdict) == ["dead"]


def test_a_rank_in_a_wait_is_told_by_the_op_that_it_waits_for() -> None:
    build = SessionBuilder(world_size=2, now_s=9)
    build.op(0, "all_reduce", is_async=True, at_s=1, site="a.py:1 (f)")
    second = build.op(0, "all_gather", is_async=True, at_s=2, site="a.py:2 (f)")
    build.wait(second, since_s=4, site="a.py:7 (f)")
    root = Finding(
        kind=FindingKind.MISSING_RANK, severity=Severity.ERROR, what="x", ranks=(1,), victims=(0,)
    )
    verdict = Verdict(what=root.what, root=root, findings=(root,), roles={})
    assert short_lines(build.session, verdict)[1] == (
        "  rank 0 waits in all_gather #2 on group 'world' at a.py:7 (f), for 5.0 s"
    )

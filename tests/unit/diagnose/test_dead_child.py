"""A rank that others wait for and whose child process has crashed: that leads."""

from __future__ import annotations

from dataclasses import replace

import pytest

from distdbg.diagnose.find.dead_child import tell_dead_child
from distdbg.diagnose.finding import Finding, FindingKind, Severity
from distdbg.diagnose.session import Session
from distdbg.record.rank_state import RankState
from distdbg.record.recorded_frame import RecordedFrame
from tests.support.session_builder import SessionBuilder

FOUND = Finding(
    kind=FindingKind.STUCK_RANK,
    severity=Severity.ERROR,
    what="ranks 0,2 waited 40 s for rank 1, asleep in next() at a.py:9; then the op timed out",
    ranks=(1,),
    victims=(0, 2),
)


def session_of(why: str) -> Session:
    build = SessionBuilder(world_size=3, now_s=60)
    build.op(0, "barrier", at_s=1)
    build.seen(1, RankState.ASLEEP, since_s=3, site="/job/a.py:9 (next)", why=why)
    return build.session


def test_the_process_leads_and_the_wait_is_its_first_evidence() -> None:
    why = "in a system call (pipe_read); its child process 47 (loader) was killed by SIGSEGV"
    found = tell_dead_child(FOUND, session_of(why))
    head = "rank 1's child process 47 (loader) was killed by SIGSEGV"
    assert found.what == f"{head}; ranks 0,2 waited 40 s for rank 1, asleep in next() at a.py:9"
    assert found.evidence[0].text == FOUND.what
    assert found.advice.startswith("see why it died")
    assert (found.ranks, found.victims, found.kind) == (FOUND.ranks, FOUND.victims, FOUND.kind)


def test_where_it_crashed_is_told_where_the_dump_says_so() -> None:
    session = session_of(
        "in a system call (pipe_read); its child process 47 (x) was killed by SIGBUS"
    )
    session.ranks[1].child_stack = (
        RecordedFrame("/usr/lib/python3.11/ctypes/__init__.py", 519, "string_at"),
        RecordedFrame("/job/data.py", 29, "record"),
        RecordedFrame("/job/data.py", 37, "decode"),
    )
    found = tell_dead_child(FOUND, session)
    assert found.what.startswith(
        "rank 1's child process 47 (x) was killed by SIGBUS at data.py:29 (record)"
    )
    assert found.advice.startswith("look at data.py:29 (record)")
    assert found.evidence[1].text == (
        "rank 1: its child process crashed at data.py:29 (record), called from data.py:37 (decode)"
    )


@pytest.mark.parametrize(
    "why",
    [
        "in a system call (pipe_read)",
        "in time.sleep; its child process 47 (grep) exited with code 1",
        "in time.sleep; its child process 47 (server) was killed by SIGTERM",
    ],
)
def test_what_may_be_meant_is_no_cause(why: str) -> None:
    assert tell_dead_child(FOUND, session_of(why)) is FOUND


@pytest.mark.parametrize("is_live", [True, False])
def test_of_a_job_that_is_over_it_is_a_hang_of_any_age(is_live: bool) -> None:
    why = "in a system call (pipe_read); its child process 47 (loader) was killed by SIGKILL"
    session = session_of(why)
    session.is_live = is_live
    stall = replace(FOUND, kind=FindingKind.STALL, severity=Severity.NOTE)
    found = tell_dead_child(stall, session)
    expected = (
        (FindingKind.STALL, Severity.NOTE) if is_live else (FindingKind.STUCK_RANK, Severity.ERROR)
    )
    assert (found.kind, found.severity) == expected
    assert found.what.startswith("rank 1's child process 47 (loader) was killed by SIGKILL")

"""Who holds the clock of the job: debuggers, the user, other hosts; and those that died doing it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdbg.control import layout
from distdbg.control.clock import FREE_CLOCK, JobClock
from distdbg.control.holds import OTHER_HOST, USER_HOLD, Hold, HoldTable, hold_of, start_ticks
from distdbg.control.page import ControlPage, read_page
from distdbg.errors import RecordError

SECOND = 10**9
#: No process has this pid: the kernel gives out smaller ones.
GONE = Hold(rank=2, pid=1 << 23, start_ticks=5)


@pytest.fixture
def page(tmp_path: Path) -> Iterator[ControlPage]:
    page = ControlPage.open(tmp_path, "n14", "run")
    yield page
    page.close()


def test_the_clock_stands_while_anybody_holds_it(page: ControlPage) -> None:
    now = time.monotonic_ns() - 100 * SECOND
    assert page.hold(hold_of(0), now)
    assert page.hold(hold_of(3), now + 10 * SECOND)
    assert page.pause(now + 20 * SECOND)
    assert page.is_paused
    assert page.release(hold_of(0), now + 30 * SECOND)
    assert page.resume(now + 40 * SECOND)
    assert page.is_paused
    assert page.job_ns() == now
    assert page.release(hold_of(3), now + 50 * SECOND)
    assert not page.is_paused
    assert page.state().paused_ns == 50 * SECOND


def test_the_page_says_who_holds_it_the_longest_first(page: ControlPage, tmp_path: Path) -> None:
    page.hold(hold_of(3), 7)
    page.pause(5)
    page.hold(hold_of(OTHER_HOST), 9)
    holds = read_page(tmp_path, "n14").holds
    assert holds == page.holds() == page.state().holds
    assert [(hold.rank, hold.since_ns) for hold in holds] == [(-1, 5), (3, 7), (-2, 9)]
    assert [hold.is_of_rank for hold in holds] == [False, True, False]


def test_a_hold_is_taken_once_and_given_back_once(page: ControlPage) -> None:
    assert page.hold(hold_of(1))
    assert not page.hold(hold_of(1))
    assert not page.release(hold_of(2))
    assert page.release(hold_of(1))
    assert not page.release(hold_of(1))
    assert page.pause()
    assert not page.pause()


def test_threads_that_are_ranks_hold_it_each_for_itself(page: ControlPage) -> None:
    assert page.hold(hold_of(0))
    assert page.hold(hold_of(1))
    page.release(hold_of(0))
    assert [hold.rank for hold in page.holds()] == [1]


def test_a_hold_of_a_process_that_is_gone_is_swept(page: ControlPage) -> None:
    page.hold(GONE)
    assert page.is_paused
    assert page.sweep() == (GONE,)
    assert not page.is_paused
    assert page.sweep() == ()


def test_whoever_takes_or_gives_back_a_hold_sweeps_too(page: ControlPage) -> None:
    page.hold(GONE)
    page.pause()
    assert page.holds() == (USER_HOLD,)
    page.hold(replace(GONE, rank=4))
    page.resume()
    assert not page.is_paused


def test_a_pid_that_was_given_again_is_another_process(page: ControlPage) -> None:
    mine = hold_of(0)
    page.hold(replace(mine, start_ticks=mine.start_ticks - 1))
    assert not mine.is_gone
    assert len(page.sweep()) == 1


def test_a_zombie_holds_nothing(page: ControlPage) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    held = hold_of(0, child.pid)
    assert held.start_ticks > 0
    page.hold(held)
    assert page.sweep() == ()
    child.kill()
    until = time.monotonic() + 5
    while start_ticks(child.pid) and time.monotonic() < until:
        time.sleep(0.005)  # the kernel says nothing when a child becomes a zombie
    assert page.sweep() == (held,)
    child.communicate()


def test_a_full_table_refuses_more_and_has_room_again(page: ControlPage) -> None:
    for rank in range(layout.MAX_HOLDS):
        assert page.hold(hold_of(rank))
    with pytest.raises(RecordError, match="256 hold the clock"):
        page.hold(hold_of(layout.MAX_HOLDS))
    assert page.is_paused
    page.release(hold_of(17))
    assert page.hold(hold_of(layout.MAX_HOLDS))


def test_a_clock_whose_writer_died_before_it_stood_is_set_by_the_next(page: ControlPage) -> None:
    HoldTable(page._words).add(hold_of(0), 5)
    assert not page.is_paused
    page.sweep()
    assert page.is_paused


def test_ranks_hold_the_clock_for_each_prompt(page: ControlPage) -> None:
    clock = JobClock(page)
    clock.hold(3)
    clock.hold(3)
    clock.release(3)
    assert clock.is_paused
    clock.release(3)
    assert not clock.is_paused
    clock.release(3)
    assert page.holds() == ()


def test_a_clock_that_is_closed_leaves_no_hold(page: ControlPage) -> None:
    clock = JobClock(page)
    clock.hold(3)
    clock.close()
    assert page.holds() == ()
    clock.release(3)


def test_a_full_table_is_no_matter_to_a_rank(page: ControlPage) -> None:
    for rank in range(layout.MAX_HOLDS):
        page.hold(hold_of(rank))
    clock = JobClock(page)
    clock.hold(1000)
    clock.release(1000)
    assert len(page.holds()) == layout.MAX_HOLDS


def test_without_a_page_nobody_holds_anything() -> None:
    FREE_CLOCK.hold(0)
    assert not FREE_CLOCK.is_paused
    FREE_CLOCK.release(0)


def test_who_waits_sweeps_where_no_agent_does(page: ControlPage) -> None:
    clock = JobClock(page)
    page.hold(GONE)
    assert clock.nap_s(0.01, 0.04) == 0.04
    assert not page.is_paused


@given(st.lists(st.tuples(st.booleans(), st.integers(-2, 4)), max_size=30))
def test_the_table_is_a_set(steps: list[tuple[bool, int]]) -> None:
    words = memoryview(bytearray(layout.PAGE_NBYTES)).cast("q")
    table, known = HoldTable(words), set[int]()
    for is_taken, rank in steps:
        hold = Hold(rank=rank, pid=7, start_ticks=9)
        if is_taken:
            assert table.add(hold, 1) == (rank not in known)
            known.add(rank)
        else:
            assert table.remove(hold) == (rank in known)
            known.discard(rank)
        assert {held.rank for held in table} == known

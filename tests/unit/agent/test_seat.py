from __future__ import annotations

from distdbg.agent.seat import Seat
from distdbg.agent.stacks import RankStacks, StackFrame, ThreadStack
from distdbg.agent.tail import Standing
from distdbg.record.entries import Frame, WorkWait
from distdbg.record.rank_state import RankState

SECOND = 10**9


def test_a_process_that_never_writes_a_record_is_said_to_have_none() -> None:
    seat = Seat(rank=0, host="n01", pid=1, since_ns=0)
    assert seat.row(2 * SECOND).why == ""
    row = seat.row(11 * SECOND)
    said = "it has not called distdbg's init_process_group"
    assert (row.state, row.why) == (RankState.STARTING, said)


def stopped() -> Seat:
    return Seat(rank=1, host="n01", pid=7, state=RankState.STOPPED, standing=after_an_op())


def after_an_op() -> Standing:
    called = Frame("/home/me/train.py", 17, "<module>")
    return Standing(None, False, (), wait=WorkWait(number=1, since_ns=2, thread=3, stack=(called,)))


def stacks(*frames: tuple[str, int, str]) -> RankStacks:
    found = tuple(StackFrame(function, file, line) for file, line, function in frames)
    return RankStacks(rank=1, pid=7, threads=(ThreadStack(found, is_main=True),))


def test_a_rank_stopped_in_its_own_code_is_not_at_the_line_of_its_last_op() -> None:
    assert stopped().row(2 * SECOND).site == ""


def test_a_stopped_rank_is_where_its_stack_says_as_the_analysis_says_it() -> None:
    seat = stopped()
    seat.place(stacks(("/usr/lib/python3.11/os.py", 9, "kill"), ("/home/me/stp.py", 11, "stopped")))
    assert seat.row(2 * SECOND).site == "stp.py:11 (stopped)"


def test_a_rank_that_waits_stays_at_the_line_of_its_op() -> None:
    seat = stopped()
    seat.state = RankState.WAITING
    seat.place(stacks(("/home/me/stp.py", 11, "stopped")))
    assert seat.row(2 * SECOND).site == "train.py:17 (<module>)"

from __future__ import annotations

from typing import Any

import pytest

from distdbg.follow.stacks import RankStacks, StackFrame, ThreadStack
from distdbg.follow.tail import CurrentOps
from distdbg.follow.watched_rank import WatchedRank, name_op
from distdbg.record.entries import KIND_LABELS, Group, OpEntry, WorkWaitEntry
from distdbg.record.rank_state import RankState
from distdbg.record.recorded_frame import RecordedFrame

SECOND = 10**9


def test_a_process_that_never_writes_a_record_is_said_to_have_none() -> None:
    watched = WatchedRank(rank=0, host="n01", pid=1, since_ns=0)
    assert watched.row(2 * SECOND).why == ""
    row = watched.row(11 * SECOND)
    said = "it has not called distdbg's init_process_group"
    assert (row.state, row.why) == (RankState.STARTING, said)


def stopped() -> WatchedRank:
    return WatchedRank(
        rank=1, host="n01", pid=7, state=RankState.STOPPED, current_ops=after_an_op()
    )


def after_an_op() -> CurrentOps:
    called = RecordedFrame("/home/me/train.py", 17, "<module>")
    return CurrentOps(
        None, False, (), wait=WorkWaitEntry(number=1, since_ns=2, thread=3, stack=(called,))
    )


def stacks(*frames: tuple[str, int, str]) -> RankStacks:
    found = tuple(StackFrame(function, file, line) for file, line, function in frames)
    return RankStacks(rank=1, pid=7, threads=(ThreadStack(found, is_main=True),))


def test_a_rank_stopped_in_its_own_code_is_not_at_the_line_of_its_last_op() -> None:
    assert stopped().row(2 * SECOND).site == ""


def test_a_stopped_rank_is_where_its_stack_says_as_the_analysis_says_it() -> None:
    watched = stopped()
    watched.place(
        stacks(("/usr/lib/python3.11/os.py", 9, "kill"), ("/home/me/stp.py", 11, "stopped"))
    )
    assert watched.row(2 * SECOND).site == "stp.py:11 (stopped)"


def test_a_rank_that_waits_stays_at_the_line_of_its_op() -> None:
    watched = stopped()
    watched.state = RankState.WAITING
    watched.place(stacks(("/home/me/stp.py", 11, "stopped")))
    assert watched.row(2 * SECOND).site == "train.py:17 (<module>)"


@pytest.mark.parametrize(
    ("facts", "name"),
    [
        ({"peer": 1, "tag": 0}, "recv #3 from rank 4 on group 'pipe'"),
        ({"peer": 1, "tag": 5}, "recv #3 from rank 4 (tag 5) on group 'pipe'"),
        ({"peer": None, "tag": 0}, "recv #3 from any rank on group 'pipe'"),
        (
            {"kind": KIND_LABELS.index("send"), "peer": 0, "tag": 0},
            "send #3 to rank 2 on group 'pipe'",
        ),
        ({"peer": None, "tag": 0, "is_message": False}, "recv #3 on group 'pipe'"),
    ],
)
def test_a_message_is_named_with_its_peer_by_the_rank_of_the_job(
    facts: dict[str, Any], name: str
) -> None:
    pipe = Group(
        number=1, created_ns=0, name="7", desc="pipe", ranks="2,4", backend="gloo", size=2, rank=0,
        timeout_ns=1, stack=(),
    )  # fmt: skip
    op = OpEntry(
        number=1, issued_ns=1, thread=1, stack=(), group=pipe, group_number=1, seq=3,
        form=None, is_async=False, is_aside=False, level=2, fingerprint=0, comm="", started_ns=None,
        ended_ns=None, status=None, source=None, error=None,
        **{"kind": KIND_LABELS.index("recv"), "is_message": True, **facts},
    )  # fmt: skip
    assert name_op(op) == name

from __future__ import annotations

from distdbg.agent.seat import Seat
from distdbg.record.rank_state import RankState

SECOND = 10**9


def test_a_process_that_never_writes_a_record_is_said_to_have_none() -> None:
    seat = Seat(rank=0, host="n01", pid=1, since_ns=0)
    assert seat.row(2 * SECOND).why == ""
    row = seat.row(11 * SECOND)
    said = "it has not called distdbg's init_process_group"
    assert (row.state, row.why) == (RankState.STARTING, said)

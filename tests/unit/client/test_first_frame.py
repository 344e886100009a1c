"""When the first frame is drawn."""

from distdbg.client.feed.first_frame import WAIT_S, FirstFrame, is_whole
from distdbg.record.rank_state import RankState
from distdbg.view.snapshot import RankRow


def rows(*states: RankState) -> list[RankRow]:
    return [RankRow(rank=rank, state=state) for rank, state in enumerate(states)]


def test_half_of_the_ranks_is_no_frame_until_the_deadline() -> None:
    first, half = FirstFrame(), rows(RankState.RUNNING, RankState.WAITING)
    assert not first.may_show(half, 4, 10.0)
    assert not first.may_show(half, 4, 10.0 + WAIT_S / 2)
    assert first.may_show(half, 4, 10.0 + WAIT_S)
    assert first.may_show([], 4, 10.0)  # and then always


def test_all_ranks_are_a_frame_at_once() -> None:
    assert FirstFrame().may_show(rows(RankState.RUNNING, RankState.WAITING), 2, 0.0)


def test_a_rank_whose_record_is_not_there_yet_is_missing_but_not_when_none_is() -> None:
    assert not is_whole(rows(RankState.RUNNING, RankState.STARTING), 2)
    assert is_whole(rows(RankState.STARTING, RankState.STARTING), 0)
    assert not is_whole([], 0)

"""When the first frame is drawn."""

from distdbg.client.feed.feed_state import WAIT_S, FirstFrame, is_whole
from distdbg.record.rank_state import RankState
from distdbg.view.snapshot import RankRow


def rows(*states: RankState) -> list[RankRow]:
    return [RankRow(rank=rank, state=state) for rank, state in enumerate(states)]


def test_half_of_the_ranks_is_no_frame_until_the_deadline() -> None:
    half = rows(RankState.RUNNING, RankState.WAITING)
    first = FirstFrame().after(half, 4, 10.0)
    assert not first.is_shown
    assert not first.after(half, 4, 10.0 + WAIT_S / 2).is_shown
    assert first.after(half, 4, 10.0 + WAIT_S).is_shown
    assert first.after(half, 4, 10.0 + WAIT_S).after([], 4, 10.0).is_shown  # and then always


def test_all_ranks_are_a_frame_at_once() -> None:
    assert FirstFrame().after(rows(RankState.RUNNING, RankState.WAITING), 2, 0.0).is_shown


def test_a_rank_whose_record_is_not_there_yet_is_missing_but_not_when_none_is() -> None:
    assert not is_whole(rows(RankState.RUNNING, RankState.STARTING), 2)
    assert is_whole(rows(RankState.STARTING, RankState.STARTING), 0)
    assert not is_whole([], 0)

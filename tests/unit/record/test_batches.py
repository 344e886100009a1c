"""Who ran out of batches first: said where marks and calls prove it, and not where they do not."""

from __future__ import annotations

from distdbg.record.batches import RanOut, find_ran_out
from distdbg.record.known_marks import (
    BATCH,
    JOIN_OUT_OF_BATCHES,
    JOIN_STEP,
    JOINED,
    OUT_OF_BATCHES,
    STEP,
)
from distdbg.record.passages import LoopMark, LoopTrack

#: What a rank did, in order: a mark's name with its value, or a call.
Did = list[tuple[str, int] | str]
CALL = "call"


def loop(count: int, *, is_out: bool = True, calls: int = 1) -> Did:
    did: Did = []
    for batch in range(1, count + 1):
        did += [(BATCH, batch), *[CALL] * calls]
    return [*did, (OUT_OF_BATCHES, count)] if is_out else did


def track(
    did: Did, *, first_seq: int = 1, loop: str = "train.py:8", then: Did | None = None
) -> LoopTrack:
    """`then`: what it did in a second loop, at another line."""
    marks, issued = [], []
    for at, what in enumerate([*did, *(then or [])], 1):
        if isinstance(what, str):
            issued.append(at)
        else:
            marks.append(LoopMark(what[0], what[1], at, loop if at <= len(did) else "valid.py:3"))
    return LoopTrack(marks, list(range(first_seq, first_seq + len(issued))), issued)


def reported(*dids: Did) -> RanOut | None:
    return find_ran_out({rank: track(did) for rank, did in enumerate(dids)})


def test_a_rank_that_had_fewer_batches_is_found() -> None:
    more = loop(4, is_out=False)
    assert reported(more, loop(3), more) == RanOut(
        ranks=(1,), others=(0, 2), count=3, step=4, at_ns={1: 7}
    )


def test_of_several_those_with_the_fewest_are_named() -> None:
    found = reported(loop(2), loop(3, is_out=False), loop(2))
    assert found is not None
    assert (found.ranks, found.others, found.step) == ((0, 2), (1,), 3)


def test_what_comes_after_the_loop_changes_nothing() -> None:
    found = reported([*loop(3), CALL, CALL], loop(4, is_out=False))
    assert found is not None
    assert found.ranks == (0,)


def test_a_rank_that_validates_already_ran_out_of_batches() -> None:
    for then in (loop(1, is_out=False), loop(2)):
        tracks = {0: track(loop(3), then=then), 1: track(loop(4, is_out=False))}
        found = find_ran_out(tracks)
        assert found is not None
        assert (found.ranks, found.step) == ((0,), 4)


def test_in_a_loop_within_a_loop_the_inner_one_is_meant() -> None:
    # Both are in step 5; rank 0 has validated two batches, rank 1 is in a third one.
    outer = [(BATCH, 5), CALL]
    tracks = {0: track(outer, then=loop(2)), 1: track(outer, then=loop(3, is_out=False))}
    found = find_ran_out(tracks)
    assert found is not None
    assert (found.ranks, found.step) == ((0,), 3)


def test_the_step_is_called_what_the_program_calls_it() -> None:
    named: Did = [each for at in range(4) for each in ((BATCH, at + 1), (STEP, 1000 + at), CALL)]
    found = reported(named, loop(3))
    assert found is not None
    assert (found.step, found.count) == (1003, 3)


def test_the_second_loop_counts_anew() -> None:
    found = reported([*loop(3), *loop(3, is_out=False)], [*loop(3), *loop(2)])
    assert found is not None
    assert (found.ranks, found.step) == ((1,), 3)


def test_batches_without_calls_are_no_obstacle() -> None:
    # A call every second batch.
    def did(count: int, *, is_out: bool) -> Did:
        found: Did = []
        for batch in range(1, count + 1):
            found += [(BATCH, batch)] if batch % 2 else [(BATCH, batch), CALL]
        return [*found, (OUT_OF_BATCHES, count)] if is_out else found

    found = reported(did(4, is_out=False), did(3, is_out=True))
    assert found is not None
    assert (found.ranks, found.step) == ((1,), 4)


def test_a_disabled_join_counts_its_steps() -> None:
    steps: Did = [each for at in range(1, 4) for each in ((JOIN_STEP, at), CALL)]
    found = reported(steps, [*steps[:4], (JOIN_OUT_OF_BATCHES, 2)])
    assert found is not None
    assert (found.ranks, found.step) == ((1,), 3)


def test_an_earlier_epoch_in_which_the_ranks_parted_is_found() -> None:
    uneven = [*loop(3), *loop(3), *loop(3)], [*loop(5), *loop(5, is_out=False)]
    found = reported(*uneven)
    assert found is not None
    assert found.head + found.rest == (
        "rank 0 ran out of batches at step 4 of an earlier epoch (3 batches, rank 1 had 5)"
    )
    # The other may still be in its first.
    found = reported([*loop(3), *loop(1, is_out=False)], loop(4, is_out=False))
    assert found is not None
    assert found.rest == " (3 batches, rank 1 had at least 4)"


def test_of_two_loops_in_each_epoch_the_uneven_one_is_found() -> None:
    tracks = {}
    for rank, count in enumerate((3, 2)):
        marks, issued = [], []
        for _ in range(2):
            for did, where in ((loop(4), "train.py:8"), (loop(count), "valid.py:3")):
                for each in did:
                    at = len(marks) + len(issued) + 1
                    if isinstance(each, str):
                        issued.append(at)
                    else:
                        marks.append(LoopMark(each[0], each[1], at, where))
        tracks[rank] = LoopTrack(marks, list(range(1, len(issued) + 1)), issued)
    found = find_ran_out(tracks)
    assert found is not None
    assert found.head == "rank 1 ran out of batches at step 3 of an earlier epoch"


def test_nothing_is_said_without_proof() -> None:
    more = loop(4, is_out=False)
    assert reported(loop(3), loop(3)) is None  # both ran out
    assert reported(loop(3), loop(3, is_out=False)) is None  # the other is in its last step
    assert reported(loop(3, is_out=False), more) is None  # it left the loop by a break
    assert reported([*loop(3), (JOINED, 3)], more) is None  # others expect no more of it
    assert reported(loop(3), [*more, (OUT_OF_BATCHES, 4)]) is None  # that loop is over
    # It made up for it, and both began the next one together.
    assert (
        reported([*loop(3), CALL, *loop(1, is_out=False)], [*loop(4), *loop(2, is_out=False)])
        is None
    )
    # A loop without collectives may be as long as it likes.
    files = loop(3, calls=0)
    assert reported([*files, CALL], [*loop(4, is_out=False, calls=0), CALL]) is None
    assert reported([CALL, *loop(0), CALL], [CALL, *loop(2, is_out=False)]) is None
    assert reported(loop(3), more[:-1]) is None  # the other has called no more than it
    assert reported(loop(0), loop(0)) is None
    assert reported(loop(3), []) is None


def test_another_loop_with_higher_numbers_is_no_proof() -> None:
    # Rank 0 validates three batches between two steps; rank 1 does not.
    assert reported([*loop(7, is_out=False), *loop(3)], loop(8, is_out=False)) is None


def test_marks_of_another_line_are_of_another_loop() -> None:
    tracks = {
        0: track(loop(3)),
        1: track(loop(4, is_out=False), loop="valid.py:3"),
    }
    assert find_ran_out(tracks) is None


def test_nothing_is_said_where_the_record_does_not_reach_back() -> None:
    short = track(loop(3), first_seq=1)
    for first_seq, is_reported in ((4, True), (5, False)):
        # Of the other rank only the last batch is left, with its call.
        other = track([(BATCH, 4), CALL], first_seq=first_seq)
        assert (find_ran_out({0: short, 1: other}) is not None) == is_reported

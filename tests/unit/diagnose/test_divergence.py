"""Where the calls of two ranks part: planted at any place, by any sign, also where a ring came round."""

from __future__ import annotations

import time

import pytest

from distdbg.diagnose.divergence import (
    _MAX_SHIFTS,
    CallSign,
    FirstDifference,
    _shift,
    find_parting,
)
from distdbg.diagnose.finding import FindingKind
from distdbg.diagnose.matching import match
from distdbg.diagnose.session import Session
from distdbg.diagnose.verdict import diagnose
from distdbg.record.format import Exit
from tests.support.session_builder import SessionBuilder

STEPS = 20


def loop(
    skipped: int | None,
    *,
    lines: int = 1,
    marks: bool = False,
    pause_s: float = 0.0001,
    first: int = 0,
    by: int = 1,
) -> SessionBuilder:
    """Three ranks in a loop; rank 1 leaves out the calls of `by` steps from `skipped` on.

    `first`: calls before it are no longer in the records.
    """
    build = SessionBuilder(3)
    now = [0.0, 0.0, 0.0]
    seqs = [0, 0, 0]
    for step in range(STEPS):
        for rank in range(3):
            now[rank] += pause_s
            if marks:
                build.mark(rank, "step", step, at_s=now[rank])
            if rank == 1 and skipped is not None and skipped <= step < skipped + by:
                continue
            seqs[rank] += 1
            if seqs[rank] > first:
                site = f"train.py:{step % lines + 8} (train)"
                at_s, ended_s = now[rank], now[rank] + 0.001
                build.op(rank, "all_reduce", seq=seqs[rank], at_s=at_s, ended_s=ended_s, site=site)
            now[rank] += 0.001
    return build


def parting(
    session: Session, *, skipped: int = 1, rank: int = 1, other: int = 0
) -> FirstDifference:
    found = find_parting(session, match(session).of(0), 0, rank, other, skipped=skipped)
    assert found is not None
    return found


@pytest.mark.parametrize("skipped", [0, 3, 10, STEPS - 2])
def test_the_lines_of_a_loop_with_two_calls_shift_where_one_was_skipped(skipped: int) -> None:
    found = parting(loop(skipped, lines=3).session)
    assert (found.seq, found.sign, found.skipped, found.is_sure) == (
        skipped + 1,
        CallSign.LINE,
        1,
        True,
    )


def test_several_calls_skipped_in_a_row_are_counted() -> None:
    found = parting(loop(4, lines=5, by=3).session, skipped=3)
    assert (found.seq, found.sign, found.skipped) == (5, CallSign.LINE, 3)


def test_the_value_of_a_mark_shifts_where_all_lines_are_alike() -> None:
    found = parting(loop(3, marks=True).session)
    assert (found.seq, found.sign, found.skipped) == (4, CallSign.MARK, 1)
    assert (found.mine, found.theirs) == (("step", 4), ("step", 3))


def test_a_mark_that_is_another_on_each_rank_is_no_sign() -> None:
    build = loop(3)
    for rank in range(3):
        for step in range(STEPS):
            build.mark(rank, "loss", rank + step * 0.37 * (rank + 1), at_s=step * 0.0011)
    assert parting(build.session).sign is not CallSign.MARK


def test_twice_the_spans_between_two_calls_are_a_sign() -> None:
    build = loop(3)
    for rank in range(3):
        for step in range(STEPS):
            build.mark(rank, "batch", at_s=step * 0.0011 - (step > 3) * (rank == 1) * 0.001)
    found = parting(build.session)
    assert (found.seq, found.sign, found.mine, found.theirs) == (4, CallSign.SPANS, 2, 1)


def test_another_group_is_further_on_where_a_call_was_skipped() -> None:
    build = SessionBuilder(2)
    build.group("tp", [0, 1])
    for rank in range(2):
        for step in range(8):
            build.op(rank, "all_reduce", group="tp", at_s=step + 0.1, ended_s=step + 0.2)
            if (rank, step) != (1, 5):
                build.op(rank, "all_reduce", at_s=step + 0.3, ended_s=step + 0.4)
    found = parting(build.session)
    assert (found.seq, found.sign, found.mine, found.theirs) == (
        6,
        CallSign.GROUPS,
        ("tp", 7),
        ("tp", 6),
    )


def test_twice_the_time_between_two_calls_is_only_probable() -> None:
    found = parting(loop(3, pause_s=0.02).session)
    assert (found.seq, found.sign, found.is_sure) == (4, CallSign.TIME, False)


def test_short_pauses_say_nothing() -> None:
    found = parting(loop(3).session)
    assert (found.seq, found.sign, found.is_open) == (0, None, True)
    assert (found.first, found.last) == (1, STEPS - 1)


def test_a_rank_that_stopped_before_a_call_of_another_line_has_skipped_nothing_else() -> None:
    build = loop(None)
    for rank in (0, 2):
        build.op(rank, "all_reduce", at_s=9, site="train.py:90 (save)")
    found = parting(build.session)
    assert (found.seq, found.is_open) == (0, False)


def test_rings_that_lost_the_place_say_that_nothing_is_left_of_it() -> None:
    found = parting(loop(3, first=8).session)
    assert (found.seq, found.first) == (0, 9)


def test_a_ring_that_has_lost_its_beginning_still_shows_the_place() -> None:
    found = parting(loop(12, lines=3, first=8).session)
    assert (found.seq, found.sign) == (13, CallSign.LINE)


def test_a_ring_that_begins_behind_the_place_is_apart_from_its_first_call_on() -> None:
    found = parting(loop(3, marks=True, first=8).session)
    assert (found.seq, found.first, found.sign) == (9, 9, CallSign.MARK)


def test_a_rank_without_calls_is_not_compared() -> None:
    build = SessionBuilder(2)
    build.op(0, "all_reduce")
    assert find_parting(build.session, match(build.session).of(0), 0, 1, 0, skipped=1) is None


# ------------------------------------------------------------------------------------ the verdict


def ended(build: SessionBuilder) -> SessionBuilder:
    """Rank 1 has left, the others wait in their last call."""
    for rank in (0, 2):
        ops = build.session.ranks[rank].ops
        ops.ended_ns[-1] = ops.started_ns[-1] = -(2**63)
        ops.status[-1] = 255
    build.exit(1, Exit.LEFT, at_s=90)
    return build


def test_the_verdict_says_where_a_call_was_skipped() -> None:
    root = diagnose(ended(loop(3, marks=True)).session).root
    assert root is not None
    assert root.what == (
        "rank 1 skipped one call after #3; it left while ranks 0,2 waited for it in "
        "all_reduce #20 on group 'world'"
    )
    texts = [line.text for line in root.evidence]
    assert "rank 1 made 19 all_reduces on group 'world' where ranks 0,2 made 20" in texts
    assert "they diverge at #4: there rank 1 was at mark step 4, rank 0 at mark step 3" in texts
    assert root.advice == "see what rank 1 did differently after #3"
    assert root.numbers["parted"] == 4


def test_who_stops_after_a_mark_that_both_had_has_skipped_nothing() -> None:
    root = diagnose(ended(loop(STEPS - 1, marks=True)).session).root
    assert root is not None
    texts = [line.text for line in root.evidence]
    assert (
        "at call #19 ranks 1 and 0 are both at mark step 18: rank 1 skipped none before, and stops there"
        in texts
    )
    assert root.advice == "see what ends the loop of rank 1 before that of the others"


def test_a_count_of_steps_shows_no_skipped_batch() -> None:
    """DDP and optimizers mark the steps that a rank has made: one that skips a batch makes none there."""
    build = ended(loop(3))
    for rank in range(3):
        ops = build.session.ranks[rank].ops
        for number, issued_ns in enumerate(list(ops.issued_ns), 1):
            build.mark(rank, "step", float(number), at_s=issued_ns / 1e9 + 0.001)
    root = diagnose(build.session).root
    assert root is not None
    texts = [line.text for line in root.evidence]
    assert not any("skipped none before" in text for text in texts)
    assert any("cannot be distinguished" in text for text in texts)


def test_the_verdict_says_when_the_place_cannot_be_told() -> None:
    root = diagnose(ended(loop(3)).session).root
    assert root is not None
    assert "skipped" not in root.what
    assert any("cannot be distinguished" in line.text for line in root.evidence)
    assert "dist.mark('step', i)" in root.advice


def test_a_rank_that_is_only_late_is_not_said_to_have_skipped_anything() -> None:
    build = loop(None, marks=True)
    for rank in (0, 2):
        build.op(rank, "all_reduce", at_s=9, site="train.py:8 (train)")
    root = diagnose(build.session).root
    assert root is not None
    assert root.ranks == (1,)
    assert "skipped" not in root.what
    assert not any("be distinguished" in line.text for line in root.evidence)


def test_4096_ranks_with_a_thousand_calls_each_take_no_time() -> None:
    build = SessionBuilder(2)
    for rank in range(2):
        for step in range(1000):
            if (rank, step) != (1, 400):
                site = f"train.py:{step % 7} (train)"
                build.op(rank, "all_reduce", at_s=step, ended_s=step + 0.1, site=site)
    ops = match(build.session).of(0)
    for rank in range(2, 4096):
        build.session.ranks[rank], ops.by_rank[rank] = build.session.ranks[0], ops.by_rank[0]
    begun = time.process_time()
    found = find_parting(build.session, ops, 0, 1, 0, skipped=1)
    assert time.process_time() - begun < 0.5  # two ranks are compared, whatever the number
    assert found is not None
    assert found.seq == 401


def ended_by_a_barrier(build: SessionBuilder, made: list[int]) -> SessionBuilder:
    for rank, count in enumerate(made):
        build.op(rank, "barrier", seq=count + 1, at_s=9.0, site="train.py:30 (main)")
    return build


def test_a_skipped_call_that_ends_in_a_mismatch_is_named_where_it_was_skipped() -> None:
    build = ended_by_a_barrier(loop(3, marks=True), [STEPS, STEPS - 1, STEPS])
    verdict = diagnose(build.session)
    assert verdict.root is not None
    assert verdict.root.kind is FindingKind.MISMATCH
    assert (verdict.root.ranks, verdict.root.seq) == ((1,), STEPS)
    assert verdict.what == (
        "rank 1 skipped one call after #3 on group 'world'; the calls differ since #20"
    )
    assert verdict.root.numbers["parted"] == 4
    texts = [one.text for one in verdict.root.evidence]
    assert "they diverge at #4: there rank 1 was at mark step 4, rank 0 at mark step 3" in texts


def test_where_calls_are_alike_the_skipped_one_may_be_an_earlier_one() -> None:
    build = ended_by_a_barrier(loop(3), [STEPS, STEPS - 1, STEPS])
    verdict = diagnose(build.session)
    assert verdict.root is not None
    assert verdict.root.kind is FindingKind.MISMATCH
    assert verdict.what.startswith(
        "rank 1 skipped all_reduce #20 on group 'world', or an earlier one like it, at train.py:8"
    )
    assert "parted" not in verdict.root.numbers


def test_more_skipped_calls_than_were_made_are_only_a_number() -> None:
    session = loop(3, lines=3).session
    group = match(session).of(0)
    assert find_parting(session, group, 0, 1, 0, skipped=2**60) == find_parting(
        session, group, 0, 1, 0, skipped=STEPS
    )


class Counted:
    """A value of a call that counts how often it is compared."""

    compared = 0

    def __init__(self, value: int) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return isinstance(other, Counted) and self.value == other.value

    def __hash__(self) -> int:
        return self.value


@pytest.mark.parametrize("value", [2, 3])
def test_a_long_record_without_a_shift_is_not_compared_at_each_of_its_calls(value: int) -> None:
    count = 3_000
    mine = [Counted(0), *(Counted(1) for _ in range(count)), Counted(2)]
    theirs = [Counted(1) for _ in range(2 * count)] + [Counted(value)] * 9
    Counted.compared = 0
    assert _shift(mine, theirs, count) == (None, 0)
    assert Counted.compared < (_MAX_SHIFTS + 9) * count
    Counted.compared = 0
    assert _shift(mine[1:], [Counted(5), *mine], 2) == (0, 2)

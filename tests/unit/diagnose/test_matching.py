"""Which ops of different ranks are one op."""

import pytest

from distdbg.diagnose.matching import match
from tests.support.session_builder import SessionBuilder


@pytest.mark.parametrize("has_message", [False, True])
def test_a_run_of_collectives_is_matched_as_ops_between_others_are(has_message: bool) -> None:
    build = SessionBuilder(2)
    for rank in range(2):
        for seq in range(5, 9):
            build.op(rank, "all_reduce", seq=seq, is_async=seq % 2 == 0)
            if has_message:
                build.op(rank, "send", peer=1 - rank)
                build.op(rank, "new_group")
    ops = match(build.session).of(0)
    assert ops.seqs() == range(5, 9)
    step = 3 if has_message else 1
    assert list(ops.by_rank[1].indexes) == [0, step, 2 * step, 3 * step]


def test_the_largest_number_that_a_record_can_hold_is_a_seq_like_any_other() -> None:
    build = SessionBuilder(1)
    for seq in (2**63 - 1, 2**63 - 1):
        build.op(0, "barrier", seq=seq)
    assert match(build.session).of(0).index(0, 2**63 - 1) == 1


def test_a_hole_is_no_run() -> None:
    build = SessionBuilder(1)
    for seq in (1, 2, 4):
        build.op(0, "barrier", seq=seq)
    ops = match(build.session).of(0)
    assert (ops.index(0, 3), ops.index(0, 4), ops.index(0, 5)) == (None, 2, None)


def test_a_rank_without_ops_or_with_ops_of_no_group_is_not_there() -> None:
    build = SessionBuilder(2)
    build.op(0, "barrier")
    build.session.ranks[0].ops.group[0] = -1
    assert dict(match(build.session)) == {}

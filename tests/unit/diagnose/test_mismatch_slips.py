"""Mismatches of ranks that are one call off, of exchanges, and of rings that begin at different ops."""

from distdbg.record.format import Status
from tests.support.session_builder import SessionBuilder
from tests.unit.diagnose.mismatches import error, find, find_one, texts


def play(build: SessionBuilder, rank: int, calls: str) -> None:
    for at, letter in enumerate(calls):
        kind = {"a": "all_reduce", "b": "broadcast", "c": "reduce_scatter", "d": "barrier"}[letter]
        build.op(rank, kind, at_s=at, ended_s=at + 0.5, site=f"{letter}.py:1 (f)", inputs=[(4,)])


def test_a_skipped_call_is_one_finding_and_not_a_hundred() -> None:
    build = SessionBuilder(4)
    for rank in range(4):
        play(build, rank, "abcabdcab" if rank != 3 else "abcabcab")
    finding = find_one(build)
    assert (finding.ranks, finding.seq) == ((3,), 6)
    assert (
        finding.what == "rank 3 skipped barrier #6 on group 'world' at d.py:1 (f): off by 1 since"
    )
    assert finding.numbers["slipped"] == 1
    assert (
        "from there on the calls of rank 3 are those that rank 0 makes 1 call later: "
        "rank 3 did not make barrier #6 on group 'world' at d.py:1 (f)"
    ) in texts(finding)


def test_one_call_too_many_is_recognised() -> None:
    build = SessionBuilder(4)
    for rank in range(4):
        play(build, rank, "abcabcab" if rank != 0 else "abcadbcab")
    finding = find_one(build)
    assert (finding.ranks, finding.seq) == ((0,), 5)
    assert finding.what == (
        "rank 0 called barrier #5 on group 'world' and the others did not at d.py:1 (f): "
        "off by 1 since"
    )
    assert finding.numbers["slipped"] == -1


def test_without_a_majority_a_slip_is_evidence_and_blames_nobody() -> None:
    build = SessionBuilder(2)
    play(build, 0, "abcdcab")
    play(build, 1, "abccab")
    finding = find_one(build)
    assert finding.ranks == ()
    assert finding.what.startswith("op #4 on group 'world' differs between ranks: barrier")
    assert "rank 1 did not make barrier #4" in texts(finding)


def test_one_call_that_differs_is_no_slip() -> None:
    build = SessionBuilder(3)
    for rank in range(3):
        play(build, rank, "aabaaaa" if rank == 1 else "aacaaaa")
    finding = find_one(build)
    assert "slipped" not in finding.numbers
    assert finding.ranks == (1,)


def test_splits_of_an_all_to_all_that_hangs_are_compared_pair_by_pair() -> None:
    build = SessionBuilder(3)
    for rank in range(3):
        given = [2, 2, 2] if rank != 1 else [2, 3, 1]
        build.op(
            rank,
            "all_to_all",
            at_s=1,
            site="a.py:1 (f)",
            inputs=[(6, 2)],
            outputs=[(6, 2)],
            input_splits=given,
            output_splits=[2, 2, 2],
        )
    finding = find_one(build)
    assert (finding.ranks, finding.victims, finding.seq) == ((1,), (0, 2), 1)
    assert finding.what.endswith("split sizes do not match on rank 1")
    assert "rank 1 sends 2 elements to rank 2, which expects 4" in texts(finding)


def test_one_pair_of_an_all_to_all_blames_neither() -> None:
    build = SessionBuilder(2)
    build.op(0, "all_to_all", at_s=1, inputs=[(3,), (4,)], outputs=[(3,), (5,)])
    build.op(1, "all_to_all", at_s=1, inputs=[(5,), (1,)], outputs=[(6,), (1,)])
    finding = find_one(build)
    assert finding.ranks == ()
    assert finding.what.endswith("between ranks 0-1")


def test_an_all_to_all_that_went_well_or_whose_sizes_meet_is_left_alone() -> None:
    build = SessionBuilder(2)
    for rank in range(2):
        build.op(rank, "all_to_all", at_s=1, ended_s=2, inputs=[(rank + 2,)], outputs=[(2,)])
        build.op(rank, "all_to_all", at_s=3, inputs=[(4,)], outputs=[(4,)])
    assert find(build.session) == []


def test_what_the_ranks_said_is_not_said_twice() -> None:
    build = SessionBuilder(3)
    for rank in range(3):
        build.op(
            rank,
            "barrier" if rank else "broadcast",
            at_s=1,
            ended_s=2,
            status=Status.MISMATCH,
            error=error("op #1 on group 'world' differs", ranks=[0], seq=1, group="world"),
        )
    assert [finding.what for finding in find(build.session)] == ["op #1 on group 'world' differs"]


def test_rings_that_begin_at_different_ops_are_compared_where_they_meet() -> None:
    build = SessionBuilder(3)
    for rank, first in enumerate((10, 1, 5)):
        for seq in range(first, 14):
            kind = "barrier" if (rank, seq) == (1, 7) else "all_reduce"
            build.op(rank, kind, seq=seq, at_s=seq, ended_s=seq + 0.1)
    finding = find_one(build)
    assert finding.seq == 7
    assert finding.ranks == ()  # one against one: rank 0 no longer knows


def test_holes_and_messages_between_are_passed_over() -> None:
    build = SessionBuilder(2)
    for rank in range(2):
        build.op(rank, "barrier", seq=1, at_s=1)
        build.op(rank, "send" if rank else "recv", peer=1 - rank, at_s=2)
        build.op(rank, "barrier", seq=3 + rank, at_s=3)
        build.op(rank, "barrier", seq=5, at_s=4)
    assert find(build.session) == []
    build.op(1, "gather", seq=6, at_s=5)
    build.op(0, "scatter", seq=6, at_s=5)
    assert find_one(build).seq == 6


def test_first_lines_fit_a_terminal() -> None:
    build = SessionBuilder(8)
    for rank in range(8):
        build.op(rank, "all_reduce", at_s=1, inputs=[(1000 + rank,) * 9], dtype="float32")
    finding = find_one(build)
    assert len(finding.what) <= 120
    assert finding.numbers["sides"] == 8

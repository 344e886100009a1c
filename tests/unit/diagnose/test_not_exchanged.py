"""A message whose peer has exchanged none with the rank, and waits in a collective."""

from __future__ import annotations

import pytest

from distdbg.diagnose.find.deadlock import find
from distdbg.diagnose.finding import Finding
from distdbg.diagnose.matching import match
from distdbg.diagnose.verdict import diagnose
from distdbg.diagnose.waits import find_waits
from distdbg.record.format import Status
from tests.support.session_builder import SessionBuilder

OTHER = {"send": "recv", "recv": "send"}


def tree(kind: str = "send", **more: bool) -> SessionBuilder:
    """All but rank 5 exchange a message with their parent; rank 5 waits in its own with rank 2."""
    build = SessionBuilder(7, **more)
    for child in (1, 2, 3, 4, 6):
        parent = (child - 1) // 2
        for rank, how, peer, line in (
            (child, kind, parent, "tree.py:31 (up)"),
            (parent, OTHER[kind], child, "tree.py:28 (up)"),
        ):
            source = {"source": peer} if how == "recv" else {}
            build.op(rank, how, peer=peer, tag=11, at_s=1, ended_s=2, site=line, **source)
    build.op(5, kind, peer=2, tag=11, at_s=3, site="tree.py:31 (up)")
    for rank in (0, 1, 2, 3, 4, 6):
        build.op(rank, "barrier", at_s=3, site="tree.py:64 (main)")
    return build


def found(build: SessionBuilder) -> Finding:
    session = build.session
    matched = match(session)
    (finding,) = find(session, matched, find_waits(session, matched))
    assert len(finding.what) <= 120
    return finding


@pytest.mark.parametrize("kind", ["send", "recv"])
@pytest.mark.parametrize("is_cut", [False, True])
def test_the_line_of_the_other_half_is_named(kind: str, is_cut: bool) -> None:
    build = tree(kind, is_live=is_cut)
    build.session.cut = Status.ABORTED if is_cut else None
    finding = found(build)
    did, whom, do = ("received", "from", "receive") if kind == "send" else ("sent", "to", "send")
    head = f"rank 2 {did} nothing {whom} rank 5 and went on to barrier"
    assert finding.what.startswith(f"ranks 2,5 are deadlocked: {head}")
    assert finding.ranks == (2, 5)
    last = finding.evidence[-1]
    assert last.text == f"{head}; ranks 0-2 {do} such messages at tree.py:28 (up)"
    assert (last.site, last.is_left_out) == ("tree.py:28 (up)", True)
    assert finding.advice == (
        f"see why rank 2 does not {do} {whom} rank 5 at tree.py:28; if it must not, see why rank 5 has "
        "rank 2 as its peer"
    )


def test_nothing_is_said_where_ops_may_be_missing() -> None:
    live = tree(is_live=True)  # what is in flight alone
    lost = tree()
    lost.session.ranks[2].lost = {"ops": 7}
    before = tree()
    before.op(2, "recv", peer=5, source=5, tag=3, at_s=0.1, ended_s=0.2, site="tree.py:9 (hello)")
    before.op(5, "send", peer=2, tag=3, at_s=0.1, ended_s=0.2, site="tree.py:8 (hello)")
    for build in (live, lost, before):
        assert "nothing" not in found(build).what


def test_a_line_that_the_peer_left_out_tells_more_than_one_that_it_called() -> None:
    build = SessionBuilder(5)
    for left in range(3):  # each exchanges with its right neighbor; rank 3 does not
        for rank, peer, line in (
            (left, left + 1, "halo.py:37 (exchange)"),
            (left + 1, left, "halo.py:35 (exchange)"),
        ):
            build.op(rank, "recv", peer=peer, source=peer, at_s=1, ended_s=2, site=line)
            build.op(rank, "send", peer=peer, at_s=1, ended_s=2, site="halo.py:39 (exchange)")
    build.op(4, "send", peer=3, at_s=3, site="halo.py:34 (exchange)")
    for rank in range(4):
        build.op(rank, "barrier", at_s=3, site="halo.py:64 (main)")
    finding = found(build)
    assert "ranks 0-2 receive such messages at halo.py:37" in finding.evidence[-1].text


def farm(*, silent: int) -> SessionBuilder:
    """Workers send two results and a goodbye to rank 0, but for one that sends nothing."""
    build = SessionBuilder(4)
    for worker in (1, 2, 3):
        for line in (
            ("w.py:49 (push)", "w.py:49 (push)", "w.py:58 (work)") if worker != silent else ()
        ):
            build.op(worker, "send", peer=0, at_s=1, ended_s=2.5, site=line)
            build.op(0, "recv", peer=None, source=worker, at_s=1, ended_s=2, site="w.py:31 (serve)")
        build.op(worker, "barrier", at_s=3, site="w.py:73 (main)")
    # The end of a send is noticed after its recv, and after the next one has begun.
    build.op(0, "recv", peer=None, at_s=2.2, site="w.py:31 (serve)")
    return build


def test_of_a_recv_from_any_rank_the_one_that_never_sent_is_named() -> None:
    finding = found(farm(silent=3))
    assert finding.what == (
        "ranks 0-3 are deadlocked: rank 3 never sent rank 0 the message that ranks 1-2 sent at w.py:58"
    )
    assert (finding.ranks, finding.victims) == ((3,), (0, 1, 2))
    assert finding.advice == "see why rank 3 does not send at w.py:58, as the others do"
    assert finding.evidence[-1].is_left_out


def test_where_all_have_sent_there_nobody_is_the_odd_one() -> None:
    finding = found(farm(silent=0))
    assert "never sent" not in finding.what


def test_of_two_that_never_exchanged_a_message_either_may_have_the_wrong_peer() -> None:
    """A grid of two rows of three: rank 2 takes rank 3, of the next row, for its right neighbor."""
    build = SessionBuilder(4)
    build.op(1, "send", peer=2, at_s=1, ended_s=2, site="/job/grid.py:43 (swap)")
    build.op(2, "recv", peer=1, source=1, at_s=1, ended_s=2, site="/job/grid.py:44 (swap)")
    build.op(2, "recv", peer=3, at_s=3, site="/job/grid.py:44 (swap)")
    build.op(3, "barrier", at_s=3, site="/job/grid.py:63 (total)")
    root = found(build)
    assert root.ranks == (2, 3)
    assert "rank 2 waits for a message that rank 3 never sent" in root.what
    assert root.advice == (
        "see why rank 3 does not send at grid.py:43, as rank 1 does; if it must not, see why rank 2 has rank "
        "3 as its peer"
    )


@pytest.mark.parametrize("is_live", [False, True])
def test_where_the_message_of_another_rank_is_there_either_may_be_wrong(is_live: bool) -> None:
    """A chain of three: rank 2 receives from rank 0, whose message went to rank 1, as it had to."""
    build = SessionBuilder(3, is_live=is_live)
    if not is_live:  # else it holds only what is in flight
        build.op(0, "send", peer=1, at_s=1, ended_s=2, site="/job/x.py:8 (hand_on)")
        build.op(1, "recv", peer=0, source=0, at_s=1, ended_s=2, site="/job/x.py:9 (hand_on)")
        build.op(2, "send", peer=0, at_s=1, ended_s=2, site="/job/x.py:3 (greet)")
        build.op(0, "recv", peer=2, source=2, at_s=1, ended_s=2, site="/job/x.py:4 (greet)")
    build.op(1, "send", peer=2, at_s=3, site="/job/x.py:8 (hand_on)")
    build.op(2, "recv", peer=0, at_s=3, site="/job/x.py:9 (hand_on)")
    build.op(0, "barrier", at_s=3, site="/job/x.py:20 (main)")
    root = found(build)
    assert root.ranks == (0, 2)
    assert root.advice == (
        f"see why rank 0 does not send {'' if is_live else 'to rank 2 '}at x.py:8, as rank 1 does; if it "
        "must not, see why rank 2 has rank 0 as its peer"
    )
    if not is_live:
        assert root.what == (
            "ranks 0,2 are deadlocked: rank 2 waits for a message from rank 0, which sent to rank 1 at x.py:8"
        )


@pytest.mark.parametrize("line", [38, 18])
def test_a_message_that_another_line_has_taken_is_not_like_the_one_that_is_missing(
    line: int,
) -> None:
    build = SessionBuilder(3)
    build.op(2, "send", peer=0, at_s=1, ended_s=2, site="/job/x.py:13 (migrate)")
    build.op(0, "recv", peer=2, source=2, at_s=1, ended_s=2, site=f"/job/x.py:{line} (f)")
    build.op(0, "recv", peer=1, at_s=3, site="/job/x.py:38 (f)")
    for rank in (1, 2):
        build.op(rank, "all_reduce", at_s=3, site="/job/x.py:44 (total)")
    root = diagnose(build.session).root
    assert root is not None
    assert ("never sent; rank 2 sent its own at x.py:13" in root.what) == (line == 38)


def with_another_exchange(*, is_in_tree: bool) -> SessionBuilder:
    """The tree; with the same tag many more ranks exchange messages between two other lines."""
    build = tree() if is_in_tree else SessionBuilder(7)
    for rank in (0, 3, 4, 6):
        for one, how, peer, line in (
            (rank, "recv", 1, "halo.py:7 (swap)"),
            (1, "send", rank, "halo.py:9 (swap)"),
        ):
            source = {"source": peer} if how == "recv" else {}
            build.op(one, how, peer=peer, tag=11, at_s=0.3, ended_s=0.4, site=line, **source)
    if not is_in_tree:
        build.op(5, "send", peer=2, tag=11, at_s=3, site="tree.py:31 (up)")
        for rank in (0, 1, 2, 3, 4, 6):
            build.op(rank, "barrier", at_s=3, site="tree.py:64 (main)")
    return build


def test_a_line_that_takes_messages_of_another_one_is_not_named() -> None:
    finding = found(with_another_exchange(is_in_tree=True))
    assert "ranks 0-2 receive such messages at tree.py:28" in finding.evidence[-1].text
    # Where only the other exchange is known, no line is.
    finding = found(with_another_exchange(is_in_tree=False))
    assert finding.what == (
        "ranks 2,5 are deadlocked: rank 2 received nothing from rank 5 and went on to barrier"
    )
    assert "halo.py" not in f"{finding.evidence} {finding.advice}"


def test_of_a_recv_from_any_rank_a_message_for_another_recv_is_not_named() -> None:
    build = farm(silent=3)
    for worker in (1, 2):  # a greeting, which another line takes
        build.op(worker, "send", peer=0, tag=4, at_s=0.1, ended_s=0.3, site="w.py:40 (hello)")
        build.op(
            0, "recv", peer=worker, source=worker, tag=4, at_s=0.1, ended_s=0.2, site="w.py:20 (meet)"
        )  # fmt: skip
    assert "sent at w.py:58" in found(build).what
    for rank in (0, 1, 2):  # and that greeting alone
        ops = build.session.ranks[rank].ops
        for at, stack in enumerate(ops.stack):
            frames = build.session.stacks[stack]
            if frames and frames[0].line in (49, 58):
                ops.stack[at] = 0
    assert "never sent" not in found(build).what

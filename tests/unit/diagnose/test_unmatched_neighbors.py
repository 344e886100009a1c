"""Messages among neighbors, along a pipeline and in loops: who named another one, or left one out."""

from __future__ import annotations

import pytest

from distdbg.diagnose.find.other_neighbor import find_other_neighbor
from distdbg.diagnose.finding import FindingKind
from distdbg.diagnose.ops import OpRef
from distdbg.diagnose.unmatched import find_pairs
from tests.support.session_builder import SessionBuilder
from tests.unit.diagnose.root_finding import root_of


def halo(world: int, wrong: int, kind: str) -> SessionBuilder:
    """Even ranks send to the next one, odd ones receive first; one of them names another neighbor."""
    build = SessionBuilder(world)
    for rank in range(world):
        step = 1 if rank % 2 == 0 else -1
        if kind == "send" and rank == wrong:
            step += 1
        if kind == "recv" and rank == wrong:
            step -= 1
        peer = (rank + step) % world
        name = "send" if rank % 2 == 0 else "recv"
        build.op(rank, name, peer=peer, at_s=1, site="/job/x.py:8 (exchange)")
    return build


@pytest.mark.parametrize(
    ("kind", "wrong", "said"),
    [
        ("send", 2, "rank 2 sends to rank 4 at x.py:8, ranks 0,4,6 to rank + 1"),
        ("recv", 3, "rank 3 receives from rank 1 at x.py:8, ranks 1,5,7 from rank - 1"),
    ],
)
def test_who_names_another_neighbor_than_all_others_is_the_cause(
    kind: str, wrong: int, said: str
) -> None:
    session = halo(8, wrong, kind).session
    [found] = [one for pair in find_pairs(session) if (one := find_other_neighbor(session, pair))]
    assert found.rank == wrong
    assert found.cause[0] == said


def test_of_two_ranks_that_send_elsewhere_none_shows_the_rule() -> None:
    build = halo(8, 2, "send")
    build.op(6, "send", peer=4, at_s=0.5, ended_s=0.6, site="/job/x.py:9 (exchange)")
    assert not any(find_other_neighbor(build.session, pair) for pair in find_pairs(build.session))


def test_a_cycle_with_one_wrong_neighbor_has_one_cause() -> None:
    build = SessionBuilder(4)
    build.op(0, "send", peer=1, at_s=1, ended_s=2, site="/job/heat.py:28 (exchange)")
    build.op(1, "recv", peer=0, at_s=1, ended_s=2, site="/job/heat.py:31 (exchange)")
    build.op(0, "recv", peer=3, at_s=2, site="/job/heat.py:29 (exchange)")
    build.op(1, "send", peer=2, at_s=2, site="/job/heat.py:32 (exchange)")
    build.op(2, "send", peer=0, at_s=2, site="/job/heat.py:28 (exchange)")
    build.op(3, "recv", peer=2, at_s=2, site="/job/heat.py:31 (exchange)")
    root = root_of(build)
    assert (root.kind, root.ranks, root.victims) == (FindingKind.DEADLOCK, (2,), (0, 1, 3))
    assert root.what == (
        "ranks 0,2-3 are deadlocked: rank 2 sends to rank 0 at heat.py:28, ranks 0-1 to rank + 1; "
        "rank 3 waits for its message"
    )
    assert root.advice == "see how dst is computed on rank 2: ranks 0-1 name rank + 1 there"


def pipeline(skipped: int, *, count: int = 6) -> SessionBuilder:
    """Rank 1 hands on what rank 0 sends, but for one; rank 2 waits for the last, the others are through."""
    build = SessionBuilder(3)
    for number in range(1, count + 1):
        at_s = float(number)
        took = {"at_s": at_s, "ended_s": at_s + 0.1}
        build.op(0, "send", peer=1, **took, site="/job/x.py:8 (feed)")
        build.op(1, "recv", peer=0, source=0, **took, site="/job/x.py:48 (work)")
        if number != skipped:
            build.op(1, "send", peer=2, **took, site="/job/x.py:53 (work)")
            build.op(2, "recv", peer=1, source=1, **took, site="/job/x.py:62 (collect)")
    build.op(2, "recv", peer=1, at_s=count + 1, site="/job/x.py:62 (collect)")
    for rank in (0, 1):
        build.op(rank, "barrier", at_s=count + 1, site="/job/x.py:78 (main)")
    return build


@pytest.mark.parametrize(("skipped", "which"), [(3, "3rd"), (1, "1st"), (5, "5th")])
def test_who_did_not_hand_on_one_message_is_the_cause(skipped: int, which: str) -> None:
    root = root_of(pipeline(skipped))
    assert (root.kind, root.ranks) == (FindingKind.DEADLOCK, (1,))
    assert root.what == (
        "ranks 1-2 are deadlocked: rank 1 received 6 messages and sent on 5 at x.py:53, none after the "
        f"{which}"
    )
    [left_out] = [fact for fact in root.evidence if fact.is_left_out]
    assert left_out.site == "x.py:53 (work)"


def test_who_hands_on_all_messages_has_left_none_out() -> None:
    assert "sent on" not in root_of(pipeline(0)).what


def test_a_relay_that_sends_one_elsewhere_or_has_a_header_has_left_none_out() -> None:
    """Also where the last is missing: its rank may have ended its loop before."""
    for change in ("elsewhere", "header", "last"):
        build = pipeline(6 if change == "last" else 3 if change == "elsewhere" else 0)
        if change == "elsewhere":
            build.op(1, "send", peer=0, at_s=3.05, ended_s=3.06, site="/job/x.py:55 (work)")
        if change == "header":
            build.op(1, "recv", peer=0, source=0, at_s=0.1, ended_s=0.2, site="/job/x.py:40 (work)")
        assert "sent on" not in root_of(build).what


def test_a_rank_that_is_late_is_waited_for_with_reason() -> None:
    """Ring steps, then rank 0 gathers from all in order: rank 1 has not come."""
    build = SessionBuilder(4)
    for rank in range(4):
        build.op(rank, "send", peer=(rank + 1) % 4, at_s=1, ended_s=2, site="/job/p.py:14 (main)")
        build.op(rank, "recv", peer=(rank - 1) % 4, at_s=1, ended_s=2, site="/job/p.py:15 (main)")
    build.op(0, "recv", peer=1, at_s=3, site="/job/p.py:20 (main)")
    for rank in (2, 3):
        build.op(rank, "send", peer=0, at_s=3, site="/job/p.py:22 (main)")
    build.op(1, "barrier", at_s=3, site="/job/p.py:30 (main)")
    assert not any(find_other_neighbor(build.session, pair) for pair in find_pairs(build.session))


def ring(world: int, wrong: str, *, lines: int = 1) -> SessionBuilder:
    """Each rank sends to the next one and receives from the one before; rank 2 names another one once."""
    build = SessionBuilder(world)
    to = {rank: (rank + 1) % world for rank in range(world)}
    source = {rank: (rank - 1) % world for rank in range(world)}
    if wrong == "recv":
        source[2] = 3 % world
    else:
        to[2] = 1
    stuck = 2 if wrong == "recv" else 3 % world
    for rank in range(world):
        at = f"/job/x.py:{8 + rank % lines} (swap)"
        is_taken = source[to[rank]] == rank and (rank, to[rank]) != (2, 1)
        ended = {"ended_s": 2} if is_taken else {}
        build.op(rank, "send", is_async=True, peer=to[rank], at_s=1, **ended, site=at)
        ended = {} if rank == stuck else {"ended_s": 2, "source": source[rank]}
        recv = build.op(rank, "recv", is_async=True, peer=source[rank], at_s=1, **ended, site=at)
        if rank == stuck:
            build.wait(recv, since_s=1)
        elif is_taken:
            build.op(rank, "barrier", at_s=3, site="/job/x.py:20 (main)")
        elif wrong == "send":
            build.wait(OpRef(rank, 0), since_s=1)
    return build


@pytest.mark.parametrize("lines", [1, 2])
@pytest.mark.parametrize("world", [3, 4])
def test_who_receives_from_another_neighbor_is_the_cause_not_the_rank_that_is_through(
    world: int, lines: int
) -> None:
    root = root_of(ring(world, "recv", lines=lines))
    through = 3 % world
    others = "ranks 0-1" if world == 3 else "ranks 0-1,3"
    assert root.what == (
        f"ranks {'0,2' if world == 3 else '2-3'} are deadlocked: rank 2 receives from rank {through} at "
        f"x.py:8, {others} from rank - 1; rank 1 is sending to it"
    )
    assert root.ranks == (2,)
    assert root.advice == f"see how src is computed on rank 2: {others} name rank - 1 there"


@pytest.mark.parametrize("world", [3, 4])
def test_who_sends_to_another_neighbor_is_the_cause_also_where_that_one_is_through(
    world: int,
) -> None:
    root = root_of(ring(world, "send"))
    others, late = ("ranks 0-1", 0) if world == 3 else ("ranks 0-1,3", 3)
    assert root.what == (
        f"ranks 1-2 are deadlocked: rank 2 sends to rank 1 at x.py:8, {others} to rank + 1; rank {late} "
        "waits for its message"
    )
    assert root.ranks == (2,)


def test_of_three_in_a_ring_who_left_out_a_later_message_of_another_line_has_named_no_neighbor() -> (
    None
):
    """Rank 0 gathers from all in order: rank 1 has gone on without sending."""
    build = SessionBuilder(3)
    for rank in range(3):
        build.op(rank, "send", peer=(rank + 1) % 3, at_s=1, ended_s=2, site="/job/p.py:14 (main)")
        build.op(rank, "recv", peer=(rank - 1) % 3, at_s=1, ended_s=2, site="/job/p.py:15 (main)")
    build.op(0, "recv", peer=1, at_s=3, site="/job/p.py:20 (main)")
    build.op(2, "send", peer=0, at_s=3, site="/job/p.py:22 (main)")
    build.op(1, "barrier", at_s=3, site="/job/p.py:30 (main)")
    assert not any(find_other_neighbor(build.session, pair) for pair in find_pairs(build.session))


@pytest.mark.parametrize("kind", ["send", "recv"])
def test_one_message_more_than_the_rank_that_went_on_is_told_with_its_line(kind: str) -> None:
    """Rank 1 has left the loop of messages: either of the two may have the wrong number of rounds."""
    build = SessionBuilder(2)
    other = "recv" if kind == "send" else "send"
    for step in range(3):
        took = {"at_s": step, "ended_s": step + 0.5}
        build.op(0, kind, peer=1, tag=4, **took, site="/job/x.py:8 (mine)")
        build.op(1, other, peer=0, tag=4, **took, site="/job/x.py:18 (theirs)")
    build.op(0, kind, peer=1, tag=4, at_s=5, site="/job/x.py:8 (mine)")
    build.op(1, "barrier", at_s=5, site="/job/x.py:30 (main)")
    root = root_of(build)
    did = "received 3 messages from" if kind == "send" else "sent 3 messages to"
    assert root.what == (
        f"ranks 0-1 are deadlocked: rank 1 {did} rank 0 at x.py:18 and went on to barrier"
        + ("" if kind == "send" else "; rank 0 waits for one more")
    )
    assert root.ranks == (0, 1)
    assert "one fewer" in root.advice


@pytest.mark.parametrize("who", ["more", "fewer"])
def test_who_is_alone_in_a_loop_of_messages_or_has_left_it_alone_is_the_cause(who: str) -> None:
    """Neighbors of four ranks exchange: one makes a round more than all, or one fewer."""
    build = SessionBuilder(4)
    for step in range(3):
        took = {"at_s": step, "ended_s": step + 0.5, "site": "/job/x.py:22 (exchange)"}
        for rank, peer in ((0, 1), (2, 3)):
            build.op(rank, "send", peer=peer, **took)
            build.op(peer, "recv", peer=rank, source=rank, **took)
    late = {2} if who == "more" else {0, 1, 2}
    for rank in range(4):
        if rank in late:
            peer = rank ^ 1
            kind = "send" if rank in (0, 2) else "recv"
            build.op(rank, kind, peer=peer, at_s=5, site="/job/x.py:22 (exchange)")
        else:
            build.op(rank, "barrier", at_s=5, site="/job/x.py:30 (main)")
    root = root_of(build)
    assert (root.kind, root.ranks) == (FindingKind.DEADLOCK, (2,) if who == "more" else (3,))

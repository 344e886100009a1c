"""A last message that a rank exchanges with all of its peers but one."""

from __future__ import annotations

import pytest

from distdbg.diagnose.find.deadlock import find
from distdbg.diagnose.finding import Finding
from distdbg.diagnose.matching import match
from distdbg.diagnose.waits import find_waits
from tests.support.session_builder import SessionBuilder


def farm(kind: str, *, last: dict[int, str], rounds: int = 1) -> Finding:
    """Rank 0 works with ranks 1-3 in turn; `last` has the line of its last message with each."""
    build = SessionBuilder(4)
    other = "recv" if kind == "send" else "send"

    def exchange(worker: int, line: str) -> None:
        for rank, how, peer in ((0, kind, worker), (worker, other, 0)):
            source = {"source": peer} if how == "recv" else {}
            site = line if rank == 0 else "farm.py:66 (work)"
            build.op(rank, how, peer=peer, at_s=1, ended_s=2, site=site, **source)

    for _ in range(rounds):
        for worker in (1, 2, 3):
            exchange(worker, "farm.py:37 (assign)")
    for worker, line in last.items():
        exchange(worker, line)
    build.op(3, other, peer=0, at_s=3, site="farm.py:66 (work)")
    for rank in (0, 1, 2):
        build.op(rank, "barrier", at_s=3, site="farm.py:75 (report)")
    session = build.session
    matched = match(session)
    (found,) = find(session, matched, find_waits(session, matched))
    assert len(found.what) <= 120
    return found


@pytest.mark.parametrize("kind", ["send", "recv"])
def test_the_rank_that_the_last_message_leaves_out_is_named_with_the_line(kind: str) -> None:
    found = farm(kind, last={1: "farm.py:59 (stop)", 2: "farm.py:59 (stop)"})
    did, whom = ("sent", "to") if kind == "send" else ("received", "from")
    assert found.what == (
        f"ranks 0,3 are deadlocked: rank 0 {did} its last messages {whom} ranks 1-2 at farm.py:59 "
        f"and none {whom} rank 3"
    )
    assert found.ranks == (0,)
    assert found.advice == "see why farm.py:59 leaves out rank 3"
    assert found.evidence[-1].is_for_others
    assert found.evidence[-1].site == "farm.py:59 (stop)"


@pytest.mark.parametrize(
    "last",
    [
        {},  # all got the same
        {1: "farm.py:59 (stop)"},  # and rank 2 did not either
        {1: "farm.py:59 (stop)", 2: "farm.py:60 (stop)"},
        {1: "farm.py:59 (stop)", 2: "farm.py:59 (stop)", 3: "farm.py:59 (stop)"},
    ],
)
def test_who_is_not_alone_without_it_is_not_left_out(last: dict[int, str]) -> None:
    assert "its last messages" not in farm("send", last=last, rounds=2).what


def rounds(*, last: dict[int, int], first: bool = True) -> Finding:
    """Rank 0 sends each worker two messages; after a broadcast as many as `last` says."""
    build = SessionBuilder(4)

    def send(worker: int, site: str) -> None:
        build.op(0, "send", peer=worker, at_s=1, ended_s=2, site=site)
        build.op(worker, "recv", peer=0, source=0, at_s=1, ended_s=2, site="farm.py:66 (work)")

    for worker in (1, 2, 3) if first else (1, 2):
        send(worker, "farm.py:15 (assign)")
        send(worker, "farm.py:24 (stop)")
    for rank in range(4):
        build.op(rank, "broadcast", at_s=3, ended_s=4, site="farm.py:75 (report)")
    for worker, count in last.items():
        for site in ("farm.py:15 (assign)", "farm.py:24 (stop)")[:count]:
            send(worker, site)
    build.op(3, "recv", peer=0, at_s=5, site="farm.py:66 (work)")
    for rank in (0, 1, 2):
        build.op(rank, "broadcast", at_s=6, site="farm.py:75 (report)")
    session = build.session
    matched = match(session)
    (found,) = find(session, matched, find_waits(session, matched))
    return found


def test_who_got_nothing_since_the_last_collective_as_all_others_did_is_left_out() -> None:
    found = rounds(last={1: 2, 2: 2})
    assert found.what == (
        "ranks 0,3 are deadlocked: rank 0 sent messages to ranks 1-2 since broadcast #1 and none to rank 3"
    )
    assert found.ranks == (0,)
    assert found.advice.startswith("see why rank 0 leaves out rank 3")
    assert found.evidence[-1].site == "farm.py:15 (assign)"


@pytest.mark.parametrize("last", [{}, {1: 2}, {1: 1, 2: 2, 3: 1}])
def test_who_is_not_alone_or_got_some_is_not_left_out_since_then(last: dict[int, int]) -> None:
    assert "since broadcast" not in rounds(last=last).what


def test_who_never_got_any_is_no_worker() -> None:
    assert "since broadcast" not in rounds(last={1: 2, 2: 2}, first=False).what

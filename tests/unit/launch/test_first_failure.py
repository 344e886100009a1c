"""When a launcher knows enough to say what failed, and what it says."""

from __future__ import annotations

from typing import Any

import pytest

from distdbg.launch.evidence import LostRankEvidence
from distdbg.launch.first_failure import find_ended_well, hosts_of_others, name_failure
from distdbg.launch.rendezvous.notes import LauncherNote
from distdbg.launch.rendezvous.round import LauncherRound, NodeFacts
from distdbg.record.ends import RankEnd
from distdbg.record.error_file import ErrorFacts
from distdbg.runtime.store import HashStore

SILENCE_S = 15.0


def end(rank: int, code: int, host: str = "n2") -> RankEnd:
    return RankEnd(
        rank=rank, pid=100 + rank, host=host, ended_ns=1, wall_ns=1, cause="exited", exit_code=code
    )


def victim(rank: int, of: int) -> LostRankEvidence:
    error = ErrorFacts(text=f"PeerLost: rank {of} died", because_of=(of,))
    return LostRankEvidence(end=end(rank, 1), error=error)


CAUSE = LostRankEvidence(end=end(2, 3))


def name(evidence: list[LostRankEvidence], **facts: Any) -> str | None:
    known: dict[str, Any] = {
        "since_s": 0.0,
        "has_running": True,
        "has_others": True,
        "ended_well": (),
        "silence_s": SILENCE_S,
    }
    return name_failure(evidence, **{**known, **facts})


@pytest.mark.parametrize(
    ("evidence", "facts", "limit_s"),
    [
        ([CAUSE], {}, 0.25),
        ([CAUSE], {"has_running": False}, 0.25),
        ([CAUSE], {"has_others": False}, 0.25),
        ([CAUSE, victim(3, 2)], {}, 0.25),
        ([victim(3, 0)], {"has_others": False}, 1.0),
        ([victim(3, 0)], {}, SILENCE_S + 1.0),
        ([victim(3, 0)], {"has_running": False}, SILENCE_S + 1.0),
        ([victim(3, 0)], {"ended_well": {0, 1}}, 0.25),
        ([victim(3, 0)], {"ended_well": {1}}, SILENCE_S + 1.0),
    ],
)
def test_a_failure_is_named_when_nobody_can_say_more(
    evidence: list[LostRankEvidence], facts: dict[str, Any], limit_s: float
) -> None:
    assert name(evidence, since_s=limit_s - 0.01, **facts) is None
    assert name(evidence, since_s=limit_s, **facts) is not None


def test_alone_and_with_nobody_left_it_is_named_at_once() -> None:
    assert name([CAUSE], has_running=False, has_others=False) == "rank 2 exited with code 3"
    assert name([], since_s=99) is None


def test_among_several_hosts_it_is_said_where_it_was() -> None:
    words = "rank 2 on host n2 failed first: it exited with code 3"
    assert name([victim(3, 2), CAUSE], since_s=1) == words


def test_who_ended_well_is_known_by_rank_and_by_host() -> None:
    nodes = tuple(NodeFacts(name=n, addr=n, host=n, nproc=2) for n in ("n1", "n2", "n3"))
    round_ = LauncherRound(
        number=0,
        node_rank=1,
        nodes=nodes,
        store=HashStore(),
        store_host="n1",
        store_port=1,
        prefix="x/0",
        serves=False,
    )
    notes = {"n1": LauncherNote(kind="finished"), "n2": LauncherNote(kind="failed")}
    assert find_ended_well(round_, notes, {4}) == {0, 1, 4}
    assert hosts_of_others(round_) == {0: "n1", 1: "n1", 4: "n3", 5: "n3"}

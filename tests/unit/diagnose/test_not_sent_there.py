"""A message of a cycle of recvs that one rank never sent, where the others send theirs."""

from __future__ import annotations

from distdbg.diagnose.find.deadlock import find
from distdbg.diagnose.finding import Finding
from distdbg.diagnose.matching import match
from distdbg.diagnose.waits import find_waits
from tests.support.session_builder import SessionBuilder

UP, DOWN = 1, 2


def torus(*, sends_of_3: int = 0, is_live: bool = False) -> Finding:
    """Rows of four ranks: rank 0 sends nothing up, rank 3 nothing down; both wait for each other."""
    build = SessionBuilder(4, is_live=is_live)
    for rank in range(4):
        for to, tag, line in ((rank - 1, UP, 23), (rank + 1, DOWN, 25)):
            if to in range(4):
                site = f"/job/torus.py:{line} (edges)"
                build.op(rank, "send", peer=to, tag=tag, at_s=1, ended_s=2, site=site)
                took = {"peer": rank, "source": rank, "tag": tag, "at_s": 1, "ended_s": 2}
                build.op(to, "recv", **took, site="/job/torus.py:30 (edges)")
    for _ in range(sends_of_3):
        build.op(3, "send", peer=2, tag=DOWN, at_s=1, ended_s=2, site="/job/torus.py:25 (edges)")
    build.op(0, "recv", peer=3, tag=DOWN, at_s=3, site="/job/torus.py:32 (edges)")
    build.op(3, "recv", peer=0, tag=UP, at_s=3, site="/job/torus.py:31 (edges)")
    session = build.session
    matched = match(session)
    (found,) = find(session, matched, find_waits(session, matched))
    return found


def test_who_never_comes_to_the_line_of_the_other_senders_is_named() -> None:
    found = torus()
    assert found.what == (
        "ranks 0,3 are deadlocked: rank 3 never sent rank 0 its message (tag 2); "
        "ranks 0-2 sent theirs at torus.py:25"
    )
    assert found.ranks == (0, 3)
    assert [each.text for each in found.evidence][2:] == [
        "rank 3 never sent rank 0 the message (tag 2); ranks 0-2 sent theirs at torus.py:25 (edges)",
        "rank 0 never sent rank 3 the message (tag 1); ranks 1-3 sent theirs at torus.py:23 (edges)",
    ]
    assert found.advice.startswith("see what keeps rank 3 from torus.py:25")


def test_who_has_sent_there_before_or_may_have_is_not() -> None:
    assert "rank 3 never sent" not in torus(sends_of_3=1).what
    assert "never sent" not in torus(is_live=True).what

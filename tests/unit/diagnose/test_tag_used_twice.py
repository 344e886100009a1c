"""Two receives of one tag: the message of a line went to another receive than its others do."""

from __future__ import annotations

import pytest

from distdbg.diagnose.finding import Finding, FindingKind
from distdbg.diagnose.verdict import diagnose
from tests.support.session_builder import SessionBuilder

PUT, GET, EXPECT = "/j/c.py:20 (put)", "/j/c.py:24 (get)", "/j/c.py:29 (expect)"


def coupled(tags: list[int], *, restart: int, sent_from: str = PUT) -> Finding:
    """Rank 0 sends a field with each tag; rank 1 has posted a receive for `restart`, and gets the rest."""
    build = SessionBuilder(2)
    last = tags[-1]
    for at, tag in enumerate(tags):
        is_taken = tag == restart
        site = sent_from if is_taken else PUT
        build.op(0, "send", peer=1, tag=tag, at_s=at, ended_s=at + 0.2, site=site)
        line = EXPECT if is_taken else GET
        build.op(1, "recv", peer=0, source=0, tag=tag, at_s=at, ended_s=at + 0.2, site=line)
    build.op(0, "recv", peer=1, tag=last, at_s=50, site=GET)
    build.op(1, "recv", peer=0, tag=last, at_s=50, site=GET)
    root = diagnose(build.session).root
    assert root is not None
    return root


def test_a_message_that_another_receive_of_its_tag_took_is_the_cause() -> None:
    root = coupled([1, 2, 3], restart=3)
    assert (root.kind, root.ranks) == (FindingKind.DEADLOCK, (1,))
    assert root.what == (
        "ranks 0-1 are deadlocked: rank 1's recv at c.py:29 took rank 0's message of c.py:20 (tag 3), "
        "needed at c.py:24"
    )
    assert root.advice == "tag 3 is used twice: give each kind of message tags of its own"
    assert any("sent at c.py:20 (put) (tag 3)" in fact.text for fact in root.evidence)


@pytest.mark.parametrize(
    ("tags", "restart", "sent_from"),
    [
        pytest.param([1, 2], 2, PUT, id="the lines have met once"),
        pytest.param([1, 2, 3], 3, "/j/c.py:33 (restart)", id="sent from a line of its own"),
        pytest.param([7, 7, 7], 7, PUT, id="all of one tag"),
        pytest.param([1, 2, 3], 9, PUT, id="nothing was taken"),
    ],
)
def test_receives_that_were_meant_for_each_other_are_no_cause(
    tags: list[int], restart: int, sent_from: str
) -> None:
    assert "took" not in coupled(tags, restart=restart, sent_from=sent_from).what

"""A rank that sleeps while a send and a recv wait that name other ranks than each other's."""

from __future__ import annotations

import pytest

from distdbg.diagnose.find import stuck
from distdbg.diagnose.finding import Evidence, Finding
from distdbg.diagnose.traits import FactKind
from distdbg.launch.diagnosis import Diagnosis
from distdbg.launch.late_ranks import facts_of_late
from distdbg.record.rank_state import RankState
from tests.support.session_builder import SessionBuilder
from tests.unit.diagnose.one_finder import find_one

PAIR = "rank 0 sent to rank 2 at x.py:8 (main); rank 2 waits for a message from rank 1 at x.py:12 (main)"


def asleep(rank: int) -> SessionBuilder:
    build = SessionBuilder(3)
    build.op(0, "send", peer=2, at_s=1, site="/job/x.py:8 (main)")
    build.op(2, "recv", peer=1, at_s=1, site="/job/x.py:12 (main)")
    build.seen(rank, RankState.ASLEEP, since_s=1, site="/job/x.py:14 (main)", why="in time.sleep")
    return build


def unmatched(finding: Finding) -> list[str]:
    return [one.text for one in finding.evidence if one.kind is FactKind.UNMATCHED]


def test_what_another_rank_has_sent_is_told_before_the_sleeper_that_never_sent() -> None:
    finding = find_one(stuck, asleep(1))
    assert finding.evidence[0].text == PAIR
    assert unmatched(finding) == [PAIR]
    assert finding.advice == (
        "rank 1 has sent rank 2 nothing so far: compare src of the recv at x.py:12 with dst of the send at "
        "x.py:8, they name different ranks"
    )


def test_a_sleeper_that_has_sent_before_is_only_late() -> None:
    build = SessionBuilder(3)
    build.op(1, "send", peer=2, at_s=0.5, ended_s=0.6)
    build.op(2, "recv", peer=1, source=1, at_s=0.5, ended_s=0.6)
    build.op(0, "send", peer=2, at_s=1, site="/job/x.py:8 (main)")
    build.op(2, "recv", peer=1, at_s=1, site="/job/x.py:12 (main)")
    build.seen(1, RankState.ASLEEP, since_s=1, site="/job/x.py:14 (main)", why="in time.sleep")
    finding = find_one(stuck, build)
    assert PAIR in [one.text for one in finding.evidence]
    assert unmatched(finding) == []
    assert "compare src" not in finding.advice


def test_of_a_send_to_the_sleeper_the_recv_that_waits_for_it_is_told() -> None:
    build = SessionBuilder(3)
    build.op(0, "send", peer=1, at_s=1, site="/job/x.py:8 (main)")
    build.op(2, "recv", peer=0, at_s=1, site="/job/x.py:12 (main)")
    build.seen(1, RankState.ASLEEP, since_s=1, site="/job/x.py:14 (main)", why="in time.sleep")
    finding = find_one(stuck, build)
    assert finding.advice.startswith("rank 1 has received nothing from rank 0 so far: compare src")


def test_a_collective_is_no_message() -> None:
    build = SessionBuilder(3)
    build.op(0, "barrier", at_s=1)
    build.op(2, "barrier", at_s=1)
    build.seen(1, RankState.ASLEEP, since_s=1, site="/job/x.py:14 (main)", why="in time.sleep")
    assert unmatched(find_one(stuck, build)) == []


@pytest.mark.parametrize("kind", [FactKind.UNMATCHED, FactKind.WAIT])
def test_the_report_says_it_before_why_the_rank_sleeps(kind: FactKind) -> None:
    reason = Evidence(
        kind=FactKind.REASON, text="rank 1: in time.sleep", rank=1, detail="in time.sleep"
    )
    facts = (reason, Evidence(kind=kind, text=PAIR, ranks=(0, 2)))
    said = [*facts_of_late(Diagnosis(kind="stuck rank", what="", ranks=(1,), facts=facts), "")]
    first = [PAIR] if kind is FactKind.UNMATCHED else []
    assert said == [*first, "rank 1: in time.sleep"]

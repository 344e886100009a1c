"""A rank that never reached the making of the first group is the cause, and not those that gave up there."""

from __future__ import annotations

import pytest

from distdbg.diagnose.finding import FindingKind, Severity
from distdbg.diagnose.session import Activity, RankLog, Session
from distdbg.diagnose.verdict import diagnose
from distdbg.record.ends import RankEnd
from distdbg.record.format import Exit
from distdbg.record.rank_state import RankState

S = 10**9


def end(rank: int, *, was_asked: bool = False, code: int | None = 1) -> RankEnd:
    return RankEnd(
        rank=rank,
        pid=rank + 1,
        host="n01",
        ended_ns=(9 + was_asked) * S,
        wall_ns=(9 + was_asked) * S,
        cause="signal" if was_asked else "exited",
        exit_code=None if was_asked else code,
        signal=15 if was_asked else None,
        was_asked=was_asked,
    )


def session_of(missing: str, *gone: RankEnd) -> Session:
    session = Session(source="run", world_size=4, ranks={n: RankLog(rank=n) for n in range(4)})
    for one in gone:
        session.ranks[one.rank].end = one
    for rank, log in session.ranks.items():
        if log.end is None:
            log.end = end(rank)
            log.exit, log.exit_where = Exit.RAISED, "/job/a.py:9 (main)"
            log.exit_what = (
                f"RendezvousError: 3 of 4 ranks joined 'tcp://n01:29500' within 8.0 s; missing {missing} "
                f"(this is rank {rank})"
            )
    session.now_ns = 11 * S
    return session


def test_who_never_joined_is_the_cause() -> None:
    verdict = diagnose(session_of("rank 3", end(3, was_asked=True)))
    assert verdict.what == "rank 3 never joined; ranks 0-2 waited 8.0 s for it at a.py:9 (main)"
    root = verdict.root
    assert root is not None
    assert (root.kind, root.severity) == (FindingKind.MISSING_RANK, Severity.ERROR)
    assert (root.ranks, root.victims) == ((3,), (0, 1, 2))
    assert [one.kind for one in verdict.findings] == [FindingKind.MISSING_RANK]


def test_where_it_was_is_told_where_an_agent_saw_it() -> None:
    session = session_of("rank 3", end(3, was_asked=True))
    session.ranks[3].activity = Activity(
        state=RankState.ASLEEP, since_ns=S, site="/job/a.py:3 (load)", why="in time.sleep"
    )
    verdict = diagnose(session)
    assert verdict.what.startswith(
        "rank 3 never joined, asleep in load() at a.py:3; ranks 0-2 waited 8.0 s for it"
    )
    assert verdict.root is not None
    assert verdict.root.evidence[0].text == "rank 3 was asleep in load() at a.py:3"


def test_several_are_told_together() -> None:
    verdict = diagnose(session_of("ranks 2-3", *(end(n, was_asked=True) for n in (2, 3))))
    assert verdict.what.startswith("ranks 2-3 never joined; ranks 0-1 waited 8.0 s for them")


def test_who_failed_before_it_joined_comes_first() -> None:
    verdict = diagnose(session_of("rank 3", end(3, code=7)))
    assert verdict.what.startswith("rank 3 exited with code 7")


@pytest.mark.parametrize("missing", ["rank 9", "ranks 3-1", "rank x"])
def test_words_that_make_no_sense_are_not_believed(missing: str) -> None:
    verdict = diagnose(session_of(missing, end(3, was_asked=True)))
    assert not any(finding.kind is FindingKind.MISSING_RANK for finding in verdict.findings)

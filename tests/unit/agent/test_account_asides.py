"""Who has been through an aside, in the accounts of a job in which somebody waits in one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from distdbg.agent.judging.account import Account, AccountMaker
from distdbg.agent.judging.judge import judge_accounts
from distdbg.agent.judging.live_session import LiveFacts, ReceivedAccount
from distdbg.follow.tail import TailedRecord
from distdbg.follow.watched_rank import WatchedRank
from distdbg.record.format import Aside, EventType, Flag
from distdbg.record.rank_state import RankState
from tests.support.record_builder import RecordBuilder

Tell = Callable[..., Account]


@pytest.fixture
def tell(tmp_path: Path) -> Iterator[Tell]:
    """The account of ranks that wait: 0 in a monitored barrier, the others in a barrier."""
    records = []

    def watched(rank: int, waits_in: str, had: int) -> WatchedRank:
        build = RecordBuilder(rank=rank, world_size=3, host="n14", pid=os.getpid())
        group = build.add_group("0", ranks="0-2", size=3, rank=rank)
        form = build.add_form(b'{"name":"monitored_barrier","kind":"monitored_barrier"}')
        is_aside = waits_in == "monitored_barrier"
        for seq in range(1, had + 1 + is_aside):
            number = build.write_event(
                EventType.OP,
                group=group,
                kind=Aside.MONITORED_BARRIER,
                form=form,
                flags=Flag.ASIDE,
                seq=seq,
                issued_ns=10 * seq,
                thread=os.getpid(),
            )
            if seq <= had:
                build.end(number, after_ns=5)
        if not is_aside:
            build.issue("barrier", group, at_ns=100, thread=os.getpid())
            build.set_group(group, issued_seq=1)
        path = tmp_path / f"rank{rank:05}.ddr"
        path.write_bytes(build.to_bytes())
        record = TailedRecord(path, 0)
        records.append(record)
        return WatchedRank(
            rank=rank,
            host="n14",
            pid=os.getpid(),
            record=record,
            pulse=record.pulse(),
            current_ops=record.current_ops(),
            is_exact=True,
            state=RankState.WAITING,
        )

    def make(*had: int) -> Account:
        watched_ranks = [
            watched(0, "monitored_barrier", 0),
            *(watched(rank, "barrier", n) for rank, n in enumerate(had, 1)),
        ]
        return AccountMaker("n14").make(watched_ranks, 1000)

    yield make
    for record in records:
        record.close()


def test_an_account_tells_which_asides_its_ranks_came_to(tell: Tell) -> None:
    rows = tell(0, 1)["ranks"]
    asides = [[cells[1:] for cells in row["asides"]] for row in rows]
    assert asides == [[[Aside.MONITORED_BARRIER, 1]], [], [[Aside.MONITORED_BARRIER, 1]]]


def test_a_barrier_against_a_monitored_one_is_proven_while_the_job_runs(tell: Tell) -> None:
    judged = judge_accounts([ReceivedAccount(tell(0, 0), 0)], LiveFacts(run="r", source="s"))
    assert judged.case is not None
    assert judged.case.proven_kind == "deadlock"
    assert judged.blocked == {0, 1, 2}


def test_who_has_been_there_is_not_waited_for(tell: Tell) -> None:
    judged = judge_accounts([ReceivedAccount(tell(1, 1), 0)], LiveFacts(run="r", source="s"))
    assert not judged.blocked

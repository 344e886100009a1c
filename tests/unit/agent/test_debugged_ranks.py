"""A rank at the prompt of a debugger, as the agent of its host sees it in the record and on the page."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from distdbg.agent.closer_look import find_suspects
from distdbg.agent.judging.account import AccountMaker
from distdbg.agent.judging.judge import judge_accounts
from distdbg.agent.judging.live_session import LiveFacts, ReceivedAccount
from distdbg.control.holds import start_ticks
from distdbg.diagnose.finding import FindingKind
from distdbg.follow.answers.op_json import plain_op
from distdbg.follow.processes import read_stat
from distdbg.follow.roster import Roster
from distdbg.follow.status import RankStatus
from distdbg.follow.watched_rank import WatchedRank
from distdbg.record.ends import RankEnd
from distdbg.record.format import Aside, EventType, Flag
from distdbg.record.rank_state import RankState
from distdbg.record.rank_words import read_boot_id
from tests.support.record_builder import RecordBuilder

HOST = "n14"
WHY = "before barrier #1 on group 'dp'"
SECOND = 10**9


class Rank:
    """Rank 0 of this process, whose record the test writes."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "rank00000.ddr"
        self._build = RecordBuilder(
            rank=0,
            world_size=2,
            host=HOST,
            pid=os.getpid(),
            process_start=start_ticks(os.getpid()),
            boot_id=read_boot_id(),
            strings_nbytes=2048,
        )
        self._group = self._build.add_group("0", ranks="0-1", size=2, rank=0)
        self._form = self._build.add_form(f'{{"name":"{WHY}","kind":"debugger"}}'.encode())
        self._site = self._build.add_stack([("/home/ada/train.py", 88, "step")])
        self.save()

    def stop(self, issued_ns: int) -> int:
        number = self._build.write_event(
            EventType.OP,
            group=self._group,
            kind=Aside.DEBUGGER,
            form=self._form,
            flags=Flag.ASIDE,
            seq=1,
            site=self._site,
            issued_ns=issued_ns,
            thread=os.getpid(),
        )
        self.save()
        return number

    def go_on(self, number: int) -> None:
        self._build.end(number, after_ns=5)
        self._build.set_state(heartbeat_ns=time.monotonic_ns())
        self.save()

    def save(self) -> None:
        if not self.path.exists():
            self.path.write_bytes(self._build.to_bytes())
            return
        with self.path.open("r+b") as file:
            file.write(self._build.to_bytes())


@pytest.fixture
def rank(tmp_path: Path) -> Rank:
    return Rank(tmp_path)


@pytest.fixture
def roster(tmp_path: Path, rank: Rank) -> Iterator[Roster]:
    roster = Roster(tmp_path, HOST)
    yield roster
    roster.close()


def look(roster: Roster, now_ns: int, *holding: int) -> RankStatus:
    roster.on_clock(bool(holding), frozenset(holding), now_ns)
    roster.tick(now_ns)
    return roster.row(0, now_ns)


def watched(roster: Roster) -> WatchedRank:
    return roster.watched_ranks[0]


def test_a_rank_that_holds_the_clock_is_seen_at_once(rank: Rank, roster: Roster) -> None:
    now_ns = time.monotonic_ns()
    assert look(roster, now_ns).state is RankState.RUNNING
    rank.stop(now_ns - 3 * SECOND)
    row = look(roster, now_ns + 1, 0)
    assert (row.state, row.why) == (RankState.DEBUGGED, WHY)
    assert row.site == "train.py:88 (step)"
    assert row.op == ""
    assert 3.0 <= row.state_age_s < 3.1
    assert find_suspects(roster, now_ns + 60 * SECOND) == []


def test_the_record_alone_says_it_where_there_is_no_page(rank: Rank, roster: Roster) -> None:
    now_ns = time.monotonic_ns()
    rank.stop(now_ns)
    look(roster, now_ns)
    row = look(roster, now_ns + SECOND)
    assert (row.state, row.why) == (RankState.DEBUGGED, WHY)


def test_the_page_alone_says_it_where_there_is_no_record_of_it(roster: Roster) -> None:
    now_ns = time.monotonic_ns()
    look(roster, now_ns)
    row = look(roster, now_ns + 1, 0)
    assert (row.state, row.why, row.site) == (RankState.DEBUGGED, "", "")
    assert look(roster, now_ns + SECOND).state is RankState.RUNNING


def test_what_is_typed_at_the_prompt_does_not_make_it_a_rank_that_runs(
    rank: Rank, roster: Roster
) -> None:
    now_ns = time.monotonic_ns()
    rank.stop(now_ns)
    look(roster, now_ns)
    states = set()
    for step in range(1, 6):
        rank._build.mark(f"step {step}", at_ns=now_ns + step)
        rank.save()
        states.add(look(roster, now_ns + step * SECOND // 10, 0).state)
    assert states == {RankState.DEBUGGED}


def test_it_runs_when_it_goes_on(rank: Rank, roster: Roster) -> None:
    now_ns = time.monotonic_ns()
    number = rank.stop(now_ns)
    look(roster, now_ns, 0)
    assert look(roster, now_ns + 1, 0).state is RankState.DEBUGGED
    rank.go_on(number)
    row = look(roster, now_ns + 2 * SECOND)
    assert (row.state, row.why) == (RankState.RUNNING, "")


def test_one_that_is_stopped_at_its_prompt_is_still_in_the_debugger(
    rank: Rank, roster: Roster
) -> None:
    now_ns = time.monotonic_ns()
    rank.stop(now_ns)
    look(roster, now_ns, 0)
    stat = read_stat(os.getpid())
    assert stat is not None
    watched(roster).stat, watched(roster).stat_ns = replace(stat, state="T"), now_ns + 10 * SECOND
    assert look(roster, now_ns + 5 * SECOND, 0).state is RankState.DEBUGGED


def test_everybody_rests_while_the_clock_stands(roster: Roster) -> None:
    now_ns = time.monotonic_ns()
    look(roster, now_ns)
    assert not watched(roster).is_resting
    look(roster, now_ns + 5, 7)  # another rank of the host
    assert (watched(roster).is_resting, watched(roster).rested_ns) == (True, now_ns + 5)
    look(roster, now_ns + 9)
    assert (watched(roster).is_resting, watched(roster).rested_ns) == (False, now_ns + 5)


def test_a_rank_that_is_killed_at_its_prompt_is_told_so_live(rank: Rank, roster: Roster) -> None:
    now_ns = time.monotonic_ns()
    rank.stop(now_ns)
    look(roster, now_ns, 0)
    look(roster, now_ns + 1, 0)
    end = RankEnd(
        rank=0,
        pid=os.getpid(),
        host=HOST,
        ended_ns=now_ns + 5,
        wall_ns=time.time_ns(),
        cause="signal",
        signal=9,
    )
    assert roster.on_reported_end(end) is watched(roster)
    row = roster.row(0, now_ns + 6)
    assert row.state is RankState.DEAD
    assert row.why == "was killed by SIGKILL at the prompt of its debugger"
    account = AccountMaker(HOST).make(roster.watched_ranks.values(), now_ns + 7)
    facts = LiveFacts(run="run", now_ns=now_ns + 7, wall_ns=time.time_ns())
    judged = judge_accounts([ReceivedAccount(account, now_ns + 7)], facts)
    assert judged.verdict.root is not None
    assert judged.verdict.root.kind is FindingKind.DEAD_RANK
    assert "at the prompt of its debugger, at train.py:88 (step)" in judged.verdict.what


def test_an_op_of_the_debugger_is_called_so(rank: Rank, roster: Roster) -> None:
    rank.stop(5)
    look(roster, time.monotonic_ns())
    record = watched(roster).record
    assert record is not None
    [op] = record.in_flight()
    assert plain_op(0, op, 10)["op"] == "the debugger"

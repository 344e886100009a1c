"""A job that is watched and the same job replayed are shown in the same words."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from distdbg.agent.judging.judge import plain_waits
from distdbg.agent.judging.judged_verdict import JudgedVerdict
from distdbg.agent.policy import find_blocked
from distdbg.client.feed.bars import BarStore
from distdbg.client.feed.dashboard_rows import (
    Usage,
    job_hosts,
    rank_rows,
    read_groups,
    read_waits,
)
from distdbg.client.feed.details import op_detail, rank_detail
from distdbg.client.feed.from_records import RecordsClient
from distdbg.diagnose.load.run_folder import load_run
from distdbg.diagnose.verdict import diagnose_with_waits
from distdbg.diagnose.verdict_document import read_verdict
from distdbg.record.ends import RankEnd, read_ends, write_end
from distdbg.record.folders import record_name
from distdbg.record.format import Exit, Status, pack
from distdbg.record.rank_state import RankState
from distdbg.render.verdict_json import to_plain
from distdbg.tui.replay.bars import bar_of
from distdbg.tui.replay.details import op_detail as op_then
from distdbg.tui.replay.details import rank_detail as rank_then
from distdbg.tui.replay.moments import Moments
from distdbg.tui.replay.ranks import group_reports, rank_row
from distdbg.tui.replay_feed import ReplayFeed
from distdbg.view.groups import group_rows
from distdbg.view.snapshot import HostRow, OpDetail, OpKey, RankDetail, RankRow
from distdbg.view.waits import wait_rows
from tests.support.record_builder import RecordBuilder
from tests.support.session_builder import SessionBuilder

HOST = "n14"
SITE = ("/home/me/train.py", 88, "step")
ERROR = json.dumps({"type": "PeerLost", "what": "rank 1 died"})
MS = 10**6


def pid_of(rank: int) -> int:
    return 2**22 + rank + 1  # no process has such a number


def write_job(folder: Path) -> None:
    """Rank 2 calls the second all_reduce with another shape, the third fails, rank 1 raises, 2 is killed."""
    for rank in range(3):
        builder = RecordBuilder(
            rank=rank, world_size=3, host=HOST, pid=pid_of(rank), ring_count=16, text_count=4,
            argv=json.dumps(["train.py", "--lr", "3"]),
        )  # fmt: skip
        builder.add_group("world", ranks="0-2", size=3, rank=rank)
        shape = (4,) if rank != 2 else (3,)
        for seq, (at_ms, like) in enumerate(((10, (4,)), (20, shape), (30, (4,))), 1):
            number = builder.issue(
                "all_reduce", at_ns=(at_ms + rank) * MS, stack=[SITE], dtype="float32",
                inputs=[like], op="SUM", comm="grads" if seq == 3 else "",
            )  # fmt: skip
            builder.start(number, after_ns=2 * MS)
            status = Status.PEER_LOST if seq == 3 else Status.OK
            error = ERROR if seq == 3 else None
            builder.end(number, after_ns=3 * MS, status=status, error=error)
        if not rank:
            builder.issue(
                "recv", at_ns=40 * MS, peer=-1, stack=[SITE], dtype="float32", inputs=[(1,)]
            )
        builder.set_group(1, issued_seq=3, ended_seq=3)
        if rank == 2:
            builder.set_group(1, issued_seq=3, ended_seq=3, broken=pack(builder.add_text(ERROR)))
        if rank == 1:
            text = json.dumps(
                {"what": "ValueError: no number", "where": "/home/me/train.py:9 (main)"}
            )
            builder.exit(Exit.RAISED, at_ns=50 * MS, text=text)
        (folder / record_name(rank)).write_bytes(builder.to_bytes())
    ended_ns = time.monotonic_ns()
    for rank, signal in ((1, None), (2, 9)):
        end = RankEnd(
            rank=rank, pid=pid_of(rank), host=HOST, ended_ns=ended_ns, wall_ns=time.time_ns(),
            cause="exited" if signal is None else "signal", signal=signal,
            exit_code=1 if signal is None else None, was_asked=False,
        )  # fmt: skip
        write_end(folder, end)


class Both:
    """One job, by the answers of who watches and by its records."""

    def __init__(self, folder: Path) -> None:
        write_job(folder)
        self.client = RecordsClient(folder, "run", HOST)
        self.moments = Moments(load_run(folder))
        self.at_ns = max(self.moments.session.now_ns, time.monotonic_ns()) + 10**9

    def rows(self) -> Mapping[int, RankRow]:
        self.client.ask("about")
        for end in read_ends(self.client.roster.folder):
            self.client.roster.on_reported_end(end)
        return rank_rows(self.client.ask("ranks")["ranks"], {}, Usage(), 0.0)

    def live_op(self, seq: int) -> OpDetail | None:
        group = self.moments.session.groups[0].name
        return op_detail([(self.client.ask("op", group=group, seq=seq), 0)])

    def replayed_op(self, seq: int) -> OpDetail | None:
        return op_then(self.moments, OpKey(group="world", seq=seq), self.at_ns)

    def live_rank(self, rank: int) -> RankDetail:
        history = self.client.ask("history", rank=rank)["ops"]
        return rank_detail(RankRow(rank=rank), self.client.ask("rank", rank=rank), history, 0)

    def replayed_rank(self, rank: int) -> RankDetail:
        found = rank_then(self.moments, rank, self.at_ns)
        assert found is not None
        return found


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Both]:
    found = Both(tmp_path)
    yield found
    found.client.close()


@pytest.mark.parametrize("seq", [1, 2, 3])
def test_an_op_is_told_alike(both: Both, seq: int) -> None:
    live, replayed = both.live_op(seq), both.replayed_op(seq)
    assert live is not None
    assert replayed is not None
    assert (live.name, live.says) == (replayed.name, replayed.says)
    for mine, theirs in zip(live.arrivals, replayed.arrivals, strict=True):
        assert (mine.rank, mine.has_come, mine.status, mine.form, mine.site, mine.error) == (
            theirs.rank, theirs.has_come, theirs.status, theirs.form, theirs.site, theirs.error
        )  # fmt: skip
    assert bool(live.says) == (seq == 2)


def test_a_rank_has_the_same_facts_and_ops(both: Both) -> None:
    live, replayed = both.live_rank(0), both.replayed_rank(0)
    mine, theirs = dict(live.facts), dict(replayed.facts)
    # What only a process that runs can be asked, and what only the whole record tells.
    assert mine.keys() - theirs.keys() == {"distdbg"}
    assert theirs.keys() - mine.keys() <= {"began", "ops so far"}
    del mine["group 'world'"], theirs["group 'world'"]  # a session knows no timeout
    for name in mine.keys() & theirs.keys():
        assert mine[name] == theirs[name], name
    assert mine["failed"] == "all_reduce #3 on group 'world': PeerLost: rank 1 died"
    assert [bar.name for bar in live.history] == [bar.name for bar in replayed.history]
    assert [bar.name for bar in live.in_flight] == ["recv from any rank"]


def test_a_timeline_names_ops_alike(both: Both) -> None:
    store = BarStore()
    for rank, columns in both.client.ask("bars")["bars"].items():
        store.add(int(rank), columns, 0)
    session = both.moments.session
    for rank in session.ranks:
        then = [bar_of(session, rank, at).name for at in range(len(session.ranks[rank].ops))]
        assert [bar.name for bar in store.get(rank, 0.0, 1e12)] == then


def test_how_a_rank_ended_is_told_alike(both: Both) -> None:
    live = both.rows()
    replayed = {rank: rank_row(both.moments, rank, both.at_ns) for rank in (1, 2)}
    for rank, row in replayed.items():
        assert (row.state, row.why) == (live[rank].state, live[rank].why)
    assert replayed[1].state is RankState.FAILED
    assert replayed[1].why.startswith("raised ValueError: no number")
    assert (replayed[2].state, replayed[2].why) == (RankState.DEAD, "was killed by SIGKILL")


def test_groups_are_told_alike(both: Both) -> None:
    live = group_rows(read_groups(both.client.ask("groups")["groups"]))
    replayed = group_rows(group_reports(both.moments, both.at_ns))
    # Only a process that runs tells its timeout.
    assert [replace(row, timeout_s=None) for row in live] == list(replayed)
    (row,) = live
    assert row.timeout_s is not None
    assert row.issued == {0: 3, 1: 3, 2: 3}
    assert row.broken.keys() == {2}
    assert "rank 1 died" in row.broken[2]


def test_hosts_are_told_alike(both: Both) -> None:
    about = both.client.ask("about")
    feed = ReplayFeed(both.moments.session)
    try:
        assert (
            job_hosts(about["tree"], about["host"]) == feed.latest().hosts == (HostRow(host=HOST),)
        )
    finally:
        feed.close()


@pytest.mark.parametrize("ring", [2, 3])
def test_waits_are_told_alike(ring: int) -> None:
    """Ranks 0 to `ring` - 1 wait for each other; of four, those that are left wait for rank 0."""
    build = SessionBuilder(4)
    for rank in range(4):
        peer = (rank + 1) % ring if rank < ring else 0
        op = build.op(rank, "recv", peer=peer, is_async=True, at_s=1, site="/j/x.py:7 (main)")
        build.wait(op, since_s=2, site="/j/x.py:9 (main)")
    session = build.session
    found = diagnose_with_waits(session)
    blocked = find_blocked(session, found.waits)
    judged = JudgedVerdict(
        session=session, verdict=found.verdict, case=None, lines=[],
        plain=to_plain(session, found.verdict), blocked=blocked, waits=found.waits,
    )  # fmt: skip
    edges, reported = read_waits(json.loads(json.dumps(plain_waits(judged))))
    verdict = read_verdict(json.loads(json.dumps(judged.plain)))
    moments = Moments(session)
    ranks = {rank: rank_row(moments, rank, session.now_ns) for rank in session.ranks}
    live = wait_rows(edges, verdict, ranks, blocked=reported)

    feed = ReplayFeed(session)
    try:
        end = time.monotonic() + 60.0
        while not feed.is_settled:
            assert time.monotonic() < end
            time.sleep(0.01)  # its thread makes the verdict, and tells nobody when it is there
        assert live == feed.latest().waits
    finally:
        feed.close()
    assert [row.can_go_on for row in live] == [rank >= ring for rank in range(4)]
    assert blocked == set(range(4))

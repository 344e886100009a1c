from __future__ import annotations

import json
from pathlib import Path

from distdbg.agent.judging.verdict_files import ObservationWriter
from distdbg.follow.watched_rank import WatchedRank
from distdbg.record.observations import read_sightings
from distdbg.record.rank_state import RankState

SAVE = "train.py:91 (save)"


def test_who_is_busy_while_others_wait_is_seen_where_until_it_goes_on(tmp_path: Path) -> None:
    watched = WatchedRank(rank=0, host="n01", pid=7, state=RankState.RUNNING)
    sightings = ObservationWriter()
    for site in ("", "", SAVE, SAVE, "", ""):
        watched.change(RankState.RUNNING, 1, "busy in its own code" if site else "", site)
        sightings.look(tmp_path, [watched])
    assert [seen.site for seen in read_sightings(tmp_path)] == [SAVE, ""]


def test_a_stuck_rank_is_seen_and_taken_back(tmp_path: Path) -> None:
    watched = WatchedRank(rank=0, host="n01", pid=7)
    sightings = ObservationWriter()
    for state in (RankState.WAITING, RankState.STOPPED, RankState.STOPPED, RankState.RUNNING):
        watched.change(state, 1)
        sightings.look(tmp_path, [watched])
    states = [seen.state for seen in read_sightings(tmp_path)]
    assert states == [RankState.STOPPED, RankState.RUNNING]


def test_a_job_that_is_slow_at_every_step_does_not_fill_the_disk(tmp_path: Path) -> None:
    watched = WatchedRank(rank=0, host="n01", pid=7)
    sightings = ObservationWriter()
    for step in range(5000):
        watched.change(RankState.RUNNING, step, site=SAVE if step % 2 else "")
        sightings.look(tmp_path, [watched])
    assert len(list(read_sightings(tmp_path))) == 2000


def test_a_start_that_took_long_is_seen_and_lifts_no_limit_of_what_follows(tmp_path: Path) -> None:
    watched = WatchedRank(rank=0, host="n01", pid=7)
    sightings = ObservationWriter()
    sightings.look(tmp_path, [watched])
    for site in ("torch.py:1 (f)", "torch.py:1 (f)", SAVE):
        watched.place_start(RankState.RUNNING, "at work", site, None)
        sightings.look(tmp_path, [watched])
    assert [seen.site for seen in read_sightings(tmp_path)] == ["torch.py:1 (f)", SAVE]
    for step in range(5000):
        watched.change(RankState.RUNNING, step, site="" if step % 2 else SAVE)
        sightings.look(tmp_path, [watched])
    assert len(list(read_sightings(tmp_path))) == 2002


def test_a_rank_that_runs_is_seen_there_since_its_last_op(tmp_path: Path) -> None:
    watched = WatchedRank(
        rank=0, host="n01", pid=7, state=RankState.RUNNING, since_ns=100, progress_ns=900
    )
    watched.site = "slp.py:6 (load)"
    ObservationWriter().write(tmp_path, watched)
    [line] = (tmp_path / "seen-n01.jsonl").read_text().splitlines()
    assert json.loads(line)["since_ns"] == 900

"""What ranks of one host leave while they meet: whose process is gone is seen without the store."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from distdbg.runtime.rendezvous import presence
from distdbg.runtime.rendezvous.outcome import JoinedRank
from distdbg.runtime.rendezvous.presence import Presence
from distdbg.runtime.rendezvous.process import identify_self

HERE = identify_self()
#: No process has this pid and start time; a rank of this test is as old as the test.
GONE = replace(HERE, started=1)
WHERE = "tcp://n01:29500"


def presence_of(rank: int, folder: Path, where: str = WHERE, **process: int) -> Presence:
    me = JoinedRank(
        rank=rank,
        world_size=3,
        local_rank=None,
        local_world_size=None,
        process=replace(HERE, **process),  # type: ignore[arg-type]  # the numbers of a Process
    )
    return Presence(where, me, str(folder))


def test_a_rank_whose_process_is_gone_is_found_by_the_others_alone(tmp_path: Path) -> None:
    mine = presence_of(0, tmp_path)
    presence_of(1, tmp_path).announce()
    assert mine.find_dead() is None  # it lives
    presence_of(2, tmp_path, started=1).announce()
    dead = mine.find_dead()
    assert dead is not None
    assert (dead.rank, dead.process) == (2, GONE)
    file = next(tmp_path.glob("*.rank2"))
    assert presence_of(0, tmp_path, where="tcp://n02:29500").find_dead() is None
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_what_was_left_before_this_process_or_before_its_last_meeting_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Presence, "_last_end_ns", 0)
    monkeypatch.setattr(presence, "_now_ns", lambda: (HERE.started + 1) * presence._TICK_NS - 1)
    presence_of(1, tmp_path, started=1).announce()
    assert presence_of(0, tmp_path).find_dead() is None
    monkeypatch.setattr(presence, "_now_ns", lambda: (HERE.started + 1) * presence._TICK_NS)
    presence_of(1, tmp_path, started=1).announce()
    mine = presence_of(0, tmp_path)
    assert mine.find_dead() is not None
    monkeypatch.setattr(presence, "_now_ns", lambda: (HERE.started + 2) * presence._TICK_NS)
    with mine.announced():
        assert mine.find_dead() is not None
    presence_of(2, tmp_path).find_dead()  # nor when another rank tells of it afterwards
    assert presence_of(0, tmp_path).find_dead() is None


def test_who_sees_a_death_tells_ranks_that_were_started_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Presence, "_last_end_ns", 0)
    later = HERE.started + 500
    monkeypatch.setattr(presence, "_now_ns", lambda: later * presence._TICK_NS)
    presence_of(1, tmp_path, started=1).announce()
    assert presence_of(2, tmp_path, started=later).find_dead() is None
    monkeypatch.setattr(presence, "_now_ns", lambda: (later + 1) * presence._TICK_NS)
    assert presence_of(0, tmp_path).find_dead() is not None
    assert presence_of(2, tmp_path, started=later).find_dead() is not None


def test_the_file_of_a_rank_is_removed_but_not_that_of_another_process(tmp_path: Path) -> None:
    mine = presence_of(1, tmp_path)
    with mine.announced():
        assert len(os.listdir(tmp_path)) == 1
    assert os.listdir(tmp_path) == []
    with mine.announced():
        presence_of(1, tmp_path, pid=HERE.pid + 1).announce()
    assert len(os.listdir(tmp_path)) == 1


@pytest.mark.parametrize("content", ["", "[", "[]", "{}", '["{}", 1, 1]', "[1, 2, 3]"])
def test_a_file_of_something_else_is_nobody(tmp_path: Path, content: str) -> None:
    presence_of(1, tmp_path, started=1).announce()
    (file,) = tmp_path.iterdir()
    file.write_text(content)
    assert presence_of(0, tmp_path).find_dead() is None


def test_without_a_folder_the_meeting_goes_on(tmp_path: Path) -> None:
    mine = presence_of(0, tmp_path / "none")
    with mine.announced():
        assert mine.find_dead() is None


def test_what_was_left_long_ago_is_removed_by_the_next_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "another.rank").touch()
    now_ns = HERE.started * presence._TICK_NS
    monkeypatch.setattr(presence, "_now_ns", lambda: now_ns)
    presence_of(1, tmp_path, started=1).announce()
    presence_of(2, tmp_path).announce()
    monkeypatch.setattr(presence, "_now_ns", lambda: now_ns + presence._KEPT_NS)
    presence_of(0, tmp_path, where="tcp://n02:29500").announce()
    assert len(os.listdir(tmp_path)) == 4
    monkeypatch.setattr(presence, "_now_ns", lambda: now_ns + presence._KEPT_NS + 1)
    presence_of(0, tmp_path, where="tcp://n02:29500").announce()
    assert not list(tmp_path.glob("*.rank1"))  # rank 2 lives
    assert len(os.listdir(tmp_path)) == 3

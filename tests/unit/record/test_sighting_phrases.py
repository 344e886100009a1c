"""Where a rank was seen last, in a few words."""

from __future__ import annotations

from pathlib import Path

import pytest

from distdbg.record.observations import (
    FILE_LOCK,
    Observation,
    lock_holder_in,
    phrase_of,
    phrase_of_rank,
    write_sighting,
)
from distdbg.record.rank_state import RankState


def sighting(state: str, site: str = "slp.py:7 (load)", why: str = "", **facts: int) -> Observation:
    known = {"rank": 2, "pid": 9, "since_ns": 100} | facts
    return Observation(host="n1", state=RankState(state), site=site, why=why, **known)


@pytest.mark.parametrize(
    ("seen", "phrase"),
    [
        (sighting("asleep"), "asleep in load() at slp.py:7"),
        (
            sighting("asleep", why="blocked on a lock with a time limit"),
            "waiting for a lock in load() at slp.py:7",
        ),
        (
            sighting("asleep", why="blocked on a lock, in get() of queue.py"),
            "asleep in load() at slp.py:7",
        ),
        (
            sighting(
                "asleep", why=f"{FILE_LOCK} that rank 3 holds; its child process 4 (x) exited"
            ),
            "in load() at slp.py:7, waiting for a file lock that rank 3 holds",
        ),
        (sighting("stopped"), "stopped in load() at slp.py:7"),
        (sighting("holds the GIL"), "holding the GIL in load() at slp.py:7"),
        (sighting("running"), "in load() at slp.py:7"),
        (sighting("running", site="slp.py:7 (<module>)"), "at slp.py:7"),
        (sighting("stopped", site=""), "stopped"),
        (sighting("running", site=""), ""),
    ],
)
def test_state_and_place_are_one_phrase(seen: Observation, phrase: str) -> None:
    assert phrase_of(seen) == phrase


@pytest.mark.parametrize(
    ("why", "holder"),
    [
        (f"{FILE_LOCK} that rank 12 holds with a time limit", 12),
        (f"{FILE_LOCK} that pid 12 (rsync) holds", None),
        (FILE_LOCK, None),
        ("in a lock that rank 3 holds", None),
    ],
)
def test_the_rank_that_holds_a_file_lock_is_read_from_the_reason(
    why: str, holder: int | None
) -> None:
    assert lock_holder_in(why) == holder


def test_what_was_seen_before_the_last_op_ended_is_not_told(tmp_path: Path) -> None:
    write_sighting(tmp_path, sighting("stopped"))
    assert phrase_of_rank(tmp_path, 2, 100) == "stopped in load() at slp.py:7"
    assert phrase_of_rank(tmp_path, 2, 101) is None
    assert phrase_of_rank(tmp_path, 1, 0) is None

"""For whom ranks wait in init_process_group. Each reason has a twin in which it would be wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from distdbg.record.join_calls import (
    JoinCall,
    has_join_calls,
    note_ended,
    read_join_calls,
    too_many,
    write_join_call,
)
from distdbg.record.join_waits import JoinReason, JoinWait, find_join_wait
from distdbg.record.recorded_frame import RecordedFrame

S = 10**9
SITE = (RecordedFrame("/job/job.py", 23, "connect"),)


def call(rank: int, **facts: Any) -> JoinCall:
    known: dict[str, Any] = {
        "pid": 100 + rank,
        "host": "n01",
        "since_ns": S,
        "as_rank": rank,
        "world_size": 3,
        "started": 3,
        "where": "tcp://n01:29500",
        "stack": SITE,
        "step": "connected",
        "is_connected": True,
    }
    return JoinCall(rank=rank, **known | facts)


def found_in(
    *calls: JoinCall, ended: dict[int, str] | None = None, doing: dict[int, str] | None = None
) -> JoinWait | None:
    known = {one.rank: "" for one in calls if one.rank not in (ended or {})}
    return find_join_wait(
        {one.rank: one for one in calls}, ended or {}, known | (doing or {}), 45 * S
    )


def said(found: JoinWait | None) -> str:
    assert found is not None
    return "".join(found.say("waited"))


def test_more_ranks_are_waited_for_than_were_started() -> None:
    found = found_in(*(call(rank, world_size=4) for rank in range(3)))
    assert said(found) == (
        "all 3 ranks waited 44 s in init_process_group at job.py:23 (connect) for rank 3, "
        "which was not started"
    )
    assert found is not None
    assert (found.reason, found.causes) == (JoinReason.TOO_MANY, ())
    assert found.advice == (
        "init_process_group(world_size=4), but 3 ranks were started (WORLD_SIZE=3)"
    )


def test_a_size_that_fits_is_no_reason() -> None:
    found = found_in(*(call(rank) for rank in range(3)))
    assert found is not None
    assert (found.reason, found.why) == (JoinReason.ALL, "")
    assert "see whether their hosts reach each other" in found.advice


def test_without_a_launcher_nobody_knows_how_many_were_started() -> None:
    found = found_in(*(call(rank, world_size=4, started=-1) for rank in range(3)))
    assert found is not None
    assert found.reason is JoinReason.ELSEWHERE
    assert said(found).startswith("ranks 0-2 waited 44 s in ")
    assert said(found).endswith(" for rank 3, of which nothing is known here")


@pytest.mark.parametrize(
    ("size", "started", "text"),
    [
        (2, 1, "init_process_group(world_size=2), but 1 rank was started (WORLD_SIZE=1)"),
        (4, 4, ""),
        (3, 4, ""),
        (4, -1, ""),
        (-1, 4, ""),
    ],
)
def test_too_many_are_only_more_than_were_started(size: int, started: int, text: str) -> None:
    assert too_many(size, started) == text


def test_a_rank_that_does_something_else_is_waited_for_before_those_that_were_not_started() -> None:
    calls = [call(rank, world_size=4) for rank in (0, 1)]
    found = found_in(*calls, doing={2: "asleep in load() at job.py:4"})
    assert said(found).endswith(" for rank 2, asleep in load() at job.py:4")
    assert found is not None
    assert (found.reason, found.causes) == (JoinReason.ABSENT, (2,))
    assert found.advice.startswith("init_process_group(world_size=4), but 3 ranks")


def test_a_rank_that_had_ended_is_waited_for_in_vain() -> None:
    found = found_in(call(0), call(1), ended={2: "exited with code 0"})
    assert said(found).endswith(" for rank 2, which exited with code 0 before")


def test_a_rank_that_died_in_the_call_waits_no_more() -> None:
    found = found_in(call(0), call(1), call(2), ended={2: "was killed by SIGSEGV"})
    assert found is not None
    assert (found.waiting, found.causes) == ((0, 1), (2,))


def test_two_processes_with_one_rank_leave_another_one_out() -> None:
    found = found_in(call(0), call(1), call(2, as_rank=1))
    assert said(found).endswith(" for rank 2: ranks 1-2 called it with rank=1")
    assert found is not None
    assert (found.reason, found.causes) == (JoinReason.TWICE, (2,))
    assert found.advice.endswith("rank 2 was started with RANK=2")


def test_ranks_that_change_places_are_two_ranks() -> None:
    found = found_in(call(0), call(1, as_rank=2), call(2, as_rank=1))
    assert found is not None
    assert found.reason is JoinReason.ALL


def test_sizes_that_differ_are_told_with_the_one_that_was_started() -> None:
    found = found_in(call(0), call(1), call(2, world_size=4))
    assert said(found).endswith("; world_size is 3 on ranks 0-1, 4 on rank 2")
    assert found is not None
    assert found.causes == (2,)
    assert found.advice.endswith("on all ranks: 3 ranks were started (WORLD_SIZE=3)")


def test_addresses_that_differ_blame_one_against_many_only() -> None:
    where = "tcp://n01:29501"
    found = found_in(call(0), call(1), call(2, where=where))
    assert said(found).endswith(
        "; their addresses differ: tcp://n01:29500 on ranks 0-1, tcp://n01:29501 on rank 2"
    )
    assert found is not None
    assert found.causes == ()
    calls = [call(rank, world_size=4, started=4) for rank in range(4)]
    found = found_in(*calls[:3], replace(calls[3], where=where))
    assert found is not None
    assert (found.reason, found.causes) == (JoinReason.PLACES, (3,))


def test_an_address_that_nobody_serves_was_not_reached() -> None:
    outside = {"step": "called", "is_connected": False}
    found = found_in(call(0, **outside), call(1, **outside), call(2))
    assert said(found).endswith("; rank 1 did not reach tcp://n01:29500")
    assert found is not None
    assert found.advice.startswith("rank 0 has to serve tcp://n01:29500: ")
    # The one that serves it waits for the others from the start.
    found = found_in(call(0, **outside), call(1), call(2))
    assert found is not None
    assert found.reason is JoinReason.ALL


def test_who_has_joined_does_not_wait() -> None:
    assert found_in(*(call(rank, step="joined") for rank in range(3))) is None
    assert found_in() is None


@pytest.mark.parametrize(
    ("error", "is_waiting", "gave_up"),
    [
        ("KeyboardInterrupt: ", True, False),
        ("RendezvousError: rank 0 was interrupted while the ranks were meeting at x", True, False),
        ("RendezvousError: 2 of 3 ranks joined 'x' within 5.0 s; missing rank 2", False, False),
        ("DistStoreError: Timed out after 6 seconds waiting for clients. 2/3 clients", False, True),
        (
            "DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed",
            False,
            True,
        ),
        ("ValueError: no such backend", False, False),
    ],
)
def test_an_error_ends_the_wait_by_itself_or_by_others(
    error: str, is_waiting: bool, gave_up: bool
) -> None:
    failed = call(0, step="failed", step_ns=9 * S, error=error)
    assert (failed.is_waiting, failed.gave_up) == (is_waiting, gave_up)
    assert failed.waited_until_ns == (9 * S if is_waiting else None)


def test_who_gave_up_had_waited_until_then() -> None:
    error = "DistStoreError: Timed out after 6 seconds waiting for clients. 3/4 clients joined."
    failed = {"step": "failed", "error": error, "step_ns": 7 * S}
    found = found_in(
        call(0, world_size=4, **failed),
        call(1, world_size=4),
        call(2, world_size=4),
        ended={0: "raised DistStoreError"},
    )
    assert found is not None
    assert (found.has_given_up, found.waiting, found.waited_ns) == (True, (0, 1, 2), 6 * S)
    assert said(found).startswith("all 3 ranks waited 6.0 s")


def test_the_last_line_of_a_process_counts(tmp_path: Path) -> None:
    assert not has_join_calls(tmp_path)
    began = call(1, step="called", is_connected=False)
    for one in (began, call(1), call(2), replace(call(2), pid=7)):
        write_join_call(tmp_path, one)
    (tmp_path / "joins-n02.jsonl").write_text('[]\n{"rank": "x"}\n{\nnull\n')
    assert has_join_calls(tmp_path)
    assert read_join_calls(tmp_path) == {
        ("n01", 101): call(1),
        ("n01", 102): call(2),
        ("n01", 7): replace(call(2), pid=7),
    }


@pytest.mark.parametrize(
    "wrong",
    [
        {"rank": "1"},
        {"step": "over"},
        {"where": 3},
        {"stack": [[1]]},
        {"is_connected": 1},
        {"pid": True},
    ],
)
def test_a_line_that_makes_no_sense_is_passed_over(tmp_path: Path, wrong: dict[str, Any]) -> None:
    write_join_call(tmp_path, call(0))
    path = tmp_path / "joins-n01.jsonl"
    path.write_text(json.dumps(json.loads(path.read_text()) | wrong) + "\n")
    assert read_join_calls(tmp_path) == {}


def test_a_launcher_notes_the_end_of_those_that_wait(tmp_path: Path) -> None:
    joined = call(1, step="joined")
    for one in (call(0), joined):
        write_join_call(tmp_path, one)
    note_ended(tmp_path, 20 * S)
    calls = read_join_calls(tmp_path)
    assert calls["n01", 101] == joined
    assert (calls["n01", 100].step, calls["n01", 100].waited_until_ns) == ("ended", 20 * S)
    assert calls["n01", 100].is_waiting

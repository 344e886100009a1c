"""What a launcher says of ranks that wait in init_process_group when a signal ends the job."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from distdbg.diagnose.traits import Trait
from distdbg.launch.diagnosis import Diagnosis
from distdbg.launch.late_ranks import is_of_joining, say_join_wait
from distdbg.launch.rank_activity import what_ranks_do
from distdbg.record.join_calls import JoinCall, read_join_calls, write_join_call

S = 10**9


def call(rank: int, **facts: Any) -> JoinCall:
    known: dict[str, Any] = {"pid": 100 + rank, "host": "n01", "since_ns": S, "as_rank": rank}
    known |= {"world_size": 3, "started": 2, "step": "connected", "is_connected": True}
    return JoinCall(rank=rank, **known | facts)


CALLS = {rank: call(rank) for rank in range(2)}
ALIVE = dict.fromkeys(CALLS, "")
WORDS = "in init_process_group for rank 2, which was not started"


@pytest.mark.parametrize(
    ("at_s", "hang", "waited"),
    [
        (31, f"all 2 ranks waited 30 s {WORDS}", ""),
        (30, "", f"all 2 ranks had waited 29 s {WORDS}"),
        (1.5, "", ""),
    ],
)
def test_it_is_a_hang_from_the_age_on_that_the_table_has(
    at_s: float, hang: str, waited: str
) -> None:
    assert say_join_wait(CALLS, {}, ALIVE, int(at_s * S)) == (hang, waited)


def test_a_rank_that_the_same_ctrl_c_has_ended_had_waited_with_the_others() -> None:
    gone = call(1, step="failed", step_ns=40 * S, error="KeyboardInterrupt: ")
    ended = {1: "exited with code 1"}
    hang, _ = say_join_wait({0: call(0), 1: gone}, ended, ALIVE, 41 * S)
    assert hang == f"all 2 ranks waited 40 s {WORDS}"
    hang, _ = say_join_wait({0: call(0), 1: gone}, ended, ALIVE, 60 * S)
    assert hang.endswith(" for rank 1, which exited with code 1 before")


def test_a_folder_without_records_says_who_waits_and_is_told_when_it_ended(tmp_path: Path) -> None:
    now_ns = time.monotonic_ns()
    for rank in range(2):
        write_join_call(tmp_path, call(rank, since_ns=now_ns - 45 * S))
    doing = what_ranks_do(tmp_path, {0: 100, 1: 101})
    assert doing.hang == f"all 2 ranks waited 45 s {WORDS}"
    assert {one.step for one in read_join_calls(tmp_path).values()} == {"ended"}
    write_join_call(tmp_path, call(1, step="joined"))
    write_join_call(tmp_path, call(0, step="joined"))
    assert what_ranks_do(tmp_path, {0: 100, 1: 101}).hang == ""


def test_a_diagnosis_is_of_joining_by_its_kind_and_words() -> None:
    text = "all 2 ranks waited 6 s in init_process_group at a.py:1 (f)"
    traits = frozenset((Trait.JOINING,))
    assert is_of_joining(Diagnosis(kind="missing rank", what=text, traits=traits))
    assert not is_of_joining(Diagnosis(kind="missing rank", what=text))
    assert not is_of_joining(Diagnosis(kind="dead rank", what=text, traits=traits))

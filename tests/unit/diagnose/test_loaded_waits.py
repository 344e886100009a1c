"""Threads that wait for an op that they had begun earlier come from a record into a session."""

from __future__ import annotations

from pathlib import Path

from distdbg.diagnose.load.run_folder import load_run
from distdbg.record.folders import record_name
from tests.support.record_builder import RecordBuilder

STEP = [("/home/ada/train.py", 80, "step")]
WAIT = [("/home/ada/train.py", 84, "step")]


def test_a_wait_for_an_op_in_flight_is_loaded_and_none_for_one_that_has_ended(
    tmp_path: Path,
) -> None:
    build = RecordBuilder(rank=0, world_size=1)
    group = build.add_group("dp", ranks="0", size=1)
    over = build.issue("all_reduce", group, at_ns=1_000, is_async=True, stack=STEP)
    build.end(over, after_ns=10)
    number = build.issue("all_gather", group, at_ns=2_000, is_async=True, stack=STEP)
    build.wait(over, since_ns=1_005, thread=8, place=0)
    build.wait(number, since_ns=3_000, thread=7, stack=WAIT, place=1)
    build.set_state(lost_waits=2)
    (tmp_path / record_name(0)).write_bytes(build.to_bytes())
    session = load_run(tmp_path)
    log = session.ranks[0]
    (wait,) = log.work_waits
    assert (wait.number, wait.since_ns, wait.thread) == (number, 3_000, 7)
    assert [str(frame) for frame in session.stacks[wait.stack]] == ["/home/ada/train.py:84 (step)"]
    assert log.lost["waits"] == 2

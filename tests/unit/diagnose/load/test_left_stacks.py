"""Where ranks raised or crashed, with the callers, is part of the session of their run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from distdbg.diagnose.load.run_folder import add_left_stacks
from distdbg.diagnose.session import Activity, LogLine, RankLog, Session
from distdbg.record.ends import RankEnd
from distdbg.record.error_file import to_json
from distdbg.record.format import Exit
from distdbg.record.rank_state import RankState
from distdbg.record.stack_file import write_crash

CRASH = """\
Fatal Python error: Segmentation fault

Current thread 0x00007f01 (most recent call first):
  File "/job/train.py", line 7 in backward
  File "/job/train.py", line 13 in main
"""


def killed(rank: int, *, was_asked: bool = False) -> RankEnd:
    return RankEnd(
        rank=rank, pid=1, host="n01", ended_ns=2, wall_ns=2, cause="signal", signal=11,
        was_asked=was_asked,
    )  # fmt: skip


@pytest.fixture
def session() -> Session:
    ranks = {rank: RankLog(rank=rank) for rank in range(2)}
    ranks[1].end = killed(1)
    return Session(source="run", attempt=0, ranks=ranks)


def stack(session: Session, rank: int) -> list[str]:
    return [str(frame) for frame in session.ranks[rank].left_stack]


def test_a_crash_is_read_from_the_file_beside_the_record(tmp_path: Path, session: Session) -> None:
    write_crash(tmp_path, 1, CRASH.encode())
    add_left_stacks(session, [tmp_path])
    assert stack(session, 1) == ["/job/train.py:7 (backward)", "/job/train.py:13 (main)"]
    assert stack(session, 0) == []


def test_the_dump_of_a_child_process_is_none_of_the_rank_that_waits_for_it(
    tmp_path: Path, session: Session
) -> None:
    why = "in a system call (pipe_read); its child process 47 (loader) was killed by SIGSEGV"
    session.ranks[1].activity = Activity(state=RankState.ASLEEP, since_ns=1, why=why)
    write_crash(tmp_path, 1, CRASH.encode())
    add_left_stacks(session, [tmp_path])
    assert stack(session, 1) == []
    assert str(session.ranks[1].child_stack[0]) == "/job/train.py:7 (backward)"


def test_a_crash_is_read_from_the_stderr_that_was_kept(tmp_path: Path, session: Session) -> None:
    session.lines = [
        LogLine(text=line, source=f"stderr.log:{at}", rank=1)
        for at, line in enumerate(CRASH.splitlines(), 1)
    ]
    add_left_stacks(session, [tmp_path])
    assert stack(session, 1)[0] == "/job/train.py:7 (backward)"


@pytest.mark.parametrize("is_same", [True, False])
def test_the_traceback_of_an_exception_is_that_of_what_the_record_says(
    tmp_path: Path, session: Session, is_same: bool
) -> None:
    try:
        int("x")
    except ValueError as error:
        error.add_note("in step 4")
        lasti = error.__traceback__
        assert lasti is not None
        line = lasti.tb_lineno
        text = to_json(error, {**os.environ, "RANK": "0"}, pid=1, wall_ns=1)
    log = session.ranks[0]
    log.exit, log.exit_what = Exit.RAISED, "ValueError: ..."
    log.exit_where = f"{__file__}:{line if is_same else line + 1000} (test)"
    local = tmp_path / "logs" / "attempt_0" / "0"
    local.mkdir(parents=True)
    (local / "error.json").write_text(text)
    add_left_stacks(session, [tmp_path / "attempt_0"])
    assert [site.partition(" (")[0] for site in stack(session, 0)] == (
        [f"{__file__}:{line}"] if is_same else []
    )
    assert log.exit_notes == (("in step 4",) if is_same else ())


@pytest.mark.parametrize("pid", [1, 2])
def test_a_rank_without_a_record_is_told_by_its_error_file(
    tmp_path: Path, session: Session, pid: int
) -> None:
    ended = RankEnd(rank=0, pid=1, host="n01", ended_ns=2, wall_ns=2, cause="exited", exit_code=1)
    session.ranks[0].end = ended
    local = tmp_path / "logs" / "attempt_0" / "0"
    local.mkdir(parents=True)
    try:
        raise ValueError("another world size")
    except ValueError as error:
        (local / "error.json").write_text(to_json(error, {"RANK": "0"}, pid=pid, wall_ns=9))
    add_left_stacks(session, [tmp_path])
    log = session.ranks[0]
    if pid == 2:  # of another start
        assert (log.exit, log.exit_what) == (None, "")
        return
    assert (log.exit, log.exit_what) == (Exit.RAISED, "ValueError: another world size")
    assert os.path.basename(log.exit_where).startswith("test_left_stacks.py:")
    assert "test_left_stacks.py" in stack(session, 0)[0]

"""What the source of the reader's own files adds to a verdict."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from distdbg.diagnose.finding import FindingKind
from distdbg.diagnose.session import Activity
from distdbg.diagnose.verdict import diagnose
from distdbg.launch.diagnosis import Diagnosis
from distdbg.launch.late_ranks import hint_of_end
from distdbg.record.format import Exit, Status
from distdbg.record.observations import IN_LOCK
from distdbg.record.rank_state import RankState
from distdbg.record.recorded_frame import RecordedFrame
from distdbg.render.source_hint import with_source_hint
from distdbg.render.source_line import SourceLines
from tests.support.session_builder import SessionBuilder

PROGRAM = """\
def fit():
    for number in range(rounds):
        w -= average(w)
        if patience.exhausted(loss):
            break
    barrier()
"""


def left_early(folder: Path) -> SessionBuilder:
    path = folder / "fit.py"
    path.write_text(PROGRAM)
    build = SessionBuilder(3)
    for rank in range(3):
        for step in range(3 if rank else 2):
            end = {} if step == 2 else {"ended_s": step + 0.5}
            build.op(rank, "all_reduce", at_s=step, site=f"{path}:3 (fit)", **end)
    build.exit(0, Exit.LEFT, at_s=3)
    return build


def test_a_condition_that_ends_the_loop_of_one_rank_is_the_hint(tmp_path: Path) -> None:
    session = left_early(tmp_path).session
    verdict = diagnose(session)
    assert verdict.root is not None
    assert "dist.mark" in verdict.root.advice
    reported = with_source_hint(
        session, verdict, SourceLines(str(tmp_path), time.time_ns() + 10**15)
    )
    assert reported.root is not None
    assert reported.root.advice == (
        "see whether rank 0 left the loop by the `break` under `if patience.exhausted(loss)` (line 4): "
        "all ranks have to decide that alike"
    )
    assert reported.root is reported.findings[0]
    assert reported.roles == verdict.roles


def test_a_condition_that_skips_the_call_is_the_hint_before_the_loop(tmp_path: Path) -> None:
    session = left_early(tmp_path).session
    path = tmp_path / "fit.py"
    lines = [
        "def fit():",
        "    for number in range(rounds):",
        "        w -= average(w)",
        "    barrier()",
    ]
    skipping = ["        if number == 3:", "            continue"]
    path.write_text("\n".join([lines[0], "", lines[1], *skipping, lines[2], lines[3]]))
    for at, stack in enumerate(session.stacks):
        session.stacks[at] = tuple(frame._replace(line=6) for frame in stack)
    source = SourceLines(str(tmp_path), time.time_ns() + 10**15)
    reported = with_source_hint(session, diagnose(session), source)
    assert reported.root is not None
    assert reported.root.advice == (
        "see whether rank 0 skipped the call by the `continue` under `if number == 3` (line 4)"
    )


def test_the_loop_is_the_hint_where_nothing_ends_it(tmp_path: Path) -> None:
    session = left_early(tmp_path).session
    path = tmp_path / "fit.py"
    path.write_text(PROGRAM.replace("            break", "            pass"))
    source = SourceLines(str(tmp_path), time.time_ns() + 10**15)
    reported = with_source_hint(session, diagnose(session), source)
    assert reported.root is not None
    assert reported.root.advice == (
        "see whether `for number in range(rounds)` (line 2) makes as many rounds on rank 0 as on the others"
    )


def test_without_its_source_a_verdict_stays_as_it_is(tmp_path: Path) -> None:
    session = left_early(tmp_path).session
    verdict = diagnose(session)
    assert with_source_hint(session, verdict, SourceLines("", 0)) is verdict


TIMED = """\
def tick():
    if not work.is_completed():
        return
    work = all_reduce(w)
def summary():
    all_reduce(total)
"""


def test_a_condition_that_depends_on_time_is_the_hint(tmp_path: Path) -> None:
    path = tmp_path / "tick.py"
    path.write_text(TIMED)
    build = SessionBuilder(3)
    for rank in range(3):
        site, size = (f"{path}:4 (tick)", 3) if rank else (f"{path}:6 (summary)", 4)
        build.op(rank, "all_reduce", at_s=1, site=site, dtype="float32", inputs=[(size,)])
    source = SourceLines(str(tmp_path), time.time_ns() + 10**15)
    reported = with_source_hint(build.session, diagnose(build.session), source)
    assert reported.root is not None
    assert reported.root.advice == (
        "`if not work.is_completed()` (line 2) depends on time: ranks start different numbers of ops by "
        "it; wait() is the same on all"
    )


ENDLESS = """\
def search():
    while True:
        step()
    all_reduce(w)
"""


def test_a_while_that_a_busy_rank_is_in_is_the_hint(tmp_path: Path) -> None:
    path = tmp_path / "search.py"
    path.write_text(ENDLESS)
    build = SessionBuilder(2)
    build.op(1, "all_reduce", at_s=1, site=f"{path}:4 (search)")
    frames = (RecordedFrame(str(path), 3, "search"),)
    build.session.ranks[0].activity = Activity(
        state=RankState.BUSY, since_ns=2 * 10**9, site="search.py:3 (search)", stack=frames
    )
    source = SourceLines(str(tmp_path), time.time_ns() + 10**15)
    reported = with_source_hint(build.session, diagnose(build.session), source)
    assert reported.root is not None
    assert reported.root.advice == (
        "see whether `while True` (line 2) ends on rank 0; if it was at work, take its stacks twice "
        "(distdbg stacks)"
    )


SAVE = """\
def save(state):
    try:
        write(state)
    except OSError:
        return
    barrier()
def average(w):
    all_reduce(w)
def main():
    if rank == 0:
        gather(w)
    wait()
    if pending > 3:
        scatter(w)
def fit(w):
    while True:
        reduce(w)
        if limit.left() <= 0:
            break
"""


@pytest.mark.parametrize(
    ("odd", "usual", "hint"),
    [
        (
            ("all_reduce", 8, "average"),
            ("barrier", 6, "save"),
            "see whether rank 0 skipped save_rank.py:6 by the `return` under `except OSError` "
            "(line 4 of save_rank.py)",
        ),
        (
            ("gather", 11, "main"),
            ("all_reduce", 8, "average"),
            "only rank 0 came to save_rank.py:11, by `if rank == 0` (line 10 of save_rank.py): all ranks of "
            "the group have to make that call, or none",
        ),
        (
            ("scatter", 14, "main"),
            ("all_reduce", 8, "average"),
            "see whether all ranks decide `if pending > 3` (line 13 of save_rank.py) alike: rank 0 came to "
            "save_rank.py:14 by it",
        ),
        (
            ("all_reduce", 8, "average"),
            ("reduce", 17, "fit"),
            "see whether rank 0 left the loop by the `break` under `if limit.left() <= 0` (line 18 of "
            "save_rank.py): all ranks have to decide that alike",
        ),
    ],
)
def test_a_branch_that_takes_ranks_to_other_calls_is_the_hint(
    tmp_path: Path, odd: tuple[str, int, str], usual: tuple[str, int, str], hint: str
) -> None:
    path = tmp_path / "save_rank.py"
    path.write_text(SAVE)
    build = SessionBuilder(4)
    for rank in range(4):
        kind, line, function = usual if rank else odd
        build.op(rank, kind, at_s=1, site=f"{path}:{line} ({function})")
    source = SourceLines(str(tmp_path), time.time_ns() + 10**15)
    reported = with_source_hint(build.session, diagnose(build.session), source)
    assert reported.root is not None
    assert reported.root.advice == hint


POLLING = """\
def wait_done(path):
    while not os.path.exists(path):
        time.sleep(0.1)
def main():
    wait_done("part-2.done")
    all_reduce(w)
"""


def test_a_loop_until_a_file_is_there_is_the_hint_of_a_rank_that_sleeps(tmp_path: Path) -> None:
    path = tmp_path / "parts.py"
    path.write_text(POLLING)
    build = SessionBuilder(2)
    build.op(1, "all_reduce", at_s=1, site=f"{path}:6 (main)")
    build.session.ranks[0].activity = Activity(
        state=RankState.ASLEEP,
        since_ns=2 * 10**9,
        why="in a loop of short sleeps",
        site="parts.py:3 (wait_done)",
        stack=(RecordedFrame(str(path), 3, "wait_done"), RecordedFrame(str(path), 5, "main")),
    )
    source = SourceLines(str(tmp_path), time.time_ns() + 10**15)
    reported = with_source_hint(build.session, diagnose(build.session), source)
    assert reported.root is not None
    assert reported.root.advice == (
        "`while not os.path.exists(path)` (line 2) waits for a file: see who has to make it (another rank, "
        "another job), and whether it did"
    )


REPEATING = """\
def train():
    for micro in range(24):
        if micro % every == 0:
            all_reduce(w)
    all_reduce(loss)
"""


@pytest.mark.parametrize("has_condition", [True, False])
def test_what_lets_a_rank_make_one_call_more_is_the_hint(
    tmp_path: Path, has_condition: bool
) -> None:
    path = tmp_path / "micro.py"
    path.write_text(
        REPEATING if has_condition else REPEATING.replace("if micro % every == 0", "with lock")
    )
    build = SessionBuilder(3)
    what = "all_reduce #4 on group 'world' differs between ranks"
    facts = {"type": "MismatchError", "what": what, "ranks": [1]}
    for rank in range(3):
        build.exit(rank, Exit.RAISED, at_s=30, what=f"MismatchError: {what}")
        build.end(rank, at_s=30.1, cause="exited", exit_code=1)
        for step in range(4):
            line, size = (5, 1) if step == 3 and rank != 1 else (4, 288)
            end = {"error": json.dumps(facts)} if step == 3 else {}
            build.op(
                rank, "all_reduce", at_s=step, ended_s=step + 0.5, site=f"{path}:{line} (train)",
                status=Status.MISMATCH if step == 3 else 0, dtype="float32", inputs=[(size,)], **end,
            )  # fmt: skip
    source = SourceLines(str(tmp_path), time.time_ns() + 10**15)
    reported = with_source_hint(build.session, diagnose(build.session), source)
    assert reported.root is not None
    way = (
        "see whether `if micro % every == 0` (line 3) holds once more on rank 1 than on the others"
        if has_condition
        else "see whether `for micro in range(24)` (line 2) makes one round more on rank 1 than on the others"
    )
    assert (
        reported.root.advice
        == f"{way}; results since then are of calls that do not belong together"
    )


LOCKING = """\
def get(self):
    with self.lock:
        self.trim()
def trim(self):
    with self.lock:
        pass
def main():
    all_reduce(w)
"""


@pytest.mark.parametrize("outer", ["Tiles.get", "Survey.get"])
def test_a_rank_that_locks_itself_out_is_told_where_it_holds_the_lock(
    tmp_path: Path, outer: str
) -> None:
    path = tmp_path / "tiles.py"
    path.write_text(LOCKING)
    build = SessionBuilder(2)
    build.op(1, "all_reduce", at_s=1, site=f"{path}:8 (main)")
    build.session.ranks[0].activity = Activity(
        state=RankState.ASLEEP,
        since_ns=2 * 10**9,
        why=IN_LOCK,
        site="tiles.py:5 (trim)",
        stack=(RecordedFrame(str(path), 5, "Tiles.trim"), RecordedFrame(str(path), 3, outer)),
    )
    source = SourceLines(str(tmp_path), time.time_ns() + 10**15)
    reported = with_source_hint(build.session, diagnose(build.session), source)
    assert reported.root is not None
    hint = (
        "see whether rank 0 holds that lock itself, by `with self.lock` (line 2 of tiles.py): take an "
        "RLock, or lock once"
    )
    assert (reported.root.advice == hint) == (
        outer == "Tiles.get"
    )  # `self` of another class has its own


RETRYING = """\
def step():
    all_reduce(w)
def main():
    for attempt in range(3):
        try:
            step()
        except OSError:
            log("again")
    all_reduce(loss)
"""


@pytest.mark.parametrize("leaves", [False, True])
def test_a_retry_that_only_the_odd_rank_is_in_is_the_hint(tmp_path: Path, leaves: bool) -> None:
    path = tmp_path / "retry.py"
    path.write_text(RETRYING.replace('log("again")', "raise") if leaves else RETRYING)
    build = SessionBuilder(3)
    inside = f"{path}:2 (step) < {path}:6 (main)"
    for rank in range(3):
        site, size = (inside, 9) if rank == 1 else (f"{path}:9 (main)", 1)
        build.op(rank, "all_reduce", at_s=1, ended_s=2, site=inside)
        build.op(rank, "all_reduce", at_s=3, site=site, dtype="float32", inputs=[(size,)])
    source = SourceLines(str(tmp_path), time.time_ns() + 10**15)
    reported = with_source_hint(build.session, diagnose(build.session), source)
    assert reported.root is not None
    assert reported.root.kind is FindingKind.MISMATCH
    is_retry = reported.root.advice.startswith(
        "see whether rank 1 repeats its calls by the retry `for attempt in range(3)` (line 4 of retry.py)"
    )
    assert is_retry is not leaves


def test_a_condition_that_does_not_part_two_senders_is_the_hint(tmp_path: Path) -> None:
    path = tmp_path / "grid.py"
    path.write_text("def swap():\n    if coords[0] % 2 == 0:\n        dist.send(x, peer)\n")
    build = SessionBuilder(2)
    for rank in range(2):
        op = build.op(rank, "send", at_s=1, peer=1 - rank, site=f"{path}:3 (swap)")
        build.wait(op, since_s=1)
    session = build.session
    verdict = diagnose(session)
    assert verdict.root is not None
    assert verdict.root.advice.startswith("let one side send while the other receives")
    reported = with_source_hint(
        session, verdict, SourceLines(str(tmp_path), time.time_ns() + 10**15)
    )
    assert reported.root is not None
    assert reported.root.advice == (
        "these ranks took the same branch, under `if coords[0] % 2 == 0` (line 2 of grid.py): it has to part "
        "the two sides of each exchange"
    )


def test_where_a_module_of_the_program_sets_the_timer_is_the_hint(tmp_path: Path) -> None:
    path = tmp_path / "job.py"
    path.write_text("import data\ndef main():\n    dist.all_reduce(data.load())\n")
    (tmp_path / "data.py").write_text("def load():\n    signal.alarm(5)\n    signal.alarm(0)\n")
    build = SessionBuilder(2)
    for rank in range(2):
        build.op(rank, "all_reduce", at_s=1, ended_s=2, site=f"{path}:3 (main)")
    build.end(1, at_s=3, cause="signal", signal=signal.SIGALRM)
    session = build.session
    verdict = diagnose(session)
    assert verdict.root is not None
    assert verdict.root.kind is FindingKind.DEAD_RANK
    reported = with_source_hint(
        session, verdict, SourceLines(str(tmp_path), time.time_ns() + 10**15)
    )
    assert reported.root is not None
    assert (
        reported.root.advice
        == "its timer is set at data.py:2: see on which path it is not cancelled"
    )
    # The launcher has it in place of its own, more general one.
    known = Diagnosis(
        kind="dead rank", what="x", advice=reported.root.advice, traits=reported.root.all_traits
    )
    assert hint_of_end(known) == reported.root.advice
    assert hint_of_end(Diagnosis(kind="dead rank", what="x", advice="look at job.py")) == ""

"""Hints at what some ranks have left, each with twins in which it would be wrong."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from distdbg.diagnose.finding import Finding, FindingKind, Severity, Verdict
from distdbg.render.finding_stacks import tell_stacks
from distdbg.render.hints.case import Case
from distdbg.render.hints.left_behind import by_left_function, by_lock_file
from distdbg.render.source_line import SourceLines
from tests.support.session_builder import SessionBuilder

FIT = """\
def fit(patience):
    for epoch in range(60):
        for start in range(4):
            all_reduce(start)
        if patience.exhausted(epoch):
            break
    return 1
def main():
    fit(patience)
    barrier()
"""
CALLS = "    fit(patience)\n    barrier()"
LOCK = """\
def acquire(path):
    while True:
        try:
            return os.open(path, os.O_EXCL)
        except FileExistsError:
            sleep(1)
def publish(shard):
    acquire("index.lock")
    if shard.is_known:
        return 0
    release("index.lock")
    return 1
def main():
    publish(shard)
    barrier()
"""


def case(folder: Path, text: str, sites: dict[int, str], ranks: tuple[int, ...]) -> Case:
    """A finding that ranks wait for `ranks`; the line of each rank, its callers behind it."""
    path = folder / "job.py"
    path.write_text(text)
    build = SessionBuilder(len(sites))
    for rank, lines in sites.items():
        site = " < ".join(f"{path}:{line}" for line in lines.split(" < "))
        build.op(rank, "all_reduce", at_s=1, site=site)
    root = Finding(
        kind=FindingKind.MISSING_RANK,
        severity=Severity.ERROR,
        what="ranks wait for others, asleep",
        ranks=ranks,
        victims=tuple(rank for rank in sites if rank not in ranks),
    )
    verdict = Verdict(what=root.what, root=root, findings=(root,), roles={}, lacks=())
    source = SourceLines(str(folder), time.time_ns() + 10**15)
    reported = tell_stacks(build.session, verdict, root, source, letters=80)
    return Case(session=build.session, root=root, reported=reported, source=source)


def test_the_exit_of_a_function_in_which_the_others_are(tmp_path: Path) -> None:
    inside = "4 (fit) < 9 (main)"
    found = case(tmp_path, FIT, {0: inside, 1: "10 (main)", 2: inside}, (1,))
    assert by_left_function(found) == (
        "see whether rank 1 left fit() by the `break` under `if patience.exhausted(epoch)` (line 5 of "
        "job.py) before the others: all ranks have to decide that alike"
    )


def test_the_loop_of_that_function_where_nothing_ends_it(tmp_path: Path) -> None:
    text = FIT.replace("break", "sleep(1)")
    inside = "4 (fit) < 9 (main)"
    found = case(tmp_path, text, {0: inside, 1: "10 (main)", 2: inside}, (1,))
    assert by_left_function(found) == (
        "see whether `for start in range(4)` (line 3 of job.py) makes as many rounds on rank 1, which left "
        "it, as on ranks 0,2"
    )


@pytest.mark.parametrize(
    ("text", "sites"),
    [
        # All are in one loop: who is further down may be a round behind.
        (
            FIT.replace(CALLS, "    while x:\n        fit(x)\n        barrier()"),
            {0: "4 (fit) < 10 (main)", 1: "11 (main)"},
        ),
        # Another branch: rank 1 never was there.
        (
            FIT.replace(CALLS, "    if x:\n        fit(x)\n    barrier()"),
            {0: "4 (fit) < 10 (main)", 1: "11 (main)"},
        ),
        # It has yet to come there.
        (FIT, {0: "10 (main)", 1: "4 (fit) < 9 (main)"}),
        # Nothing in common.
        (FIT, {0: "4 (fit) < 9 (main)", 1: "7 (other)"}),
    ],
)  # fmt: skip
def test_who_may_have_come_another_way_has_left_nothing(
    tmp_path: Path, text: str, sites: dict[int, str]
) -> None:
    assert by_left_function(case(tmp_path, text, sites, (1,))) == ""


def test_who_went_on_without_removing_the_lock_file(tmp_path: Path) -> None:
    waits = "6 (acquire) < 8 (publish) < 14 (main)"
    found = case(tmp_path, LOCK, {0: waits, 1: waits, 2: "15 (main)"}, (0, 1))
    assert by_lock_file(found) == (
        "ranks 0-1 wait until a file is gone: see whether rank 2 went on without removing it, by the "
        "`return` under `if shard.is_known` (line 9 of job.py); `with` or `finally` removes it on each way "
        "out"
    )


def test_a_lock_file_that_no_rank_is_past_is_of_an_earlier_run(tmp_path: Path) -> None:
    waits = "6 (acquire) < 8 (publish) < 14 (main)"
    found = case(tmp_path, LOCK, {0: waits, 1: waits}, (0, 1))
    assert by_lock_file(found).endswith("if no rank holds it, an earlier run has left it behind")


def test_another_error_is_no_lock_file(tmp_path: Path) -> None:
    waits = "6 (acquire) < 8 (publish) < 14 (main)"
    text = LOCK.replace("FileExistsError", "FileNotFoundError")
    assert by_lock_file(case(tmp_path, text, {0: waits, 1: "15 (main)"}, (0,))) == ""


def test_without_a_return_between_them_no_line_is_named(tmp_path: Path) -> None:
    waits = "6 (acquire) < 8 (publish) < 14 (main)"
    text = LOCK.replace("return 0", "sleep(1)")
    reported = by_lock_file(case(tmp_path, text, {0: waits, 1: "15 (main)"}, (0,)))
    assert "without removing it; `with`" in reported


STAGE = """\
def forward(count):
    for x in (pull() for _ in range(count)):
        send(x)
def step(count):
    forward(count)
    backward()
def main():
    step(4)
"""


@pytest.mark.parametrize("kind", [FindingKind.DEADLOCK, FindingKind.MISSING_RANK])
def test_of_ranks_of_a_deadlock_one_may_have_left_what_the_other_is_in(
    tmp_path: Path, kind: FindingKind
) -> None:
    sites = {0: "6 (step) < 8 (main)", 1: "2 (forward) < 5 (step) < 8 (main)"}
    found = case(tmp_path, STAGE, sites, (0, 1))
    reported = by_left_function(replace(found, root=replace(found.root, kind=kind)))
    if kind is FindingKind.DEADLOCK:
        assert reported == (
            "see whether `for x in (pull() for _ in range(count))` (line 2 of job.py) makes as many rounds "
            "on rank 0, which left it, as on rank 1"
        )
    else:  # the others have left nothing of theirs
        assert reported == ""

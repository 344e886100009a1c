"""Where the data come from that a line has failed with, with twins in which they are of that line itself."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from distdbg.diagnose.verdict import diagnose
from distdbg.record.format import Exit
from distdbg.render.source_hint import with_source_hint
from distdbg.render.source_line import SourceLines
from tests.support.session_builder import SessionBuilder

JOB = """\
from birds import loader
def step(x, y):
    out = model(x)
    loss = criterion(out, y)
def main():
    for at, (x, y) in enumerate(loader(rank, 32)):
        step(x, y)
"""
BIRDS = """\
def loader(rank, batch):
    for first in range(0, 320, batch):
        yield rows[first], encode(codes[first])
"""


def hint(folder: Path, job: str = JOB, birds: str = BIRDS, raised: str = "IndexError: 8") -> str:
    (folder / "job.py").write_text(job)
    (folder / "birds.py").write_text(birds)
    path = folder / "job.py"
    build = SessionBuilder(2)
    for rank in range(2):
        build.op(rank, "barrier", at_s=1, ended_s=2, site=f"{path}:9 (main)")
    build.exit(1, Exit.RAISED, at_s=3, what=raised, where=f"{path}:4 (step)")
    log = build.session.ranks[1]
    log.left_stack = build.session.stacks[build.stack(f"{path}:4 (step) < {path}:7 (main)")]
    build.end(1, at_s=3.1, cause="exited", exit_code=1)
    source = SourceLines(str(folder), time.time_ns() + 10**15)
    reported = with_source_hint(build.session, diagnose(build.session), source)
    assert reported.root is not None
    return reported.root.advice


def test_the_yield_that_gave_it_is_told(tmp_path: Path) -> None:
    assert hint(tmp_path) == (
        "y comes from `yield rows[first], encode(codes[first])` (line 3 of birds.py): see what rank 1 is "
        "given there"
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    out = model(x)\n", "    out, y = model(x), zeros(8)\n"),  # of that function itself
        ("enumerate(loader(rank, 32))", "enumerate(data)"),
        ("criterion(out, y)", "criterion(out, table[3])"),
    ],
)
def test_data_of_which_that_is_not_known(tmp_path: Path, old: str, new: str) -> None:
    assert " from `yield" not in hint(tmp_path, JOB.replace(old, new))


def test_another_error_and_several_yields_are_none(tmp_path: Path) -> None:
    assert " from `yield" not in hint(tmp_path, raised="OSError: no space")
    assert " from `yield" not in hint(tmp_path, birds=BIRDS + "    yield None, None\n")

"""The line that gives a call what depends on the rank, with twins in which it would be wrong."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from distdbg.diagnose.finding import Finding, FindingKind, Severity
from distdbg.record.recorded_frame import RecordedFrame
from distdbg.render.finding_stacks import ReportedFrame, ReportedStack
from distdbg.render.hints.case import Case
from distdbg.render.hints.rank_values import by_group_choice, by_rank_choice, by_rank_number
from distdbg.render.source_line import SourceLines
from tests.support.session_builder import SessionBuilder


def case(folder: Path, text: str) -> Case:
    """A rank at `all_gather`, called from where ` share(` is."""
    path = folder / "job.py"
    path.write_text(text)
    lines = text.splitlines()
    at = [n for n, line in enumerate(lines, 1) if "all_gather(" in line][:1]
    at += [n for n, line in enumerate(lines, 1) if " share(" in line and "def " not in line]
    frames = tuple(
        ReportedFrame(frame=RecordedFrame(str(path), line, "f"), text=lines[line - 1])
        for line in at
    )
    reported = ReportedStack(ranks=(1,), what="in all_gather", is_cause=True, frames=frames)
    root = Finding(kind=FindingKind.MISMATCH, severity=Severity.ERROR, what="x", ranks=(1,))
    source = SourceLines(str(folder), time.time_ns() + 10**15)
    return Case(session=SessionBuilder(2).session, root=root, reported=[reported], source=source)


def hint(folder: Path, text: str) -> str:
    one = case(folder, text)
    return by_rank_choice(one) or by_rank_number(one)


RETURNED = """\
def tokens_of(rank):
    return np.ones(4 if rank == 0 else 3)
def main():
    tokens = tokens_of(dist.get_rank())
    dist.all_gather(blocks, tokens)
"""
MUTATED = """\
def main(rank):
    shapes = [(4, 2), (2,)]
    if rank == 1:
        shapes.reverse()
    works = [dist.all_gather(blocks, np.ones(shape)) for shape in shapes]
"""
CHOSEN = """\
def main(rank):
    rows = [1, 4] if rank == 0 else [1, 3]
    blocks = [np.zeros(count) for count in rows]
    dist.all_gather(blocks, mine)
"""
BRANCH = """\
def main():
    if dist.get_rank() == 0:
        width = 3
    else:
        width = 2
    dist.all_gather(blocks, np.ones(width))
"""
CALLED = """\
def share(tokens, group):
    packed = pack(tokens)
    dist.all_gather(blocks, packed, group=group)
def main(rank):
    count = 4 if is_main else 8
    share(np.ones(count), group=groups[0] if rank else groups[1])
"""
OBJECT = """\
class Model:
    def __init__(self, rank):
        if rank:
            self.width = 4
    def step(self):
        dist.all_gather(blocks, np.ones(self.width))
"""


ARGUMENT = """\
def share(count):
    dist.all_gather(blocks, np.ones(count))
def main(rank):
    share(3 if rank == 2 else 4)
"""
CONFIG = """\
class Model:
    def __init__(self, config):
        self.width = config["width"]
    def step(self):
        dist.all_gather(blocks, np.ones(self.width))
def main():
    model = Model(CONFIGS[dist.get_rank()])
"""
COUNTED = """\
def main(rank):
    width = 8 + rank
    dist.all_gather(blocks, np.ones(width))
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (ARGUMENT, "the arguments at job.py:2 depend on the rank: `share(3 if rank == 2 else 4)` (line 4 of "
                   "job.py)"),
        (CONFIG, "the arguments at job.py:5 depend on the rank: `model = Model(CONFIGS[dist.get_rank()])` "
                 "(line 7 of job.py)"),
        (COUNTED, "the arguments at job.py:3 depend on the rank: `width = 8 + rank` (line 2 of job.py)"),
        (RETURNED, "the arguments at job.py:5 depend on the rank: `return np.ones(4 if rank == 0 else 3)` "
                   "(line 2 of job.py)"),
        (MUTATED, "the arguments at job.py:5 depend on the rank: `shapes.reverse()` (line 4 of job.py), "
                  "under `if rank == 1` (line 3)"),
        (CHOSEN, "the arguments at job.py:4 depend on the rank: `rows = [1, 4] if rank == 0 else [1, 3]` "
                 "(line 2 of job.py)"),
        (BRANCH, "the arguments at job.py:6 depend on the rank: `width = 3` (line 3 of job.py), under "
                 "`if dist.get_rank() == 0` (line 2)"),
        (CALLED, "the arguments at job.py:3 depend on the rank: `count = 4 if is_main else 8` (line 5 of "
                 "job.py)"),
        (OBJECT, "the arguments at job.py:6 depend on the rank: `self.width = 4` (line 4 of job.py), under "
                 "`if rank` (line 3)"),
    ],
)  # fmt: skip
def test_the_nearest_line_that_the_rank_decides(tmp_path: Path, text: str, expected: str) -> None:
    assert hint(tmp_path, text) == expected


@pytest.mark.parametrize(
    "text",
    [
        CHOSEN.replace("if rank == 0 else [1, 3]", "if full else [1, 3]"),
        BRANCH.replace("dist.get_rank() == 0", "verbose"),
        # The call stands under that condition as well: who came to it took the same side.
        "def main():\n    if rank:\n        width = 3\n        dist.all_gather(blocks, np.ones(width))\n",
        # What is set later is not what the call was given.
        "def main():\n    dist.all_gather(blocks, mine)\n    mine = 1 if rank else 2\n",
        # A value, and not how many there are.
        "def main(rank):\n    mine = np.full(4, rank)\n    dist.all_gather(blocks, mine)\n",
        # Who takes part is no matter of the size.
        CALLED.replace("4 if is_main else 8", "4"),
    ],
)  # fmt: skip
def test_nothing_is_told_where_the_rank_decides_nothing(tmp_path: Path, text: str) -> None:
    assert hint(tmp_path, text) == ""


ORDER = """\
def main(rank):
    order = [first, second] if rank == 0 else [second, first]
    for group in order:
        dist.all_gather(blocks, mine, group=group)
"""


def test_the_line_that_chooses_the_group_of_a_call_by_the_rank(tmp_path: Path) -> None:
    assert by_group_choice(case(tmp_path, ORDER)) == (
        "the group at job.py:4 depends on the rank: `order = [first, second] if rank == 0 else [second, "
        "first]` (line 2 of job.py)"
    )
    table = ORDER.replace("[first, second] if rank == 0 else [second, first]", "groups[rank]")
    assert "`order = groups[rank]` (line 2 of job.py)" in by_group_choice(case(tmp_path, table))
    of_arrays = ORDER.replace("blocks, mine, group=group", "1 if rank else 2, group=first").replace(
        "if rank == 0", "if wide"
    )
    assert by_group_choice(case(tmp_path, of_arrays)) == ""

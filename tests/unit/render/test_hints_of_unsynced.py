"""The hint at a no_sync() under a condition of each rank's own, with twins in which it would be wrong."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from distdbg.diagnose.verdict import diagnose
from distdbg.render.source_hint import with_source_hint
from distdbg.render.source_line import SourceLines
from tests.support.session_builder import SessionBuilder

ADD = """\
def add(self, tokens):
    self.tokens += tokens.numel()
    full = self.tokens >= self.budget
    quiet = nullcontext() if full else self.model.no_sync()
    with quiet:
        self.loss(tokens).backward()
def main():
    for tokens in batches():
        add(tokens)
    all_reduce(totals, group=metrics)
"""


def hint(folder: Path, text: str, comm: str = "DDP bucket 0: head.bias to embed.weight") -> str:
    """Ranks 0-1 are in a reduction of DDP, rank 2 behind the loop in one of another group."""
    path = folder / "job.py"
    path.write_text(text)
    lines = text.splitlines()
    inside = next(n for n, line in enumerate(lines, 1) if "backward()" in line)
    call = next(
        n for n, line in enumerate(lines, 1) if " add(tokens)" in line and "def" not in line
    )
    behind = next(n for n, line in enumerate(lines, 1) if "all_reduce(" in line)
    build = SessionBuilder(3)
    build.group("metrics", (0, 1, 2))
    build.session.comms.append(comm)
    for rank in range(3):
        group, site = ("world", f"{path}:{inside} (add) < {path}:{call} (main)")
        if rank == 2:
            group, site = ("metrics", f"{path}:{behind} (main)")
        build.op(rank, "all_reduce", at_s=1, group=group, site=site)
        if rank != 2:
            build.session.ranks[rank].ops.comm[-1] = len(build.session.comms) - 1
    source = SourceLines(str(folder), time.time_ns() + 10**15)
    reported = with_source_hint(build.session, diagnose(build.session), source)
    assert reported.root is not None
    return reported.root.advice


def test_the_line_that_decides_is_told_with_what_it_goes_by(tmp_path: Path) -> None:
    assert hint(tmp_path, ADD) == (
        "each rank decides by itself when DDP reduces, by `quiet = nullcontext() if full else "
        "self.model.no_sync()` (line 4 of job.py), where `full = self.tokens >= self.budget` (line 3): all "
        "ranks have to decide that alike"
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("self.tokens >= self.budget", "(self.step + 1) % self.every == 0"),
        ("nullcontext() if full else self.model.no_sync()", "self.model.no_sync()"),
        ("nullcontext() if full else self.model.no_sync()", "nullcontext()"),
    ],
)
def test_a_count_of_rounds_or_no_condition_at_all_is_none(
    tmp_path: Path, old: str, new: str
) -> None:
    assert "no_sync" not in hint(tmp_path, ADD.replace(old, new))


def test_another_op_than_a_reduction_of_ddp_is_none(tmp_path: Path) -> None:
    assert "no_sync" not in hint(tmp_path, ADD, comm="the clip of the norm")

"""The hint at a loop over peers that lacks the one that waits, with twins in which it would be wrong."""

from __future__ import annotations

import time
from pathlib import Path

from distdbg.diagnose.verdict import diagnose
from distdbg.render.source_hint import with_source_hint
from distdbg.render.source_line import SourceLines
from tests.support.session_builder import SessionBuilder

SPREAD = """\
def children(rank):
    return [2, 1]
def spread(array, rank):
    if rank != 0:
        recv(array, src=0)
    for child in children(rank):
        send(array, dst=child)
def main():
    for step in range(9):
        all_reduce(array)
        if step % 3 == 0:
            spread(array, rank)
"""


def hint(folder: Path, text: str) -> str:
    """Rank 0 sends to ranks 2 and 1, and rank 3 waits for its message; the others are in the next op."""
    path = folder / "job.py"
    path.write_text(text)
    lines = text.splitlines()
    at = {word: n for n, line in enumerate(lines, 1) for word in ("send(", "recv(") if word in line}
    sites = {word: f"{path}:{line} (spread) < {path}:12 (main)" for word, line in at.items()}
    build = SessionBuilder(4)
    for rank in (2, 1):
        build.op(0, "send", peer=rank, at_s=1, ended_s=2, site=sites["send("])
        build.op(rank, "recv", peer=0, source=0, at_s=1, ended_s=2, site=sites["recv("])
    for rank in range(3):
        build.op(rank, "all_reduce", at_s=3, site=f"{path}:10 (main)")
    build.op(3, "recv", peer=0, at_s=1, site=sites["recv("])
    source = SourceLines(str(folder), time.time_ns() + 10**15)
    reported = with_source_hint(build.session, diagnose(build.session), source)
    assert reported.root is not None
    assert reported.root.ranks == (0,)
    return reported.root.advice


def test_what_the_loop_goes_over_lacks_the_rank_that_waits(tmp_path: Path) -> None:
    assert hint(tmp_path, SPREAD) == (
        "see what children() gives on rank 0 (lines 1-2 of job.py): `for child in children(rank)` (line 6 of "
        "job.py) has no round for rank 3"
    )
    named = SPREAD.replace("    for child in children(rank)", "    for child in FEW")
    assert hint(tmp_path, named) == (
        "see what FEW holds on rank 0: `for child in FEW` (line 6 of job.py) has no round for rank 3"
    )


def test_the_condition_around_the_caller_skipped_nothing_since_the_rank_came_there(
    tmp_path: Path,
) -> None:
    bare = SPREAD.replace("for child in children(rank):", "for _ in range(2):").replace(
        "dst=child", "dst=next(peers)"
    )
    reported = hint(tmp_path, bare)
    assert "step % 3" not in reported
    assert "has no round" not in reported


def test_what_skips_a_round_of_the_loop_itself_is_told(tmp_path: Path) -> None:
    skips = SPREAD.replace(
        "        send(", "        if child in done:\n            continue\n        send("
    )
    assert "has no round for rank 3" in hint(tmp_path, skips)

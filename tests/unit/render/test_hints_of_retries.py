"""A rank in a later attempt of a retry that all ranks are in, and the twin that has skipped a call."""

from __future__ import annotations

import time
from pathlib import Path

from distdbg.diagnose.finding import Finding
from distdbg.diagnose.verdict import diagnose
from distdbg.render.source_hint import with_source_hint
from distdbg.render.source_line import SourceLines
from tests.support.session_builder import SessionBuilder

STEPS = """\
def step():
    all_reduce(total)
    all_reduce(change)
def main():
    for number in range(20):
        for attempt in range(3):
            try:
                step()
                break
            except OSError:
                sleep(1)
"""


def reported(folder: Path, *attempts: int, text: str = STEPS) -> Finding:
    """All made a step; then rank 2 is at its first line again, the others at the second one."""
    path = folder / "job.py"
    path.write_text(text)
    build = SessionBuilder(3)
    for rank in range(3):
        lines = [2, 3, 2, 2 if rank == 2 else 3]
        for at, line in enumerate(lines, 1):
            end = {"ended_s": at + 0.5} if at < len(lines) else {}
            build.op(
                rank, "all_reduce", at_s=at, site=f"{path}:{line} (step) < {path}:8 (main)",
                dtype="float32", inputs=[(1 if line == 2 else 60,)], **end,
            )  # fmt: skip
        build.session.ranks[rank].left_values = {
            (str(path), 8): {"attempt": f"= {attempts[rank]}", "number": "= 9"}
        }
    source = SourceLines(str(folder), time.time_ns() + 10**15)
    verdict = with_source_hint(build.session, diagnose(build.session), source)
    assert verdict.root is not None
    assert verdict.what == verdict.root.what
    return verdict.root


def test_a_rank_in_a_later_attempt_called_again_and_skipped_nothing(tmp_path: Path) -> None:
    root = reported(tmp_path, 0, 0, 1)
    assert root.what == (
        "rank 2 called all_reduce at job.py:2 again, by a retry; ranks 0-1 are at job.py:3"
    )
    assert root.advice.startswith(
        "see whether rank 2 repeats its calls by the retry `for attempt in range(3)` (line 6 of job.py)"
    )
    assert not any(fact.is_left_out for fact in root.evidence)
    assert "skipped" not in "".join(fact.text for fact in root.evidence)


def test_a_rank_in_the_same_attempt_or_in_no_retry_did_not(tmp_path: Path) -> None:
    assert "again" not in reported(tmp_path, 0, 0, 0).what
    raised = STEPS.replace("sleep(1)", "raise")
    assert "again" not in reported(tmp_path, 0, 0, 1, text=raised).what

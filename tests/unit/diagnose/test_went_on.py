"""A rank that skips a call which had always come next: its later call fits the group, and differs in size."""

from __future__ import annotations

import json

from distdbg.diagnose.finding import Finding
from distdbg.diagnose.verdict import diagnose
from distdbg.record.format import Exit, Status
from tests.support.session_builder import SessionBuilder

GRADIENT, NORM = "/job/x.py:14 (main)", "/job/x.py:6 (clip) < /job/x.py:16 (main)"


def steps(last: list[str], before: list[str]) -> Finding:
    """Four ranks reduce gradient and norm by turns; the last call of rank 3 is the last of `last`."""
    build = SessionBuilder(4)
    for rank in range(4):
        sites = [*before, last[0] if rank != 3 else last[1]]
        for at, site in enumerate(sites, 1):
            is_last = at == len(sites)
            facts = {"type": "MismatchError", "what": "all_reduce differs between ranks", "ranks": [3],
                     "hint": "see the sizes"}  # fmt: skip
            build.op(
                rank, "all_reduce", at_s=at, started_s=at + 0.1, ended_s=at + 0.2, site=site,
                inputs=[(8,)] if site is GRADIENT else [(1,)], error=json.dumps(facts) if is_last else "",
                status=Status.MISMATCH if is_last else Status.OK,
            )  # fmt: skip
        build.exit(rank, Exit.RAISED, at_s=20, what="MismatchError: all_reduce differs")
        build.end(rank, at_s=20.1, cause="exited", exit_code=1)
    root = diagnose(build.session).root
    assert root is not None
    return root


def test_the_call_that_it_skipped_is_the_first_line() -> None:
    root = steps([NORM, GRADIENT], [GRADIENT, NORM, GRADIENT, NORM, GRADIENT])
    assert root.what == (
        "rank 3 skipped all_reduce #6 on group 'world' at x.py:6 (clip); "
        "it called all_reduce at x.py:14 (main)"
    )
    assert root.ranks == (3,)
    assert root.advice.startswith("see why rank 3 did not make that call")


def test_without_a_past_in_which_it_followed_each_time_only_the_difference_is_known() -> None:
    for before in ([GRADIENT], [GRADIENT, NORM, GRADIENT, GRADIENT]):
        assert "skipped" not in steps([NORM, GRADIENT], before).what

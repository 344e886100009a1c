"""A verdict of a running job says who ran out of batches, by the records of the ranks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg.agent.judging.judge import judge_accounts, tell_out_of_batches
from distdbg.agent.judging.live_session import LiveFacts, ReceivedAccount
from distdbg.record.batches import hint_for
from distdbg.record.entries import KIND_LABELS
from distdbg.record.format import Flag
from distdbg.runtime.process.world import current
from tests.support.store_ranks import run_store_ranks

RECV = KIND_LABELS.index("recv")


def train(counts: tuple[int, int]) -> tuple[Path, str]:
    """Where the records are of ranks with so many batches, and the name of their group there."""

    def run(rank: int) -> tuple[Path, str]:
        folder, group = current().run_folder, dist.group.WORLD
        assert folder is not None
        assert group is not None
        for _ in dist.batches(range(counts[rank])):
            try:
                dist.all_reduce(np.ones(2))
            except dist.RankLeft:
                break
        return folder, group.group_name

    return run_store_ranks(run, 2, backend="gloo")[0]


def account_of(group: str) -> dict[str, Any]:
    """Two ranks, each in a recv from the other."""
    rows = [
        {
            "rank": rank, "pid": 100 + rank, "state": "waiting", "since": 2000, "moved": 1000,
            "last": 7, "progress": [[0, 3, 3]], "level": 2,
            "ops": [[7, 1000, 0, 1, 0, RECV, int(Flag.MESSAGE), 1 - rank, 0, 0, 1, 100 + rank, 0]],
        }
        for rank in range(2)
    ]  # fmt: skip
    found = {
        "now": 5000, "host": "a", "world": 2, "groups": [[group, "world", "0-1", "cpu"]],
        "stacks": [[], [["/home/ada/train.py", 88, "step"]]], "forms": [""], "ranks": rows,
    }  # fmt: skip
    copy: dict[str, Any] = json.loads(json.dumps(found))  # as it travels
    return copy


@pytest.mark.parametrize(("counts", "is_reported"), [((4, 3), True), ((3, 3), False)])
def test_a_deadlock_says_who_ran_out_of_batches(counts: tuple[int, int], is_reported: bool) -> None:
    folder, group = train(counts)
    facts = LiveFacts(now_ns=91_000, wall_ns=1_000_000)
    judged = judge_accounts([ReceivedAccount(account_of(group), 90_000)], facts)
    reported = tell_out_of_batches(judged, folder)
    words = "rank 1 ran out of batches at step 4; rank 0 went on"
    assert (reported is not judged) == is_reported
    assert (f"  {words}" in reported.lines) == is_reported
    assert (words in json.dumps(reported.plain)) == is_reported
    assert reported.lines[0] == judged.lines[0]
    assert reported.verdict.root is not None
    assert judged.verdict.root is not None
    assert reported.verdict.root.ranks == judged.verdict.root.ranks == (0, 1)
    assert (reported.verdict.root.advice == hint_for("cpu")) == is_reported

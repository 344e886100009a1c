"""Torch jobs whose ranks do not come together in init_process_group."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.support.jobs import Done, running

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
    pytest.mark.ranks,
    pytest.mark.slow,
]

PROGRAM = """\
import os
from datetime import timedelta
import torch.distributed as dist
rank = int(os.environ["RANK"])
def connect():
    dist.init_process_group("gloo", timeout=timedelta(seconds=3), {arguments})
connect()
"""


def run(folder: Path, arguments: str) -> Done:
    (folder / "meet.py").write_text(PROGRAM.format(arguments=arguments))
    with running(["--nproc-per-node=2", str(folder / "meet.py")], folder, cwd=folder) as job:
        done = job.wait()
    assert job.leftovers() == []
    assert done.code == 1
    return done


def test_ranks_that_gave_up_waiting_for_one_that_was_not_started_are_told_so(
    tmp_path: Path,
) -> None:
    done = run(tmp_path, "world_size=3, rank=rank")
    assert done.report[0].startswith("HUNG: all 2 ranks waited "), done.err
    assert done.report[0].endswith(
        " in init_process_group at meet.py:6 (connect) for rank 2, which was not started"
    )
    hint = "  hint: init_process_group(world_size=3), but 2 ranks were started (WORLD_SIZE=2)"
    assert any(line.startswith(hint) for line in done.report), done.err
    assert "torch_bridge" not in done.err


def test_one_rank_given_twice_is_told(tmp_path: Path) -> None:
    done = run(tmp_path, "world_size=2, rank=0 * rank + 1")
    assert done.report[0].startswith("HUNG: all 2 ranks waited "), done.err
    assert done.report[0].endswith(" for rank 0: ranks 0-1 called it with rank=1"), done.err

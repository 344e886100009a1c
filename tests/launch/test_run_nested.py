"""A rank may start a job of its own: by `distdbg run`, by `spawn`, or by torchrun."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.jobs import RunningJob

pytestmark = pytest.mark.ranks

StartJob = Callable[..., RunningJob]
WriteScript = Callable[[str], str]

JOB_IN_A_RANK = """
import os, subprocess, sys
import distdbg as dist
dist.init_process_group()
size = [None] * dist.get_world_size()
dist.all_gather_object(size, os.environ["DISTDBG_RUN_DIR"])
if len(sys.argv) == 1:
    command = [sys.executable, "-m", "distdbg", "run", "--nproc-per-node=3", __file__, "inner"]
    subprocess.run(command, check=True)
place = " ".join(sys.argv[1:] or ["outer"])
print(f"{place} {dist.get_rank()} {len(size)} {len(set(size))}\\n", end="")
dist.destroy_process_group()
"""

SPAWN_IN_A_RANK = """
import os
import distdbg as dist


def inner(index, outer):
    dist.init_process_group()
    found = [None] * dist.get_world_size()
    dist.all_gather_object(found, outer)
    print(f"{index} {dist.get_rank()} {found}\\n", end="", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    dist.init_process_group()
    dist.spawn(inner, (dist.get_rank(),), nprocs=2)
    dist.destroy_process_group()
"""


@pytest.mark.slow
def test_a_rank_may_run_a_job_of_its_own(start_job: StartJob, write_script: WriteScript) -> None:
    done = start_job("--nproc-per-node=2", write_script(JOB_IN_A_RANK)).wait()
    assert done.code == 0, done.err
    inner = [f"inner {rank} 3 1" for rank in range(3)] * 2
    assert sorted(done.out.splitlines()) == sorted([*inner, "outer 0 2 1", "outer 1 2 1"])


@pytest.mark.slow
def test_a_rank_may_spawn_ranks_of_their_own(
    start_job: StartJob, write_script: WriteScript
) -> None:
    done = start_job("--nproc-per-node=2", write_script(SPAWN_IN_A_RANK)).wait()
    assert done.code == 0, done.err
    assert sorted(done.out.splitlines()) == ["0 0 [0, 0]", "0 0 [1, 1]", "1 1 [0, 0]", "1 1 [1, 1]"]

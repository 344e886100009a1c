"""The ranks of a launcher meet at its store, which outlives each of them."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.support.jobs import RunningJob

pytestmark = pytest.mark.ranks

StartJob = Callable[..., RunningJob]
WriteScript = Callable[[str], str]


@pytest.mark.slow
def test_rank_0_may_end_before_the_others_meet_again(
    start_job: StartJob, write_script: WriteScript
) -> None:
    script = write_script(
        """
import os, time
import distdbg as dist
dist.init_process_group()
rank = dist.get_rank()
pair = dist.new_group([1, 2])
pids = [None] * 3
dist.all_gather_object(pids, os.getpid())
if rank == 0:
    dist.destroy_process_group()
    raise SystemExit
while os.path.exists(f"/proc/{pids[0]}/exe"):
    time.sleep(0.005)
later = dist.new_group([1, 2], use_local_synchronization=True)
found = [None] * 2
dist.all_gather_object(found, rank, group=later)
print(f"{found}\\n", end="")
dist.destroy_process_group()
"""
    )
    done = start_job("--nproc-per-node=3", script).wait()
    assert done.code == 0, done.err
    assert done.out.splitlines() == ["[1, 2]", "[1, 2]"]


def test_each_rank_is_told_the_launchers_store_and_its_own_place(
    start_job: StartJob, write_script: WriteScript
) -> None:
    script = write_script(
        "import json, os\nprint(json.dumps(dict(os.environ)) + '\\n', end='', flush=True)\n"
    )
    own = {"DISTDBG_STORE": "launcher://127.0.0.1:9/other", "DISTDBG_RUN": "other"}
    job = start_job("--nproc-per-node=2", script, environ=own)
    done = job.wait()
    assert done.code == 0, done.err
    first, second = sorted(map(json.loads, done.out.splitlines()), key=lambda e: e["RANK"])
    assert (first["RANK"], second["RANK"]) == ("0", "1")
    assert first["DISTDBG_STORE"] == second["DISTDBG_STORE"] != own["DISTDBG_STORE"]
    assert first["DISTDBG_STORE"].startswith("launcher://127.0.0.1:")
    assert first["DISTDBG_RUN"] == job.run_folder.name
    assert first["DISTDBG_RUN_DIR"] == str(job.run_folder / "attempt_0")
    assert first["DISTDBG_AGENT"] == "0"
    assert first["DISTDBG_TOKEN"] == second["DISTDBG_TOKEN"]
    assert first["MASTER_ADDR"] == "127.0.0.1"


@pytest.mark.slow
def test_two_jobs_on_one_host_do_not_meet(start_job: StartJob, write_script: WriteScript) -> None:
    script = write_script(
        "import os, distdbg as dist\n"
        "dist.init_process_group()\n"
        "found = [None] * 2\n"
        "dist.all_gather_object(found, os.environ['DISTDBG_RUN'])\n"
        "print(f'{len(set(found))} {found[0]}\\n', end='')\n"
    )
    jobs = [start_job("--nproc-per-node=2", script) for _ in range(2)]
    runs = set()
    for job in jobs:
        done = job.wait()
        assert done.code == 0, done.err
        for line in done.out.splitlines():
            count, run = line.split()
            assert count == "1"
            runs.add(run)
    assert len(runs) == 2


@pytest.mark.slow
def test_a_rank_that_could_not_meet_the_others_is_quoted(
    start_job: StartJob, write_script: WriteScript
) -> None:
    script = write_script(
        "import os, sys\n"
        "import distdbg as dist\n"
        "if os.environ['RANK'] == '1':\n"
        "    sys.exit(0)\n"
        "dist.init_process_group(timeout=1)\n"
    )
    done = start_job("--nproc-per-node=2", script).wait()
    assert done.code != 0
    assert "RendezvousError: 1 of 2 ranks joined" in "\n".join(done.report)

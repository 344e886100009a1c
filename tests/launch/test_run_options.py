"""Flags that change where ranks run, what they see, and how launchers meet: each in a job."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.jobs import RunningJob

pytestmark = pytest.mark.ranks

StartJob = Callable[..., RunningJob]
WriteScript = Callable[[str], str]
SCRIPT = """
import json, os
names = ("RANK", "LOCAL_RANK", "CUDA_VISIBLE_DEVICES", "TORCHELASTIC_RUN_ID", "MASTER_PORT")
told = [os.environ.get(name) for name in names]
print(json.dumps([*told, sorted(os.sched_getaffinity(0))]) + "\\n", end="", flush=True)
"""
#: A rendezvous of somebody's own: like one launcher alone, under a name that shows who made it.
OWN_RENDEZVOUS = """
from distdbg.launch.rendezvous.solo import SoloRendezvous

def make(options):
    print("made for", options.rdzv_endpoint, options.rdzv_conf["room"], flush=True)
    return SoloRendezvous(options.rdzv_id)
"""


def facts(job: RunningJob) -> list[list[object]]:
    done = job.wait()
    assert done.code == 0, done.err
    return sorted(json.loads(line) for line in done.out.splitlines() if line.startswith("["))


def test_ranks_are_bound_to_cpus_that_the_job_may_use(
    start_job: StartJob, write_script: WriteScript
) -> None:
    mine = os.sched_getaffinity(0)
    job = start_job("--numa-binding=node", "--nproc-per-node=2", write_script(SCRIPT))
    for *_, cpus in facts(job):
        assert set(cpus) <= mine  # type: ignore[call-overload]


def test_more_ranks_than_cores_are_refused_cores_of_their_own(
    start_job: StartJob, write_script: WriteScript
) -> None:
    count = len(os.sched_getaffinity(0)) + 1
    job = start_job(
        "--numa-binding=exclusive", f"--nproc-per-node={count}", write_script("print('ran')")
    )
    done = job.wait()
    assert (done.code, done.out) == (2, "")
    assert "--numa-binding" in done.err


def test_rules_of_breakpoints_that_are_none_start_no_rank(
    start_job: StartJob, write_script: WriteScript
) -> None:
    job = start_job(
        "--nproc-per-node=2", write_script("print('ran')"), environ={"DISTDBG_BREAK": "on=banana"}
    )
    done = job.wait()
    assert (done.code, done.out) == (2, "")
    assert "the variable DISTDBG_BREAK" in done.err


def test_a_virtual_local_rank_is_0_with_one_gpu(
    start_job: StartJob, write_script: WriteScript
) -> None:
    job = start_job(
        "--virtual-local-rank",
        "--nproc-per-node=2",
        write_script(SCRIPT),
        environ={"CUDA_VISIBLE_DEVICES": "5,7"},
    )
    assert [row[:3] for row in facts(job)] == [["0", "0", "5"], ["1", "0", "7"]]


def test_two_jobs_alone_do_not_meet(start_job: StartJob, write_script: WriteScript) -> None:
    script = write_script(SCRIPT)
    jobs = [start_job("--standalone", "--nproc-per-node=2", script) for _ in range(2)]
    seen = [facts(job) for job in jobs]
    for rows in seen:
        assert [row[0] for row in rows] == ["0", "1"]
        assert len({row[3] for row in rows}) == len({row[4] for row in rows}) == 1
    assert seen[0][0][3] != seen[1][0][3]


def test_a_job_meets_by_a_rendezvous_of_the_users_own(
    start_job: StartJob, write_script: WriteScript, tmp_path: Path
) -> None:
    script = write_script(SCRIPT)
    (tmp_path / "ours.py").write_text(OWN_RENDEZVOUS)
    root = str(Path(__file__).parents[2])
    job = start_job(
        "--rdzv-backend=ours:make",
        "--rdzv-endpoint=anywhere",
        "--rdzv-conf=room=7",
        "--rdzv-id=job",
        script,
        environ={"PYTHONPATH": os.pathsep.join([str(tmp_path), root])},
    )
    done = job.wait()
    assert done.code == 0, done.err
    first, second = done.out.splitlines()
    assert first == "made for anywhere 7"
    assert json.loads(second)[3] == "job"

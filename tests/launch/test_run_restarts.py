"""--max-restarts on one host: what the ranks of each start are told, and what is reported at the end."""

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
#: Meets, says what it was told, and fails in the first so many starts.
SCRIPT = """
import json, os, sys
import distdbg as dist
start = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
dist.init_process_group()
gathered = [None] * dist.get_world_size()
dist.all_gather_object(gathered, start)
told = {name: os.environ[name] for name in os.environ if name.startswith(("TORCHELASTIC_", "MASTER_"))}
told |= {"RANK": os.environ["RANK"], "gathered": gathered, "folder": os.environ["DISTDBG_RUN_DIR"]}
print(json.dumps(told) + "\\n", end="", flush=True)
if dist.get_rank() == 1 and start < int(sys.argv[1]):
    sys.exit(4)
dist.barrier()
dist.destroy_process_group()
"""


def test_a_rank_that_fails_once_fails_nobody(
    start_job: StartJob, write_script: WriteScript
) -> None:
    script = write_script(SCRIPT)
    job = start_job("--nproc-per-node=2", "--max-restarts=3", script, "1")
    done = job.wait()
    assert done.code == 0, done.err
    reported = [json.loads(line) for line in done.out.splitlines()]
    starts = [one["TORCHELASTIC_RESTART_COUNT"] for one in reported]
    assert starts == ["0", "0", "1", "1"]
    assert [one["gathered"] for one in reported] == [[0, 0], [0, 0], [1, 1], [1, 1]]
    assert {one["TORCHELASTIC_MAX_RESTARTS"] for one in reported} == {"3"}
    assert len({one["TORCHELASTIC_RUN_ID"] for one in reported}) == 1
    run = job.run_folder
    assert [one["folder"] for one in reported] == [str(run / f"attempt_{n}") for n in (0, 0, 1, 1)]
    assert [end.exit_code for end in job.ends(0)][1] == 4
    assert [end.exit_code for end in job.ends(1)] == [0, 0]
    for number in (0, 1):
        records = sorted(path.name for path in (run / f"attempt_{number}").glob("*.ddr"))
        assert records == ["rank00000.ddr", "rank00001.ddr"]
    assert done.report == []
    assert done.err.splitlines()[-7:] == [
        "distdbg run: attempt 1 of 4: FAILED: rank 1 exited with code 4",
        "  called sys.exit(4) at script.py:12 (<module>)",
        "  hint: see why script.py:12 ends the process",
        "distdbg run: restarting all ranks (attempt 2 of 4)",
        "distdbg run: attempt 2 of 4 succeeded",
        "  attempt 1 failed: FAILED: rank 1 exited with code 4, at script.py:12",
        f"  next: distdbg analyze --attempt 0 {run.name}",
    ], done.err


def test_ranks_start_anew_when_the_folder_of_the_run_is_gone(
    start_job: StartJob, write_script: WriteScript, tmp_path: Path
) -> None:
    script = write_script(
        "import os, shutil, sys\n"
        "if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0':\n"
        f"    shutil.rmtree({str(tmp_path / 'run')!r})\n"
        "    sys.exit(1)\n"
    )
    job = start_job("--max-restarts=1", f"--run-dir={tmp_path / 'run'}", script)
    done = job.wait()
    assert done.code == 0, done.err
    assert "was removed while the ranks ran" in done.err
    assert (tmp_path / "run" / "attempt_1").is_dir()


@pytest.mark.slow
def test_when_no_restart_is_left_the_report_says_how_many_there_were(
    start_job: StartJob, write_script: WriteScript
) -> None:
    job = start_job("--nproc-per-node=2", "--max-restarts=1", write_script(SCRIPT), "9")
    done = job.wait()
    assert done.code == 4
    assert done.report[0].startswith("FAILED: rank 1 exited with code 4 (host ")
    assert "  restarts used: 1 of 1" in done.report
    assert [end.exit_code for end in job.ends(1)][1] == 4
    assert not (job.run_folder / "attempt_2").exists()


def test_ranks_that_do_not_end_are_ended_before_they_start_anew(
    start_job: StartJob, write_script: WriteScript
) -> None:
    script = write_script(
        "import os, sys, time\n"
        "if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0':\n"
        "    time.sleep(600) if os.environ['RANK'] == '0' else sys.exit(1)\n"
    )
    job = start_job("--nproc-per-node=2", "--max-restarts=1", script)
    done = job.wait()
    assert done.code == 0, done.err
    assert [end.was_asked for end in job.ends(0)] == [True, False]


def test_a_port_that_was_named_serves_every_start(
    start_job: StartJob, write_script: WriteScript, free_port: int
) -> None:
    script = write_script(
        "import os, socket, sys\n"
        "port = int(os.environ['MASTER_PORT'])\n"
        "if os.environ['RANK'] == '0':\n"
        "    socket.create_server((os.environ['MASTER_ADDR'], port))\n"
        "    print(port)\n"
        "sys.exit(os.environ['TORCHELASTIC_RESTART_COUNT'] != '2')\n"
    )
    job = start_job("--nproc-per-node=2", "--max-restarts=2", f"--master-port={free_port}", script)
    done = job.wait()
    assert done.code == 0, done.err
    assert done.out.split() == [str(free_port)] * 3


@pytest.mark.slow
def test_a_job_in_a_named_folder_can_run_there_again(
    start_job: StartJob, write_script: WriteScript, tmp_path: Path
) -> None:
    folder = tmp_path / "here"
    script = write_script(SCRIPT)
    for _ in range(2):
        job = start_job(
            "--nproc-per-node=2", "--max-restarts=1", f"--run-dir={folder}", script, "1"
        )
        done = job.wait()
        assert done.code == 0, done.err
        assert sorted(name for name in os.listdir(folder) if name.startswith("att")) == [
            "attempt_0",
            "attempt_1",
        ]


def test_events_are_lines_of_json_for_who_wants_them(
    start_job: StartJob, write_script: WriteScript
) -> None:
    script = write_script("import os\nos._exit(os.environ['TORCHELASTIC_RESTART_COUNT'] == '0')\n")
    flags = ("--nproc-per-node=2", "--max-restarts=1")
    done = start_job(*flags, "--event-log-handler=console", script).wait()
    assert done.code == 0, done.err
    lines = [json.loads(line) for line in done.err.splitlines() if line.startswith("{")]
    assert [line["event"] for line in lines] == [
        *("start", "end", "end", "restart"),
        *("start", "end", "end", "done"),
    ]
    assert sorted(lines[0]["pids"]) == ["0", "1"]
    assert [lines[1]["exit_code"], lines[-1]["exit_code"]] == [1, 0]
    assert (lines[3]["used"], lines[3]["of"]) == (1, 1)
    quiet = start_job(*flags, script).wait()
    assert not any(line.startswith("{") for line in quiet.err.splitlines())


@pytest.mark.slow
def test_a_job_that_a_person_ends_does_not_start_anew(
    start_job: StartJob, write_script: WriteScript
) -> None:
    script = write_script(
        "import os\n"
        "import numpy as np\n"
        "import distdbg as dist\n"
        "from distdbg.control.page import ControlPage\n"
        "from distdbg.control.words import AbortWords\n"
        "from distdbg.record.host import host_name\n"
        "dist.init_process_group()\n"
        "if dist.get_rank() == 1:\n"
        "    page = ControlPage.open(os.environ['DISTDBG_RUN_DIR'], host_name())\n"
        "    page.abort(AbortWords(what='the data is wrong', by='ada'))\n"
        "    page.close()\n"
        "dist.all_reduce(np.ones(1))\n"
        "dist.all_reduce(np.ones(1))\n"
    )
    done = start_job("--nproc-per-node=2", "--max-restarts=3", script).wait()
    assert done.code == 1
    assert "the data is wrong" in done.report[0], done.report
    assert not any("restarting all ranks" in line for line in done.err.splitlines())


def test_a_job_can_be_ended_while_ranks_wait_for_one_that_never_comes(
    start_job: StartJob, write_script: WriteScript
) -> None:
    script = write_script(
        "import os, time\n"
        "import distdbg as dist\n"
        "from distdbg.control.page import ControlPage\n"
        "from distdbg.control.words import AbortWords\n"
        "from distdbg.errors import JobAborted\n"
        "from distdbg.record.host import host_name\n"
        "folder = os.environ['DISTDBG_RUN_DIR']\n"
        "if os.environ['RANK'] == '1':\n"
        "    page = ControlPage.open(folder, host_name())\n"
        "    while not os.path.exists(f'{folder}/waits'):\n"
        "        time.sleep(0.01)\n"
        "    time.sleep(0.2)  # nothing tells when it is in the wait\n"
        "    page.abort(AbortWords(what='rank 1 never comes', by='ada'))\n"
        "    while not os.path.exists(f'{folder}/over'):\n"
        "        time.sleep(0.01)\n"
        "    raise SystemExit\n"
        "open(f'{folder}/waits', 'w').close()\n"
        "try:\n"
        "    dist.init_process_group()\n"
        "except JobAborted as error:\n"
        "    open(f'{folder}/over', 'w').close()\n"
        "    raise\n"
    )
    job = start_job("--nproc-per-node=2", script)
    done = job.wait()
    assert done.code == 1
    assert "rank 1 never comes" in done.report[0], done.report

"""What can be started: scripts, modules, programs, torch.distributed.launch's old form; and what cannot."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.jobs import Done, RunningJob

pytestmark = pytest.mark.ranks

StartJob = Callable[..., RunningJob]
WriteScript = Callable[[str], str]
SCRIPT = """
import json, os, sys
print(json.dumps([os.environ["LOCAL_RANK"], __name__, sys.argv[1:]]) + "\\n", end="", flush=True)
"""


def said(done: Done) -> list[object]:
    assert done.code == 0, done.err
    return sorted(json.loads(line) for line in done.out.splitlines())


def test_a_script_gets_its_arguments(start_job: StartJob, write_script: WriteScript) -> None:
    done = start_job("--nproc-per-node=2", write_script(SCRIPT), "--x", "-h").wait()
    assert said(done) == [[str(n), "__main__", ["--x", "-h"]] for n in range(2)]


def test_a_module_is_found_as_python_finds_it(
    start_job: StartJob, write_script: WriteScript, tmp_path: Path
) -> None:
    folder = Path(write_script(SCRIPT)).parent
    path = os.pathsep.join([str(folder), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    path = os.pathsep.join([path, str(Path(__file__).parents[2])])
    done = start_job("-m", "--nproc-per-node=2", "script", "a", environ={"PYTHONPATH": path}).wait()
    assert said(done) == [[str(n), "__main__", ["a"]] for n in range(2)]


def test_a_script_runs_by_path(start_job: StartJob, write_script: WriteScript) -> None:
    done = start_job("--run-path", write_script(SCRIPT), "a").wait()
    assert said(done) == [["0", "__main__", ["a"]]]


def test_a_program_runs_without_python(start_job: StartJob) -> None:
    flags = ("--no-python", "--nproc-per-node=2")
    done = start_job(*flags, "sh", "-c", "echo $LOCAL_RANK of $LOCAL_WORLD_SIZE $0 $1", "a").wait()
    assert done.code == 0, done.err
    assert sorted(done.out.splitlines()) == ["0 of 2 a", "1 of 2 a"]


@pytest.mark.parametrize(
    ("flags", "words"),
    [([], lambda n: [f"--local-rank={n}", "a"]), (["--use-env"], lambda n: ["a"])],
    ids=["local-rank", "use-env"],
)
def test_the_old_form_passes_the_local_rank_unless_the_environment_is_wanted(
    start_job: StartJob,
    write_script: WriteScript,
    flags: list[str],
    words: Callable[[int], list[str]],
) -> None:
    done = start_job(
        *flags,
        "--nproc_per_node=2",
        write_script(SCRIPT),
        "a",
        program=("-m", "distdbg.launch"),
    ).wait()
    assert said(done) == [[str(n), "__main__", words(n)] for n in range(2)]


def test_a_script_that_is_missing_is_said_by_python(start_job: StartJob) -> None:
    done = start_job("--nproc-per-node=2", "/nowhere/train.py").wait()
    assert done.code == 2
    assert done.report[0].startswith(("FAILED: ranks 0-1 ", "FAILED: rank "))
    assert "can't open file '/nowhere/train.py'" in done.err


@pytest.mark.parametrize(
    ("make", "hint"),
    [
        (lambda path: None, "cannot start rank0: {path}: No such file or directory"),
        (lambda path: path.write_text("#!/bin/sh\n"), "chmod +x {path}"),
        (
            lambda path: (path.write_text("#!/no/such\n"), path.chmod(0o755)),
            "the interpreter in its first line does not",
        ),
    ],
    ids=["missing", "not executable", "no interpreter"],
)
def test_a_program_that_cannot_be_started_says_why(
    start_job: StartJob, tmp_path: Path, make: Callable[[Path], object], hint: str
) -> None:
    path = tmp_path / "program"
    make(path)
    done = start_job("--no-python", "--nproc-per-node=2", str(path)).wait()
    assert done.code == 2
    assert hint.format(path=path) in done.err


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--nproc-per-node=x", "a.py"], "--nproc-per-node"),
        (["--no-such-flag", "a.py"], "--no-such-flag"),
        ([], "script"),
        (["--nnodes=3:2", "a.py"], "--nnodes"),
        (["--rdzv-backend=etcd", "a.py"], "etcd"),
        (["--rdzv-backend=c10d", "--rdzv-endpoint=:x", "a.py"], "--rdzv-endpoint"),
        (["--log-dir", "/dev/null/x", "a.py"], "/dev/null/x"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_flags_that_are_wrong_start_nothing(
    start_job: StartJob, argv: list[str], words: str
) -> None:
    done = start_job(*argv).wait()
    assert done.code == 2
    assert words in done.err
    assert "Traceback" not in done.err


def test_a_port_that_is_taken_names_who_has_it(
    start_job: StartJob, write_script: WriteScript
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        done = start_job(f"--master-port={port}", write_script(SCRIPT)).wait()
    assert done.code == 5
    assert f"port {port} is held by " in done.err
    assert f"(pid {os.getpid()}" in done.err

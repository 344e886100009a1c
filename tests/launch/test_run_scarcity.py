"""Where something is missing that a launcher wants, it says so, and ends with a code of its own."""

from __future__ import annotations

import os
import resource
import secrets
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.jobs import RunningJob

pytestmark = pytest.mark.ranks

StartJob = Callable[..., RunningJob]
WriteScript = Callable[[str], str]


def test_a_run_folder_that_cannot_be_made_is_named(
    start_job: StartJob, write_script: WriteScript, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    folder = tmp_path / "file" / "runs"
    done = start_job(f"--run-dir={folder}", write_script("print('runs')")).wait()
    assert done.code == 2
    assert done.out == ""
    assert done.err.startswith("ConfigError: the folder of the run cannot be made: "), done.err
    assert str(folder) in done.err
    assert "hint: --run-dir names another one" in done.err


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k,mode=755", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        whose = "this kernel lets nobody" if os.getuid() == 0 else "this user may not"
        pytest.skip(f"{whose} mount a file system")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


PRINTS = (
    "import distdbg as dist, os\n"
    "dist.init_process_group()\n"
    "dist.barrier()\n"
    "print('x' * 200_000, flush=True) if dist.get_rank() else print('fine')\n"
)


def test_a_rank_that_writes_onto_a_full_disk_fails_and_the_report_says_where(
    start_job: StartJob, write_script: WriteScript, full_disk: Path
) -> None:
    script = write_script(PRINTS)
    job = start_job("--nproc-per-node=2", "--redirects=1:1", f"--run-dir={full_disk}", script)
    done = job.wait()
    assert done.code == 1
    assert "this rank continues without a record" in done.err
    assert done.report[0].startswith(
        "FAILED: rank 1 "
    )  # there was no room for its error file either
    assert any(line.startswith("  not written since ") for line in done.report), done.report
    assert "fine" in done.out


def test_output_that_is_shown_as_well_costs_the_file_alone(
    start_job: StartJob, write_script: WriteScript, full_disk: Path
) -> None:
    script = write_script(PRINTS)
    flags = ("--nproc-per-node=2", "--tee=1", f"--log-dir={full_disk}")
    done = start_job(*flags, script).wait()
    assert done.code == 0, done.err
    assert sorted(done.out.splitlines()) == ["[default0]:fine", f"[default1]:{'x' * 200_000}"]
    last = done.err.splitlines()[-1]
    assert last.startswith("distdbg run: not written since "), done.err
    assert "(No space left on device); 1" in last  # of one file, or of both
    assert " KiB of output are missing in " in last


@pytest.mark.slow
@pytest.mark.parametrize("stream", [0, 1, 2], ids=["stdin", "stdout", "stderr"])
def test_a_launcher_without_one_of_its_streams_runs_the_job(
    start_job: StartJob, write_script: WriteScript, tmp_path: Path, stream: int
) -> None:
    file = tmp_path / "said"
    script = write_script(
        f"import os, distdbg as dist\ndist.init_process_group()\nopen({str(file)!r}, 'w').write('x')\n"
    )
    job = start_job("--tee=3", script, before_exec=lambda: os.close(stream))
    done = job.wait()
    assert done.code == 0, done.err
    assert file.read_text() == "x"


def test_a_failure_without_any_stream_still_has_its_code(
    start_job: StartJob, write_script: WriteScript
) -> None:
    def close_all() -> None:
        for fd in range(3):
            os.close(fd)

    job = start_job(
        "--nproc-per-node=2", write_script("raise SystemExit(3)"), before_exec=close_all
    )
    assert job.wait().code == 3


def test_too_few_descriptors_are_said(start_job: StartJob, write_script: WriteScript) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))

    job = start_job(
        "--nproc-per-node=300",
        "--tee=3",
        write_script("import time; time.sleep(600)"),
        before_exec=limit,
    )
    done = job.wait()
    assert done.code == 2
    assert "Too many open files" in done.err
    assert "hint: `ulimit -n`" in done.err
    assert "Traceback" not in done.err


def test_a_launcher_that_can_hardly_open_a_file_says_so(
    start_job: StartJob, write_script: WriteScript
) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (6, 6))

    done = start_job(write_script(""), before_exec=limit).wait()
    assert done.code == 2
    assert done.err.splitlines() == [
        "ConfigError: the launcher cannot continue: Too many open files",
        "  hint: `ulimit -n` says how many files a process may open; raise it",
    ]


@pytest.fixture
def few_processes() -> Iterator[Path]:
    """A cgroup that lets no more than 24 processes and threads in."""
    lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    places = [f"/sys/fs/cgroup/pids{at}" for _, kind, at in lines if "pids" in kind.split(",")]
    places += [f"/sys/fs/cgroup{at}" for number, _, at in lines if number == "0"]
    folder = Path(places[0] if places else "/nowhere") / f"distdbg-test-{secrets.token_hex(4)}"
    try:
        folder.mkdir()
        (folder / "pids.max").write_text("24")
    except OSError as error:
        with suppress(OSError):
            folder.rmdir()
        whose = "this kernel lets nobody" if os.getuid() == 0 else "this user may not"
        pytest.skip(f"{whose} make a cgroup for processes: {error.strerror}")
    yield folder
    folder.rmdir()


def test_too_few_processes_are_said(
    start_job: StartJob, write_script: WriteScript, few_processes: Path
) -> None:
    def enter() -> None:
        (few_processes / "cgroup.procs").write_text(str(os.getpid()))

    script = write_script("import time; time.sleep(600)")
    done = start_job("--nproc-per-node=300", script, before_exec=enter).wait()
    assert done.code == 2, done.err
    assert "cannot start rank" in done.err
    assert "Resource temporarily unavailable" in done.err
    assert "hint: `ulimit -u`" in done.err
    assert "Traceback" not in done.err

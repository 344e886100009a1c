"""What ranks print under the launcher: on its own streams, in files, or both."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.jobs import RunningJob

pytestmark = pytest.mark.ranks

StartJob = Callable[..., RunningJob]
WriteScript = Callable[[str], str]
SCRIPT = """
import os, sys
rank = os.environ["RANK"]
sys.stdout.write(f"out {rank}\\nkeep {rank}\\n")
sys.stdout.flush()
sys.stderr.write(f"err {rank}\\n")
"""


def said(text: str) -> list[str]:
    return sorted(line for line in text.splitlines() if line.split()[-2] in ("out", "keep", "err"))


def logs(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*.log"))
    }


def test_ranks_print_on_the_launchers_streams(
    start_job: StartJob, write_script: WriteScript
) -> None:
    done = start_job("--nproc-per-node=2", write_script(SCRIPT)).wait()
    assert said(done.out) == ["keep 0", "keep 1", "out 0", "out 1"]
    assert [line for line in done.err.splitlines() if line.startswith("err")] in (
        ["err 0", "err 1"],
        ["err 1", "err 0"],
    )


def test_what_is_redirected_is_in_files_only(
    start_job: StartJob, write_script: WriteScript
) -> None:
    job = start_job("--nproc-per-node=2", "--redirects=0:1,1:3", write_script(SCRIPT))
    done = job.wait()
    assert done.out == ""
    assert "err 0" in done.err
    assert "err 1" not in done.err
    assert logs(job.run_folder / "logs" / "attempt_0") == {
        "0/stdout.log": "out 0\nkeep 0\n",
        "1/stderr.log": "err 1\n",
        "1/stdout.log": "out 1\nkeep 1\n",
    }


def test_what_is_teed_is_in_files_and_prefixed_on_the_console(
    start_job: StartJob, write_script: WriteScript, tmp_path: Path
) -> None:
    flags = ("--tee=3", f"--log-dir={tmp_path / 'logs'}", "--role=trainer", "--rdzv-id=job")
    done = start_job("--nproc-per-node=2", *flags, write_script(SCRIPT)).wait()
    assert done.code == 0
    assert sorted(done.out.splitlines()) == [
        f"[trainer{n}]:{word} {n}" for n in range(2) for word in ("keep", "out")
    ]
    assert {f"[trainer{n}]:err {n}" for n in range(2)} <= set(done.err.splitlines())
    found = logs(tmp_path / "logs")
    assert {Path(name).name for name in found} == {"stdout.log", "stderr.log"}
    assert {Path(name).parts[1] for name in found} == {"attempt_0"}
    assert len(found) == 4


def test_a_prefix_can_have_a_template(start_job: StartJob, write_script: WriteScript) -> None:
    template = {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "<${role_name}/${local_rank}/${rank}> "}
    done = start_job("--tee=1", write_script(SCRIPT), environ=template).wait()
    assert done.out == "<default/0/0> out 0\n<default/0/0> keep 0\n"


def test_only_the_ranks_that_are_asked_for_are_shown(
    start_job: StartJob, write_script: WriteScript
) -> None:
    flags = ("--nproc-per-node=3", "--local-ranks-filter=1")
    done = start_job(*flags, write_script(SCRIPT)).wait()
    assert said(done.out) == ["keep 1", "out 1"]


def test_lines_are_duplicated_that_have_a_word(
    start_job: StartJob, write_script: WriteScript
) -> None:
    flags = ("--nproc-per-node=2", "--redirects=3", "--tee=3", "--duplicate-stdout-filters=keep")
    job = start_job(*flags, write_script(SCRIPT))
    assert job.wait().code == 0
    found = logs(job.run_folder / "logs")
    filtered = {name: text for name, text in found.items() if "filtered" in name}
    assert len(filtered) == 1, found.keys()
    assert sorted(next(iter(filtered.values())).splitlines()) == [
        "[default0]:keep 0",
        "[default1]:keep 1",
    ]


def test_all_that_a_rank_printed_before_its_death_is_shown(
    start_job: StartJob, write_script: WriteScript
) -> None:
    script = write_script(
        "import os, signal, sys\n"
        "sys.stdout.write('x' * 100_000 + '\\n' + 'last words')\n"
        "sys.stdout.flush()\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = start_job("--tee=1", script).wait()
    assert done.code == 128 + signal.SIGKILL
    assert done.out.endswith("x\n[default0]:last words\n")
    assert len(done.out) > 100_000


def test_the_end_of_a_kept_stderr_is_in_the_report(
    start_job: StartJob, write_script: WriteScript
) -> None:
    script = write_script("import os, sys\nsys.stderr.write('cannot go on\\n')\nos._exit(7)\n")
    done = start_job("--redirects=3", script).wait()
    assert done.code == 7
    assert done.report[0].startswith("FAILED: rank 0 exited with code 7")
    assert "    cannot go on" in done.report


def test_a_console_that_nobody_reads_any_more_does_not_end_the_job(
    start_job: StartJob, write_script: WriteScript
) -> None:
    reader, writer = os.pipe()
    job = start_job("--tee=1", write_script(SCRIPT), stdout=writer)
    os.close(writer)
    os.close(reader)
    assert job.wait().code == 0
    assert "out 0" in next(iter(logs(job.run_folder / "logs").values()))


def test_standard_input_is_for_the_ranks(start_job: StartJob, write_script: WriteScript) -> None:
    script = write_script("import sys\nprint(sys.stdin.read())")
    job = start_job(script, stdin=subprocess.PIPE)
    out, _ = job.process.communicate(b"from the user", timeout=120)
    assert out == b"from the user\n"

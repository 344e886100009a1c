"""`distdbg top`: what a command line means, and which job it opens."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from distdbg.cli.top import _reached, main, read_choice
from distdbg.errors import DistNetworkError, UsageError
from distdbg.view.snapshot import FeedLink
from tests.support.jobs import running
from tests.tui.made_up import MadeUpFeed, job


@pytest.mark.parametrize(
    ("argv", "what"),
    [
        ("--view nowhere", "--view nowhere: there is none"),
        ("--theme nowhere", "--theme nowhere: there is none"),
        ("--once --size 80", "80"),
        ("--size 80x24", "--size is for --once"),
        ("--port 8000", "--port is for --web"),
        ("--once --web", "one of them"),
        ("--replay --record a.json", "--record keeps what top shows of a running job"),
    ],
)
def test_flags_that_mean_nothing_are_refused(argv: str, what: str) -> None:
    with pytest.raises(UsageError, match=what):
        read_choice(argv.split())


def test_a_view_may_be_cut_short_and_a_picture_is_a_frame() -> None:
    choice = read_choice(["--view", "time", "--svg", "a.svg", "--theme", "light"])
    assert (choice.view, choice.is_once, choice.theme) == ("timeline", True, "textual-light")


def test_where_there_is_no_job_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    with pytest.raises(UsageError, match="no job of this user on this host"):
        main(["--once"])


@pytest.mark.ranks
@pytest.mark.slow
def test_a_job_that_has_just_begun_is_live_and_no_replay(tmp_path: Path) -> None:
    script = tmp_path / "sleeps.py"
    script.write_text("import time; time.sleep(120)\n")
    with running(["--nproc-per-node=1", str(script)], tmp_path, has_agent=True) as lives:
        lives.until(lambda: (lives.run_folder / ".run").exists(), "the folder of the run")
        done = subprocess.run(
            [sys.executable, "-m", "distdbg", "top", "--once", "--size", "80x24"],
            env={**os.environ, "TMPDIR": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        assert done.stdout.splitlines()[0].endswith("live")


@pytest.mark.ranks
@pytest.mark.slow
def test_the_folder_of_a_job_that_lives_shows_the_job(tmp_path: Path) -> None:
    script = tmp_path / "waits.py"
    script.write_text(
        "import time\nimport distdbg as dist\ndist.init_process_group()\ntime.sleep(120)\n"
    )
    folder = tmp_path / "mine"
    flags = ["--nproc-per-node=1", "--run-dir", str(folder), str(script)]
    with running(flags, tmp_path, has_agent=True) as lives:
        lives.until(lambda: any(folder.glob("attempt_0/rank*.ddr")), "a record")
        heads = []
        for shown in (folder, folder / "attempt_0"):
            done = subprocess.run(
                [sys.executable, "-m", "distdbg", "top", shown, "--once", "--size", "80x24"],
                env={**os.environ, "TMPDIR": str(tmp_path)},
                capture_output=True,
                text=True,
                timeout=120,
                check=True,
            )
            heads.append(done.stdout.splitlines()[0])
        assert heads[0].endswith("live")
        assert heads[1].endswith("replay")


def test_a_frame_of_a_job_that_nobody_tells_of_is_a_failure() -> None:
    why = "no agent answers at n14:1: connection refused"
    with pytest.raises(DistNetworkError, match=f"^{why}$"):
        _reached(MadeUpFeed(job(link=FeedLink.JOINING, link_why=why)))
    assert _reached(MadeUpFeed(job(link=FeedLink.LOST))) == 0

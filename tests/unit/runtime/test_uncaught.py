"""What a rank prints of an uncaught exception, below a launcher and without one."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from distdbg.diagnose.load.run_folder import load_run
from distdbg.errors import PeerLost, UsageError
from distdbg.record.folders import user_folder
from distdbg.record.known_marks import THREAD_ERROR
from distdbg.runtime.process.uncaught import know_run, print_in_blocks, text_of

LOST = PeerLost("rank 2 died", peer=2, how="died (signal 9, SIGKILL)", details=["unusable"])


@pytest.fixture(autouse=True)
def is_no_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever other tests have made of this process."""
    monkeypatch.setattr("distdbg.runtime.process.uncaught._runs", [])


def below_launcher(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """A stderr that is no file, of rank 1 of a launcher."""
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("DISTDBG_STORE", "launcher://x")
    return stream


def test_a_victim_prints_one_line_below_a_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    below_launcher(monkeypatch)
    line = "[rank 1] PeerLost: rank 2 died (signal 9, SIGKILL)\n"
    assert text_of(LOST) == line


def test_without_a_launcher_nobody_else_reports_it(monkeypatch: pytest.MonkeyPatch) -> None:
    below_launcher(monkeypatch)
    monkeypatch.delenv("DISTDBG_STORE")
    assert text_of(LOST) == ("[rank 1] distdbg.errors.PeerLost: rank 2 died\n[rank 1]   unusable\n")
    monkeypatch.delenv("RANK")
    assert text_of(LOST) == "distdbg.errors.PeerLost: rank 2 died\n  unusable\n"


def test_a_rank_of_mpiexec_says_which_it_is_and_what_tells_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    below_launcher(monkeypatch)
    monkeypatch.delenv("DISTDBG_STORE")
    monkeypatch.delenv("RANK")
    know_run(2, user_folder() / "20261124-101500-abc")
    assert text_of(LOST).splitlines() == [
        "[rank 2] distdbg.errors.PeerLost: rank 2 died",
        "[rank 2]   unusable",
        "[rank 2] next: distdbg analyze 20261124-101500-abc",
    ]
    assert text_of(UsageError("no group")) == "[rank 2] distdbg.errors.UsageError: no group\n"
    know_run(2, Path("/job/run/attempt_0"))
    assert text_of(LOST).endswith("\n[rank 2] next: distdbg analyze /job/run\n")
    thread = threading.Thread(target=know_run, args=(7, None))  # a rank that is a thread
    thread.start()
    thread.join()
    assert text_of(LOST).startswith("[rank 2] ")


def test_all_is_shown_to_who_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    below_launcher(monkeypatch)
    monkeypatch.setenv("DISTDBG_TRACEBACK", "full")
    assert text_of(LOST).endswith("[rank 1]   unusable\n")
    monkeypatch.setenv("DISTDBG_TRACEBACK", "ful")  # what a rank died of is not lost for that
    assert text_of(LOST).endswith("[rank 1]   unusable\n")


def test_the_log_of_a_rank_has_the_whole_text_and_no_number(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    below_launcher(monkeypatch)
    with open(tmp_path / "stderr.log", "w") as log:
        monkeypatch.setattr(sys, "stderr", log)
        assert text_of(LOST) == "distdbg.errors.PeerLost: rank 2 died\n  unusable\n"


def test_hooks_of_the_program_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    below_launcher(monkeypatch)

    def hook(*args: object) -> None:
        pass

    monkeypatch.setattr(sys, "excepthook", hook)
    monkeypatch.setattr(threading, "excepthook", threading.__excepthook__)
    print_in_blocks()
    assert sys.excepthook is hook
    assert threading.excepthook is not threading.__excepthook__


def test_what_is_raised_in_a_thread_is_one_block(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = below_launcher(monkeypatch)
    monkeypatch.setattr(threading, "excepthook", threading.__excepthook__)
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    print_in_blocks()
    thread = threading.Thread(target=lambda: 1 // 0, name="loader")
    thread.start()
    thread.join()
    lines = stream.getvalue().splitlines()
    assert lines[0] == "[rank 1] Exception in thread loader:"
    assert lines[-1].startswith("[rank 1] ZeroDivisionError")
    assert all(line.startswith("[rank 1]") for line in lines)
    assert os.path.basename(__file__) in stream.getvalue()


def test_a_thread_that_raises_is_in_the_record(tmp_path: Path) -> None:
    code = (
        "import threading, distdbg as dist\n"
        "def read():\n"
        "    raise OSError('bad shard')\n"
        "dist.init_process_group(rank=0, world_size=1, store=dist.HashStore())\n"
        "threading.Thread(target=read, name='loader').start()\n"
    )
    script = tmp_path / "a.py"
    script.write_text(code)
    environ = {**os.environ, "DISTDBG_RUN_DIR": str(tmp_path / "run"), "DISTDBG_AGENT": "0"}
    done = subprocess.run(
        [sys.executable, str(script)], env=environ, capture_output=True, timeout=120, check=True
    )
    assert b"OSError: bad shard" in done.stderr
    [found] = load_run(tmp_path / "run").ranks[0].found
    assert found.what == "thread 'loader' raised OSError: bad shard"
    assert (found.type, found.details) == (THREAD_ERROR, (f"{script}:3 (read)",))


def test_torchs_hook_puts_no_second_number_before_the_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its init_process_group sets a hook that prefixes what the one before has printed."""
    stream = below_launcher(monkeypatch)
    monkeypatch.delattr(sys, "ps1", raising=False)  # a test of consoles may have left it
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    print_in_blocks()
    before = sys.excepthook

    def _distributed_excepthook(*args: Any) -> None:
        old_stderr = sys.stderr
        sys.stderr = buf = io.StringIO()
        try:
            before(*args)
        finally:
            sys.stderr = old_stderr
        sys.stderr.write("".join(f"[rank1]: {line}" for line in buf.getvalue().splitlines(True)))

    _distributed_excepthook(PeerLost, LOST, None)
    assert stream.getvalue() == "[rank 1] PeerLost: rank 2 died (signal 9, SIGKILL)\n"


INTERRUPTED = """\
import os, signal
from distdbg.runtime.process import uncaught

def late(error, whole=uncaught.text_of):
    os.kill(os.getpid(), signal.SIGINT)
    return whole(error)

uncaught.print_in_blocks()
uncaught.text_of = late
raise ValueError("no data")
"""


def test_ctrl_c_does_not_interrupt_a_rank_in_its_last_words() -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert done.stderr.endswith("ValueError: no data\n")
    assert "KeyboardInterrupt" not in done.stderr
    assert "Error in sys.excepthook" not in done.stderr

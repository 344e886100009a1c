"""spawn: results of failures, who is named, and that nothing stays behind."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import distdbg as dist
from distdbg.errors import PeerLost, UsageError
from distdbg.launch.failures import ProcessExitedException, ProcessRaisedException
from distdbg.launch.spawn import spawn, start_processes

pytestmark = pytest.mark.ranks


def write_place(index: int, folder: str) -> None:
    place = [os.environ[name] for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")]
    Path(folder, str(index)).write_text(" ".join(place))


def fail_on_one(index: int) -> None:
    if index == 1:
        raise ValueError("one is unhappy\nand says why")
    threading.Event().wait()


def lose_a_peer(index: int) -> None:
    # Rank 1 fails because of rank 0, but rank 0 takes longer to end.
    if index == 1:
        raise PeerLost("rank 0 died", peer=0)
    signal.sigtimedwait([signal.SIGUSR1], 0.2)
    raise ValueError("the root cause")


def die_by_signal(index: int) -> None:
    if index == 0:
        os.kill(os.getpid(), signal.SIGSEGV)
    threading.Event().wait()


def fail_after_an_op(index: int) -> None:
    dist.init_process_group()
    dist.barrier()
    if index == 1:
        raise ValueError("no data")
    dist.barrier()


def exit_three(_index: int) -> None:
    sys.exit(3)


def raise_at_length(_index: int) -> None:
    raise ValueError("\N{SNOWMAN}" * 1_000_000)


def ignore_sigterm(index: int, folder: str) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Path(folder, str(index)).touch()
    if index == 0:
        wait_for_files(folder, 2)
        raise ValueError("zero is done")
    threading.Event().wait()


def wait_for_files(folder: str, count: int) -> None:
    deadline = time.monotonic() + 120
    while len(os.listdir(folder)) < count:
        assert time.monotonic() < deadline
        time.sleep(0.005)  # nothing tells about a file of another process


def write_pid_and_hang(_index: int, folder: str) -> None:
    Path(folder, f"{os.getpid()}").touch()
    threading.Event().wait()


def test_each_process_knows_its_place(tmp_path: Path) -> None:
    spawn(write_place, (str(tmp_path),), nprocs=2)
    assert [(tmp_path / str(index)).read_text() for index in range(2)] == ["0 0 2 2", "1 1 2 2"]


def test_a_place_given_by_the_environment_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("RANK", "5"), ("LOCAL_RANK", "1"), ("WORLD_SIZE", "8")):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    spawn(write_place, (str(tmp_path),))
    assert (tmp_path / "0").read_text() == "5 1 8 4"


def test_the_failing_process_is_raised_and_the_others_are_ended() -> None:
    with pytest.raises(ProcessRaisedException) as caught:
        spawn(fail_on_one, nprocs=2)
    assert caught.value.error_index == 1
    assert caught.value.what.endswith("raised ValueError: one is unhappy")
    assert "in fail_on_one" in str(caught.value)
    assert "and says why" in caught.value.msg


def test_a_failure_says_where_to_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    monkeypatch.setenv("DISTDBG_RUN_DIR", str(run))
    with pytest.raises(ProcessRaisedException, match="ValueError: no data") as caught:
        spawn(fail_after_an_op, nprocs=2)
    assert str(caught.value).splitlines()[-2:] == [
        f"  run folder: {run}",
        f"  next: distdbg analyze {run}",
    ]


def test_a_lost_peer_is_not_reported_as_the_first_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("distdbg.launch.spawn._ROOT_CAUSE_S", 30.0)  # it ends when rank 0 has
    with pytest.raises(ProcessRaisedException, match="ValueError: the root cause") as caught:
        spawn(lose_a_peer, nprocs=2)
    assert caught.value.error_index == 0


def test_a_signal_is_named() -> None:
    with pytest.raises(ProcessExitedException, match="was terminated by SIGSEGV") as caught:
        spawn(die_by_signal, nprocs=2)
    assert (caught.value.signal_name, caught.value.exit_code) == ("SIGSEGV", -signal.SIGSEGV)
    assert caught.value.error_index == 0


def test_an_exit_code_is_kept() -> None:
    with pytest.raises(ProcessExitedException, match="exited with code 3") as caught:
        spawn(exit_three)
    assert (caught.value.exit_code, caught.value.signal_name) == (3, None)


def test_a_very_long_message_does_not_block_the_process() -> None:
    context = start_processes(raise_at_length, join=False)
    assert context is not None
    context.processes[0].join(timeout=30)  # before anybody reads its report
    assert context.processes[0].exitcode == 1
    with pytest.raises(ProcessRaisedException, match="characters"):
        context.join()


def test_join_with_a_timeout_tells_that_processes_still_run(tmp_path: Path) -> None:
    context = start_processes(write_pid_and_hang, (str(tmp_path),), join=False)
    assert context is not None
    assert context.join(timeout=0.01) is False
    context.processes[0].terminate()
    with pytest.raises(ProcessExitedException, match="SIGTERM"):
        context.join()


def test_a_process_that_ignores_sigterm_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("distdbg.launch.spawn._TERM_S", 0.1)
    context = start_processes(ignore_sigterm, (str(tmp_path),), nprocs=2, join=False)
    assert context is not None
    with pytest.raises(ProcessRaisedException, match="zero is done"):
        context.join()
    assert context.processes[1].exitcode == -signal.SIGKILL


@pytest.mark.parametrize("arguments", [{"nprocs": 0}, {"start_method": "thread"}])
def test_wrong_arguments_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        spawn(exit_three, **arguments)


def test_a_function_that_cannot_be_pickled_leaves_nothing() -> None:
    with pytest.raises(UsageError, match=r"^spawn: fn and args cannot be sent .*lambda") as caught:
        spawn(lambda _: None, nprocs=2)
    assert caught.value.hint is not None
    assert "top of a module" in caught.value.hint


PARENT = """
import os, sys, threading
from distdbg.launch.spawn import spawn

def write_pid_and_hang(_index, folder):
    open(os.path.join(folder, str(os.getpid())), "w").close()
    threading.Event().wait()

def start():
    spawn(write_pid_and_hang, (sys.argv[1],), nprocs=2)

if __name__ == "__main__":
    if sys.argv[2] == "thread":
        thread = threading.Thread(target=start)
        thread.start()
        thread.join()
    else:
        start()
"""


@pytest.mark.parametrize(
    ("starter", "signum"),
    [
        ("main", signal.SIGKILL),
        ("main", signal.SIGINT),
        ("main", signal.SIGTERM),
        ("thread", signal.SIGKILL),
    ],
)
@pytest.mark.slow
def test_no_process_outlives_its_parent(
    tmp_path: Path, starter: str, signum: signal.Signals
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    parent = subprocess.Popen(
        [sys.executable, script, out, starter], stderr=subprocess.DEVNULL, start_new_session=True
    )
    descriptors: list[int] = []
    try:
        wait_for_files(str(out), 2)
        descriptors = [os.pidfd_open(int(name)) for name in os.listdir(out)]
        parent.send_signal(signum)
        with selectors.DefaultSelector() as selector:
            for descriptor in descriptors:
                selector.register(descriptor, selectors.EVENT_READ)
            deadline = time.monotonic() + 120
            while selector.get_map() and time.monotonic() < deadline:
                for key, _ in selector.select(deadline - time.monotonic()):
                    selector.unregister(key.fd)
            assert not selector.get_map()
    finally:
        parent.kill()
        parent.wait()
        for descriptor in descriptors:
            os.close(descriptor)


HANGS = """
import os, sys, threading
import numpy as np
import distdbg as dist

def load(folder):
    open(os.path.join(folder, str(os.getpid())), "w").close()
    threading.Event().wait()

def work(index, folder):
    dist.init_process_group()
    dist.all_reduce(np.ones(1))
    load(folder)

if __name__ == "__main__":
    dist.spawn(work, (sys.argv[1],), nprocs=2)
"""


@pytest.mark.slow
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_program_is_reported_with_what_its_ranks_did(
    tmp_path: Path, signum: signal.Signals
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    script = tmp_path / "hangs.py"
    script.write_text(HANGS)
    environ = {**os.environ, "DISTDBG_RUN_DIR": str(tmp_path / "run"), "DISTDBG_AGENT": "0"}
    parent = subprocess.Popen(
        [sys.executable, script, out], stderr=subprocess.PIPE, text=True, env=environ
    )
    try:
        wait_for_files(str(out), 2)
        parent.send_signal(signum)
        _, printed = parent.communicate(timeout=120)
    finally:
        parent.kill()
        parent.wait()
    assert parent.returncode == -signum  # as without us
    name = "SIGTERM" if signum == signal.SIGTERM else "Ctrl-C (SIGINT)"
    assert f"STOPPED: interrupted by {name}\n  ranks 0-1: last op all_reduce #1" in printed
    assert f"next: distdbg analyze {tmp_path / 'run'}\n" in printed
    assert not any(Path(f"/proc/{pid}").exists() for pid in os.listdir(out))

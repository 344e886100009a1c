"""However somebody ends the launcher: with what code it ends, how soon, and that nothing is left."""

from __future__ import annotations

import getpass
import os
import pty
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from distdbg.cli.main import main
from distdbg.client.live_runs import find_live_runs
from distdbg.launch.agent_link import AGENT, AgentLink
from distdbg.launch.ended import EndedChild
from distdbg.launch.warden import Warden
from distdbg.record.folders import agent_socket
from distdbg.record.host import host_name
from tests.support.jobs import RunningJob

pytestmark = pytest.mark.ranks

PROGRAM = str(Path(__file__).with_name("programs") / "waiting.py")
StartJob = Callable[..., RunningJob]
StartWaiting = Callable[..., RunningJob]


@pytest.fixture
def start_waiting(start_job: StartJob, tmp_path: Path) -> StartWaiting:
    """Starts two ranks, and returns when both wait."""

    def start(*wishes: str, flags: tuple[str, ...] = (), **how: object) -> RunningJob:
        ready = tmp_path / "ready"
        ready.mkdir()
        job = start_job(
            "--nproc-per-node=2", *flags, PROGRAM, *wishes, environ={"READY": str(ready)}, **how
        )
        job.until(lambda: len(os.listdir(ready)) == 2, "both ranks are ready")
        return job

    return start


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"])
def test_a_signal_is_passed_on_and_is_in_the_exit_code(
    start_waiting: StartWaiting, name: str
) -> None:
    job = start_waiting("loud", "family", flags=("--shutdown-timeout=60",))
    began = time.monotonic()
    job.send(signal.Signals[name])
    done = job.wait()
    assert time.monotonic() - began < 30  # nobody had to be killed
    assert done.code == 128 + signal.Signals[name]
    assert sorted(done.out.splitlines()) == [f"rank {rank} got {name}" for rank in range(2)]
    what = "Ctrl-C (SIGINT)" if name == "SIGINT" else name
    assert done.report[0] == f"STOPPED: interrupted by {what}; 2 ranks were terminated"
    assert [end.was_asked for end in job.ends()] == [True, True]
    assert [end.asked_by for end in job.ends()] == [signal.Signals[name]] * 2


def test_a_notice_of_the_scheduler_goes_to_the_ranks(start_waiting: StartWaiting) -> None:
    job = start_waiting("loud", "family")
    job.send(signal.SIGUSR1)
    done = job.wait()
    assert done.code == 0  # the ranks' own handlers end them
    assert sorted(done.out.splitlines()) == [f"rank {rank} got SIGUSR1" for rank in range(2)]
    assert "SIGUSR1 was sent to the launcher; it went on to 2 ranks" in done.err


def test_a_notice_that_no_rank_handles_stops_the_job(start_waiting: StartWaiting) -> None:
    job = start_waiting("family")
    job.send(signal.SIGUSR1)
    done = job.wait()
    assert done.code == 128 + signal.SIGUSR1
    assert done.report[0] == "STOPPED: all 2 ranks were killed by SIGUSR1 at once, from outside"


@pytest.mark.slow
def test_who_asked_for_the_end_of_a_job_is_named(
    start_waiting: StartWaiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = start_waiting(has_agent=True)
    monkeypatch.setattr("tempfile.tempdir", str(job.folder))
    job.until(lambda: any(run.socket for run in find_live_runs(host_name())), "the agent listens")
    assert main(["stop", "--yes"]) == 0
    done = job.wait()
    assert done.code == 128 + signal.SIGTERM
    assert f"stopped by {getpass.getuser()} (distdbg stop)" in done.err
    assert "interrupted" not in done.err


@pytest.mark.slow
def test_ranks_that_do_not_hear_are_killed_after_the_shutdown_timeout(
    start_waiting: StartWaiting,
) -> None:
    job = start_waiting("deaf", "family", flags=("--shutdown-timeout=1",))
    began = time.monotonic()
    job.send(signal.SIGTERM)
    done = job.wait()
    assert 1.0 <= time.monotonic() - began < 15.0  # half of the default
    assert done.code == 128 + signal.SIGTERM
    assert {end.signal for end in job.ends()} == {signal.SIGKILL}


def test_a_second_ctrl_c_does_not_wait_any_longer(
    start_waiting: StartWaiting, tmp_path: Path
) -> None:
    job = start_waiting("reported", flags=("--shutdown-timeout=60",))
    began = time.monotonic()
    job.send(signal.SIGINT)
    reported = tmp_path / "ready" / "reported"
    job.until(reported.exists, "the first one is passed on")
    time.sleep(0.3)  # what comes sooner is the same stroke, from the terminal and from a parent
    job.send(signal.SIGINT)
    assert job.wait().code == 128 + signal.SIGINT
    assert time.monotonic() - began < 30.0


def test_a_killed_launcher_takes_everything_with_it(start_waiting: StartWaiting) -> None:
    job = start_waiting("deaf", "family", flags=("--shutdown-timeout=600",))
    job.send(signal.SIGKILL)
    assert job.leftovers() == []


def test_a_closed_terminal_ends_the_job(start_waiting: StartWaiting) -> None:
    master, slave = pty.openpty()

    def take_terminal() -> None:
        os.close(os.open(os.ttyname(slave), os.O_RDWR))  # a session's first is its own

    try:
        streams = {"stdin": slave, "stdout": slave, "stderr": slave}
        job = start_waiting("family", before_exec=take_terminal, **streams)
    finally:
        os.close(slave)
        # A hang-up, and from then on nobody reads what the launcher says.
        with suppress(OSError):
            os.close(master)
    assert job.wait().code == 128 + signal.SIGHUP


def test_a_signal_before_the_ranks_run_ends_the_launcher(start_job: StartJob) -> None:
    # Waits for a second host, which never comes.
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    job = start_job(
        "--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", PROGRAM
    )
    job.until(lambda: is_served(port), "it serves the store where it waits")
    began = time.monotonic()
    job.send(signal.SIGINT)
    done = job.wait()
    assert time.monotonic() - began < 30.0, done
    assert done.code == 128 + signal.SIGINT
    assert done.report[0].startswith("STOPPED: interrupted by Ctrl-C (SIGINT)")


def is_served(port: int) -> bool:
    """Whether somebody listens there; the kernel is asked, for a connection would be an event."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(row[1].endswith(f":{port:04X}") and row[3] == "0A" for row in rows)


def test_a_stopped_rank_is_ended_as_well(start_waiting: StartWaiting) -> None:
    job = start_waiting("loud")
    rank = next(
        pid
        for pid, command in job.processes().items()
        if command.endswith("loud") and "run" not in command
    )
    os.kill(rank, signal.SIGSTOP)
    job.send(signal.SIGTERM)
    done = job.wait()
    assert done.code == 128 + signal.SIGTERM
    assert done.out.count("got SIGTERM") == 2


def test_signals_that_are_not_to_be_handled_have_their_usual_effect(
    start_waiting: StartWaiting,
) -> None:
    job = start_waiting("family", flags=("--signals-to-handle=SIGTERM",))
    job.send(signal.SIGQUIT)
    assert job.wait().code == -signal.SIGQUIT


def test_a_launcher_started_in_the_background_of_a_script_hears_sigterm(
    start_waiting: StartWaiting,
) -> None:
    # A shell without job control starts `command &` with SIGINT and SIGQUIT ignored.
    def ignore() -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    job = start_waiting("loud", before_exec=ignore)
    job.send(signal.SIGTERM)
    assert job.wait().code == 128 + signal.SIGTERM


def test_a_launcher_started_with_signals_blocked_hears_them(start_waiting: StartWaiting) -> None:
    def block() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())

    job = start_waiting("loud", before_exec=block)
    job.send(signal.SIGTERM)
    assert job.wait().code == 128 + signal.SIGTERM


def test_a_launcher_started_with_sigchld_ignored_says_how_its_ranks_ended(
    start_job: StartJob, write_script: Callable[[str], str]
) -> None:
    def ignore() -> None:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)

    script = write_script("raise SystemExit(3)")
    done = start_job("--nproc-per-node=2", script, before_exec=ignore).wait()
    assert done.code == 3
    assert "FAILED: rank" in done.report[0]


@pytest.mark.slow
def test_a_killed_agent_costs_one_line(start_waiting: StartWaiting) -> None:
    job = start_waiting("loud", has_agent=True)
    socket_path = agent_socket(job.run_folder.name, host_name(), str(job.folder))
    job.until(socket_path.exists, "the agent serves")

    def agents() -> set[int]:
        return {pid for pid, command in job.processes().items() if "distdbg.agent" in command}

    (agent,) = agents()
    os.kill(agent, signal.SIGKILL)
    # The launcher hears of it after the warden, and says it before it starts the next one.
    job.until(lambda: agents() - {agent}, "another agent runs")
    job.send(signal.SIGTERM)
    done = job.wait()
    assert done.code == 128 + signal.SIGTERM
    said = [line for line in done.err.splitlines() if "the agent" in line]
    assert len(said) == 1
    assert "the agent of this host was killed by SIGKILL; restarting it" in said[0]


def test_an_agent_that_was_killed_is_known_to_be_gone(tmp_path: Path) -> None:
    # So nobody waits for it at the end of the job.
    with Warden.start() as warden:
        link = AgentLink(warden)
        link.start(tmp_path, "run", "here", {**os.environ, "TMPDIR": str(tmp_path)})
        assert link.is_alive()
        assert warden.signal(AGENT, signal.SIGKILL)
        for ended in wait_for_end(warden):
            link.on_end(ended)
        assert not link.is_alive()
        assert link.is_lost
        assert link.how == "was killed by SIGKILL"


def test_the_names_of_a_run_and_its_host_may_begin_with_a_dash(tmp_path: Path) -> None:
    with Warden.start() as warden:
        link = AgentLink(warden)
        link.start(tmp_path, "-run", "-here", {**os.environ, "TMPDIR": str(tmp_path)})
        socket_path = agent_socket("-run", "-here", str(tmp_path))
        deadline = time.monotonic() + 30.0
        while not socket_path.exists():
            assert not warden.events(0.1), (tmp_path / "agent--here.log").read_text()
            assert time.monotonic() < deadline
        assert warden.signal(AGENT, signal.SIGKILL)
        for ended in wait_for_end(warden):
            link.on_end(ended)


def wait_for_end(warden: Warden) -> list[EndedChild]:
    deadline = time.monotonic() + 30.0
    while not (ends := warden.events(1.0)):
        assert time.monotonic() < deadline, "the warden does not tell of an end"
    return ends


def test_a_killed_warden_ends_the_job_and_says_so(start_waiting: StartWaiting) -> None:
    job = start_waiting("family", has_agent=True)
    warden = next(pid for pid, command in job.processes().items() if "distdbg-warden" in command)
    os.kill(warden, signal.SIGKILL)
    done = job.wait()
    assert done.code == 5
    assert f"(pid {warden}) was killed by SIGKILL" in done.err


def test_nohup_keeps_the_job_when_the_terminal_goes(start_waiting: StartWaiting) -> None:
    def ignore() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    job = start_waiting("loud", before_exec=ignore)
    job.send(signal.SIGHUP)
    job.send(signal.SIGTERM)
    assert job.wait().code == 128 + signal.SIGTERM

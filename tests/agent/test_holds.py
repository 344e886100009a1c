"""A rank in a debugger, as its agent shows it: who holds the clock, who is stopped, and letting it go on."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from distdbg.cli.main import main
from distdbg.client.agent_client import AgentClient
from distdbg.client.feed.connections import RunRoute
from distdbg.client.live_feed import LiveFeed
from distdbg.client.live_runs import find_live_runs
from distdbg.control.holds import hold_of
from distdbg.control.page import ControlPage, read_page
from distdbg.diagnose.finding import FindingKind
from distdbg.diagnose.load.run_folder import load_run
from distdbg.diagnose.verdict import diagnose
from distdbg.errors import UsageError
from distdbg.record.host import host_name
from distdbg.view.feed import Action

#: Rank 0 sits in a debugger before an op whose limit is 2 s; rank 1 waits for it there, once it is told to.
STOPS = """
from distdbg.debugger.session import stop_here
group = dist.new_group()

def step():
    if rank == 0:
        print("outcome", stop_here("before all_reduce #1 on group 'dp'"), flush=True)
    while not os.path.exists(os.path.join(sys.path[0], "held")):
        time.sleep(0.02)
    dist.all_reduce(x, group=group, timeout=2.0)

step()
print("done", flush=True)
dist.destroy_process_group()
"""
#: Rank 1 comes to no op at all; rank 0 waits for it, and says for how long by the wall's clock.
NOBODY_COMES = """
group = dist.new_group()
if rank == 1:
    time.sleep(120)  # never arrives
while not os.path.exists(os.path.join(sys.path[0], "held")):
    time.sleep(0.02)
began = time.monotonic()
try:
    dist.all_reduce(x, group=group, timeout=2.0)
except dist.OpTimeout as error:
    print(f"timed out after {time.monotonic() - began}", flush=True)  # one write
"""


def is_debugged(row: dict[str, Any]) -> bool:
    return bool(row["state"] == "in the debugger")


def stopped_job(start_job: Callable[..., Any]) -> tuple[Any, AgentClient, dict[str, Any]]:
    job = start_job(STOPS)
    client = job.connect()
    row = job.await_row(client, 0, is_debugged)
    (job.folder / "held").touch()
    job.await_row(client, 1, lambda row: row["state"] == "waiting")
    return job, client, row


@pytest.fixture
def stopped(
    start_job: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Any, AgentClient, dict[str, Any]]]:
    job, client, row = stopped_job(start_job)
    monkeypatch.setattr(tempfile, "tempdir", str(job.folder))
    with client:
        yield job, client, row


def await_that(condition: Callable[[], Any], limit_s: float = 120.0) -> bool:
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)  # an agent is asked, it does not call
    return True


@pytest.mark.slow
def test_a_rank_in_the_debugger_is_shown_waited_for_and_told_to_go_on(
    stopped: tuple[Any, AgentClient, dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    job, client, row = stopped
    assert row["why"] == "before all_reduce #1 on group 'dp'"
    assert row["site"].startswith("job.py:")
    assert row["site"].endswith("(step)")
    assert row["op"] == ""
    control = client.ask("about")["control"]
    assert control["is_paused"]
    [hold] = control["holds"]
    assert (hold["kind"], hold["rank"], hold["pid"]) == ("rank", 0, job.processes[0].pid)
    [one] = client.ask("breakpoints")["stopped"]
    assert (one["rank"], one["why"], one["site"]) == (0, row["why"], row["site"])
    assert one["since_s"] > 0

    assert main(["ps"]) == 0
    shown = capsys.readouterr().out
    assert f"the clock is paused for rank 0, in the debugger at {row['site']}" in shown
    assert "  in the debugger  " in shown
    assert main(["pause"]) == 0
    assert main(["resume"]) == 0
    said = capsys.readouterr().err
    assert f"its clock stands all the same for rank 0, in the debugger at {row['site']}" in said

    time.sleep(2.5)  # longer than rank 1 would wait, did the clock run
    # Rank 1 is seen to wait for rank 0 by name, and nothing is wrong with that.
    answer = client.ask("verdict")
    assert answer["verdict"] is not None
    assert answer["verdict"]["findings"][0]["kind"] == "stall"
    assert answer["lines"][0].startswith(
        f"rank 1 waits for rank 0, in the debugger at {row['site']}"
    )
    assert client.ask("continue")["ranks"] == [0]
    assert [process.wait(120) for process in job.processes] == [0, 0]
    assert "outcome continued\ndone" in job.output(0)
    assert "done" in job.output(1)


def test_a_rank_killed_at_its_prompt_leaves_no_hold_and_is_told_of(
    stopped: tuple[Any, AgentClient, dict[str, Any]],
) -> None:
    job, client, _ = stopped
    page = ControlPage.open(job.run_folder, host_name())
    try:
        assert page.is_paused
        os.kill(job.processes[0].pid, signal.SIGKILL)
        assert await_that(lambda: not page.is_paused)
        row = job.await_row(client, 0, lambda row: row["state"] == "dead")
        assert row["why"].endswith("at the prompt of its debugger")
    finally:
        page.close()
    assert job.processes[1].wait(120) == 1
    assert "PeerLost" in job.output(1)
    folder: Path = job.run_folder
    assert await_that(lambda: list(folder.glob("ended-*")) or list(folder.glob("*end*")))
    root = diagnose(load_run(folder)).root
    assert root is not None
    assert root.kind is FindingKind.DEAD_RANK
    assert "at the prompt of its debugger, at job.py:" in root.what


#: Rank 1 sits at its prompt, rank 0 waits for it in a group that rank 2 is no part of.
ONE_DIES = """
from distdbg.debugger.session import stop_here
group = dist.new_group([0, 1])
if rank == 1:
    stop_here("before all_reduce #1 on group 'dp'")
elif rank == 2:
    time.sleep(120)  # never arrives
if rank < 2:
    dist.all_reduce(x, group=group)
"""


@pytest.mark.slow
def test_a_prompt_stays_when_another_rank_is_killed_and_shows_the_death(
    start_job: Callable[..., Any],
) -> None:
    job = start_job(ONE_DIES, 3)
    with job.connect() as client:
        job.await_row(client, 1, is_debugged)
        job.await_row(client, 0, lambda row: row["state"] == "waiting")
        with closing(job.connect().debug(1)) as sock:
            sock.settimeout(30)
            sock.sendall(b'{"attach": "eva"}\n')
            lines = sock.makefile("rb")
            while b'"prompt"' not in lines.readline():
                pass
            os.kill(job.processes[2].pid, signal.SIGKILL)
            line = lines.readline()
            assert b'{"notice":"*** rank 2 was killed by SIGKILL' in line
            time.sleep(3.0)  # an agent that ends the job does so after one second
            assert is_debugged(job.await_row(client, 1, bool))
            assert not client.ask("about")["control"]["abort"]
            sock.sendall(b'{"id": 1, "eval": "rank"}\n')
            answers = [lines.readline()]
            while b'"id"' not in answers[-1]:
                answers.append(lines.readline())
            assert b'"value":"1"' in answers[-1]
            sock.sendall(b'{"line": "continue"}\n')
        assert job.processes[1].wait(120) is not None


def test_breakpoints_are_armed_listed_and_cleared_by_the_agent(
    start_job: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    job = start_job("time.sleep(120)  # until the test ends it\n", 1)
    monkeypatch.setattr(tempfile, "tempdir", str(job.folder))
    with job.connect() as client:
        assert is_there(job, client)
        assert main(["break", "rank=0, kind=barrier"]) == 0
        shown = capsys.readouterr()
        assert shown.err == "breakpoint 1 is armed\n"
        assert [line.split() for line in shown.out.splitlines()[1:]] == [
            ["id", "rule"],
            ["1", "rank=0,kind=barrier"],
        ]
        assert client.ask("break", rule="on=nan")["id"] == 2
        found = [(one["id"], one["rule"]) for one in client.ask("breakpoints")["rules"]]
        assert found == [(1, "rank=0,kind=barrier"), (2, "on=nan")]
        assert b'"id": 2' in read_page(job.run_folder, host_name()).rules
        assert main(["break", "--clear", "1", job.run_folder.name]) == 0
        assert "1  " not in capsys.readouterr().out
        assert client.ask("break", rule="rank=0")["id"] == 3
        assert main(["break", "--clear", "7"]) == 2
        assert "there is no breakpoint 7" in capsys.readouterr().err
        assert main(["break", "--clear", "all"]) == 0
        assert "no breakpoint is armed" in capsys.readouterr().out
        assert read_page(job.run_folder, host_name()).rules == b""
        assert main(["break", "--continue", "all"]) == 0
        assert "no rank is stopped" in capsys.readouterr().err
        assert main(["break", "--continue", "0"]) == 1
        assert "rank 0 is not in a debugger" in capsys.readouterr().err
        for do in ("arm", "disarm"):
            with pytest.raises(Exception, match="there is no method"):
                client.ask(do, rules={})


def is_there(job: Any, client: AgentClient) -> bool:
    return bool(job.await_row(client, 0, lambda row: row["last_number"] >= 20))


def test_without_an_agent_the_page_of_this_host_is_written(
    start_job: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    job = start_job(STOPS, DISTDBG_AGENT="0")
    monkeypatch.setattr(tempfile, "tempdir", str(job.folder))
    assert await_that(lambda: "stopped at" in job.output(0)), job.output(0)
    (job.folder / "held").touch()
    assert main(["break", "rank=1,kind=barrier"]) == 0
    shown = capsys.readouterr()
    assert "concerns the ranks of this host only" in shown.err
    assert "rank=1,kind=barrier" in shown.out
    assert "before all_reduce #1 on group 'dp'" in shown.out
    assert main(["break", "--clear", "1"]) == 0
    assert main(["break", "--continue", "all"]) == 0
    assert "rank 0 goes on" in capsys.readouterr().err
    assert [process.wait(120) for process in job.processes] == [0, 0]


@pytest.mark.slow
def test_an_op_outlives_a_hold_and_times_out_after_it_when_nobody_comes(
    start_job: Callable[..., Any],
) -> None:
    job = start_job(NOBODY_COMES)
    with job.connect() as client, closing(ControlPage.open(job.run_folder, host_name())) as page:
        held = hold_of(1, job.processes[1].pid)
        assert page.hold(held)
        (job.folder / "held").touch()
        row = job.await_row(client, 0, lambda row: row["state"] == "waiting")
        assert row["state"] == "waiting"
        time.sleep(6)  # three times the limit of the op
        assert job.processes[0].poll() is None
        assert "timed out" not in job.output(0)
        page.release(held)
        assert await_that(lambda: "timed out after" in job.output(0)), job.output(0)
    waited_s = float(job.output(0).split("timed out after")[1].split()[0])
    assert waited_s > 8.0  # the hold and, after it, the limit


def test_a_dashboard_arms_and_clears_breakpoints_by_their_numbers(
    start_job: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = start_job("time.sleep(120)  # until the test ends it\n", 1)
    monkeypatch.setattr(tempfile, "tempdir", str(job.folder))
    with job.connect() as client:
        assert is_there(job, client)
        feed = LiveFeed(RunRoute(find_live_runs(host_name())))
        try:
            assert feed.do(Action.BREAK, rule="rank=0") == "breakpoint 1 is set: rank=0"
            assert feed.do(Action.BREAK, rule="on=nan") == "breakpoint 2 is set: on=nan"
            assert feed.do(Action.CLEAR, id=1) == "breakpoint 1 is cleared"
            assert [one["id"] for one in client.ask("breakpoints")["rules"]] == [2]
            assert feed.do(Action.CLEAR) == "all breakpoints are cleared"
            assert feed.do(Action.CONTINUE, ranks="all") == "no rank is in the debugger"
            assert feed.do(Action.CONTINUE, ranks="0,7").startswith("rank 7 does not: ")
            with pytest.raises(UsageError, match="no list of ranks"):
                feed.do(Action.CONTINUE, ranks="first")
        finally:
            feed.close()

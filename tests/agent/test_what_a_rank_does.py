"""Each way in which a rank can be stuck or end, for real: the agent says which it is."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from distdbg.agent.take_stacks import find_py_spy

STUCK = {
    "stopped": "os.kill(os.getpid(), signal.SIGSTOP)",
    "holds the GIL": "ctypes.PyDLL(None).usleep(60_000_000)",
    "busy": "while True:\n        rank += 0",
    # The parent of a vfork is uninterruptible until its child executes something, or ends.
    "blocked in I/O": "ctypes.CDLL(None).syscall(56, 0x4000 | 17, 0, 0, 0, 0) or time.sleep(600)",
    "asleep": "lock = threading.Lock(); lock.acquire(); lock.acquire()",
}


@pytest.mark.slow
@pytest.mark.skipif(
    os.uname().machine != "x86_64", reason="this kernel has other numbers of system calls"
)
@pytest.mark.parametrize("kind", STUCK)
def test_a_stuck_rank_is_told_by_its_kind_and_line(
    start_job: Callable[..., Any], kind: str
) -> None:
    job = start_job(f"if rank == 1:\n    {STUCK[kind]}\ndist.all_reduce(x)\n")
    with job.connect() as client:
        # Of one that is stopped the line is known once its stack was taken.
        row = job.await_row(client, 1, lambda row: row["state"] == kind and row["site"])
        assert row["state"] == kind, row
        assert row["site"].startswith("job.py:"), row
        assert kind != "stopped" or row["why"] == "by a signal that it sent itself", row
        assert row["progress_age_s"] < 30, row  # how soon: benchmarks/verdict.py
        other = job.await_row(client, 0, lambda row: row["state"] == "waiting")
        assert other["op"].startswith("all_reduce #21 on group"), other


@pytest.mark.slow
def test_a_call_into_c_that_never_ends_holds_the_gil(start_job: Callable[..., Any]) -> None:
    # In a library: py-spy shows no C functions of an interpreter without symbols, as Debian's is.
    job = start_job(
        "if rank == 1:\n    many = np.ones(100_000, object)\n    np.correlate(many, many, 'full')\n"
        "dist.all_reduce(x)\n"
    )
    with job.connect() as client:
        # py-spy does not see the holder at each look; there are several.
        row = job.await_row(client, 1, lambda row: row["state"] == "holds the GIL", timeout_s=60.0)
        assert row["state"] == "holds the GIL", row
        assert "one call that does not return" in row["why"]


@pytest.mark.slow
def test_without_py_spy_faulthandler_tells_the_same(
    start_job: Callable[..., Any],
) -> None:
    job = start_job(
        "if rank == 1:\n    re.match('(a+)+$', 'a' * 60 + 'b')\ndist.all_reduce(x)\n",
        DISTDBG_STACKS="faulthandler",
    )
    with job.connect() as client:
        row = job.await_row(client, 1, lambda row: row["state"] == "holds the GIL")
        assert row["state"] == "holds the GIL", row
        stacks = client.ask("stacks", timeout_s=10)
    assert set(stacks["how"].values()) == {"faulthandler"}
    lines = [frame["file"] for stack in stacks["stacks"] for frame in stack["frames"]]
    assert any(line.endswith("job.py") for line in lines)


@pytest.mark.slow
def test_a_rank_in_time_sleep_is_asleep(
    start_job: Callable[..., Any],
) -> None:
    job = start_job(
        "def save_checkpoint():\n    time.sleep(600)\n"
        "if rank == 1:\n    save_checkpoint()\ndist.all_reduce(x)\n"
    )
    with job.connect() as client:
        row = job.await_row(client, 1, lambda row: "save_checkpoint" in row["site"])
        assert (row["state"], row["why"]) == (
            "asleep",
            "in time.sleep, or a wait with a time limit",
        ), row
        assert row["site"].endswith("(save_checkpoint)"), row


@pytest.mark.parametrize(
    ("how", "state", "why"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "dead", "was killed by SIGKILL"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "dead", "was killed by SIGSEGV"),
        ("os.abort()", "dead", "was killed by SIGABRT"),
        ("os._exit(3)", "failed", "exited with code 3"),
        ("raise ValueError('no data')", "failed", "raised ValueError: no data"),
    ],
)
def test_the_end_of_a_rank_is_told_with_its_cause(
    start_job: Callable[..., Any], how: str, state: str, why: str
) -> None:
    # The other rank stays, so that the agent does.
    job = start_job(f"if rank == 1:\n    {how}\ntime.sleep(600)\n")
    with job.connect() as client:
        row = job.await_row(client, 1, lambda row: row["state"] in ("dead", "failed"))
        assert (row["state"], row["why"][: len(why)]) == (state, why), row
        end = client.ask("findings")["ends"][0]
        assert end["rank"] == 1
    assert (job.run_folder / f"ends-{end['host']}.jsonl").read_text().count("\n") == 1


def test_the_agent_leaves_after_the_last_rank_and_not_before(
    start_job: Callable[..., Any],
) -> None:
    # The first rank, which has started it, is killed.
    job = start_job("if rank == 0:\n    os.kill(os.getpid(), signal.SIGKILL)\ntime.sleep(600)\n")
    with job.connect() as client:
        assert job.await_row(client, 0, lambda row: row["state"] == "dead")["state"] == "dead"
        assert job.await_row(client, 1, lambda row: row["state"] == "running")["pid"]
    job.kill()
    job.await_no_agent()


@pytest.mark.skipif(find_py_spy() is None, reason="py-spy is not installed")
def test_stacks_of_ranks_at_one_place_are_said_once(start_job: Callable[..., Any]) -> None:
    job = start_job("if rank == 1:\n    time.sleep(600)\ndist.all_reduce(x)\n", 3)
    with job.connect() as client:
        job.await_row(client, 2, lambda row: row["state"] == "waiting")
        job.await_row(client, 0, lambda row: row["state"] == "waiting")
        mains = [s for s in client.ask("stacks", native=False)["stacks"] if s["is_main"]]
    assert [stack["ranks"] for stack in mains] == [[0, 2], [1]]


def test_an_abort_reaches_ranks_that_wait(start_job: Callable[..., Any]) -> None:
    job = start_job("if rank == 1:\n    time.sleep(600)\ndist.all_reduce(x)\n")
    with job.connect() as client:
        job.await_row(client, 0, lambda row: row["state"] == "waiting")
        client.ask("abort", what="enough", by="ada")
        row = job.await_row(client, 0, lambda row: row["state"] == "failed")
        assert row["why"].startswith("raised JobAborted: the job was aborted by ada: enough"), row


def test_a_rank_that_waits_where_the_dead_one_is_not_is_told_by_the_agent(
    start_job: Callable[..., Any],
) -> None:
    job = start_job(
        "pair = dist.new_group([0, 1])\n"
        "if rank == 2:\n    time.sleep(0.5); os._exit(3)\n"
        "if rank == 1:\n    time.sleep(600)\n"
        "dist.all_reduce(x, group=pair)\n",
        3,
    )
    with job.connect() as client:
        row = job.await_row(client, 0, lambda row: row["state"] == "failed")
        assert "rank 2 exited with code 3" in row["why"], row


def test_a_rank_that_waits_for_an_async_op_is_waiting_at_its_wait(
    start_job: Callable[..., Any],
) -> None:
    job = start_job(
        "if rank == 1:\n    time.sleep(600)\n"
        "works = [dist.all_reduce(x, async_op=True) for _ in range(3)]\n"
        "works[0].wait()\n"
    )
    with job.connect() as client:
        row = job.await_row(client, 0, lambda row: row["state"] == "waiting")
        assert row["state"] == "waiting", row
        assert row["op"].startswith("all_reduce #21 on group"), row
        line = int(row["site"].split(":")[1].split()[0])
        assert "works[0].wait()" in (job.folder / "job.py").read_text().splitlines()[line - 1], row


@pytest.mark.slow
def test_a_message_race_is_found_while_the_job_runs(start_job: Callable[..., Any]) -> None:
    job = start_job(
        "if rank:\n"
        "    dist.send(x, 0)\n"
        "else:\n"
        "    dist.recv(x)\n"
        "    dist.recv(x)\n"
        "time.sleep(600)  # until the test ends it\n",
        3,
        DISTDBG_DEBUG="DETAIL",
    )
    with job.connect() as client:
        client.ask("subscribe", to=["findings"])
        found = next(
            finding
            for event in client.events(30)
            for finding in event.get("findings", ())
            if finding["type"] == "MessageRace"
        )
    assert (found["rank"], found["group"]) == (0, "world")
    assert found["what"].startswith("rank 0's recv at job.py:")
    assert "'s would have matched as well" in found["what"]
    assert len(found["details"]) == 4

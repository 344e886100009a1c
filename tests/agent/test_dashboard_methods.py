"""What a dashboard asks an agent, of ranks that run."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from distdbg.client.agent_client import AgentClient, AgentError

LATE = """
for _ in range(30):
    if rank == 1:
        time.sleep(0.005)
    dist.all_reduce(x, op=dist.ReduceOp.MAX)
if rank == 1:
    time.sleep(600)
dist.all_reduce(np.ones((3, 2), dtype=np.float32))
"""
MESSAGES = """
if rank == 0:
    dist.send(np.ones(6), dst=1, tag=7)
else:
    dist.recv(np.ones(6), src=0, tag=7)
    time.sleep(600)
dist.barrier()
"""


def ask_until(
    client: AgentClient, method: str, is_it: Callable[[Any], bool], **arguments: Any
) -> Any:
    deadline = time.monotonic() + 120
    while True:
        found = client.ask(method, **arguments)
        if is_it(found):
            return found
        assert time.monotonic() < deadline, found
        time.sleep(0.05)  # the ranks move on by themselves


def test_the_ops_of_two_ranks_are_counted_and_the_late_one_is_named(
    start_job: Callable[..., Any],
) -> None:
    job = start_job(LATE)
    with job.connect() as client:
        job.await_row(client, 0, lambda row: row["state"] == "waiting")
        answer = client.ask("counts")
        (row,) = [row for row in answer["counts"] if row["kind"] == "all_reduce"]
        assert (row["group"], row["size"], row["ended"], row["count"]) == ("0", 2, 100, 50)
        assert row["nbytes"] == 100 * 32
        assert row["failed"] == 0
        assert 0 < row["p50_ns"] <= row["p99_ns"] <= row["longest_ns"]
        assert row["bus_nbytes_per_s"] > 0
        assert [rank for rank, _ in row["late"]] == [1]
        assert row["late"][0][1] > 0.5
        assert answer["clock"]["base_ns"] + time.monotonic_ns() == pytest.approx(
            time.time_ns(), abs=5e9
        )
        assert answer["clock"]["error_ns"] in (0, 1)


def test_an_op_is_told_of_every_rank_also_of_one_that_has_not_come(
    start_job: Callable[..., Any],
) -> None:
    job = start_job(LATE)
    with job.connect() as client:
        job.await_row(client, 0, lambda row: row["op"].startswith("all_reduce #51"))
        now_ns = time.time_ns()
        reported = client.ask("op", group="0", seq=51)
        assert (reported["op"], reported["ranks"]) == ("all_reduce #51 on group 'world'", [0, 1])
        here, absent = reported["arrivals"]
        assert absent == {"rank": 1, "has_come": False, "is_overwritten": False}
        assert here["status"] == "in flight"
        assert here["form"] == "float32[3,2], sum"
        assert here["site"].startswith("job.py:")
        assert here["stack"][0].endswith(here["site"])
        assert 0 <= now_ns - here["issued_ns"] < 60e9
        assert here["started_ns"] is None
        earlier = client.ask("op", rank=1, number=here["number"] - 1)
        assert [one["has_come"] for one in earlier["arrivals"]] == [True, True]
        # On a busy host either may be the later one; the first starts when the last is there.
        first, last = sorted(earlier["arrivals"], key=lambda one: one["issued_ns"])
        assert first["issued_ns"] < last["issued_ns"] <= first["started_ns"]
        assert {one["status"] for one in earlier["arrivals"]} == {"ok"}
        never = client.ask("op", group="0", seq=10**6)["arrivals"]
        assert [one["has_come"] for one in never] == [False, False]


def test_both_sides_of_a_message_are_told(start_job: Callable[..., Any]) -> None:
    job = start_job(MESSAGES)
    with job.connect() as client:
        job.await_row(client, 0, lambda row: row["state"] == "waiting")
        ops = client.ask("history", rank=0, most=5)["ops"]
        assert [op["kind"] for op in ops[:2]] == ["barrier", "send"]
        reported = client.ask("op", rank=0, number=ops[1]["number"])
        assert [(one["rank"], one["kind"], one["tag"]) for one in reported["arrivals"]] == [
            (0, "send", 7),
            (1, "recv", 7),
        ]
        assert reported["ranks"] == [0, 1]
        back = client.ask("op", rank=1, number=reported["arrivals"][1]["number"])
        assert [one["rank"] for one in back["arrivals"]] == [1, 0]


@pytest.mark.slow
def test_bars_tell_what_is_new_and_what_has_ended_since(start_job: Callable[..., Any]) -> None:
    job = start_job(
        "while not os.path.exists(os.environ['TMPDIR'] + '/go'):\n    time.sleep(0.01)\n"
        "if rank == 1:\n    time.sleep(0.3)\n"
        "dist.all_reduce(x)\ntime.sleep(600)\n"
    )
    with job.connect() as client:
        job.await_row(client, 1, lambda row: row["last_number"] >= 20)
        first = client.ask("bars", most=10)
        bars = first["bars"]["0"]
        assert len(bars["number"]) == 10
        assert bars["kinds"] == ["all_reduce"]
        assert bars["groups"] == ["0"]
        assert bars["seq"] == list(range(11, 21))
        assert all(
            e >= s >= i >= 0
            for i, s, e in zip(bars["issued"], bars["started"], bars["ended"], strict=True)
        )
        assert client.ask("bars", since=first["next"])["bars"] == {}
        (job.folder / "go").touch()
        going = ask_until(
            client, "bars", lambda reported: "0" in reported["bars"], since=first["next"]
        )
        new = going["bars"]["0"]
        assert new["seq"] == [21]
        later = going
        while new["ended"] == [-1]:
            later = ask_until(
                client, "bars", lambda reported: "0" in reported["bars"], since=later["next"]
            )
            new = later["bars"]["0"]
        assert new["seq"] == [21]
        assert new["status"] == [0]
        assert new["started"][0] > 1e8
        alone = client.ask("bars", ranks=[1], since_ns=time.time_ns() + 10**9)
        assert list(alone["next"]) == ["1"]
        assert alone["bars"] == {}
        clock = client.ask("bars", ranks=[])["clock"]
        assert clock["now_ns"] == pytest.approx(time.time_ns(), abs=5e9)


def test_one_rank_is_told_closely(start_job: Callable[..., Any]) -> None:
    job = start_job(
        "work = None\nif rank == 0:\n    work = dist.all_reduce(x, async_op=True)\n"
        "    work.wait()\ntime.sleep(600)\n"
    )
    with job.connect() as client:
        job.await_row(client, 0, lambda row: row["state"] == "waiting")
        reported = client.ask("rank", rank=0)
        assert reported["argv"][-1].endswith("job.py")
        assert (reported["level"], reported["world_size"], reported["has_record"]) == (
            "detail",
            2,
            True,
        )
        assert reported["threads"] >= 1
        (group,) = reported["groups"]
        assert (group["desc"], group["issued_seq"], group["ended_seq"]) == ("world", 21, 20)
        (wait,) = reported["waits"]
        (op,) = reported["in_flight"]
        assert wait["number"] == op["number"]
        assert wait["site"] != op["site"]
        assert set(reported["lost"].values()) == {0}
        assert client.ask("ranks")["ranks"][0]["threads"] == reported["threads"]


@pytest.mark.slow
def test_without_kept_output_the_log_says_how_to_keep_it(start_job: Callable[..., Any]) -> None:
    job = start_job("time.sleep(600)\n", 1)
    with job.connect() as client:
        reported = client.ask("log")
        assert reported["lines"] == []
        assert not reported["is_kept"]
        assert "`distdbg run --tee 3` or `--redirects 3` keeps it" in reported["why"]


WRONG: list[tuple[str, dict[str, Any]]] = [
    ("bars", {"since": 3}),
    ("bars", {"since": {"0": []}}),
    ("bars", {"since": {"x": [1]}}),
    ("bars", {"since": {"0": [1] * 99}}),
    ("bars", {"most": 10**6}),
    ("bars", {"ranks": "0-3"}),
    ("op", {}),
    ("op", {"group": "0"}),
    ("op", {"group": "0", "seq": 0}),
    ("op", {"rank": 0}),
    ("op", {"rank": 0, "number": 10**9}),
    ("history", {}),
    ("history", {"rank": 9}),
    ("history", {"rank": True}),
    ("history", {"rank": 0, "most": 0}),
    ("rank", {"rank": -1}),
    ("log", {"after": "begin"}),
    ("log", {"most": 10**9}),
]


@pytest.mark.slow
def test_what_is_asked_wrongly_is_refused_in_words(start_job: Callable[..., Any]) -> None:
    job = start_job("time.sleep(600)\n", 1)
    with job.connect() as client:
        job.await_row(client, 0, lambda row: row["last_number"] >= 20)
        for do, arguments in WRONG:
            with pytest.raises(AgentError) as caught:
                client.ask(do, **arguments)
            assert caught.value.type == "UsageError", (do, arguments)

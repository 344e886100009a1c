"""Answers of agents as rows: steady, shared, and put together from several hosts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from distdbg.client.feed.asking import shown
from distdbg.client.feed.dashboard_rows import (
    Usage,
    breakpoint_rows,
    held_by,
    job_hosts,
    rank_rows,
    read_groups,
    read_waits,
    with_gpus,
)
from distdbg.client.feed.details import facts_of, op_detail
from distdbg.client.feed.final import final_rows
from distdbg.diagnose.verdict_document import read_verdict
from distdbg.follow.answers.clock import HostClock
from distdbg.record.rank_state import RankState
from distdbg.view.groups import group_rows
from distdbg.view.snapshot import HostRow, RankRow
from distdbg.view.waits import wait_rows


def row(rank: int, **more: Any) -> dict[str, Any]:
    usual: dict[str, Any] = {
        "rank": rank, "host": "n14", "pid": 4711 + rank, "state": "running", "attempt": 0,
        "state_age_s": 1.0, "progress_age_s": 0.5, "last_number": 3, "seqs": [["world", 3]],
        "op": "", "site": "", "why": "", "cpu_s": 1.0, "rss_nbytes": 100,
    }  # fmt: skip
    return usual | more


def test_rows_that_say_the_same_are_the_same_objects() -> None:
    usage = Usage()
    first = rank_rows([row(0), row(1)], {}, usage, 100.0)
    again = rank_rows(
        [row(0, state_age_s=1.2), row(1, state_age_s=1.3, progress_age_s=0.7)], first, usage, 100.25
    )
    assert again is first
    moved = rank_rows([row(0), row(1, state="waiting")], first, usage, 100.1)
    assert moved[0] is first[0]
    assert moved[1].state is RankState.WAITING
    assert first[0].state_at == 99.0


def test_cpu_is_a_share_over_two_seconds_and_of_one_process() -> None:
    usage = Usage()
    assert usage.share(0, 11, 5.0, 100.0) is None
    assert usage.share(0, 11, 5.5, 101.0) is None
    assert usage.share(0, 11, 6.0, 102.0) == 0.5
    assert usage.share(0, 11, 6.9, 103.0) == 0.5
    assert usage.share(0, 12, 0.1, 104.0) is None


def test_a_state_of_another_version_is_shown_in_its_own_words() -> None:
    (made,) = rank_rows([row(0, state="dreams")], {}, Usage(), 100.0).values()
    assert (made.state, made.why) == (RankState.RUNNING, "dreams")


def test_gpus_of_other_hosts_stay_until_they_say_otherwise() -> None:
    usage = Usage()
    rows = rank_rows([row(0), row(1)], {}, usage, 100.0)
    rows = with_gpus(rows, {"1": [0.5, 1000], "9": [1.0, 1]})
    assert (rows[1].gpu, rows[1].gpu_nbytes) == (0.5, 1000)
    later = rank_rows([row(0, gpu=0.25, gpu_nbytes=7), row(1)], rows, usage, 100.1)
    assert (later[1].gpu, later[1].gpu_nbytes) == (0.5, 1000)
    assert (later[0].gpu, later[0].gpu_nbytes) == (0.25, 7)


def group(rank: int, issued: int, ended: int, broken: str | None = None) -> dict[str, Any]:
    far = {
        "rank": rank,
        "issued_seq": issued,
        "ended_seq": ended,
        "is_closed": False,
        "broken": broken,
    }
    return {
        "name": "0", "desc": "world", "ranks": "0-2", "size": 3, "backend": "cpu",
        "timeout_s": 1800.0, "progress": [far],
    }  # fmt: skip


def test_groups_of_several_hosts_are_one_and_tell_who_waits_for_whom() -> None:
    reported = [group(2, 6, 5), group(0, 7, 6), group(1, 6, 6)]
    groups = group_rows(read_groups(reported))
    assert [g.issued for g in groups] == [{0: 7, 1: 6, 2: 6}]
    rows = rank_rows(
        [row(0, state="waiting", op="all_reduce #7 on group 'world'"), row(1)], {}, Usage(), 9.0
    )
    (wait,) = wait_rows([], None, rows, groups=groups)
    assert (wait.rank, wait.on, wait.since) == (0, (1, 2), 8.0)
    judged = {"rank": 0, "on": [1], "is_any": False, "op": "x", "site": "", "can_go_on": False}
    edges, blocked = read_waits([judged])
    (wait,) = wait_rows(edges, None, rows, blocked=blocked, groups=groups)
    assert (wait.on, wait.can_go_on, wait.since) == ((1,), False, 8.0)


def test_hosts_are_those_of_the_tree_or_the_one_that_answers() -> None:
    tree = {
        "hosts": [{"host": "b", "is_lost": True}, {"host": "a"}, {"host": "c", "has_left": True}]
    }
    assert job_hosts(tree, "a") == (
        HostRow(host="b", is_lost=True), HostRow(host="a"), HostRow(host="c", has_left=True),
    )  # fmt: skip
    assert job_hosts(None, "a") == job_hosts({"hosts": []}, "a") == (HostRow(host="a"),)


def test_who_holds_the_clock_is_said_in_words() -> None:
    holds = [{"kind": "user"}, {"kind": "rank", "rank": 4}, {"kind": "rank", "rank": 3}]
    assert held_by({"is_paused": True, "holds": holds}) == ("the user", "ranks 3-4")
    assert held_by({"is_paused": True}) == ("the user",)
    assert held_by(None) == ()


def test_ranks_at_a_prompt_keep_the_moment_at_which_they_stopped() -> None:
    one = {"rank": 3, "host": "n14", "why": "breakpoint", "site": "train.py:88", "since_s": 2.0}
    armed, stopped = breakpoint_rows(
        {"rules": [{"id": 1, "rule": "x"}], "stopped": [one]}, (), 50.0
    )
    assert armed[0].rule == "x"
    _, later = breakpoint_rows({"rules": [], "stopped": [one | {"since_s": 3.1}]}, stopped, 51.0)
    assert later == stopped


def arrival(rank: int, **more: Any) -> dict[str, Any]:
    usual: dict[str, Any] = {
        "rank": rank, "has_come": True, "issued_ns": 10**9, "started_ns": None, "ended_ns": None,
        "status": "in flight", "op": "all_reduce #7", "form": "float32[4]", "comm": "", "site": "",
        "stack": [], "error": None, "is_message": False,
    }  # fmt: skip
    return usual | more


def test_what_ranks_do_not_call_alike_is_said() -> None:
    here = {"op": "all_reduce #7", "ranks": [0, 1, 2, 3], "arrivals": [arrival(0), arrival(1)]}
    there = {
        "op": "",
        "ranks": [0, 1, 2, 3],
        "arrivals": [arrival(2, form="float32[3]"), {"rank": 3, "has_come": False}],
    }
    detail = op_detail([(here, 0), (there, 10**9)])
    assert detail is not None
    assert detail.says == (
        "rank 3 has not called it",
        "ranks 0-1 are called with float32[4], rank 2 are called with float32[3]",
    )
    assert [one.issued for one in detail.arrivals] == [1.0, 1.0, 2.0, None]
    assert op_detail([]) is None


def test_clocks_of_two_hosts_meet_at_the_root() -> None:
    root = HostClock(base_ns=1000, offset_ns=0, error_ns=1)
    other = HostClock(base_ns=5000, offset_ns=-300, error_ns=20)
    # A monotonic time of 400 there is 100 at the root, whose wall time is 1100.
    assert other.wall_ns(400) + other.shift_to(root) == 1100
    assert HostClock(base_ns=5000).shift_to(root) == 0
    assert HostClock.from_plain(other.plain()) == other
    with pytest.raises(ValueError, match="not a clock"):
        HostClock.from_plain({"base_ns": "now"})


def test_lines_of_programs_are_shown_without_what_a_terminal_would_obey() -> None:
    assert shown("\x1b[31mred\x1b[0m\tend\x1b[2J") == "red     end\\x1b[2J"


def test_who_waits_for_a_deadlock_is_not_its_core() -> None:
    reported = [
        {"rank": rank, "on": [on], "is_any": False, "op": "", "site": "", "can_go_on": False}
        for rank, on in ((0, 1), (1, 0), (2, 1))
    ]
    findings = [{"kind": "deadlock", "ranks": [0, 1]}, {"kind": "dead rank", "ranks": [3]}]
    verdict = read_verdict({"findings": findings})
    edges, blocked = read_waits(reported)
    rows = wait_rows(edges, verdict, {}, blocked=blocked)
    assert [(row.rank, row.can_go_on) for row in rows] == [(0, False), (1, False), (2, True)]
    # Before the verdict is there, what the agent says of the wait.
    assert not any(row.can_go_on for row in wait_rows(edges, None, {}, blocked=blocked))


def test_what_failed_is_told_in_words_not_as_the_record_has_it() -> None:
    error = json.dumps({"type": "OpTimeout", "what": "waited 3.0 s for rank 2", "seq": 21})
    (group_row,) = group_rows(read_groups([group(0, 2, 2, broken=error)]))
    assert group_row.broken == {0: "OpTimeout: waited 3.0 s for rank 2"}
    op = {"op": "all_reduce #21", "status": "timeout", "error": error}
    rank = {
        "has_record": True, "argv": ["a.py"], "level": "info", "distdbg_version": "1",
        "python_version": "3", "groups": [], "waits": [], "lost": {}, "record": "r",
    }  # fmt: skip
    assert ("failed", "all_reduce #21: OpTimeout: waited 3.0 s for rank 2") in facts_of(rank, [op])


def test_a_rank_of_whose_end_nobody_tells_is_gone_since_that_was_seen(tmp_path: Path) -> None:
    (tmp_path / "attempt_0").mkdir()
    rows = {0: RankRow(rank=0, state_at=5.0), 1: RankRow(rank=1, state=RankState.LEFT)}
    ended = final_rows(rows, tmp_path, 70.0)
    assert [(row.state, row.state_at) for row in ended.values()] == [
        (RankState.DEAD, 70.0), (RankState.ENDED, 70.0),
    ]  # fmt: skip
    assert final_rows(rows, None, 70.0) is rows

"""Ranks that died, or ended because of an exception of their own."""

from dataclasses import replace
from typing import Any

import pytest

from distdbg.diagnose.find import dead, stopped
from distdbg.diagnose.finding import Severity
from distdbg.record.ends import BY_SYS_EXIT
from distdbg.record.format import Exit, Status
from distdbg.render.story import story_of
from tests.support.session_builder import SessionBuilder
from tests.unit.diagnose.one_finder import error, find, find_one, texts, trained


@pytest.mark.parametrize(
    ("end", "reported", "advice"),
    [
        ({"cause": "signal", "signal": 9}, "was killed by SIGKILL", "not the kernel's OOM killer"),
        ({"cause": "signal", "signal": 11}, "was killed by SIGSEGV", "native code crashed"),
        (
            {"cause": "signal", "signal": 6, "core_dumped": True},
            "was killed by SIGABRT (core dumped)",
            "the core dump",
        ),
        (
            {"cause": "signal", "signal": 14},
            "was killed by SIGALRM",
            "SIGALRM is a timer of the program itself",
        ),
        ({"cause": "oom", "signal": 9}, "was killed for memory", "more memory"),
        (
            {"cause": "exited", "exit_code": 3},
            "exited with code 3",
            "last lines of stderr of rank 2",
        ),
        ({"cause": "unknown"}, "is gone; how it ended is unknown", "stderr"),
    ],
)
def test_a_dead_rank_is_told_with_how_it_died_and_what_to_do(
    end: dict[str, Any], reported: str, advice: str
) -> None:
    build = trained(4)
    for rank in (0, 1):
        build.op(rank, "all_reduce", at_s=2, site="/job/train.py:80 (step)")
    build.end(2, at_s=2.5, **end)
    finding = find_one(dead, build)
    assert finding.what.startswith(f"rank 2 {reported}")
    assert finding.what.endswith("while ranks 0-1 waited for it in all_reduce #2 on group 'world'")
    assert finding.severity is Severity.ERROR
    assert (finding.ranks, finding.victims, finding.at_ns) == ((2,), (0, 1), 2_500_000_000)
    assert advice in finding.advice
    assert texts(finding)[0].endswith("(host n01, pid 1002)")
    assert (
        texts(finding)[1]
        == "rank 2 last called all_reduce #1 on group 'world' at train.py:80 (step)"
    )


def test_a_killed_rank_that_used_far_more_memory_than_the_others_is_told_so() -> None:
    build = trained(3)
    build.end(1, at_s=2.5, cause="signal", signal=9, max_rss_nbytes=335 << 20)
    for rank in (0, 2):
        build.end(rank, at_s=3, cause="exited", exit_code=1, max_rss_nbytes=49 << 20)
    [finding] = [one for one in find(dead, build) if one.ranks == (1,)]
    assert (
        "rank 1 had used 335.0 MiB of memory at most, the other ranks 49.0 MiB; the kernel's "
        "OOM killer did not end it"
    ) in texts(finding)
    assert finding.advice.startswith("see what takes memory on rank 1 alone")


def test_who_got_no_more_memory_is_told_with_what_the_others_used() -> None:
    build = trained(3)
    build.exit(1, Exit.RAISED, at_s=2, what="MemoryError: 3.4 MiB", where="/job/data.py:7 (load)")
    build.end(1, at_s=2.5, cause="exited", exit_code=1, max_rss_nbytes=595 << 20)
    for rank in (0, 2):
        build.end(rank, at_s=3, cause="exited", exit_code=1, max_rss_nbytes=56 << 20)
    [finding] = [one for one in find(dead, build) if one.ranks == (1,)]
    assert "rank 1 had used 595.0 MiB of memory at most, the other ranks 56.0 MiB" in texts(finding)
    assert finding.advice.startswith("see what grows on rank 1 alone: a list, a cache")


def test_an_exception_of_its_own_is_the_cause_and_those_who_lost_it_are_victims() -> None:
    build = trained(3)
    build.exit(1, Exit.RAISED, at_s=2, what="ValueError: no data", where="/job/data.py:7 (load)")
    build.end(1, at_s=2.4, cause="exited", exit_code=1)
    for rank, at_s in ((0, 2.1), (2, 2.2)):
        lost = error("PeerLost", "rank 1 raised", ranks=[1], how="raised ValueError: no data")
        build.op(rank, "barrier", at_s=1.5, ended_s=at_s, status=Status.PEER_LOST, error=lost)
        build.exit(rank, Exit.RAISED, at_s=at_s, what="PeerLost: rank 1 raised")
        build.end(rank, at_s=2.3, cause="exited", exit_code=1)
    finding = find_one(dead, build)
    assert finding.what == (
        "rank 1 raised ValueError: no data at data.py:7 (load)"
        " while ranks 0,2 waited for it in barrier #2 on group 'world'"
    )
    assert (finding.ranks, finding.victims, finding.at_ns) == ((1,), (0, 2), 2_000_000_000)
    assert finding.evidence[0].site == "data.py:7 (load)"
    assert "the process of rank 1 exited with code 1" in texts(finding)
    assert "rank 0: PeerLost: rank 1 raised" in texts(finding)
    assert "data.py:7 (load)" in finding.advice


def test_an_error_that_says_what_to_do_has_the_better_hint() -> None:
    build = trained(2)
    build.exit(1, Exit.RAISED, at_s=2, what="UsageError: send to oneself", where="/job/a.py:7 (f)")
    build.session.ranks[1].exit_hint = "call irecv before it"
    assert find_one(dead, build).advice == "call irecv before it"


def test_several_ranks_with_one_reason_are_one_finding() -> None:
    build = trained(3)
    for rank in (2, 0):
        build.exit(rank, Exit.RAISED, at_s=3 - rank, what="OSError: disk full", where="a.py:1 (f)")
    finding = find_one(dead, build)
    assert (finding.ranks, finding.at_ns) == ((0, 2), 1_000_000_000)
    assert finding.what == "ranks 0,2 raised OSError: disk full at a.py:1 (f)"


def test_ranks_that_exited_with_a_code_and_no_word_are_each_their_own() -> None:
    build = trained(2)
    for rank in range(2):
        build.end(rank, at_s=2, cause="exited", exit_code=1)
    assert [finding.ranks for finding in find(dead, build)] == [(0,), (1,)]


def test_ranks_that_one_kill_has_ended_are_one_finding_with_what_each_was_in() -> None:
    build = trained(4)
    for rank in (0, 1, 2):
        build.op(rank, "barrier", at_s=2, site="train.py:9 (run)")
    for rank in (2, 0, 3, 1):
        build.end(rank, at_s=5 + rank / 100, cause="signal", signal=9)
    finding = find_one(dead, build)
    assert finding.what == "ranks 0-3 were killed by SIGKILL"
    assert texts(finding)[0] == "ranks 0-3 were killed by SIGKILL, the last 30 ms after the first"
    assert texts(finding)[1].startswith("ranks 0-2 were in barrier #")
    assert finding.advice.startswith("who sent SIGKILL is unknown: ")


def test_a_signal_seconds_after_another_is_its_own() -> None:
    build = trained(4)
    build.end(1, at_s=5, cause="signal", signal=11)
    build.end(2, at_s=9, cause="signal", signal=11)
    assert [finding.ranks for finding in find(dead, build)] == [(1,), (2,)]


def test_sys_exit_is_told_with_its_code_and_words() -> None:
    build = trained(2)
    build.exit(0, Exit.RAISED, at_s=2, what="SystemExit: bad config")
    build.end(0, at_s=2, cause="exited", exit_code=1)
    assert find_one(dead, build).what == "rank 0 exited with code 1: bad config"


@pytest.mark.parametrize(
    "type", ["OpTimeout", "PeerLost", "MismatchError", "NonFiniteError", "JobAborted"]
)
def test_a_rank_that_gives_up_because_of_others_is_no_dead_rank(type: str) -> None:
    build = trained(2)
    build.op(
        0, "barrier", at_s=2, ended_s=3, status=Status.TIMEOUT, error=error(type, "w", ranks=[1])
    )
    build.end(0, at_s=3.2, cause="exited", exit_code=1)  # it caught the error, and went
    build.exit(1, Exit.RAISED, at_s=9, what=f"{type}: it")
    assert find(dead, build) == []


def test_a_watchdog_that_aborts_the_process_after_a_timeout_is_no_cause() -> None:
    build = trained(2)
    build.op(0, "barrier", at_s=2, ended_s=3, status=Status.TIMEOUT)
    build.end(0, at_s=3.2, cause="signal", signal=6)
    assert find(dead, build) == []


def test_an_error_that_was_caught_long_ago_does_not_excuse_a_rank() -> None:
    build = trained(2)
    build.op(0, "barrier", at_s=2, ended_s=3, status=Status.TIMEOUT)
    build.op(0, "barrier", at_s=4, ended_s=5)
    build.end(0, at_s=6, cause="exited", exit_code=1)
    assert find_one(dead, build).ranks == (0,)


def test_ranks_that_the_launcher_ended_are_no_cause() -> None:
    build = trained(3)
    build.end(0, at_s=2, cause="signal", signal=11)
    build.end(1, at_s=2.1, cause="signal", signal=15, was_asked=True)
    build.exit(2, Exit.RAISED, at_s=2.2, what="ValueError: on the way out")
    build.end(2, at_s=2.3, cause="signal", signal=9, was_asked=True)
    assert find_one(dead, build).ranks == (0,)


def test_a_rank_that_failed_before_the_launcher_ended_it_is_the_cause() -> None:
    build = trained(2)
    build.exit(0, Exit.RAISED, at_s=2, what="ValueError: no data")
    build.end(0, at_s=9, cause="signal", signal=15, was_asked=True)
    build.op(1, "barrier", at_s=1.5, ended_s=2.5, status=Status.PEER_LOST)
    build.end(1, at_s=2.6, cause="exited", exit_code=1)
    assert find_one(dead, build).what == "rank 0 raised ValueError: no data"


def test_a_rank_that_passed_its_error_on_is_the_cause_and_not_those_who_raised_it_as_well() -> None:
    build = trained(2)
    build.exit(0, Exit.RAISED, at_s=2, what="CheckpointException: OSError: no room (RANK 1)")
    build.end(0, at_s=3, cause="exited", exit_code=1)
    build.exit(1, Exit.RAISED, at_s=2.1, what="OSError: no room (CheckpointException)")
    build.end(1, at_s=3.1, cause="signal", signal=15, was_asked=True)
    finding = find_one(dead, build)
    assert finding.what == "rank 1 raised OSError: no room (CheckpointException)"


def test_sigterm_at_one_rank_of_many_is_a_dead_rank() -> None:
    build = trained(2)
    build.end(0, at_s=2, cause="signal", signal=15)
    build.op(1, "barrier", at_s=1.5, ended_s=2.5, status=Status.PEER_LOST)
    build.end(1, at_s=2.6, cause="exited", exit_code=1)
    assert find_one(dead, build).what.startswith("rank 0 was killed by SIGTERM")
    assert find(stopped, build) == []


def test_a_rank_that_others_lost_and_of_which_nothing_is_known_is_dead() -> None:
    build = trained(4)
    build.lose(3)
    lost = error("PeerLost", "rank 3 closed it", ranks=[3], how="the connection was reset")
    for rank in (0, 1):
        build.op(rank, "barrier", at_s=2, ended_s=3, status=Status.PEER_LOST, error=lost)
    build.op(2, "barrier", at_s=2)
    finding = find_one(dead, build)
    assert finding.what == (
        "rank 3 was lost by ranks 0-1: the connection was reset; nobody saw how its process ended"
    )
    assert (finding.ranks, finding.victims) == ((3,), (0, 1, 2))


def test_a_lost_rank_whose_own_error_is_known_is_not_dead() -> None:
    build = trained(2)
    build.op(
        0,
        "barrier",
        at_s=2,
        ended_s=3,
        status=Status.PEER_LOST,
        error=error("PeerLost", "rank 1 is gone", ranks=[1]),
    )
    build.op(1, "barrier", group="world", at_s=2, ended_s=2.5, status=Status.TIMEOUT)
    assert find(dead, build) == []


def test_a_code_without_an_exception_is_of_sys_exit() -> None:
    build = trained(4)
    build.exit(2, Exit.RETURNED, at_s=20)
    build.end(2, at_s=20, cause="exited", exit_code=3)
    assert find_one(dead, build).advice == BY_SYS_EXIT
    assert [step.text for step in story_of(build.session, 2)][-2:] == [
        "ended by sys.exit",
        "exited with code 3",
    ]


@pytest.mark.parametrize(("backend", "is_reported"), [("torch-gloo", True), ("distdbg", False)])
def test_who_dies_in_a_recv_of_gloo_may_have_had_no_room(backend: str, is_reported: bool) -> None:
    build = SessionBuilder(2)
    build.session.groups[0] = replace(build.session.groups[0], backend=backend)
    for room, sent in ((12, 12), (12, 16)):  # the first has gone well
        is_last = sent == 16
        ended_s = None if is_last else 1.0
        build.op(0, "send", peer=1, nbytes=sent, ended_s=1.0, is_async=True, site="a.py:8 (main)")
        build.op(
            1, "recv", peer=0, nbytes=room, ended_s=ended_s, is_async=True, site="a.py:9 (main)"
        )
    build.end(1, at_s=2.0, cause="signal", signal=6)
    finding = find_one(dead, build)
    words = "rank 1 was killed by SIGABRT: rank 0 sent it 16 B, its recv has room for 12 B"
    assert finding.what.startswith(words) == is_reported
    sent_at = "rank 0 called send to rank 1 on group 'world' at a.py:8 (main)"
    assert (sent_at in texts(finding)) == is_reported
    assert (
        finding.advice.startswith("gloo ends a rank that has no room for what arrives")
        == is_reported
    )

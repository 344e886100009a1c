"""dist.breakpoint among real ranks and threads; the debugger is a function of the test."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

import distdbg as dist
from distdbg.control.page import ControlPage
from distdbg.control.words import AbortWords
from distdbg.debugger import session
from distdbg.debugger.session import StopOutcome
from distdbg.errors import (
    DebuggerQuit,
    JobAborted,
    MismatchError,
    OpTimeout,
    PeerLost,
    RankLeft,
    UsageError,
)
from distdbg.record.format import Aside
from distdbg.record.host import host_name
from distdbg.record.reader import read_record
from distdbg.runtime.process.world import current

Ranks = Callable[..., list[Any]]


def answer(with_: Callable[[str], StopOutcome] = lambda why: StopOutcome.CONTINUED) -> list[str]:
    """From now on stops of this process are answered so; returns the list that gets their reasons."""
    whys: list[str] = []

    def stop(
        why: str,
        *,
        frame: FrameType | None = None,
        error: BaseException | None = None,
        limit_s: float | None = 3600.0,
    ) -> StopOutcome:
        assert frame is not None
        whys.append(f"{why} in {frame.f_code.co_name}")
        return with_(why)

    session.stop_here = stop
    return whys


def store() -> dist.Store:
    group = dist.group.WORLD
    assert group is not None
    return group.get_group_store()


def keys_left() -> list[str]:
    """After all have passed: what the store still has of breakpoints."""
    dist.barrier()
    return [key for key in store().list_keys() if "breakpoint" in key]


def stops(at: int | list[int]) -> list[Any]:
    dist.init_process_group()
    rank = dist.get_rank()

    def look(why: str) -> StopOutcome:
        store().set(f"at/{rank}", "1")
        return StopOutcome.CONTINUED

    whys = answer(look)
    dist.breakpoint(at)
    named = [at] if isinstance(at, int) else at
    have_stopped = store().check([f"at/{each}" for each in named])
    return [whys, have_stopped, keys_left()]


@pytest.mark.parametrize("at", [0, 2, [0, 2]])
def test_the_named_ranks_stop_and_the_others_wait_for_them(
    ranks: Ranks, at: int | list[int]
) -> None:
    named = [at] if isinstance(at, int) else at
    for rank, found in enumerate(ranks(stops, 3, at=at)):
        assert found == [["breakpoint in stops"] if rank in named else [], True, []]


def skips() -> list[Any]:
    dist.init_process_group()
    whys = answer()
    for _ in range(4):
        dist.breakpoint(skip=2)
        dist.breakpoint(skip=3)
    return [len(whys), keys_left()]


def test_each_line_counts_its_own_skips(ranks: Ranks) -> None:
    assert ranks(skips, 2) == [[3, []], [0, []]]


def quits(how: str) -> list[Any]:
    dist.init_process_group()

    def leave(why: str) -> StopOutcome:
        if how == "raise":
            raise KeyboardInterrupt
        return StopOutcome.QUIT if dist.get_rank() == 1 else StopOutcome.CONTINUED

    answer(leave)
    try:
        dist.breakpoint([0, 1] if how == "quit" else 1)
    except (DebuggerQuit, KeyboardInterrupt) as error:
        what = [type(error).__name__, str(error), getattr(error, "site", "")]
    return [*what, keys_left()]


def test_quitting_ends_it_for_all_with_one_error(ranks: Ranks) -> None:
    first, *others = ranks(quits, 3, how="quit")
    assert others == [first, first]
    name, text, site, left = first
    assert (name, left) == ("DebuggerQuit", [])
    assert text.startswith(
        f"rank 1 quit its debugger in breakpoint #1 at {site}: no rank continues"
    )
    assert site.startswith("test_breakpoint.py:")
    assert site.endswith(" (quits)")


def test_an_exception_out_of_the_debugger_lets_nobody_wait(ranks: Ranks) -> None:
    found = ranks(quits, 2, how="raise")
    assert [each[0] for each in found] == ["DebuggerQuit", "KeyboardInterrupt"]
    assert found[0][1].startswith(
        "rank 1 was ended by KeyboardInterrupt in its debugger in breakpoint #1"
    )


def takes_too_long(how: str) -> list[Any]:
    dist.init_process_group()

    def stay(why: str) -> StopOutcome:
        return StopOutcome.EXPIRED

    answer(stay)
    with pytest.raises(OpTimeout) as caught:
        dist.breakpoint(0, timeout_s=0.2)
    return [caught.value.missing, caught.value.what.partition(": ")[2], keys_left()]


def test_a_stop_that_takes_too_long_is_a_timeout_for_all(ranks: Ranks) -> None:
    for found in ranks(takes_too_long, 2, how=""):
        assert found == [[0], "rank 0 stayed in the debugger for 0.20 s", []]


def name_different_ranks(is_late: bool) -> str:
    dist.init_process_group()

    def wait(why: str) -> StopOutcome:
        if not is_late:
            store().wait(["breakpoint/1/end"])
        return StopOutcome.CONTINUED

    answer(wait)
    if is_late:
        if dist.get_rank() == 1:
            store().wait(["breakpoint/1/end"])
        else:
            dist.breakpoint(0)
            return ""
    with pytest.raises(MismatchError) as caught:
        dist.breakpoint([0, 1] if dist.get_rank() else 0)
    return caught.value.what


def test_ranks_that_name_different_ranks_are_told(ranks: Ranks) -> None:
    what = "ranks called breakpoint #1 with different ranks: rank=[0] and rank=[0, 1]"
    assert ranks(name_different_ranks, 2, is_late=False) == [what, what]
    assert ranks(name_different_ranks, 2, is_late=True) == ["", what]


def loses_a_rank(how: str) -> list[Any]:
    dist.init_process_group()
    rank = dist.get_rank()

    def end(why: str) -> StopOutcome:
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(0)

    answer(end)
    started = time.monotonic()
    with pytest.raises(PeerLost) as caught:
        dist.breakpoint(1)
    took_s = time.monotonic() - started
    return [rank, isinstance(caught.value, RankLeft), caught.value.peer, took_s < 30.0]


def test_who_waits_sees_at_once_that_the_debugged_rank_is_gone(ranks: Ranks) -> None:
    found = ranks(loses_a_rank, 3, how="killed", expect_exit={1: -signal.SIGKILL})
    assert [each and each[1:] for each in found] == [[False, 1, True], None, [False, 1, True]]


def job_is_aborted() -> list[str]:
    dist.init_process_group()

    def abort(why: str) -> StopOutcome:
        folder = current().run_folder
        assert folder is not None
        page = ControlPage.open(folder, host_name())
        page.abort(AbortWords(what="enough", by="ada"))
        page.close()
        store().wait(["never"])  # as a session does, it sees that the job is over
        return StopOutcome.CONTINUED

    answer(abort)
    with pytest.raises(JobAborted) as caught:
        dist.breakpoint()
    return [caught.value.kind, caught.value.what]


def test_an_abort_of_the_job_ends_the_wait(ranks: Ranks) -> None:
    assert ranks(job_is_aborted, 2)[1] == ["breakpoint", "the job was aborted by ada: enough"]


def records_the_wait() -> list[Any]:
    dist.init_process_group()
    answer()
    dist.breakpoint([1, 2])
    folder = current().run_folder
    assert folder is not None
    dist.barrier()
    forms = [op.form for op in read_record(folder / f"rank{dist.get_rank():05}.ddr").ops]
    named = [form for form in forms if form is not None and form.kind == Aside.BREAKPOINT.label]
    return [[form.name, form.members.items] for form in named]


def test_the_record_says_whom_a_rank_waited_for(ranks: Ranks) -> None:
    assert ranks(records_the_wait, 3) == [[["breakpoint", [[1, 3, 1]]]]] * 3


def is_switched_off() -> list[Any]:
    dist.init_process_group()
    whys = answer()
    for _ in range(3):
        dist.breakpoint()
    return whys


def test_pythonbreakpoint_0_switches_it_off_and_says_so_once(
    ranks: Ranks, capfd: pytest.CaptureFixture[str]
) -> None:
    assert ranks(is_switched_off, 2, env={"PYTHONBREAKPOINT": "0"}) == [[], []]


def test_it_is_said_once_that_it_is_off(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PYTHONBREAKPOINT", "0")

    def run() -> None:
        dist.breakpoint()
        dist.breakpoint()

    dist.run_threads(run, 1)
    said = [record for record in caplog.records if "PYTHONBREAKPOINT" in record.getMessage()]
    assert len(said) == 1


def test_threads_as_ranks_meet_at_a_breakpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []

    def stop(why: str, **_: object) -> StopOutcome:
        names.append(threading.current_thread().name)
        return StopOutcome.CONTINUED

    monkeypatch.setattr(session, "stop_here", stop)

    def run() -> list[str]:
        for _ in range(2):
            dist.breakpoint([0, 2])
        return keys_left()

    assert dist.run_threads(run, 3) == [[]] * 3
    assert sorted(names) == ["rank 0", "rank 0", "rank 2", "rank 2"]


def test_threads_that_wait_are_released_when_one_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(why: str, **_: object) -> StopOutcome:
        raise ValueError("typed at the prompt")

    monkeypatch.setattr(session, "stop_here", stop)
    with pytest.raises((ValueError, DebuggerQuit)):
        dist.run_threads(dist.breakpoint, 3)


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ({"rank": 7}, "there is no rank 7; the job has 0-1"),
        ({"rank": []}, "no rank was chosen for the debugger"),
        ({"rank": ["0"]}, "rank takes numbers, not '0'"),
        ({"rank": True}, "rank takes numbers, not True"),
        ({"rank": None}, "rank takes numbers, not None"),
        ({"rank": 0.0}, "rank takes numbers, not 0.0"),
        ({"skip": -1}, "skip is a count, not -1"),
        ({"timeout_s": 0}, "timeout_s is more than 0"),
        ({"timeout_s": None}, "timeout_s is more than 0, not None"),
        ({"timeout_s": "5"}, "timeout_s is more than 0, not '5'"),
    ],
)
def test_what_is_wrong_with_the_arguments_is_said(arguments: dict[str, Any], what: str) -> None:
    def run() -> None:
        with pytest.raises(UsageError, match=what):
            dist.breakpoint(**arguments)

    dist.run_threads(run, 2)


def calls_pythons_own(has_hook: bool) -> list[Any]:
    import sys

    mine: list[int] = []
    if has_hook:
        sys.breakpointhook = lambda *_: mine.append(1)
    dist.init_process_group()
    whys = answer()
    breakpoint()
    dist.destroy_process_group()
    return [whys, mine]


def test_pythons_own_breakpoint_opens_our_session_where_there_is_no_terminal(ranks: Ranks) -> None:
    found = [["breakpoint() in calls_pythons_own"], []]
    assert ranks(calls_pythons_own, 2, has_hook=False) == [found, found]
    assert ranks(calls_pythons_own, 1, has_hook=True) == [[[], [1]]]

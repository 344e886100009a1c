"""Rules of DISTDBG_BREAK and of the control page, in real ranks whose debugger is a function of the test."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg.control.breakpoints import parse_rules, rules_to_page
from distdbg.control.page import ControlPage
from distdbg.debugger import session
from distdbg.debugger.session import StopOutcome
from distdbg.errors import ConfigError, DebuggerQuit, MismatchError, OpTimeout
from distdbg.record.host import host_name
from distdbg.runtime.backends.cpu import CpuEngine
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
        whys.append(why if error is None else f"{why}: {type(error).__name__}")
        return with_(why)

    session.stop_here = stop
    return whys


def arm(text: str) -> None:
    folder = current().run_folder
    assert folder is not None
    page = ControlPage.open(folder, host_name())
    rules = parse_rules(text)
    page.arm(json.dumps(rules_to_page(rules)).encode() if rules else b"")
    page.close()


def is_bare() -> bool:
    return all(type(group.engine) is CpuEngine for group in current().groups.values())


# ------------------------------------------------------------------------------------ rules


def stops_before_ops() -> list[Any]:
    dist.init_process_group()
    store = dist.group.WORLD.get_group_store()  # type: ignore[union-attr]
    seen: list[int] = []

    def look(why: str) -> StopOutcome:
        # The other rank needs this one: it has said nothing of its op to anybody.
        seen.append(int(store.check(["through"])))
        return StopOutcome.CONTINUED

    whys = answer(look)
    data = np.ones(4, np.float32)
    for _ in range(2):
        dist.all_reduce(data)
        store.set("through", "1") if dist.get_rank() == 0 and data[0] == 4 else None
    dist.barrier()
    return [whys, seen, float(data[0])]


def test_a_rank_stops_before_the_op_is_sent(ranks: Ranks) -> None:
    found = ranks(stops_before_ops, 2, env={"DISTDBG_BREAK": "rank=1,kind=all_reduce,seq>=2"})
    assert found[0] == [[], [], 4.0]
    assert found[1] == [["before all_reduce #2 on group 'world' (DISTDBG_BREAK 1)"], [0], 4.0]


def every_way() -> list[str]:
    dist.init_process_group()
    whys = answer()
    rank, data = dist.get_rank(), np.zeros(2, np.float32)
    work = dist.all_reduce(data, async_op=True)
    assert work is not None
    work.wait()
    if rank == 0:
        dist.send(data, 1, tag=5)
    else:
        dist.recv(data, 0, tag=5)
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend if rank else dist.irecv, data, 1 - rank)])
    for each in works:
        each.wait()
    with dist._coalescing_manager():
        dist.all_reduce(data)
        dist.all_reduce(data)
    dist.all_gather_object([None, None], rank)
    group = dist.new_group([0, 1], group_desc="later")
    with dist.record_comm("grads"):
        dist.barrier(group=group)
    return whys


def test_ops_of_every_way_to_call_them_stop(ranks: Ranks) -> None:
    zero, one = ranks(every_way, 2, env={"DISTDBG_BREAK": "on=op"})
    world, end = "on group 'world'", "(DISTDBG_BREAK 1)"
    assert zero == [
        f"before all_reduce #1 {world} {end}",
        f"before send #1 to rank 1 {world} {end}",
        f"before recv #1 from rank 1 {world} {end}",
        f"before all_reduce #2 {world} {end}",
        f"before all_reduce #3 {world} {end}",
        f"before all_gather_object #4 {world} {end}",
        f"before all_gather_object #5 {world} {end}",
        f"before barrier #1 on group 'later' {end}",
    ]
    assert one[1] == f"before recv #1 from rank 0 {world} {end}"


def stops_sometimes() -> list[Any]:
    dist.init_process_group()
    whys = answer()
    small, large = np.zeros(2, np.float32), np.zeros(300, np.int64)
    group = dist.new_group([0, 1], group_desc="dp")
    for _ in range(4):
        dist.all_reduce(small)
        dist.all_reduce(large, group=group)
    with dist.record_comm("grads"):
        dist.barrier()
    return whys


@pytest.mark.parametrize(
    ("rule", "stops"),
    [
        ("group=dp,skip=1,hits=2", ["all_reduce #2 on group 'dp'", "all_reduce #3 on group 'dp'"]),
        ("nbytes>=2k,seq=4", ["all_reduce #4 on group 'dp'"]),
        ("dtype=float32,seq<2", ["all_reduce #1 on group 'world'"]),
        ("comm=grads", ["barrier #5 on group 'world'"]),
        ("site=test_rules_stop_ranks.py,kind=barrier", ["barrier #5 on group 'world'"]),
    ],
)
def test_conditions_choose_the_ops(ranks: Ranks, rule: str, stops: list[str]) -> None:
    for whys in ranks(stops_sometimes, 2, env={"DISTDBG_BREAK": rule}):
        assert whys == [f"before {stop} (DISTDBG_BREAK 1)" for stop in stops]


def test_the_environments_rules_need_no_record_and_no_page(ranks: Ranks) -> None:
    env = {"DISTDBG_BREAK": "rank=1,kind=all_reduce,seq>=2", "DISTDBG_UNWRAPPED": "1"}
    zero, one = ranks(stops_before_ops, 2, env=env)
    assert (zero[0], len(one[0])) == ([], 1)


def test_a_wrong_rule_is_said_before_the_ranks_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTDBG_BREAK", "rank=1,sqe>4")
    with pytest.raises(ConfigError, match="'sqe' is not a field"):
        dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
    assert not dist.is_initialized()


# --------------------------------------------------------------------------- armed from outside


def armed_while_it_runs() -> list[Any]:
    dist.init_process_group()
    whys = answer()
    other = dist.new_group([0, 1], group_desc="other")
    rank, data, bare = dist.get_rank(), np.zeros(2, np.float32), []
    for step, rules in enumerate(("", "rank=1,kind=barrier", "rank=1,kind=barrier;on=op", "")):
        dist.barrier()
        if rank == 0:
            arm(rules)
        dist.all_gather_object([None, None], step)  # all have armed, or waited for it
        bare.append([dist.barrier(group=other), is_bare()][1])
        dist.all_reduce(data)
        if rank == 0:
            dist.send(data, 1)
        else:
            dist.recv(data, 0)
    return [whys, bare]


def test_rules_are_armed_and_cleared_while_the_job_runs(ranks: Ranks) -> None:
    zero, one = ranks(armed_while_it_runs, 2)
    assert zero[1] == [True, True, False, True]
    assert one[1] == [True, False, False, True]
    # What rank 0 stops at: from the third step on, up to the arming in the fourth.
    assert zero[0][0] == "before all_gather_object #10 on group 'world' (breakpoint 2)"
    assert one[0][0] == "before barrier #2 on group 'other' (breakpoint 1)"
    stops = [why.partition(" (")[0] for why in one[0]]
    assert len(stops) == len(set(stops))  # each op once


def all_ways_notice(way: str) -> list[Any]:
    dist.init_process_group()
    whys = answer()
    rank, data = dist.get_rank(), np.zeros(2, np.float32)
    if rank == 0:
        arm("on=op,hits=1")
    _meet()  # while a page is being written a rank keeps to what it knows
    match way:
        case "run":
            dist.all_reduce(data)
        case "submit":
            work = dist.all_reduce(data, async_op=True)
            assert work is not None
            work.wait()
        case "transfer":
            dist.send(data, 1) if rank == 0 else dist.recv(data, 0)
        case "post":
            work = dist.isend(data, 1) if rank == 0 else dist.irecv(data, 0)
            assert work is not None
            work.wait()
    return [whys, dist.group.WORLD.engine.inner.group.issued]  # type: ignore[union-attr]


@pytest.mark.parametrize("way", ["run", "submit", "transfer", "post"])
def test_the_op_that_finds_new_rules_is_looked_at_and_runs_once(ranks: Ranks, way: str) -> None:
    for whys, issued in ranks(all_ways_notice, 2, way=way):
        assert len(whys) == 1
        assert issued == (1 if way in ("run", "submit") else 0)


class Echo:
    """A backend of somebody else, which leaves everything as it is."""

    def __init__(self, *_: object) -> None:
        self.calls = 0

    def allreduce(self, tensors: object, options: object) -> None:
        self.calls += 1

    def barrier(self, options: object) -> None:
        self.calls += 1


def on_a_backend_of_somebody_else(level: str) -> list[Any]:
    dist.Backend.register_backend("echo", Echo)
    dist.init_process_group("echo")
    whys = answer()
    data = np.zeros(2, np.float32)
    dist.all_reduce(data)
    dist.barrier()
    _meet()  # that barrier may be of no use: the backend is one that does nothing
    if dist.get_rank() == 0:
        arm("kind=all_reduce")
    _meet()
    dist.all_reduce(data)
    work = dist.all_reduce(data, async_op=True)
    assert work is not None
    work.wait()
    _meet()
    if dist.get_rank() == 0:
        arm("")
    _meet()
    dist.all_reduce(data)
    return whys


def _meet() -> None:
    store = dist.group.WORLD.get_group_store()  # type: ignore[union-attr]
    number = store.add("meetings", 1)
    size = dist.get_world_size()
    goal = (number + size - 1) // size * size
    while store.add("meetings", 0) < goal:
        time.sleep(0.005)  # nothing else tells


@pytest.mark.parametrize("level", ["off", "detail"])
def test_backends_of_others_are_stopped_too(ranks: Ranks, level: str) -> None:
    for whys in ranks(on_a_backend_of_somebody_else, 2, level=level, env={"DISTDBG_DEBUG": level}):
        assert whys == [
            f"before all_reduce #{seq} on group 'world' (breakpoint 1)" for seq in (3, 4)
        ]


def with_lines_of_the_log() -> list[Any]:
    dist.init_process_group()
    whys = answer()
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    arm("on=op")
    dist.barrier()  # looked at, though it is what finds the rule
    engines = [type(dist.group.WORLD.engine).__name__]  # type: ignore[union-attr]
    arm("")
    dist.barrier()
    return [whys, engines, is_bare()]


def test_the_lines_of_the_log_stay_around_it(ranks: Ranks) -> None:
    whys, engines, _ = ranks(with_lines_of_the_log, 1, env={"DISTDBG_LOG_LEVEL": "info"})[0]
    assert len(whys) == 1
    assert engines == ["TracingEngine"]


def counts_stay() -> list[str]:
    dist.init_process_group()
    whys = answer()
    for rules in ("kind=barrier,hits=1", "kind=barrier,hits=1;kind=send", "kind=barrier,hits=1"):
        arm(rules)
        dist.barrier()
    return whys


def test_a_rule_that_stays_keeps_its_counts(ranks: Ranks) -> None:
    assert [len(whys) for whys in ranks(counts_stay, 1)] == [1]


# ------------------------------------------------------------------------------------ errors


def fails(way: str) -> list[Any]:
    dist.init_process_group()
    whys = answer()
    rank = dist.get_rank()
    if way == "mismatch":
        with pytest.raises(MismatchError):
            dist.all_reduce(np.zeros(2 + rank, np.float32))
    elif way == "async":
        work = dist.all_reduce(np.zeros(2 + rank, np.float32), async_op=True)
        assert work is not None
        work.get_future()
        for _ in range(2):
            with pytest.raises(MismatchError):
                work.wait()
    elif way == "timeout":
        store = dist.group.WORLD.get_group_store()  # type: ignore[union-attr]
        if rank == 0:
            with pytest.raises(OpTimeout):
                dist.recv(np.zeros(2), 1, timeout=0.1)
            store.set("reported", "1")
        store.wait(["reported"])
    return whys


@pytest.mark.parametrize("way", ["mismatch", "async"])
@pytest.mark.parametrize("on", ["mismatch", "exception", "timeout"])
def test_a_rank_stops_at_the_error_before_it_is_raised(ranks: Ranks, way: str, on: str) -> None:
    for whys in ranks(fails, 2, way=way, env={"DISTDBG_BREAK": f"on={on}"}):
        found = "at all_reduce #1 on group 'world', which failed with MismatchError"
        wanted = [f"{found} (DISTDBG_BREAK 1): MismatchError"]
        assert whys == ([] if on == "timeout" else wanted)


def test_a_rank_stops_where_it_waited_in_vain(ranks: Ranks) -> None:
    zero, one = ranks(fails, 2, way="timeout", env={"DISTDBG_BREAK": "on=timeout"})
    assert zero == [
        "at recv #1 from rank 1 on group 'world', which failed with OpTimeout (DISTDBG_BREAK 1): OpTimeout"
    ]
    assert one == []


def sends_nan() -> list[Any]:
    dist.init_process_group()
    whys = answer()
    data = np.arange(4, dtype=np.float32)
    dist.all_reduce(data)
    if dist.get_rank() == 1:
        data[2] = np.nan
    dist.all_reduce(data)
    dist.broadcast(data, src=0)
    return whys


def test_nan_is_seen_before_it_spreads(ranks: Ranks) -> None:
    zero, one = ranks(sends_nan, 2, env={"DISTDBG_BREAK": "on=nan"})
    found = "the input has 1 NaN or Inf of 4, the first is NaN at element 2"
    assert one == [f"before all_reduce #2 on group 'world': {found} (DISTDBG_BREAK 1)"]
    assert zero == [f"before broadcast #3 on group 'world': {found} (DISTDBG_BREAK 1)"]


def quits() -> str:
    dist.init_process_group()
    answer(lambda why: StopOutcome.QUIT)
    with pytest.raises(DebuggerQuit) as caught:
        dist.barrier()
    assert list(caught.value.ranks) == [0]
    return str(caught.value)


def test_quitting_before_an_op_raises_in_its_place(ranks: Ranks) -> None:
    text = ranks(quits, 1, env={"DISTDBG_BREAK": "on=op"})[0]
    first, second, _ = text.split("\n")
    assert first.startswith("rank 0 does not continue: its debugger was quit at test_rules_stop_")
    assert second == "  it had stopped before barrier #1 on group 'world' (DISTDBG_BREAK 1)"


def calls_ops_at_the_prompt() -> list[str]:
    dist.init_process_group()

    def ask(why: str) -> StopOutcome:
        dist.barrier()
        return StopOutcome.CONTINUED

    whys = answer(ask)
    dist.all_reduce(np.zeros(1))
    return whys


def test_ops_that_are_called_at_the_prompt_stop_nowhere(ranks: Ranks) -> None:
    assert [len(whys) for whys in ranks(calls_ops_at_the_prompt, 1, env={"DISTDBG_BREAK": "on=op"})]


def test_threads_as_ranks_stop_each_by_its_own_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTDBG_BREAK", "rank=1,seq=2;rank=2,kind=barrier;on=signal")
    monkeypatch.setattr(session, "stop_here", session.stop_here)
    stops: list[tuple[str, str]] = []

    def note(why: str) -> StopOutcome:
        stops.append((threading.current_thread().name, why))
        return StopOutcome.CONTINUED

    answer(note)

    def run() -> None:
        for _ in range(2):
            dist.all_reduce(np.zeros(1))
        dist.barrier()

    dist.run_threads(run, 3)
    assert sorted(stops) == [
        ("rank 1", "before all_reduce #2 on group 'world' (DISTDBG_BREAK 1)"),
        ("rank 2", "before barrier #3 on group 'world' (DISTDBG_BREAK 2)"),
    ]


# ------------------------------------------------------------------------------------ signals


def is_sent_a_signal(has_handler: bool) -> list[Any]:
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)  # the harness has one of its own
    import faulthandler

    faulthandler.unregister(signal.SIGUSR1)
    mine: list[int] = []
    if has_handler:
        signal.signal(signal.SIGUSR1, lambda number, frame: mine.append(number))
    dist.init_process_group()
    whys = answer()
    os.kill(os.getpid(), signal.SIGUSR1)
    time.sleep(0)  # the handler runs between two bytecodes of the main thread
    dist.destroy_process_group()
    is_ours_gone = signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL
    return [whys, len(mine), is_ours_gone]


def test_a_signal_stops_a_rank_that_has_no_handler_for_it(ranks: Ranks) -> None:
    env = {"DISTDBG_BREAK": "on=signal"}
    assert ranks(is_sent_a_signal, 1, has_handler=False, env=env) == [
        [["at SIGUSR1 (DISTDBG_BREAK 1)"], 0, True]
    ]
    assert ranks(is_sent_a_signal, 1, has_handler=True, env=env) == [[[], 1, False]]


def stops_at_a_known_call() -> list[Any]:
    dist.init_process_group()
    whys = answer()
    x = np.ones(2, np.float32)
    for _ in range(4):
        dist.all_reduce(x)
    group = current().default
    assert group is not None
    calls = group.known_calls
    assert calls
    dist.barrier()
    if dist.get_rank() == 0:
        arm("kind=all_reduce")
    dist.barrier()
    before = calls.hits
    dist.all_reduce(x)
    in_between = calls.hits
    dist.barrier()
    if dist.get_rank() == 0:
        arm("")
    dist.barrier()
    for _ in range(3):
        dist.all_reduce(x)
    return [len(whys), in_between == before, calls.hits > in_between]


def test_a_call_that_native_code_knows_stops_too(ranks: Ranks) -> None:
    assert ranks(stops_at_a_known_call, 2) == [[1, True, True]] * 2

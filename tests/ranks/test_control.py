"""The control page among real processes: an abort wakes every wait, a pause stops every deadline."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg.control.page import ControlPage, read_page
from distdbg.control.words import AbortWords
from distdbg.errors import DistStoreError, JobAborted, OpTimeout, PeerLost
from distdbg.record.host import host_name
from distdbg.record.reader import read_record
from distdbg.runtime.process.world import current
from tests.support.ports import free_port

WORDS = AbortWords(
    what="rank 1 does not come",
    type="deadlock",
    ranks=[1],
    details=["it waits for a key"],
    hint="set it",
    by="the agent",
)
#: Far below the limits of the waits, and far above what it takes on a busy machine.
SOON_S = 30.0


def open_page() -> ControlPage:
    folder = current().run_folder
    assert folder is not None
    return ControlPage.open(folder, host_name())


def in_a_while(delay_s: float, do: Callable[[ControlPage], object]) -> threading.Timer:
    """Do it from outside, as far as the rank can tell; the delay lets the wait begin."""
    page = open_page()

    def act() -> None:
        do(page)
        page.close()

    timer = threading.Timer(delay_s, act)
    timer.start()
    return timer


def wait_in(place: str) -> None:
    group = dist.group.WORLD
    assert group is not None
    data, store = np.zeros(4, np.float32), group.get_group_store()
    match place:
        case "all_reduce":
            dist.all_reduce(data)
        case "barrier":
            dist.barrier()
        case "broadcast":
            dist.broadcast(np.zeros(3_000_000, np.float32), src=1)
        case "recv":
            dist.recv(data, 1)
        case "send":
            dist.send(data, 1)
        case "work":
            work = dist.all_reduce(data, async_op=True)
            assert work is not None
            work.wait()
        case "message":
            work = dist.irecv(data, 1)
            assert work is not None
            work.wait()
        case "behind":
            dist.all_reduce(data, async_op=True)
            dist.all_reduce(data)  # waits for the one before
        case "future":
            work = dist.all_reduce(data, async_op=True)
            assert work is not None
            work.get_future().wait()
        case "objects":
            dist.all_gather_object([None, None], "mine")
        case "get":
            store.get("never")
        case "wait":
            store.wait(["never"])
        case "store barrier":
            store.barrier("never", 2)
        case "queue":
            store.queue_pop("never")
        case "monitored_barrier":
            dist.monitored_barrier()
        case "new_group":
            dist.new_group([0, 1])


def abort_wakes(places: Sequence[str]) -> list[dict[str, Any]]:
    """Rank 1 waits for a key, rank 0 in each place on a thread of its own group or store."""
    dist.init_process_group()
    rank = dist.get_rank()
    aborted_ns: list[int] = []
    timer = None
    if rank == 0:

        def abort(page: ControlPage) -> None:
            aborted_ns.append(time.monotonic_ns())
            page.abort(WORDS)

        timer = in_a_while(0.2, abort)
    found = []
    for place in places:
        started_ns = time.monotonic_ns()
        with pytest.raises(JobAborted) as caught:
            wait_in("wait" if rank == 1 else place)
        ended_ns = time.monotonic_ns()
        error = caught.value
        found.append(
            {
                "what": error.what,
                "facts": [error.verdict, error.by, error.ranks, error.hint],
                "op": [error.kind, error.seq, error.group],
                "details": error.details,
                "late_s": (ended_ns - (aborted_ns or [started_ns])[0]) / 1e9,
            }
        )
    if timer is not None:
        timer.join()
    started = time.monotonic()
    dist.destroy_process_group()
    assert time.monotonic() - started < SOON_S
    return found


PLACES = [
    "all_reduce",
    "broadcast",
    "barrier",
    "recv",
    "send",
    "work",
    "message",
    "behind",
    "future",
    "objects",
    "get",
    "wait",
    "store barrier",
    "queue",
    "monitored_barrier",
    "new_group",
]


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
def test_an_abort_wakes_a_rank_wherever_it_waits(ranks: Callable[..., Any], place: str) -> None:
    # An op that is issued after the abort does not begin.
    found = ranks(abort_wakes, 2, places=[place, "all_reduce"])
    for rank, raised in enumerate(found):
        for error in raised:
            assert error["what"] == "the job was aborted by the agent: rank 1 does not come"
            assert error["facts"] == ["deadlock", "the agent", [1], "set it"]
            assert error["details"][0] == "it waits for a key"
        if rank == 0:
            assert raised[0]["late_s"] < SOON_S
    if place in ("all_reduce", "barrier", "broadcast", "work"):
        assert found[0][0]["op"] == [place if place != "work" else "all_reduce", 1, "world"]
        assert found[0][0]["details"][-1].startswith("this rank was in ")
    if place in ("monitored_barrier", "new_group"):
        assert found[0][0]["op"][0] == place


def abort_is_recorded() -> str:
    dist.init_process_group()
    folder = current().run_folder
    assert folder is not None
    if dist.get_rank() == 0:
        in_a_while(0.2, lambda page: page.abort(WORDS)).join()
        with pytest.raises(JobAborted):
            dist.barrier()
    else:
        with pytest.raises(JobAborted):
            dist.barrier()
    dist.destroy_process_group()
    return str(folder)


def test_an_abort_is_in_the_record_and_can_be_read_after_the_end(
    ranks: Callable[..., Any],
) -> None:
    folder = Path(ranks(abort_is_recorded, 2)[1])
    record = read_record(folder / "rank00001.ddr")
    assert [op.status_label for op in record.ops] == ["aborted"]
    state = read_page(folder, host_name())
    assert state.abort is not None
    assert state.abort.what == WORDS.what


def the_truer_cause_stays() -> str:
    dist.init_process_group()
    if dist.get_rank() == 1:
        os._exit(3)
    with pytest.raises(PeerLost):
        dist.barrier()
    page = open_page()
    page.abort(WORDS)
    page.close()
    with pytest.raises(PeerLost):
        dist.barrier()
    dist.destroy_process_group()
    return "same"


def test_a_rank_that_knows_why_keeps_its_error(ranks: Callable[..., Any]) -> None:
    assert ranks(the_truer_cause_stays, 2, expect_exit={1: 3})[0] == "same"


def wait_with_limit(place: str, limit: timedelta) -> None:
    group = dist.group.WORLD
    assert group is not None
    data = np.zeros(4, np.float32)
    work: dist.Work | None
    match place:
        case "op":
            group.set_timeout(limit)
            dist.all_reduce(data)
        case "wait":
            work = dist.all_reduce(data, async_op=True)
            assert work is not None
            work.wait(limit)
        case "recv":
            work = dist.irecv(data, 1)
            assert work is not None
            work.wait(limit)
        case "store":
            group.get_group_store().wait(["never"], limit)
        case "monitored_barrier":
            dist.monitored_barrier(timeout=limit)


def outlive_pause(place: str, limit_s: float, pause_s: float) -> float:
    """Rank 0 waits in vain with a limit, and the job is paused meanwhile; rank 1 does not wait."""
    dist.init_process_group(timeout=timedelta(seconds=60))
    group = dist.group.WORLD
    assert group is not None
    store = group.get_group_store()
    if dist.get_rank() == 1:
        store.set_timeout(timedelta(seconds=60))
        store.wait(["seen"])
        dist.destroy_process_group()
        return 0.0
    limit = timedelta(seconds=limit_s)
    clock = current().control
    started = clock.now()

    def pause(page: ControlPage) -> None:
        page.pause()
        time.sleep(pause_s)  # as long as it is to last
        page.resume()

    timer = in_a_while(limit_s / 4, pause)
    with pytest.raises((OpTimeout, DistStoreError)):
        wait_with_limit(place, limit)
    took_s = clock.now() - started
    timer.join()
    store.set("seen", "")
    if place in ("wait", "recv"):
        group.abort()  # the op itself goes on
    dist.destroy_process_group()
    return took_s


@pytest.mark.slow
@pytest.mark.parametrize("place", ["op", "wait", "recv", "store", "monitored_barrier"])
def test_a_limit_outlives_a_pause_and_then_passes(ranks: Callable[..., Any], place: str) -> None:
    took_s = ranks(outlive_pause, 2, place=place, limit_s=0.4, pause_s=0.8)[0]
    assert 0.35 < took_s < SOON_S  # in the time of the job, which stands in the pause


def work_in_pause() -> int:
    """Pauses stop deadlines, not ranks."""
    dist.init_process_group()
    page = open_page()
    page.pause()
    data = np.ones(4, np.float32)
    for _ in range(3):
        dist.all_reduce(data)
    work = dist.all_reduce(data, async_op=True)
    assert work is not None
    work.get_future().wait()
    dist.barrier()
    page.resume()
    page.close()
    dist.destroy_process_group()
    return int(data[0])


def test_ranks_that_do_not_wait_in_vain_go_on_in_a_pause(ranks: Callable[..., Any]) -> None:
    assert ranks(work_in_pause, 2) == [16, 16]


def abort_when_all_is_over() -> list[str]:
    dist.init_process_group()
    folder = current().run_folder
    assert folder is not None
    page = open_page()
    dist.barrier()
    dist.destroy_process_group()
    page.abort(WORDS)
    store = dist.HashStore()
    store.set("key", "value")
    value = store.get("key").decode()
    page.close()
    return [str(folder), value]


def the_holder_is_killed() -> list[Any]:
    dist.init_process_group()
    clock = current().control
    if dist.get_rank() == 1:
        clock.hold(1)
        os.kill(os.getpid(), signal.SIGKILL)
    while not clock.is_paused:
        time.sleep(0.005)  # a page calls nobody
    stands = clock.now_ns()
    with pytest.raises(PeerLost) as caught:
        dist.barrier()  # a death is seen by a clock that stands
    assert clock.now_ns() == stands
    clock.nap_s(1.0, 0.01)  # as every wait in Python does
    is_paused = clock.is_paused
    dist.destroy_process_group()
    return [caught.value.peer, is_paused]


def test_a_rank_that_is_killed_at_a_prompt_is_lost_and_its_hold_is_void(
    ranks: Callable[..., Any],
) -> None:
    assert ranks(the_holder_is_killed, 2, expect_exit={1: -signal.SIGKILL})[0] == [1, False]


def test_an_abort_after_the_end_harms_nobody(ranks: Callable[..., Any]) -> None:
    assert {value for _, value in ranks(abort_when_all_is_over, 2)} == {"value"}


def meet_another_page(junk: bool) -> bool:
    folder = Path(os.environ["DISTDBG_RUN_DIR"])
    path = folder / f"control-{host_name()}"
    holder = None
    if os.environ["RANK"] == "0":
        folder.mkdir(exist_ok=True)
        if junk:
            path.write_bytes(b"junk")
        else:
            holder = ControlPage.open(folder, host_name(), "another")
            holder.abort(WORDS)
        (folder / "made").touch()
    while not (folder / "made").exists():
        time.sleep(0.01)  # until rank 0 has put it there
    dist.init_process_group()
    dist.barrier()
    is_free = current().control.is_free
    dist.destroy_process_group()
    if holder is not None:
        holder.close()
    return is_free


def test_a_file_that_is_no_page_is_left_alone(
    ranks: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISTDBG_RUN_DIR", str(tmp_path / "run"))
    assert ranks(meet_another_page, 2, junk=True) == [True, True]
    assert (tmp_path / "run" / f"control-{host_name()}").read_bytes() == b"junk"


def test_the_page_of_a_run_whose_ranks_have_left_is_replaced(
    ranks: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISTDBG_RUN_DIR", str(tmp_path / "run"))
    assert ranks(meet_another_page, 2, junk=False) == [False, False]


def test_a_new_job_in_an_old_folder_is_not_ended_by_an_old_abort(tmp_path: Path) -> None:
    program = (
        "import distdbg as dist, sys\n"
        "from distdbg.control.page import ControlPage\n"
        "from distdbg.control.words import AbortWords\n"
        "from distdbg.record.host import host_name\n"
        "dist.init_process_group(rank=0, world_size=1, store=dist.HashStore())\n"
        "dist.barrier()\n"
        "page = ControlPage.open(sys.argv[1], host_name())\n"
        "page.abort(AbortWords(what='enough'))\n"
    )
    environ = {
        **os.environ,
        "DISTDBG_RUN_DIR": str(tmp_path / "run"),
        "DISTDBG_RUN": "same",
        "DISTDBG_AGENT": "0",
    }
    for _ in range(2):
        subprocess.run(
            [sys.executable, "-c", program, str(tmp_path / "run")],
            env=environ,
            check=True,
            timeout=120,
        )


def wait_for_others_in_an_aborted_job(folder: str) -> list[str]:
    words = []
    page = ControlPage.open(folder, host_name(), "job")
    page.abort(WORDS)
    # Nobody serves the store that rank 1 dials; at that of rank 0 nobody else comes.
    for url, rank in (
        (f"tcp://127.0.0.1:{free_port()}", 1),
        (f"local://{folder}/spot", 1),
        (f"local://{folder}/spot", 0),
    ):
        with pytest.raises(JobAborted) as caught:
            dist.init_process_group(
                init_method=url, rank=rank, world_size=2, timeout=timedelta(seconds=60)
            )
        words.append(caught.value.what)
    page.close()
    return words


def test_who_waits_for_others_in_init_hears_an_abort(
    ranks: Callable[..., Any], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    folder.mkdir(mode=0o700)
    env = {"DISTDBG_RUN": "job", "DISTDBG_RUN_DIR": str(folder)}
    (words,) = ranks(wait_for_others_in_an_aborted_job, 1, folder=str(folder), env=env)
    assert len(words) == 3
    assert all("rank 1 does not come" in what for what in words)

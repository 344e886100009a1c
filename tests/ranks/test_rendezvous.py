"""Real processes that meet, or find out why they do not."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import distdbg as dist
from distdbg.errors import RendezvousError
from distdbg.runtime.rendezvous import join
from tests.support.ports import free_port

Ranks = Callable[..., list[Any]]


def make_url(scheme: str, folder: Path) -> str:
    return f"tcp://127.0.0.1:{free_port()}" if scheme == "tcp" else f"{scheme}://{folder}/meet"


def own_rank() -> int:
    return int(os.environ["RANK"])


def meet_often(url: str | None, count: int) -> list[int]:
    sums = []
    for _ in range(count):
        dist.init_process_group(init_method=url, timeout=timedelta(seconds=60))
        gathered: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(gathered, dist.get_rank())
        sums.append(sum(gathered))
        dist.destroy_process_group()
    return sums


def meet_and_die(url: str) -> None:
    dist.init_process_group(init_method=url, timeout=timedelta(seconds=60))
    dist.barrier()
    os.kill(os.getpid(), signal.SIGKILL)


def die_while_waiting(url: str, size: int) -> None:
    # The last rank never comes; the others are killed in the middle of their wait.
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    dist.init_process_group(init_method=url, world_size=size, rank=own_rank())


def miss_somebody(url: str, size: int, first: int, folder: str) -> dict[str, Any]:
    Path(folder, f"{own_rank()}.begun").touch()
    for rank in range(2):  # so that both begin to wait at the same time
        wait_for(Path(folder, f"{rank}.begun"))
    try:
        join(url, rank=own_rank() + first, world_size=size, timeout_s=1.0)
    except RendezvousError as error:
        return {
            "what": error.what,
            "joined": error.joined,
            "missing": error.missing,
            "text": str(error),
        }
    raise AssertionError("a rank was missing")


def serve_and_come_twice(url: str) -> str:
    try:
        join(url, rank=min(own_rank(), 1), world_size=3, timeout_s=60.0)
    except RendezvousError as error:
        return error.what
    raise AssertionError("rank 1 came twice")


def list_members(url: str) -> list[tuple[int, str, int]]:
    membership = join(url, rank=own_rank(), world_size=2, timeout_s=60.0)
    return [(m.rank, m.host, m.process.pid) for m in membership.members]


def use_the_place_of_another(url: str) -> str:
    # Ranks 0 and 1 are one run, 2 and 3 another that finds the place taken.
    run, rank = divmod(own_rank(), 2)
    if run == 0:
        membership = join(url, rank=rank, world_size=2, timeout_s=60.0)
        membership.store.set(f"ready {rank}", "1")
        Path(url.removeprefix("file://") + f".{rank}").touch()
        wait_for(Path(url.removeprefix("file://") + ".tried2"))
        wait_for(Path(url.removeprefix("file://") + ".tried3"))
        return "met"
    for other in range(2):
        wait_for(Path(url.removeprefix("file://") + f".{other}"))
    try:
        join(url, rank=rank, world_size=2, timeout_s=60.0)
        return "met"
    except RendezvousError as error:
        return error.what
    finally:
        Path(url.removeprefix("file://") + f".tried{own_rank()}").touch()


def wait_for(path: Path) -> None:
    import time

    deadline = time.monotonic() + 120
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.005)  # nothing tells about a file of another process


def test_ranks_meet_again_and_again_where_the_launcher_says(ranks: Ranks, tmp_path: Path) -> None:
    assert ranks(meet_often, 3, url=None, count=10) == [[3] * 10] * 3
    assert not (tmp_path / "ranks0" / "store").exists()


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["tcp", "file"])
def test_ranks_meet_again_and_again_at_a_url(ranks: Ranks, tmp_path: Path, scheme: str) -> None:
    url = make_url(scheme, tmp_path)
    assert ranks(meet_often, 3, url=url, count=10) == [[3] * 10] * 3


@pytest.mark.parametrize("scheme", ["local", "file", "tcp"])
def test_after_a_killed_run_another_meets_at_the_same_place(
    ranks: Ranks, tmp_path: Path, scheme: str
) -> None:
    url = make_url(scheme, tmp_path)
    killed = {0: -signal.SIGKILL, 1: -signal.SIGKILL}
    ranks(meet_and_die, 2, url=url, expect_exit=killed)
    assert ranks(meet_often, 2, url=url, count=1) == [[1], [1]]


@pytest.mark.parametrize("scheme", ["local", "file"])
def test_after_a_run_killed_while_meeting_another_meets_at_the_same_place(
    ranks: Ranks, tmp_path: Path, scheme: str
) -> None:
    url = make_url(scheme, tmp_path)
    killed = {0: -signal.SIGALRM, 1: -signal.SIGALRM}
    ranks(die_while_waiting, 2, url=url, size=3, expect_exit=killed)
    assert ranks(meet_often, 2, url=url, count=1) == [[1], [1]]


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["tcp", "local", "file"])
def test_every_rank_learns_who_is_missing(ranks: Ranks, tmp_path: Path, scheme: str) -> None:
    url = make_url(scheme, tmp_path)
    for answer in ranks(miss_somebody, 2, url=url, size=4, first=0, folder=str(tmp_path)):
        assert (answer["joined"], answer["missing"]) == ([0, 1], [2, 3])
        waited = re.search(
            rf"2 of 4 ranks joined {re.escape(repr(url))} within (\d+\.\d) s", answer["what"]
        )
        assert waited is not None
        assert 1.0 <= float(waited[1]) < 30  # as long as it was, not as long as it should have been


@pytest.mark.parametrize("scheme", ["tcp", "local"])
@pytest.mark.slow
def test_without_rank_0_the_error_says_that_it_should_be_listening(
    ranks: Ranks, tmp_path: Path, scheme: str
) -> None:
    url = make_url(scheme, tmp_path)
    folder = str(tmp_path)
    answers = ranks(miss_somebody, 2, url=url, size=3, first=1, folder=folder)
    for rank, answer in enumerate(answers, 1):
        assert f"rank {rank} did not reach rank 0 at {url} within " in answer["what"]
        assert "rank 0 should be listening there" in answer["what"]
        assert "rank 0 is expected on" in answer["text"]


@pytest.mark.parametrize("scheme", ["tcp", "local"])
def test_a_rank_that_comes_twice_is_named_to_all(ranks: Ranks, tmp_path: Path, scheme: str) -> None:
    url = make_url(scheme, tmp_path)
    for what in ranks(serve_and_come_twice, 3, url=url):
        assert f"rank 1 was announced twice at {url}: pid " in what


def test_members_know_host_and_process_of_each_other(ranks: Ranks, tmp_path: Path) -> None:
    first, second = ranks(list_members, 2, url=f"local://{tmp_path}/meet")
    assert first == second
    assert [rank for rank, _, _ in first] == [0, 1]
    assert first[0][2] != first[1][2]


def test_two_runs_at_one_file_are_told_apart(ranks: Ranks, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/meet"
    answers = ranks(use_the_place_of_another, 4, url=url)
    assert answers[:2] == ["met", "met"]
    for what in answers[2:]:
        assert what.startswith(f"{url} is in use by another run: its rank 0 is pid ")

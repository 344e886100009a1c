"""Ranks as threads over an in-memory store: who gets which verdict."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import pytest

from distdbg.errors import RendezvousError
from distdbg.runtime.rendezvous.assemble import AssembledRound, JoinRound, assemble, leave
from distdbg.runtime.rendezvous.outcome import JoinedRank, member_to_json
from distdbg.runtime.rendezvous.process import ProcessIdentity, identify_self
from distdbg.runtime.store import HashStore

HERE = identify_self()
#: No process has this pid and start time.
GONE = replace(HERE, started=1)
#: Another host, so nobody here can tell whether it lives.
ELSEWHERE = ProcessIdentity(host="n04", boot_id="", pid_namespace=4, pid=77, started=5)


def make_member(rank: int, world_size: int, process: ProcessIdentity = HERE) -> JoinedRank:
    return JoinedRank(
        rank=rank, world_size=world_size, local_rank=None, local_world_size=None, process=process
    )


def meet(
    store: HashStore,
    members: Sequence[JoinedRank],
    *,
    timeout_s: float = 60.0,
    is_exclusive: bool = False,
    hosts: Sequence[str] = (),
    dead: JoinedRank | None = None,
) -> list[AssembledRound | RendezvousError]:
    def one(member: JoinedRank) -> AssembledRound | RendezvousError:
        try:
            return assemble(
                store,
                member,
                time.monotonic_ns() + int(timeout_s * 1e9),
                where="tcp://n01:29500",
                is_exclusive=is_exclusive,
                hosts=hosts,
                is_host=member.rank == 0,
                find_dead=lambda: dead,
            )
        except RendezvousError as error:
            return error

    with ThreadPoolExecutor(len(members)) as pool:
        return list(pool.map(one, members))


def only_errors(results: Sequence[AssembledRound | RendezvousError]) -> list[RendezvousError]:
    assert all(isinstance(result, RendezvousError) for result in results), results
    return [result for result in results if isinstance(result, RendezvousError)]


@pytest.mark.parametrize("world_size", [1, 2, 5])
def test_all_ranks_get_all_members_by_rank(world_size: int) -> None:
    results = meet(HashStore(), [make_member(r, world_size) for r in range(world_size)])
    for result in results:
        assert isinstance(result, AssembledRound)
        assert [member.rank for member in result.members] == list(range(world_size))


def test_timeout_names_the_missing_ranks_on_every_rank() -> None:
    members = [make_member(rank, 5) for rank in (0, 1, 4)]
    for error in only_errors(meet(HashStore(), members, timeout_s=1.0)):
        assert (error.joined, error.missing, error.expected) == ([0, 1, 4], [2, 3], 5)
        assert "3 of 5 ranks joined 'tcp://n01:29500' within" in error.what
        assert "missing ranks 2-3" in error.what
        assert "ranks 2-3: no host known" in error.details


def test_the_first_deadline_ends_the_round_for_all() -> None:
    store = HashStore()
    with ThreadPoolExecutor(2) as pool:
        patient = pool.submit(meet, store, [make_member(0, 3)], timeout_s=60.0)
        wait_until(partial(store.check, ["distdbg/join/0/claims/0"]))
        hasty = pool.submit(meet, store, [make_member(1, 3)], timeout_s=0.1)
        errors = only_errors([*patient.result(timeout=60), *hasty.result(timeout=60)])
    assert [error.missing for error in errors] == [[2], [2]]


def test_missing_ranks_of_a_known_host_are_expected_there() -> None:
    first = replace(make_member(0, 4, ELSEWHERE), local_rank=0, local_world_size=2)
    second = replace(make_member(2, 4), local_rank=0, local_world_size=2)
    errors = only_errors(meet(HashStore(), [first, second], timeout_s=1.0))
    assert "rank 1 is expected on host n04" in errors[1].details
    assert f"rank 3 is expected on this host ({HERE.host})" in errors[1].details


def test_missing_ranks_are_expected_where_the_launcher_planned_them() -> None:
    member = replace(make_member(0, 4), local_rank=0, local_world_size=2)
    (error,) = only_errors(meet(HashStore(), [member], timeout_s=0.1, hosts=["n01", "n02"]))
    assert "ranks 2-3 are expected on host n02" in error.details


def test_a_rank_announced_twice_is_named_with_both_processes() -> None:
    members = [make_member(0, 3), make_member(1, 3), make_member(1, 3, ELSEWHERE)]
    for error in only_errors(meet(HashStore(), members)):
        assert error.what.startswith("rank 1 was announced twice at tcp://n01:29500: pid ")
        assert f"pid {HERE.pid} on {HERE.host}" in error.what
        assert "pid 77 on n04" in error.what


def test_who_serves_the_store_and_announces_itself_after_the_others_failed_fails_as_they_did() -> (
    None
):
    # Neither of the two can be seen from here: a rank that looks like a dead one ends the round as such.
    store, other = HashStore(), replace(ELSEWHERE, pid=ELSEWHERE.pid + 1)
    only_errors(meet(store, [make_member(1, 3, other), make_member(1, 3, ELSEWHERE)]))
    with pytest.raises(RendezvousError, match="rank 1 was announced twice at "):
        assemble(
            store,
            make_member(0, 3),
            time.monotonic_ns() + int(60e9),
            where="tcp://n01:29500",
            is_host=True,
        )


def test_different_world_sizes_are_told_apart_by_rank() -> None:
    members = [make_member(0, 4), make_member(1, 4), make_member(2, 8)]
    store = HashStore()
    results: list[AssembledRound | RendezvousError] = []
    # One after the other, so that who disagrees with whom does not depend on the scheduler.
    with ThreadPoolExecutor(3) as pool:
        waiting = []
        for member in members:
            waiting.append(pool.submit(meet, store, [member]))
            wait_until(partial(store.check, [f"distdbg/join/0/claims/{member.rank}"]))
        for future in waiting:
            results += future.result(timeout=60)
    for error in only_errors(results):
        assert "4 on ranks 0-1, 8 on rank 2" in error.what


def test_a_store_can_be_met_at_again() -> None:
    store = HashStore()
    for number in range(3):
        for result in meet(store, [make_member(rank, 3) for rank in range(3)]):
            assert isinstance(result, AssembledRound)
            assert result.round == number


def test_a_failed_round_can_be_repeated() -> None:
    store = HashStore()
    only_errors(meet(store, [make_member(0, 2)], timeout_s=0.05))
    results = meet(store, [make_member(rank, 2) for rank in range(2)])
    assert all(isinstance(result, AssembledRound) for result in results)


def test_a_round_left_unfinished_by_killed_ranks_is_ended() -> None:
    store = HashStore()
    announce_only(store, make_member(0, 3, GONE))
    announce_only(store, make_member(2, 3, GONE))
    results = meet(store, [make_member(rank, 2) for rank in range(2)], is_exclusive=True)
    assert all(isinstance(result, AssembledRound) for result in results)


def test_after_a_run_that_is_gone_another_may_use_the_store() -> None:
    store = HashStore()
    meet(store, [make_member(rank, 2, GONE) for rank in range(2)])
    results = meet(store, [make_member(rank, 2) for rank in range(2)], is_exclusive=True)
    assert all(isinstance(result, AssembledRound) for result in results)


def test_a_store_in_use_by_living_ranks_is_refused() -> None:
    store = HashStore()
    meet(store, [make_member(rank, 2) for rank in range(2)], is_exclusive=True)
    same_host = replace(HERE, pid=1, started=-1)
    for error in only_errors(meet(store, [make_member(0, 2, same_host)], is_exclusive=True)):
        assert "is in use by another run: its rank 0 is pid" in error.what


def test_a_store_of_ranks_out_of_sight_is_refused_until_they_left() -> None:
    store = HashStore()
    meet(store, [make_member(rank, 2, ELSEWHERE) for rank in range(2)], is_exclusive=True)
    (error,) = only_errors(meet(store, [make_member(0, 1)], is_exclusive=True))
    assert "may still be running" in error.what
    assert error.hint
    assert "delete" in error.hint
    leave(store, 0, 0)
    leave(store, 0, 1)
    (result,) = meet(store, [make_member(0, 1)], is_exclusive=True)
    assert isinstance(result, AssembledRound)


def test_a_rank_that_died_while_others_wait_is_named() -> None:
    store = HashStore()
    announce_only(store, make_member(1, 3, GONE))
    (error,) = only_errors(meet(store, [make_member(0, 3)], timeout_s=0.1))
    assert error.what.startswith("rank 1 died while the ranks were meeting")


def test_a_rank_that_died_before_it_reached_the_store_is_named_to_all() -> None:
    errors = only_errors(
        meet(HashStore(), [make_member(0, 3), make_member(1, 3)], dead=make_member(2, 3, GONE))
    )
    for error in errors:
        assert error.what.startswith("rank 2 died while the ranks were meeting")
        assert f"(pid {GONE.pid} on {GONE.host})" in error.what
        assert error.missing == [2]


def test_a_rank_that_died_between_counting_itself_and_its_announcement_is_named() -> None:
    store = HashStore()
    store.set("distdbg/join/0/came/1", member_to_json(make_member(1, 3, GONE)))
    store.add("distdbg/join/0/arrived", 1)
    (error,) = only_errors(meet(store, [make_member(0, 3)]))
    assert error.what.startswith("rank 1 died while the ranks were meeting")


def test_a_rank_that_died_before_it_wrote_the_verdict_is_named_and_the_round_is_over() -> None:
    store = HashStore()
    announce_only(store, make_member(1, 2, GONE))
    store.add("distdbg/join/0/decided", 1)
    (error,) = only_errors(meet(store, [make_member(0, 2)]))
    assert error.what.startswith("rank 1 died while the ranks were meeting")
    for result in meet(store, [make_member(rank, 2) for rank in range(2)]):
        assert isinstance(result, AssembledRound)
        assert result.round == 1


def test_the_host_of_the_store_leaves_last() -> None:
    store = HashStore()
    reported = threading.Event()

    def late_reader() -> None:
        assemble(
            store,
            make_member(1, 2),
            time.monotonic_ns() + 60_000_000_000,
            where="x",
            on_decided=lambda: wait_until(reported.is_set),
        )

    with ThreadPoolExecutor(2) as pool:
        late = pool.submit(late_reader)
        host = pool.submit(meet, store, [make_member(0, 2)])
        wait_until(lambda: store.check(["distdbg/join/0/verdict"]))
        assert not host.done()
        reported.set()
        host.result(timeout=60)
        assert store.check(["distdbg/join/0/all_read"])
        late.result(timeout=60)


def announce_only(store: HashStore, member: JoinedRank) -> None:
    # What a rank leaves behind that is killed while it waits for the others.
    arena = JoinRound(store, 0, member, ())
    arena.announce()
    arena.claim()


def wait_until(predicate: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not predicate():
        assert time.monotonic() < deadline
        time.sleep(0.001)  # a store tells nobody when a key changes its value

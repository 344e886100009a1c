"""Launchers of a job as threads, each with its own rendezvous, over real stores on 127.0.0.x."""

from __future__ import annotations

import socket
import time
from typing import Any

import pytest

from distdbg.errors import RendezvousClosedError, RendezvousError, UsageError
from distdbg.launch.rendezvous.board import RendezvousBoard
from distdbg.launch.rendezvous.round import Closing, RendezvousInterrupted
from distdbg.launch.rendezvous.state import RendezvousState
from tests.launch.launcher_nodes import (
    PATIENCE_S,
    QUICK,
    MakeNodes,
    Node,
    agree,
    await_that,
    meet,
)
from tests.support.ports import free_port

# ------------------------------------------------------------------------------------ one node


@pytest.mark.parametrize("backend", ["static", "c10d"])
def test_a_launcher_alone_needs_no_port(make_nodes: MakeNodes, backend: str) -> None:
    (node,) = make_nodes(1, rdzv_backend=backend, rdzv_port=0)
    (first,), (second,) = meet(node), meet(node)
    assert (first.number, second.number) == (0, 1)
    assert (first.node_rank, first.world_size, first.first_rank) == (0, 2, 0)
    assert first.store_host == "127.0.0.1"
    assert first.store_port == second.store_port > 0
    first.store.set("key", "of the first round")
    assert not second.store.check(["key"])
    assert (node.rendezvous.waiting_count(), node.rendezvous.lost_nodes()) == (0, ())


def test_a_job_of_any_name_has_a_prefix_that_fits_a_url(make_nodes: MakeNodes) -> None:
    (node,) = make_nodes(1, rdzv_id="a job/with ?")
    assert meet(node)[0].prefix == "a%20job%2Fwith%20%3F/0"


def test_a_closed_job_has_no_further_round_for_a_launcher_alone(make_nodes: MakeNodes) -> None:
    (node,) = make_nodes(1)
    node.rendezvous.close("rank 1 failed")
    node.rendezvous.close("too late")
    assert node.rendezvous.closing() == Closing(reason="rank 1 failed", is_well=False)
    with pytest.raises(RendezvousClosedError, match="rank 1 failed"):
        meet(node)


# -------------------------------------------------------------------------------------- static


@pytest.mark.parametrize("count", [2, 4])
def test_static_launchers_are_numbered_as_they_were_told(make_nodes: MakeNodes, count: int) -> None:
    nodes = make_nodes(count, rdzv_backend="static", min_nodes=count, max_nodes=count)
    rounds = meet(*reversed(nodes))  # whoever comes first
    assert agree(rounds, 0) == [node.name for node in nodes]
    assert agree(meet(*nodes), 1) == [node.name for node in nodes]


def test_the_meeting_port_is_free_once_static_launchers_have_met(make_nodes: MakeNodes) -> None:
    port = free_port()
    rounds = meet(*make_nodes(2, rdzv_backend="static", min_nodes=2, max_nodes=2, rdzv_port=port))
    assert port not in {found.store_port for found in rounds}
    with socket.socket() as ranks:  # as torch's rank 0 does it
        ranks.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        ranks.bind(("127.0.0.1", port))
        ranks.listen()


@pytest.mark.slow
def test_a_static_launcher_that_does_not_come_is_named_by_its_place(make_nodes: MakeNodes) -> None:
    conf = {**QUICK, "join_timeout": "2"}
    nodes = make_nodes(3, rdzv_backend="static", min_nodes=3, max_nodes=3, rdzv_conf=conf)
    for future in [nodes[0].start(), nodes[2].start()]:
        with pytest.raises(RendezvousError) as raised:
            future.result(PATIENCE_S)
        assert "of 3 launchers joined 127.0.0.1:" in raised.value.what
        assert "--node-rank" in str(raised.value.details)


@pytest.mark.slow
def test_a_launcher_says_meanwhile_what_it_cannot_reach(
    make_nodes: MakeNodes, capfd: pytest.CaptureFixture[str]
) -> None:
    conf = {**QUICK, "join_timeout": "5"}
    nodes = make_nodes(2, rdzv_backend="static", min_nodes=2, max_nodes=2, rdzv_conf=conf)
    with pytest.raises(RendezvousError, match="did not reach"):
        nodes[1].start().result(PATIENCE_S)
    [line] = capfd.readouterr().err.splitlines()
    assert line.startswith("distdbg run: this launcher cannot reach 127.0.0.1:")
    assert "Connection refused" in line
    assert "it gives up in" in line


def test_two_static_launchers_cannot_have_one_place(make_nodes: MakeNodes) -> None:
    port = free_port()
    options = {"rdzv_backend": "static", "min_nodes": 3, "max_nodes": 3, "rdzv_port": port}
    first, second = make_nodes(2, **options)
    (other,) = make_nodes(2, **options)[1:]
    waiting = [first.start(), second.start()]
    await_that(lambda: second.rendezvous.__dict__["_keeper"] is not None, "node 1 has not come")
    await_that(
        lambda: seen_names(second) == {first.name, second.name}, "they do not see each other"
    )
    with pytest.raises(UsageError, match=r"--node-rank 1 is taken by launcher n1"):
        other.start().result(PATIENCE_S)
    for node in (first, second):
        node.rendezvous.interrupt()
    for future in waiting:
        with pytest.raises(RendezvousInterrupted):
            future.result(PATIENCE_S)


def seen_names(node: Node) -> set[str]:
    rendezvous: Any = node.rendezvous
    state = rendezvous._keeper.state
    return set() if state is None else set(state.all_names)


# ---------------------------------------------------------------------------------------- c10d

#: The first round waits for the last launcher, however late it is.
ALL_COME = {**QUICK, "last_call_timeout": "60"}


@pytest.mark.parametrize("count", [2, 3, 4])
def test_launchers_meet_at_an_endpoint_where_one_of_them_serves(
    make_nodes: MakeNodes, count: int
) -> None:
    host = f"127.0.0.{count}"
    port = free_port(host)
    nodes = make_nodes(count, min_nodes=count, max_nodes=count, rdzv_host=host, rdzv_port=port)
    rounds = meet(*nodes)
    agree(rounds, 0)
    assert {(found.store_host, found.store_port) for found in rounds} == {(host, port)}
    assert rounds[0].world_size == 2 * count
    rounds[0].store.set("key", "value")
    assert rounds[-1].store.get("key") == b"value"


def test_with_enough_launchers_the_last_call_ends_the_wait(make_nodes: MakeNodes) -> None:
    nodes = make_nodes(2, min_nodes=2, max_nodes=4)
    started = time.monotonic()
    agree(meet(*nodes), 0)
    assert time.monotonic() - started >= 0.3


def test_a_restart_does_not_wait_for_a_last_call_and_keeps_the_order(make_nodes: MakeNodes) -> None:
    nodes = make_nodes(3, min_nodes=2, max_nodes=3, rdzv_conf=ALL_COME)
    order = agree(meet(*nodes), 0)
    nodes.sort(key=lambda node: not serves(node))
    nodes[2].leave()
    assert agree(meet(*reversed(nodes[:2])), 1) == [n for n in order if n != nodes[2].name]


def test_a_launcher_that_comes_late_has_the_others_start_anew_with_it(
    make_nodes: MakeNodes,
) -> None:
    port = free_port()
    options = {"min_nodes": 2, "max_nodes": 3, "rdzv_port": port}
    nodes = make_nodes(2, **options)
    order = agree(meet(*nodes), 0)
    (late,) = make_nodes(1, **options)
    joining = late.start()
    for node in nodes:
        await_that(lambda node=node: node.rendezvous.waiting_count() == 1, "nobody waits")
    rounds = [*meet(*nodes), joining.result(PATIENCE_S)]
    assert agree(rounds, 1) == [*order, late.name]
    assert [node.rendezvous.waiting_count() for node in nodes] == [0, 0]


def test_a_launcher_without_room_waits_and_disturbs_nobody(make_nodes: MakeNodes) -> None:
    port = free_port()
    options = {"min_nodes": 2, "max_nodes": 2, "rdzv_port": port}
    nodes = make_nodes(2, **options)
    agree(meet(*nodes), 0)
    (spare,) = make_nodes(1, **options)
    joining = spare.start()
    await_that(lambda: spare.name in seen_names(nodes[0]), "the spare one did not come")
    assert nodes[0].rendezvous.waiting_count() == 0
    first = sorted(nodes, key=lambda node: not serves(node))
    first[1].leave()  # and it takes the place of one that leaves
    await_that(lambda: first[0].rendezvous.lost_nodes() == (first[1].name,), "nobody left")
    await_that(lambda: first[0].rendezvous.waiting_count() == 1, "nobody waits")
    rounds = [*meet(first[0]), joining.result(PATIENCE_S)]
    assert agree(rounds, 1) == [first[0].name, spare.name]


def test_a_spare_launcher_knows_why_the_store_goes_that_its_keeper_let_go(
    make_nodes: MakeNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"rdzv_port": free_port(), "min_nodes": 2, "max_nodes": 2}
    nodes = make_nodes(2, **options)
    meet(*nodes)
    (spare,) = make_nodes(1, **options)
    joining = spare.start()
    rendezvous: Any = spare.rendezvous

    def has_come() -> bool:
        keeper = rendezvous._keeper
        return keeper is not None and keeper.state is not None

    await_that(has_come, "the spare one did not come")
    read = RendezvousBoard.read

    def read_or_fail(board: RendezvousBoard) -> RendezvousState:
        # The store is gone between the keeper's look and this one.
        if board is rendezvous._board:
            nodes[0].rendezvous.close("all ranks succeeded", is_well=True)
            await_that(lambda: rendezvous._keeper.state.closing, "the keeper did not hear")
            raise RendezvousError("the store is gone")
        return read(board)

    monkeypatch.setattr(RendezvousBoard, "read", read_or_fail)
    with pytest.raises(RendezvousClosedError, match="all ranks succeeded"):
        joining.result(PATIENCE_S)


def serves(node: Node) -> bool:
    rendezvous: Any = node.rendezvous
    return bool(rendezvous._reached.store.is_serving)


@pytest.mark.slow
def test_a_dead_launcher_is_noticed_and_the_others_go_on(
    make_nodes: MakeNodes,
) -> None:
    nodes = make_nodes(3, min_nodes=2, max_nodes=3, rdzv_conf=ALL_COME)
    order = agree(meet(*nodes), 0)
    nodes.sort(key=lambda node: not serves(node))
    dead, alive = nodes[2], nodes[:2]
    dead.die()
    for node in alive:
        await_that(lambda node=node: node.rendezvous.lost_nodes() == (dead.name,), "not noticed")
    rounds = meet(*alive)
    assert agree(rounds, 1) == [name for name in order if name != dead.name]
    assert alive[0].rendezvous.lost_nodes() == ()


def test_when_the_serving_launcher_dies_the_others_say_who_it_was(make_nodes: MakeNodes) -> None:
    nodes = make_nodes(2, min_nodes=2, max_nodes=2)
    agree(meet(*nodes), 0)
    host, other = sorted(nodes, key=lambda node: not serves(node))
    host.die()

    def is_noticed() -> bool:
        try:
            return bool(other.rendezvous.waiting_count())
        except RendezvousError:
            return True

    await_that(is_noticed, "the store is still there")
    with pytest.raises(RendezvousError) as raised:
        other.rendezvous.closing()
    assert f"was served by launcher {host.name} on {host.name}" in raised.value.what


def test_when_the_serving_launcher_leaves_the_job_is_closed_for_the_others(
    make_nodes: MakeNodes,
) -> None:
    nodes = make_nodes(3, min_nodes=2, max_nodes=3, rdzv_conf=ALL_COME)
    agree(meet(*nodes), 0)
    host, *others = sorted(nodes, key=lambda node: not serves(node))
    host.leave()
    for node in others:
        await_that(node.rendezvous.closing, "not closed")
        closing = node.rendezvous.closing()
        assert closing is not None
        assert closing.reason == f"launcher {host.name}, which served the store of the job, left"
        assert node.rendezvous.waiting_count() == 0  # and no error


def test_the_first_who_closes_a_job_says_why_to_all(make_nodes: MakeNodes) -> None:
    nodes = make_nodes(3, min_nodes=3, max_nodes=3)
    agree(meet(*nodes), 0)
    nodes[2].rendezvous.close("all ranks are done", is_well=True)
    nodes[1].rendezvous.close("something else")
    for node in nodes:
        await_that(node.rendezvous.closing, "not closed")
        assert node.rendezvous.closing() == Closing(reason="all ranks are done", is_well=True)
        with pytest.raises(RendezvousClosedError, match="all ranks are done"):
            node.start().result(PATIENCE_S)


def test_one_that_comes_to_a_closed_job_is_told(make_nodes: MakeNodes) -> None:
    port = free_port()
    options = {"min_nodes": 2, "max_nodes": 3, "rdzv_port": port}
    nodes = make_nodes(2, **options)
    agree(meet(*nodes), 0)
    nodes[0].rendezvous.close("rank 3 failed")
    (late,) = make_nodes(1, **options)
    with pytest.raises(RendezvousClosedError, match="rank 3 failed"):
        late.start().result(PATIENCE_S)

"""Launchers of a job as threads, each with its own rendezvous, over real stores on 127.0.0.x."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from distdbg.errors import RendezvousClosedError, RendezvousError, UsageError
from distdbg.launch.rendezvous.board import TURN_S, RendezvousBoard
from distdbg.launch.rendezvous.registry import make_rendezvous
from distdbg.launch.rendezvous.round import Closing, LauncherRound, NodeFacts, RendezvousInterrupted
from distdbg.launch.rendezvous.shared import SharedRendezvous
from distdbg.launch.rendezvous.state import RendezvousState
from distdbg.runtime.store import HashStore
from tests.support.ports import free_port

QUICK = {"last_call_timeout": "0.3", "keep_alive_interval": "0.2", "keep_alive_max_attempt": "10"}
PATIENCE_S = 120.0


@dataclass(frozen=True, kw_only=True)
class Options:
    rdzv_backend: str = "c10d"
    rdzv_endpoint: str = ""
    rdzv_host: str = "127.0.0.1"
    rdzv_port: int = 0
    rdzv_id: str = "job 7"
    rdzv_conf: dict[str, str] = field(default_factory=dict)
    min_nodes: int = 1
    max_nodes: int = 1
    node_rank: int = 0
    local_addr: str | None = None
    standalone: bool = False


class Node:
    """One launcher: what it asks for runs in a thread of its own."""

    def __init__(self, name: str, options: Options) -> None:
        self.name = name
        self.rendezvous = make_rendezvous(options)
        self.pool = ThreadPoolExecutor(1)

    def start(self) -> Future[LauncherRound]:
        facts = NodeFacts(name=self.name, addr="127.0.0.1", host=self.name, nproc=2)
        return self.pool.submit(self.rendezvous.next_round, facts)

    def die(self) -> None:
        """As a SIGKILL would: no more beats, no good-bye."""
        rendezvous: Any = self.rendezvous
        assert isinstance(rendezvous, SharedRendezvous)
        if rendezvous._keeper is not None:
            rendezvous._keeper.stop()
        if rendezvous._reached is not None:
            rendezvous._reached.store.close()
        rendezvous._is_shut = True

    def leave(self) -> None:
        self.rendezvous.shutdown()
        self.pool.shutdown()


MakeNodes = Callable[..., list[Node]]


@pytest.fixture
def make_nodes() -> Iterator[MakeNodes]:
    made: list[Node] = []

    def make(count: int, **options: Any) -> list[Node]:
        options.setdefault("rdzv_conf", QUICK)
        options.setdefault("rdzv_port", free_port())
        is_static = options.get("rdzv_backend") == "static"
        nodes = [
            Node(
                f"n{len(made) + index}",
                Options(**options, node_rank=index if is_static else 0),
            )
            for index in range(count)
        ]
        made.extend(nodes)
        return nodes

    yield make
    for node in made:
        node.rendezvous.interrupt()
    for node in reversed(made):  # the first one serves
        node.leave()


def meet(*nodes: Node) -> list[LauncherRound]:
    found = [node.start() for node in nodes]
    return [future.result(PATIENCE_S) for future in found]


def names(found: LauncherRound) -> list[str]:
    return [node.name for node in found.nodes]


def await_that(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)  # nothing announces what a thread of the launcher has seen


def agree(rounds: list[LauncherRound], number: int) -> list[str]:
    """All in the same round, each in its own place; returns the names in order."""
    order = names(rounds[0])
    assert all(names(found) == order and found.number == number for found in rounds)
    assert sorted(found.node_rank for found in rounds) == list(range(len(order)))
    return order


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
    conf = {**QUICK, "last_call_timeout": "60"}
    nodes = make_nodes(3, min_nodes=2, max_nodes=3, rdzv_conf=conf)
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
    nodes = make_nodes(3, min_nodes=2, max_nodes=3)
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
    nodes = make_nodes(3, min_nodes=2, max_nodes=3)
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


def test_too_few_launchers_are_counted_and_named_at_the_deadline(make_nodes: MakeNodes) -> None:
    conf = {**QUICK, "join_timeout": "0.4"}
    (node,) = make_nodes(1, min_nodes=2, max_nodes=2, rdzv_conf=conf)
    with pytest.raises(RendezvousError) as raised:
        node.start().result(PATIENCE_S)
    assert raised.value.what.startswith("1 of 2 launchers joined 127.0.0.1:")
    assert raised.value.details == ["joined: n0 on n0"]


def test_a_launcher_that_waits_can_be_interrupted(make_nodes: MakeNodes) -> None:
    (node,) = make_nodes(1, min_nodes=2, max_nodes=2)
    waiting = node.start()
    await_that(lambda: node.rendezvous.__dict__["_keeper"] is not None, "it does not wait")
    node.rendezvous.interrupt()
    with pytest.raises(RendezvousInterrupted):
        waiting.result(PATIENCE_S)


def test_two_jobs_at_one_endpoint_do_not_meet(make_nodes: MakeNodes) -> None:
    port = free_port()
    mine = make_nodes(2, min_nodes=2, max_nodes=2, rdzv_port=port, rdzv_id="mine")
    agree(meet(*mine), 0)
    yours = make_nodes(2, min_nodes=2, max_nodes=2, rdzv_port=port, rdzv_id="yours")
    assert set(agree(meet(*yours), 0)) == {node.name for node in yours}


def test_launchers_with_other_numbers_are_refused(make_nodes: MakeNodes) -> None:
    port = free_port()
    nodes = make_nodes(2, min_nodes=2, max_nodes=3, rdzv_port=port)
    meet(*nodes)
    (other,) = make_nodes(1, min_nodes=2, max_nodes=4, rdzv_port=port)
    with pytest.raises(UsageError, match=r"has --nnodes 2:4, the others at .* have 2:3"):
        other.start().result(PATIENCE_S)


def test_another_token_is_told_by_the_variable_to_look_at(
    make_nodes: MakeNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    monkeypatch.setenv("DISTDBG_TOKEN", "one")
    nodes = make_nodes(2, min_nodes=1, max_nodes=2, rdzv_port=port)
    meet(nodes[0])
    monkeypatch.setenv("DISTDBG_TOKEN", "two")
    with pytest.raises(RendezvousError, match="rejects this one: its token is different") as raised:
        nodes[1].start().result(PATIENCE_S)
    assert "DISTDBG_TOKEN" in str(raised.value.hint)


def test_a_port_held_by_another_program_is_told_with_its_holder(make_nodes: MakeNodes) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        conf = {**QUICK, "is_host": "1"}
        (node,) = make_nodes(
            1, min_nodes=2, max_nodes=2, rdzv_port=other.getsockname()[1], rdzv_conf=conf
        )
        with pytest.raises(RendezvousError, match="cannot serve the others") as raised:
            node.start().result(PATIENCE_S)
        assert "pid" in raised.value.details[0]


def test_a_port_whose_holder_is_no_launcher_is_not_waited_for_until_the_deadline(
    make_nodes: MakeNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("distdbg.launch.rendezvous.c10d.FOREIGN_S", 0.1)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        (node,) = make_nodes(1, min_nodes=2, max_nodes=2, rdzv_port=other.getsockname()[1])
        with pytest.raises(RendezvousError, match="is not a launcher") as raised:
            node.start().result(PATIENCE_S)
        assert any("pid" in line for line in raised.value.details)


def test_static_node_0_says_who_has_the_meeting_port(make_nodes: MakeNodes) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        (node,) = make_nodes(1, rdzv_backend="static", min_nodes=2, max_nodes=2, rdzv_port=port)
        with pytest.raises(
            RendezvousError, match="the first launcher cannot wait for the others"
        ) as raised:
            node.start().result(PATIENCE_S)
        assert "pid" in raised.value.details[0]


def test_what_answers_but_is_no_store_is_told_from_a_launcher(
    make_nodes: MakeNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("distdbg.launch.rendezvous.reach.FOREIGN_S", 0.1)
    with socket.socket() as other, ThreadPoolExecutor(1) as pool:
        other.bind(("127.0.0.1", 0))
        other.listen()

        def answer() -> None:
            with suppress(OSError):  # shut down at the end
                while True:
                    with other.accept()[0] as visitor:
                        visitor.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 8)

        pool.submit(answer)
        conf = {**QUICK, "is_host": "false"}
        (node,) = make_nodes(
            1, min_nodes=2, max_nodes=2, rdzv_port=other.getsockname()[1], rdzv_conf=conf
        )
        with pytest.raises(RendezvousError, match="another program answers at"):
            node.start().result(PATIENCE_S)
        other.shutdown(socket.SHUT_RDWR)


def test_a_name_is_served_at_the_local_address_that_was_given(
    make_nodes: MakeNodes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("distdbg.launch.rendezvous.c10d.is_name", lambda host: True)
    (node,) = make_nodes(1, max_nodes=2, rdzv_host="127.0.0.1", local_addr="127.0.0.8")
    assert meet(node)[0].store_host == "127.0.0.8"
    assert not caplog.messages
    (other,) = make_nodes(1, max_nodes=2, rdzv_host="127.0.0.1")
    assert meet(other)[0].store_host == "127.0.0.1"
    assert "launchers on other hosts cannot reach it" in caplog.messages[0]


def test_many_launchers_that_come_at_once_read_and_write_the_agreement_a_few_times_each(
    make_nodes: MakeNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is as long as they are many: read at each of as many changes, it is cubic."""
    read, write = RendezvousBoard.read, RendezvousBoard.write
    reads: list[None] = []
    writes: list[bool] = []

    def count_read(board: RendezvousBoard) -> RendezvousState:
        reads.append(None)
        return read(board)

    def count_write(board: RendezvousBoard, after: RendezvousState) -> bool:
        is_written = write(board, after)
        writes.append(is_written)
        return is_written

    monkeypatch.setattr(RendezvousBoard, "read", count_read)
    monkeypatch.setattr(RendezvousBoard, "write", count_write)
    count = 48
    nodes = make_nodes(count, rdzv_backend="static", min_nodes=count, max_nodes=count)
    rounds = meet(*nodes)

    assert [found.node_rank for found in rounds] == list(range(count))
    assert len(writes) < 2 * count
    assert len(reads) < 12 * count


def test_a_launcher_that_dies_in_its_turn_is_waited_for_no_longer_than_promised() -> None:
    store = HashStore()
    first, second = RendezvousBoard(store, "job", "here:1"), RendezvousBoard(store, "job", "here:1")

    def do_nothing() -> None:
        pass

    dead = first.turn(do_nothing)
    dead.__enter__()
    began_s = time.monotonic()
    with second.turn(do_nothing):
        took_s = time.monotonic() - began_s
    assert TURN_S <= took_s < TURN_S + 2.0
    with RendezvousBoard(store, "job", "here:1").turn(do_nothing):
        assert time.monotonic() - began_s - took_s < 1.0  # and nobody after it waits again

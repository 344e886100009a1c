"""Launchers that do not meet: too few, other numbers, another token or port, another program there."""

from __future__ import annotations

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from distdbg.errors import RendezvousError, UsageError
from distdbg.launch.rendezvous.board import TURN_S, RendezvousBoard
from distdbg.launch.rendezvous.round import RendezvousInterrupted
from distdbg.launch.rendezvous.state import RendezvousState
from distdbg.runtime.store import HashStore
from tests.launch.launcher_nodes import (
    PATIENCE_S,
    QUICK,
    MakeNodes,
    agree,
    await_that,
    meet,
)
from tests.support.ports import free_port


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

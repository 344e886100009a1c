"""Agents on 127.0.0.x, each with its threads, that find each other in a real store."""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from distdbg.follow.status import RankStatus
from distdbg.hosts.handshake import Handshake, NotTrusted
from distdbg.hosts.place import Tree
from distdbg.record.rank_state import RankState
from distdbg.runtime.store import TCPStore

TOKEN = b"a secret of the tests"


class Job:
    """Trees with two children each, so that few of them are deep; node n is at 127.0.0.<n + 2>."""

    def __init__(self, store: TCPStore, nodes: int) -> None:
        self.store = store
        self.nodes = nodes
        self.trees: dict[int, Tree] = {}

    def start(self, node: int, **words: object) -> Tree:
        host = f"127.0.0.{node + 2}"
        options: dict[str, object] = {"fan_in": 2, "run": "r", "token": TOKEN, **words}
        url = f"tcp://127.0.0.1:{self.store.port}/agents"
        tree = Tree(host, self.nodes, node, url, **options)  # type: ignore[arg-type]
        self.trees[node] = tree
        tree.report([status(node)])
        return tree

    def close(self) -> None:
        for tree in self.trees.values():
            tree.close()


def status(node: int, state: RankState = RankState.RUNNING) -> RankStatus:
    return RankStatus(rank=node, host=f"127.0.0.{node + 2}", pid=1, state=state)


def poll_for(is_so: Callable[[], bool], timeout_s: float = 120.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < deadline, "it did not come to be"
        time.sleep(0.005)  # the threads of the trees announce nothing to the test


def kill(tree: Tree) -> None:
    """As SIGKILL would: its sockets close, and it says nothing before."""
    loop = tree._loop
    assert loop is not None
    loop._node.leave = lambda now_ns: None  # type: ignore[method-assign]
    tree.close()


@pytest.fixture
def start_job() -> Iterator[Callable[[int], Job]]:
    with contextlib.ExitStack() as stack:

        def start(nodes: int) -> Job:
            store = TCPStore("127.0.0.1", 0, is_master=True, _token=TOKEN)
            stack.callback(store.close)
            job = Job(store, nodes)
            stack.callback(job.close)
            return job

        yield start


def ranks_seen(tree: Tree) -> list[int]:
    return [row.rank for row in tree.view().ranks]


def address_of(job: Job, node: int, round_number: int = 0) -> tuple[str, int]:
    key = f"agents/{round_number}/{node}"
    poll_for(lambda: job.store.check([key]))
    found = json.loads(job.store.get(key))
    return found["address"], found["port"]


def test_eight_agents_become_one_tree(start_job: Callable[[int], Job]) -> None:
    job = start_job(8)
    for node in reversed(range(8)):
        job.start(node)
    root = job.trees[0]
    poll_for(lambda: ranks_seen(root) == list(range(8)))
    assert [host.host for host in root.view().hosts] == [f"127.0.0.{n + 2}" for n in range(8)]
    assert ranks_seen(job.trees[7]) == [7]
    poll_for(lambda: all(tree.is_attached for tree in job.trees.values()))
    job.trees[7].report([status(7, RankState.STOPPED)])
    poll_for(lambda: root.view().ranks[7].state == RankState.STOPPED)


def test_every_agent_listens_where_its_host_is_known_and_nowhere_else(
    start_job: Callable[[int], Job],
) -> None:
    job = start_job(2)
    job.start(0)
    job.start(1, addr="127.0.0.77")
    assert address_of(job, 0)[0] == "127.0.0.2"
    address, port = address_of(job, 1)
    assert address == "127.0.0.77"
    with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port), 5):
        pass


def test_agents_whose_hosts_are_known_by_name_meet(start_job: Callable[[int], Job]) -> None:
    job = start_job(2)
    for node in range(2):
        job.start(node, addr=f"n{node}.cluster")
    poll_for(lambda: len(job.trees[0].view().ranks) == 2)


def test_an_order_goes_from_a_leaf_to_all_and_is_counted(start_job: Callable[[int], Job]) -> None:
    job = start_job(4)
    for node in range(4):
        job.start(node)
    poll_for(lambda: len(job.trees[0].view().hosts) == 4)
    ticket = job.trees[3].send_order("pause", {"by": "a person"})
    waiting = dict(job.trees)

    def all_did() -> bool:
        for node, tree in list(waiting.items()):
            for order in tree.orders():
                assert (order.do, order.words) == ("pause", {"by": "a person"})
                tree.acknowledge(order)
                del waiting[node]
        return not waiting

    poll_for(all_did)
    poll_for(lambda: job.trees[3].acknowledged(ticket) == (4, 4))


def test_children_of_a_killed_agent_find_another_way_and_it_is_lost(
    start_job: Callable[[int], Job],
) -> None:
    job = start_job(7)
    for node in range(7):
        job.start(node)
    root = job.trees[0]
    poll_for(lambda: ranks_seen(root) == list(range(7)))
    kill(job.trees[1])
    poll_for(lambda: [host.node for host in root.view().lost] == [1])
    job.trees[3].report([status(3, RankState.BUSY)])
    poll_for(lambda: root.view().ranks[3].state == RankState.BUSY)
    ticket = root.send_order("resume")
    for node in (0, 2, 3, 4, 5, 6):
        tree = job.trees[node]
        seen = []
        poll_for(lambda tree=tree, seen=seen: bool(seen.extend(tree.orders()) or seen))  # type: ignore[misc]
        tree.acknowledge(seen[0])
    poll_for(lambda: root.acknowledged(ticket) == (6, 6))
    assert root.view().lost[0].since_s < 600


def test_late_and_missing_agents_block_nobody(start_job: Callable[[int], Job]) -> None:
    job = start_job(7)
    job.start(3)  # its parent is 1, which never comes
    job.start(0)
    poll_for(lambda: ranks_seen(job.trees[0]) == [0, 3])
    job.start(6)
    job.start(2)
    poll_for(lambda: ranks_seen(job.trees[0]) == [0, 2, 3, 6])


def test_nobody_with_another_token_is_let_in_and_it_is_said_once(
    start_job: Callable[[int], Job], caplog: pytest.LogCaptureFixture
) -> None:
    job = start_job(3)
    job.start(0)
    where = address_of(job, 0)
    with caplog.at_level(logging.WARNING, "distdbg.agent"):
        for _ in range(3):
            with socket.create_connection(where, 5) as sock:
                answer(sock, Handshake(b"another", "r/0", 1))
                assert sock.recv(1) == b""
    reported = [entry for entry in caplog.messages if "token" in entry]
    assert reported == ["the link with 127.0.0.1 is cut: it does not know the token"]
    job.start(1)
    poll_for(lambda: ranks_seen(job.trees[0]) == [0, 1])


def answer(sock: socket.socket, handshake: Handshake) -> None:
    said = handshake.take(read_frame(sock))
    assert said is not None
    sock.sendall(len(said).to_bytes(4, "little") + said)


def read_frame(sock: socket.socket) -> bytes:
    length = int.from_bytes(sock.recv(4, socket.MSG_WAITALL), "little")
    return sock.recv(length, socket.MSG_WAITALL)


@pytest.mark.parametrize("garbage", [b"GET / HTTP/1.1\r\n\r\n", b"\x05\0\0\0[1,2]", b"\xff" * 99])
def test_garbage_is_dropped_and_the_tree_goes_on(
    start_job: Callable[[int], Job], garbage: bytes
) -> None:
    job = start_job(2)
    job.start(0)
    with socket.create_connection(address_of(job, 0), 5) as sock:
        read_frame(sock)
        sock.sendall(garbage)
        with contextlib.suppress(ConnectionResetError):
            assert sock.recv(1) == b""
    job.start(1)
    poll_for(lambda: ranks_seen(job.trees[0]) == [0, 1])


def test_who_proves_the_token_and_then_talks_nonsense_is_cut(
    start_job: Callable[[int], Job],
) -> None:
    job = start_job(2)
    job.start(0)
    with socket.create_connection(address_of(job, 0), 5) as sock:
        handshake = Handshake(TOKEN, "r/0", 1)
        answer(sock, handshake)
        handshake.take(read_frame(sock))
        assert handshake.is_done
        sock.sendall(b"\x03\0\0\0jno")
        while sock.recv(4096):
            pass
    assert not job.trees[0].view().lost


def test_a_new_round_is_a_new_tree(start_job: Callable[[int], Job]) -> None:
    job = start_job(3)
    for node in range(3):
        job.start(node)
    poll_for(lambda: ranks_seen(job.trees[0]) == [0, 1, 2])
    job.trees[1].send_order("pause")
    poll_for(lambda: bool(job.trees[2].orders()))
    former = dict(job.trees)
    job.nodes = 2  # one host less
    for node in (1, 0):
        former[node].close()
        job.start(node, round_number=1)
    poll_for(lambda: ranks_seen(job.trees[0]) == [0, 1])
    assert job.trees[0].orders() == []
    former[2].close()


def test_offsets_of_clocks_that_differ_come_out(start_job: Callable[[int], Job]) -> None:
    job = start_job(4)
    skew_ns = [0, 5 * 10**9, -3 * 10**9, 10**12]
    for node in range(4):
        job.start(node, clock_ns=lambda by=skew_ns[node]: time.monotonic_ns() + by)  # type: ignore[misc]
    for node, tree in job.trees.items():

        def is_known(tree: Tree = tree) -> bool:  # of many exchanges, the quickest counts
            offset = tree.offset()
            return offset is not None and offset.error_ns < 10**9

        poll_for(is_known)
        offset = tree.offset()
        assert offset is not None
        assert abs(offset.offset_ns + skew_ns[node]) <= offset.error_ns
    # Ages go over the links, not times.
    poll_for(lambda: ranks_seen(job.trees[0]) == [0, 1, 2, 3])
    assert all(row.state_age_s < 500 for row in job.trees[0].view().ranks)


def test_a_store_that_is_gone_disturbs_nobody(start_job: Callable[[int], Job]) -> None:
    job = start_job(2)
    job.start(0)
    job.start(1)
    poll_for(lambda: ranks_seen(job.trees[0]) == [0, 1])
    job.store.close()
    job.trees[1].report([status(1, RankState.DEAD)])
    poll_for(lambda: job.trees[0].view().ranks[1].state == RankState.DEAD)


@pytest.mark.slow
def test_a_store_that_was_never_there_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # it does not listen
        url = f"tcp://127.0.0.1:{bound.getsockname()[1]}/agents"
        tree = Tree("127.0.0.2", 2, 1, url, TOKEN)
        try:
            poll_for(lambda: "store does not answer" in caplog.text)
            tree.report([status(1)])
            assert ranks_seen(tree) == [1]
            assert not tree.is_attached
        finally:
            tree.close()


def test_one_host_needs_no_store_and_no_thread() -> None:
    tree = Tree("n01", 1, 0, "", b"")
    try:
        assert tree.is_root
        tree.report([status(0)])
        assert ranks_seen(tree) == [0]
        ticket = tree.send_order("pause")
        (order,) = tree.orders()
        tree.acknowledge(order)
        assert tree.acknowledged(ticket) == (1, 1)
        assert tree.offset() == (0, 1)
    finally:
        tree.close()
    tree.close()


def test_a_node_outside_the_job_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="none of 2"):
        Tree("n01", 2, 2, "tcp://127.0.0.1:1/agents", b"x")
    with pytest.raises(ValueError, match="tcp://"):
        Tree("n01", 2, 1, f"file://{tmp_path}", b"x")
    with pytest.raises(ValueError, match="token"):
        Tree("n01", 2, 1, "tcp://127.0.0.1:1/agents", b"")


def meet(child: Handshake, parent: Handshake) -> None:
    said = parent.first()
    assert said is not None
    said = child.take(said)
    assert said is not None
    said = parent.take(said)
    assert said is not None
    child.take(said)


def test_both_ends_prove_the_token_and_the_parent_learns_who_it_is() -> None:
    child, parent = Handshake(TOKEN, "r/0", 5), Handshake(TOKEN, "r/0", None)
    meet(child, parent)
    assert child.is_done
    assert parent.is_done
    assert parent.node == 5


def test_a_parent_without_the_token_is_not_believed() -> None:
    child, impostor = Handshake(TOKEN, "r/0", 5), Handshake(b"guess", "r/0", None)
    first = impostor.first()
    assert first is not None
    said = child.take(first)
    assert said is not None
    with pytest.raises(NotTrusted):
        impostor.take(said)
    # It might send back what it was sent.
    with pytest.raises(NotTrusted):
        child.take(json.dumps({"proof": json.loads(said)["proof"]}).encode())
    assert not child.is_done


@pytest.mark.parametrize("meeting", ["r/1", "other/0", ""])
def test_agents_of_another_run_or_round_do_not_meet(meeting: str) -> None:
    with pytest.raises(NotTrusted, match="another run or round"):
        meet(Handshake(TOKEN, "r/0", 5), Handshake(TOKEN, meeting, None))

"""Pipes over nodes that are joined by nothing but lists of frames."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdbg.hosts.messages import BadMessage
from distdbg.hosts.pipes import (
    HERE,
    MAX_DATA_NBYTES,
    MAX_PIPES,
    WINDOW_NBYTES,
    News,
    NoWay,
    PipeAccepted,
    PipeData,
    PipeEnded,
    PipeKey,
    PipeOpened,
    Pipes,
    PipeTarget,
)

#: A root and two hosts below it; of each node, the link that leads to another.
WAYS = {
    0: {"a": HERE, "b": 1, "c": 2},
    1: {"a": 0, "b": HERE, "c": 0},
    2: {"a": 0, "b": 0, "c": HERE},
}
HOSTS = "abc"


class Net:
    """Three nodes; the link between 0 and n is n at 0, and 0 at n."""

    def __init__(self) -> None:
        self.nodes = [
            Pipes(n, HOSTS[n], lambda target, n=n: self.find(n, target)) for n in range(3)
        ]
        self.news: list[list[News]] = [[], [], []]

    def find(self, node: int, target: PipeTarget) -> int:
        if target.host not in WAYS[node]:
            if node == 0:
                raise NoWay(f"no agent of {target} is in touch")
            return 0
        return WAYS[node][target.host]

    def run(self) -> None:
        """Until nothing is on its way."""
        while sum(self.carry(n) for n in range(3)):
            pass

    def carry(self, node: int) -> bool:
        frames = self.nodes[node].take_out()
        for link, frame in frames:
            self.nodes[link].receive(node, frame)
        self.news[node] += self.nodes[node].take_news()
        return bool(frames)

    def pipe(self, begin: int, end: int) -> PipeKey:
        """One that has been accepted."""
        key = self.nodes[begin].open(PipeTarget(HOSTS[end]))
        assert key is not None
        self.run()
        assert self.news[end] == [PipeOpened(key, HOSTS[begin])]
        self.nodes[end].accept(key)
        self.run()
        assert self.news[begin] == [PipeAccepted(key)]
        self.news = [[], [], []]
        return key

    def arrived(self, node: int) -> bytes:
        return b"".join(one.data for one in self.news[node] if isinstance(one, PipeData))


@pytest.fixture
def net() -> Iterator[Net]:
    made = Net()
    yield made
    made.run()


@pytest.mark.parametrize(("begin", "end"), [(0, 1), (1, 0), (1, 2)])
def test_bytes_go_both_ways_between_any_two_hosts(net: Net, begin: int, end: int) -> None:
    key = net.pipe(begin, end)
    net.nodes[begin].send(key, b"there")
    net.nodes[end].send(key, b"and back")
    net.run()
    assert net.arrived(end) == b"there"
    assert net.arrived(begin) == b"and back"
    net.nodes[end].send(key, b", the last")
    net.nodes[end].end(key)
    net.run()
    assert net.arrived(begin) == b"and back, the last"
    assert net.news[begin][-1] == PipeEnded(key, "")
    assert [len(node) for node in net.nodes] == [0, 0, 0]


def test_a_pipe_to_the_own_host_is_none_and_one_to_nobody_is_refused(net: Net) -> None:
    assert net.nodes[1].open(PipeTarget("b")) is None
    key = net.nodes[1].open(PipeTarget("nowhere"))
    assert key is not None
    net.run()
    assert net.news[1] == [PipeEnded(key, "no agent of host nowhere is in touch")]
    with pytest.raises(NoWay):
        net.nodes[0].open(PipeTarget("nowhere"))
    assert [len(node) for node in net.nodes] == [0, 0, 0]


def test_an_end_sends_no_more_than_the_other_has_taken_and_a_window(net: Net) -> None:
    key = net.pipe(1, 2)
    assert net.nodes[1].room(key) == WINDOW_NBYTES
    net.nodes[1].send(key, bytes(WINDOW_NBYTES))
    net.run()
    assert net.nodes[1].room(key) == 0
    assert all(len(one.data) <= MAX_DATA_NBYTES for one in net.news[2] if isinstance(one, PipeData))
    net.nodes[2].take(key, 1000)
    net.run()
    assert net.nodes[1].room(key) == 1000
    assert net.nodes[2].room(key) == WINDOW_NBYTES


def test_a_relay_ends_a_pipe_that_sends_more_than_it_may(net: Net) -> None:
    key = net.pipe(1, 2)
    net.nodes[1].send(key, bytes(WINDOW_NBYTES + 1))
    net.run()
    assert len(net.arrived(2)) <= WINDOW_NBYTES
    assert net.news[2][-1] == PipeEnded(key, "its other end sends more than it may")
    assert net.news[1] == [PipeEnded(key, "its other end sends more than it may")]


def test_a_relay_ends_a_pipe_that_takes_what_was_not_sent(net: Net) -> None:
    key = net.pipe(1, 2)
    net.nodes[2].take(key, 10)
    net.run()
    assert net.news[1] == [PipeEnded(key, "its other end takes what was not sent")]


def test_a_broken_link_ends_its_pipes_with_a_word_and_no_other(net: Net) -> None:
    broken, whole = net.pipe(1, 2), net.pipe(0, 1)
    net.nodes[0].drop_link(2)
    net.nodes[2].drop_link(0)
    net.run()
    assert net.news[1] == [PipeEnded(broken, "a link of host a is broken")]
    assert net.news[2] == [PipeEnded(broken, "a link of host c is broken")]
    net.nodes[0].send(whole, b"still here")
    net.run()
    assert net.arrived(1) == b"still here"


def test_no_node_has_more_than_so_many_pipes(net: Net) -> None:
    for _ in range(MAX_PIPES):
        assert net.nodes[1].open(PipeTarget("c")) is not None
    with pytest.raises(NoWay, match="64 pipes already"):
        net.nodes[1].open(PipeTarget("c"))
    net.run()
    with pytest.raises(NoWay, match="64 pipes already"):  # all of them end there
        net.nodes[2].open(PipeTarget("b"))
    net.nodes[2].end(PipeKey(1, 1))
    net.run()
    assert net.nodes[2].open(PipeTarget("a")) is not None  # there is room again
    net.run()
    assert [len(node) for node in net.nodes] == [MAX_PIPES, MAX_PIPES - 1, MAX_PIPES]


@pytest.mark.parametrize(
    "frame",
    [
        b"p",
        b"pO" + bytes(8) + b"{}",
        b"pO" + bytes(8) + b'{"host": "c"}',
        b"pO" + bytes(8) + b'{"host": "c", "from": 3}',
        b"pO" + bytes(8) + b"[" * 5000,
        b"pD" + bytes(8) + bytes(MAX_DATA_NBYTES + 1),
    ],
)
def test_what_no_agent_says_cuts_the_link(net: Net, frame: bytes) -> None:
    with pytest.raises(BadMessage):
        net.nodes[0].receive(1, frame)


@given(st.lists(st.binary(min_size=2, max_size=40), max_size=30))
def test_whatever_a_link_says_nothing_grows(frames: list[bytes]) -> None:
    net = Net()
    key = net.pipe(1, 2)
    for frame in frames:
        head = key.origin.to_bytes(4, "little") + key.number.to_bytes(4, "little")
        for made in (b"p" + frame, b"p" + frame[:1] + head + frame[1:]):
            try:
                net.nodes[0].receive(1, made)
            except BadMessage:
                continue
    net.run()
    assert all(len(node) <= MAX_PIPES for node in net.nodes)
    assert len(net.arrived(2)) <= WINDOW_NBYTES

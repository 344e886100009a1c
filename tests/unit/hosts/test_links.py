"""One link on a pair of sockets: frames, bounds, and an end that is silent or does not read."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from distdbg.hosts.handshake import Handshake
from distdbg.hosts.links import (
    GREETING_NS,
    MAX_BULK_NBYTES,
    MAX_STUCK_NBYTES,
    MAX_WAITING_NBYTES,
    SILENCE_NS,
    Link,
    LinkLost,
)

TOKEN = b"a secret"


class Pair:
    """A parent's and a child's end."""

    def __init__(self) -> None:
        here, there = socket.socketpair()
        for sock in (here, there):
            sock.setblocking(False)
        self.parent = Link(1, here, Handshake(TOKEN, "r/0", None), "child", 0)
        self.child = Link(1, there, Handshake(TOKEN, "r/0", 3), "parent", 0)
        self.raw = there

    def shake(self) -> None:
        self.parent.flush()
        for link in (self.child, self.parent, self.child):
            assert link.read(0) == []
            link.flush()
        assert self.parent.is_open
        assert self.child.is_open


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    made.parent.close()
    made.child.close()


def test_messages_arrive_whole_and_in_order(pair: Pair) -> None:
    pair.shake()
    sent = [bytes([number]) * (number * 500) for number in range(1, 40)]
    for message in sent:
        pair.child.write(message)
    got: list[bytes] = []
    while len(got) < len(sent):
        pair.child.flush()
        got += pair.parent.read(0)
    assert got == sent


def test_what_follows_the_proof_in_one_piece_is_a_message(pair: Pair) -> None:
    pair.parent.flush()
    pair.child.read(0)
    pair.child.write(b"jnext")
    pair.child.flush()
    assert pair.parent.read(0) == [b"jnext"]


def test_an_end_that_does_not_prove_itself_in_time_is_lost(pair: Pair) -> None:
    pair.parent.check(GREETING_NS)
    with pytest.raises(LinkLost, match="silent"):
        pair.parent.check(GREETING_NS + 1)


def test_an_end_that_falls_silent_is_lost(pair: Pair) -> None:
    pair.shake()
    pair.child.write(b"j{}")
    pair.child.flush()
    assert pair.parent.read(10 * SILENCE_NS) == [b"j{}"]
    pair.parent.check(11 * SILENCE_NS)
    with pytest.raises(LinkLost, match="silent"):
        pair.parent.check(11 * SILENCE_NS + 1)


@pytest.mark.parametrize("length", [1025, 1 << 31])
def test_a_stranger_sends_no_large_frames(pair: Pair, length: int) -> None:
    pair.raw.send(length.to_bytes(4, "little") + b"x")
    with pytest.raises(LinkLost, match="a frame of") as lost:
        pair.parent.read(0)
    assert lost.value.is_wrong


def test_nobody_sends_frames_without_bounds(pair: Pair) -> None:
    pair.shake()
    pair.raw.send((2 << 20).to_bytes(4, "little"))
    with pytest.raises(LinkLost, match="2,097,152 bytes"):
        pair.parent.read(0)


def test_an_end_that_does_not_read_is_told_no_more_and_is_cut_in_the_end(pair: Pair) -> None:
    pair.shake()
    while not pair.child.is_stuck:
        pair.child.write(b"x" * 10_000)
        pair.child.flush()
    pair.child.check(0)
    assert MAX_WAITING_NBYTES < MAX_STUCK_NBYTES
    pair.child.write(b"x" * MAX_STUCK_NBYTES)
    with pytest.raises(LinkLost, match="does not read"):
        pair.child.check(0)


def test_an_end_that_closes_is_lost_and_is_not_to_blame(pair: Pair) -> None:
    pair.shake()
    pair.child.close()
    with pytest.raises(LinkLost, match="closed") as lost:
        pair.parent.read(0)
    assert not lost.value.is_wrong


def test_what_is_not_bulk_passes_what_is(pair: Pair) -> None:
    pair.shake()
    bulk = [bytes([number]) * 16_000 for number in range(1, 200)]
    for message in bulk:
        pair.child.write_bulk(message)
    pair.child.flush()  # as much as the socket takes
    pair.child.write(b"jan order")
    got: list[bytes] = []
    while len(got) < len(bulk) + 1:
        pair.child.flush()
        got += pair.parent.read(0)
    at = got.index(b"jan order")
    assert at < len(bulk) - 1  # all but what the kernel had
    assert got[:at] + got[at + 1 :] == bulk


def test_an_end_that_takes_no_bulk_is_lost_before_it_costs_much(pair: Pair) -> None:
    pair.shake()
    for _ in range(MAX_BULK_NBYTES // 16_000 + 2):
        pair.child.write_bulk(bytes(16_000))
    with pytest.raises(LinkLost, match="does not read"):
        pair.child.check(0)

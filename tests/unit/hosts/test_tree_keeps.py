from __future__ import annotations

import pytest

from distdbg.hosts.messages import BadMessage, pack_message
from distdbg.hosts.node import Node
from distdbg.hosts.tail_sampling import KeptOp

_S = 1_000_000_000


class Chain:
    """Nodes in a row: 0 is the root, the parent of 1, and so on; links up are 1, links down 2."""

    def __init__(self, count: int) -> None:
        self.nodes = [Node(number, f"n{number}") for number in range(count)]
        self.now_ns = _S
        self.said = 0
        for number in range(1, count):
            self.join(number)

    def join(self, number: int) -> None:
        self.nodes[number - 1].attach_child(2)
        self.nodes[number].attach_parent(1, self.now_ns)

    def part(self, number: int) -> None:
        self.nodes[number - 1].detach(2, self.now_ns)
        self.nodes[number].detach(1, self.now_ns)

    def run(self, seconds: float = 1.0) -> None:
        until_ns = self.now_ns + int(seconds * _S)
        while self.now_ns < until_ns:
            for number, node in enumerate(self.nodes):
                for link, message in node.send(self.now_ns):
                    self.said += b"keep" in message
                    other, back = (number - 1, 2) if link == 1 else (number + 1, 1)
                    self.nodes[other].receive(back, message, self.now_ns)
            self.now_ns += 10_000_000


def test_what_one_host_keeps_all_others_hear_once_and_it_does_not_hear_it_again() -> None:
    chain = Chain(4)
    one, other = KeptOp("dp", 7, "slow"), KeptOp("", 2**127, "failed")
    chain.nodes[2].keeps.keep([one, other])
    chain.run()
    assert [node.keeps.take_news() for node in chain.nodes] == [[one, other]] * 2 + [
        [],
        [one, other],
    ]
    chain.nodes[2].keeps.keep([one])
    chain.run()
    assert [node.keeps.take_news() for node in chain.nodes] == [[]] * 4
    assert chain.said == 3  # once over each link


def test_what_two_hosts_find_at_once_goes_round_no_more_than_once() -> None:
    chain = Chain(3)
    for node in chain.nodes:
        node.keeps.keep([KeptOp("dp", 7, "slow")])
    chain.run()
    assert [node.keeps.take_news() for node in chain.nodes] == [[]] * 3
    assert chain.said == 4


def test_who_comes_later_is_told_the_last_ones() -> None:
    chain = Chain(2)
    chain.part(1)
    chain.nodes[0].keeps.keep([KeptOp("dp", number, "slow") for number in range(500)])
    chain.run()
    chain.join(1)
    chain.run()
    assert [one.number for one in chain.nodes[1].keeps.take_news()] == list(range(436, 500))


def test_a_flood_is_bounded_and_the_newest_of_it_arrive() -> None:
    chain = Chain(2)
    for first in range(0, 20_000, 100):
        chain.nodes[1].keeps.keep([KeptOp("dp", first + n, "slow") for n in range(100)])
    chain.run(5.0)
    assert [one.number for one in chain.nodes[0].keeps.take_news()] == list(range(19_744, 20_000))


@pytest.mark.parametrize(
    "words",
    [
        7,
        [7],
        [["dp", 7]],
        [["dp", "7", "slow"]],
        [["dp", -1, "slow"]],
        [["dp", 2**128, "slow"]],
        [["dp", 7, "because"]],
        [["d" * 513, 7, "slow"]],
        [["dp", n, "slow"] for n in range(17)],
    ],
)
@pytest.mark.parametrize("at", [0, 1])
def test_what_no_node_says_cuts_the_link(words: object, at: int) -> None:
    chain = Chain(2)
    with pytest.raises(BadMessage):
        chain.nodes[at].receive(2 - at, pack_message({"keep": words}), chain.now_ns)

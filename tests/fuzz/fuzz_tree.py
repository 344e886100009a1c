"""What an agent hears of others after the proof, a little wrong: taken, or BadMessage, and it goes on."""

from __future__ import annotations

import json
import random
import zlib
from typing import Any

from distdbg.follow.status import RankStatus
from distdbg.hosts.handshake import Handshake, NotTrusted
from distdbg.hosts.job_view import make_view
from distdbg.hosts.messages import BadMessage, pack_message, unpack_message
from distdbg.hosts.node import Node
from distdbg.record.rank_state import RankState
from tests.fuzz import harness

S = 1_000_000_000
PARENT, CHILD = 1, 2


def one(chance: random.Random) -> None:
    right = _talk(chance)
    for is_up in (True, False):
        node = Node(0 if is_up else 1, "n01")
        link = CHILD if is_up else PARENT
        if is_up:
            node.attach_child(link)
        else:
            node.attach_parent(link, S)
        for number in range(6):
            now_ns = (2 + number) * S
            try:
                node.receive(link, _wrong(chance.choice(right[is_up]), chance), now_ns)
            except BadMessage:
                break
            _use(node, now_ns)
    _greet(chance)


def _talk(chance: random.Random) -> dict[bool, list[bytes]]:
    """What a child and its parent say to each other."""
    parent, child = Node(0, "n00"), Node(1, "n01")
    said: dict[bool, list[bytes]] = {
        True: [pack_message({"keep": [["world", 3, "slow"]]})],
        False: [
            pack_message({"keep": [["world", 3, "slow"]], "vouch": [1, 0, 1]}),
            pack_message({"counts": [2, [[1, 1]]], "pace": [1000, 10, S // 4]}),
        ],
    }
    parent.attach_child(CHILD)
    child.attach_parent(PARENT, S)
    for number in range(4):
        now_ns = (2 + number) * S
        states = chance.sample(list(RankState), 2)
        child.report(
            [RankStatus(rank=r, host="n01", pid=9 + r, state=states[r]) for r in (0, 1)], now_ns
        )
        child.put_account({"rank": 0, "site": "x.py:3"}, 1, now_ns)
        child.order("pause", {}, now_ns)
        parent.request_accounts([0, 1])
        for sender, receiver, link, is_up in (
            (child, parent, CHILD, True),
            (parent, child, PARENT, False),
        ):
            for _, message in sender.send(now_ns):
                said[is_up].append(message)
                receiver.receive(link, message, now_ns)
    return said


def _wrong(message: bytes, chance: random.Random) -> bytes:
    if chance.random() < 0.15:
        return harness.spoil(message, chance)
    try:
        words: Any = unpack_message(message)
    except BadMessage:  # of a pipe
        return harness.spoil(message, chance)
    text = json.dumps(harness.mutate(words, chance)).encode()
    return b"z" + zlib.compress(text) if chance.random() < 0.2 else b"j" + text


def _use(node: Node, now_ns: int) -> None:
    """What the agent does with what it has heard."""
    make_view(node.rows.hosts, node.rows.ranks, now_ns)
    node.received_accounts()
    for order in node.orders():
        node.acknowledge(order, now_ns)
    for _, message in node.send(now_ns):
        assert message
    node.due_ns(now_ns)
    node.offset(now_ns)


def _greet(chance: random.Random) -> None:
    """Before the proof: nothing wrong is believed."""
    parent = Handshake(b"token", "run/0", None)
    child = Handshake(b"token", "run/0", 3)
    for frame in (parent.first(), b""):
        try:
            wrong = child.take(harness.spoil(frame or b"{}", chance))
            if wrong is not None:
                parent.take(harness.to_bytes(harness.mutate(json.loads(wrong), chance)))
        except NotTrusted:
            return


if __name__ == "__main__":
    harness.main(one, "fuzz_tree", __doc__)

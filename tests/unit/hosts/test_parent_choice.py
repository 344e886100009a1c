"""The shape of the tree, and who stands in for a parent that is late or dead."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from typing import Any

import pytest

from distdbg.hosts import finding
from distdbg.hosts.finding import Address, own_address, read_address, store_folder
from distdbg.hosts.parent_choice import (
    FAN_IN,
    PATIENCE_NS,
    RETURN_NS,
    ParentChoice,
    ancestors,
    children,
    parent,
)
from distdbg.runtime.store import names

S = 1_000_000_000
SOMEWHERE = Address("127.0.0.9", 9)


def test_every_node_hangs_on_the_root_and_none_has_too_many_children() -> None:
    nodes = range(1, 5000)
    assert all(ancestors(node)[-1] == 0 for node in nodes)
    assert all(parent(node) < node for node in nodes)
    assert max(Counter(map(parent, nodes)).values()) == FAN_IN
    assert len(ancestors(4095)) == 3


def test_parents_and_children_agree() -> None:
    for node in range(300):
        assert all(parent(child) == node for child in children(node, 300))
    assert sum(len(children(node, 300)) for node in range(300)) == 299
    assert parent(0) == -1


def test_a_parent_is_taken_as_soon_as_it_says_where_it_is() -> None:
    ascent = ParentChoice(300, 0)
    assert ascent.ancestors == (18, 1, 0)
    assert ascent.choose(0) is None
    ascent.take({0: SOMEWHERE, 1: SOMEWHERE})
    assert ascent.choose(PATIENCE_NS // 2) is None
    ascent.take({18: SOMEWHERE})
    assert ascent.choose(PATIENCE_NS // 2) == 18


def test_for_a_late_parent_the_grandparent_stands_in_and_it_is_returned_to() -> None:
    ascent = ParentChoice(300, 0)
    ascent.take({0: SOMEWHERE, 1: SOMEWHERE})
    assert ascent.choose(PATIENCE_NS) == 1
    ascent.on_attached(1, PATIENCE_NS)
    assert ascent.wanted() == (18,)
    ascent.take({18: SOMEWHERE})
    assert ascent.choose(PATIENCE_NS + S) is None
    assert ascent.choose(PATIENCE_NS + RETURN_NS) == 18
    ascent.on_attached(18, PATIENCE_NS + RETURN_NS)
    assert ascent.wanted() == ()
    assert ascent.choose(100 * S) is None


def test_a_dead_parent_is_bypassed_at_once() -> None:
    ascent = ParentChoice(300, 0)
    ascent.take({0: SOMEWHERE, 1: SOMEWHERE, 18: SOMEWHERE})
    ascent.on_attached(18, 0)
    ascent.on_failed(18, S)
    assert ascent.choose(S) == 1
    ascent.on_failed(1, S)
    assert ascent.choose(S) == 0


def test_with_nobody_left_all_are_tried_again_the_root_often() -> None:
    ascent = ParentChoice(20, 0)
    now_ns = 0
    tried: Counter[int] = Counter()
    while now_ns < 60 * S:
        ascent.take({0: SOMEWHERE, 1: SOMEWHERE})
        node = ascent.choose(now_ns)
        if node is not None:
            tried[node] += 1
            ascent.on_failed(node, now_ns)
        now_ns += S // 10
    assert 4 <= tried[1] <= 10
    assert 25 <= tried[0] <= 40


def test_the_address_is_the_one_that_the_host_is_known_by() -> None:
    assert own_address("127.0.0.3", "tcp://127.0.0.1:9/agents") == "127.0.0.3"
    assert own_address("some-name", "tcp://127.0.0.1:9/agents") == "127.0.0.1"
    assert store_folder("tcp://h:1/a/b/") == "a/b"
    assert store_folder("tcp://h:1") == "agents"


def test_a_name_that_is_loopback_at_home_is_not_what_others_know_it_by(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at_home = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.1.1", 9))]
    monkeypatch.setattr(finding, "_way_to", lambda _, place: place[0])
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: at_home)
    assert own_address("n0", "tcp://n0:9/agents") == finding._ELSEWHERE
    assert own_address("n0", "tcp://127.0.1.1:9/agents") == "127.0.1.1"


def test_a_resolver_that_does_not_answer_holds_up_an_agent_for_a_moment_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    is_over = threading.Event()

    def ask(*_: object, **__: object) -> list[tuple[Any, ...]]:
        is_over.wait()
        return []

    monkeypatch.setattr(names.look_up, "__kwdefaults__", {"limit_s": 10.0, "ask": ask})
    monkeypatch.setattr(finding, "_LOOKUP_S", 0.05)
    try:
        with pytest.raises(names.NoNameServer):
            own_address("n0", "tcp://silent.example:9/agents")
    finally:
        is_over.set()


def test_in_a_large_job_a_late_parent_is_waited_for_longer() -> None:
    ascent = ParentChoice(300, 0, nodes=1000)
    ascent.take({0: SOMEWHERE, 1: SOMEWHERE})
    assert ascent.choose(10 * PATIENCE_NS) is None
    assert ascent.choose(20 * PATIENCE_NS) == 1
    ascent.on_failed(1, 20 * PATIENCE_NS)  # that one has gone: nothing is waited for
    ascent.take({18: SOMEWHERE})
    assert ascent.choose(20 * PATIENCE_NS) == 18


def test_what_is_no_address_is_not_used() -> None:
    assert read_address(b'{"address": "127.0.0.2", "port": 5}') == Address("127.0.0.2", 5)
    for value in (b"", b"[]", b'{"address": "a name", "port": 5}', b'{"address": "::1"}', b"\xff"):
        assert read_address(value) is None
    assert read_address(b'{"address": "127.0.0.2", "port": 99999}') is None

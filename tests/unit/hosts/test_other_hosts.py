"""What the hosts of a job tell each other of ranks that sit in debuggers."""

from __future__ import annotations

import pytest

from distdbg.hosts.other_hosts import LEASE_NS, RENEW_NS, HostsInDebugger

HOSTS = frozenset(("n01", "n02"))


def test_the_root_says_it_when_it_changes_and_again_in_time() -> None:
    root = HostsInDebugger("n01")
    assert root.due(frozenset(), 5) is None
    assert root.due(HOSTS, 6) == {"hosts": ["n01", "n02"]}
    assert root.due(HOSTS, 6 + RENEW_NS - 1) is None
    assert root.due(HOSTS, 6 + RENEW_NS) == {"hosts": ["n01", "n02"]}
    assert root.due(frozenset(), 7 + RENEW_NS) == {"hosts": []}
    assert root.due(frozenset(), 7 + 9 * RENEW_NS) is None


def test_a_host_holds_its_clock_for_others_and_not_for_itself() -> None:
    host = HostsInDebugger("n01")
    host.hear({"hosts": ["n01"]}, 5)
    assert not host.is_holding(6)
    host.hear({"hosts": ["n01", "n02"]}, 7)
    assert host.is_holding(8)
    host.hear({"hosts": []}, 9)
    assert not host.is_holding(9)


def test_what_is_not_said_again_is_over() -> None:
    host = HostsInDebugger("n01")
    host.hear({"hosts": ["n02"]}, 5)
    assert host.is_holding(4 + LEASE_NS)
    assert not host.is_holding(5 + LEASE_NS)
    assert LEASE_NS >= 3 * RENEW_NS


@pytest.mark.parametrize("words", [{}, {"hosts": None}, {"hosts": "n02"}, {"hosts": [3, None]}])
def test_what_cannot_be_read_is_nobody(words: dict[str, object]) -> None:
    host = HostsInDebugger("n01")
    host.hear({"hosts": ["n02"]}, 5)
    host.hear(words, 6)
    assert not host.is_holding(7)


def test_thousands_of_hosts_make_no_long_order() -> None:
    words = HostsInDebugger("n01").due(frozenset(f"n{i:04}" for i in range(4096)), 5)
    assert words is not None
    assert len(words["hosts"]) == 64

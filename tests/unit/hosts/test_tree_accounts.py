from __future__ import annotations

import pytest

from distdbg.hosts.accounts import MAX_ACCOUNT_NBYTES, AccountRequest, Accounts
from distdbg.hosts.messages import BadMessage, pack_message
from distdbg.hosts.node import Node

_S = 1_000_000_000


def exchange(nodes: list[Node], now_ns: int, rounds: int = 4) -> None:
    """Node 0 is the root; each other has a link 1 up to it, and it a link with their number."""
    for _ in range(rounds):
        for node in nodes:
            for link, message in node.send(now_ns):
                if node.node == 0:
                    nodes[link].receive(1, message, now_ns)
                else:
                    nodes[0].receive(node.node, message, now_ns)
        now_ns += 10_000_000


def attached(count: int) -> list[Node]:
    nodes = [Node(number, f"n{number}") for number in range(count)]
    for node in nodes[1:]:
        node.attach_parent(1, _S)
        nodes[0].attach_child(node.node)
    return nodes


def test_an_account_comes_to_the_root_as_old_as_it_is() -> None:
    nodes = attached(3)
    nodes[1].put_account({"now": 5, "ranks": []}, 0, _S)
    exchange(nodes, _S)
    [reported] = nodes[0].received_accounts()
    assert (reported.node, reported.request, reported.account) == (1, 0, {"now": 5, "ranks": []})
    assert reported.made_ns <= _S + 50_000_000


def test_a_probe_reaches_all_and_their_answers_have_its_number() -> None:
    nodes = attached(3)
    exchange(nodes, _S)
    assert nodes[0].request_accounts([4, 5]) == 1
    exchange(nodes, 2 * _S)
    for node in nodes[1:]:
        assert node.account_request == AccountRequest(1, (4, 5))
        node.put_account({"ranks": [node.node]}, node.account_request.number, 3 * _S)
    exchange(nodes, 3 * _S)
    assert {reported.node: reported.request for reported in nodes[0].received_accounts()} == {
        1: 1,
        2: 1,
    }


def test_a_host_that_is_lost_vouches_for_nothing() -> None:
    nodes = attached(2)
    nodes[1].put_account({"ranks": []}, 0, _S)
    exchange(nodes, _S)
    nodes[0].detach(1, 2 * _S)
    assert nodes[0].received_accounts() == []


def test_what_is_too_long_or_no_account_is_refused() -> None:
    accounts = Accounts()
    with pytest.raises(ValueError, match="at most"):
        accounts.put(1, {"words": "x" * MAX_ACCOUNT_NBYTES}, 0, 0)
    for batch in ("", [1], [[1, 0, 0]], [[-1, 0, 0, {}]], [[1, 0, -1, {}]]):
        with pytest.raises(ValueError, match="not a"):
            accounts.take(batch, 0)
    nodes = attached(2)
    with pytest.raises(BadMessage):
        nodes[0].receive(1, pack_message({"accounts": [[1, 2]]}), _S)
    with pytest.raises(BadMessage):
        nodes[1].receive(1, pack_message({"vouch": []}), _S)


def test_a_batch_is_bounded_and_the_rest_follows() -> None:
    accounts = Accounts()
    for node in range(8):
        accounts.put(node, {"words": "x" * (MAX_ACCOUNT_NBYTES - 100)}, 0, 0)
    first = accounts.batch(0)
    assert 0 < len(first) < 8
    assert accounts.has_due
    rest = [one for _ in range(8) for one in accounts.batch(0)]
    assert sorted(one[0] for one in [*first, *rest]) == list(range(8))


def test_another_parent_hears_all_of_it() -> None:
    accounts = Accounts()
    accounts.put(1, {}, 0, 0)
    assert len(accounts.batch(0)) == 1
    assert not accounts.has_due
    accounts.forget()
    assert len(accounts.batch(0)) == 1

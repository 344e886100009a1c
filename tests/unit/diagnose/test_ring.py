"""A ring in which all wait for one of their neighbors, in a send or in a recv of one exchange."""

from __future__ import annotations

import pytest

from distdbg.diagnose.finding import Finding, FindingKind
from distdbg.diagnose.verdict import diagnose
from tests.support.session_builder import SessionBuilder

EXCHANGE = " < /j/halo.py:44 (exchange) < /j/halo.py:78 (main)"


def swapped(size: int, *, callers: str = EXCHANGE, step: int = -1, other: str = "swap") -> Finding:
    """Each swaps with the neighbor on one side: rank 0 sends first, the others receive first."""
    build = SessionBuilder(size)
    for rank in range(size):
        peer = (rank + step) % size
        kind, line = ("send", 33) if rank == 0 else ("recv", 36)
        function = "swap" if rank else other
        site = f"/j/halo.py:{line} ({function}){callers}"
        build.op(rank, kind, peer=peer, at_s=1 + rank / 10, site=site)
    root = diagnose(build.session).root
    assert root is not None
    assert root.kind is FindingKind.DEADLOCK
    return root


def test_each_waits_for_a_neighbor_and_one_has_to_begin_with_the_other() -> None:
    root = swapped(4)
    assert root.ranks == (0, 1, 2, 3)
    assert root.what == (
        "ranks 0-3 are deadlocked: each waits for a neighbor, 0 -> 3 -> 2 -> 1 -> 0 "
        "(rank 0 in send, ranks 1-3 in recv)"
    )
    assert root.advice.startswith("in a ring one rank has to begin with its other neighbor")
    assert not any("waits for a message from" in fact.text for fact in root.evidence)
    assert "0 -> 1 -> 2 -> 0" in swapped(3, step=1).what


@pytest.mark.parametrize(
    ("callers", "other", "step"),
    [
        pytest.param("", "swap", -1, id="no function of an exchange"),
        pytest.param(EXCHANGE, "send_result", -1, id="other functions"),
        pytest.param(EXCHANGE, "swap", 2, id="no neighbors"),
    ],
)
def test_other_cycles_may_be_of_a_wrong_peer(callers: str, other: str, step: int) -> None:
    size = 5 if step == 2 else 4
    assert "neighbor" not in swapped(size, callers=callers, other=other, step=step).what

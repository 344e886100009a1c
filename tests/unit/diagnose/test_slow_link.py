from __future__ import annotations

import random

import pytest

from distdbg.diagnose.find import slow_link
from distdbg.diagnose.finding import Finding, FindingKind, Severity
from distdbg.diagnose.matching import match
from distdbg.diagnose.session import Session
from tests.support.session_builder import SessionBuilder


def find(session: Session) -> list[Finding]:
    return slow_link.find(session, match(session), {})


def messages(
    slow: dict[tuple[int, int], float],
    *,
    ranks: int = 8,
    hosts: int = 1,
    count: int = 20,
    sigma: float = 0.1,
    seed: int = 0,
) -> SessionBuilder:
    """Each rank sends to the next two 1 MiB in about 1 ms."""
    build, noise = SessionBuilder(world_size=ranks), random.Random(seed)
    for rank, log in build.session.ranks.items():
        log.host = f"n{rank * hosts // ranks}"
    for step in range(count):
        for rank in range(ranks):
            for peer in ((rank + 1) % ranks, (rank + 2) % ranks):
                took = 0.001 * noise.lognormvariate(0, sigma) * slow.get((rank, peer), 1.0)
                at = step * 0.1
                build.op(
                    rank, "send", peer=peer, at_s=at, started_s=at + 0.05, ended_s=at + 0.05 + took,
                    nbytes=1 << 20,
                )  # fmt: skip
    return build


def reductions(slow: dict[int, float], *, groups: int = 8, sigma: float = 0.1) -> SessionBuilder:
    """Pairs of ranks of one host reduce 64 KiB in about 1 ms."""
    build, noise = SessionBuilder(world_size=2 * groups), random.Random(1)
    for at in range(groups):
        build.group(f"tp{at}", (2 * at, 2 * at + 1))
        for step in range(20):
            took = 0.001 * noise.lognormvariate(0, sigma) * slow.get(at, 1.0)
            for rank in (2 * at, 2 * at + 1):
                build.op(
                    rank, "all_reduce", group=f"tp{at}", at_s=step * 0.1,
                    started_s=step * 0.1 + 0.01, ended_s=step * 0.1 + 0.01 + took, nbytes=1 << 16,
                )  # fmt: skip
    return build


def test_the_pair_whose_messages_take_far_longer_is_named_with_numbers() -> None:
    (finding,) = find(messages({(3, 4): 6.0}).session)

    assert finding.kind is FindingKind.SLOW_LINK
    assert finding.severity is Severity.WARNING
    assert finding.ranks == (3, 4)
    assert finding.what.startswith("the link from rank 3 to rank 4 is slow: 6")
    assert " for 1.0 MiB, 6" in finding.what
    assert finding.numbers["factor"] == pytest.approx(6.0, rel=0.2)
    assert "GB/s" in finding.evidence[0].text


def test_a_host_that_most_slow_links_have_in_common_is_named() -> None:
    slow = {(a, b): 5.0 for a in range(9) for b in range(9) if (a in (2, 3)) != (b in (2, 3))}

    (finding,) = find(messages(slow, ranks=16, hosts=8).session)

    assert finding.kind is FindingKind.SLOW_HOST
    assert finding.ranks == (2, 3)


def test_links_between_hosts_are_compared_with_each_other_only() -> None:
    across = {(a, b): 20.0 for a in range(8) for b in range(8) if a // 4 != b // 4}

    assert find(messages(across, hosts=2).session) == []


def test_a_group_whose_transfers_take_far_longer_is_named() -> None:
    (finding,) = find(reductions({5: 4.0}).session)

    assert finding.kind is FindingKind.SLOW_LINK
    assert finding.group == "tp5"
    assert finding.victims == (10, 11)


def test_waiting_for_a_late_rank_is_no_transfer() -> None:
    build = reductions({})
    ops = build.session.ranks[4].ops
    for at in range(len(ops)):
        ops.issued_ns[at] -= 90_000_000

    assert find(build.session) == []


def test_few_transfers_show_nothing() -> None:
    assert find(messages({(3, 4): 6.0}, count=10).session) == []


def test_too_few_links_have_no_usual() -> None:
    assert find(messages({(0, 1): 6.0}, ranks=2).session) == []


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("sigma", [0.1, 0.5, 1.0])
def test_noise_is_no_slow_link(seed: int, sigma: float) -> None:
    assert find(messages({}, sigma=sigma, seed=seed, hosts=1 + seed % 2).session) == []

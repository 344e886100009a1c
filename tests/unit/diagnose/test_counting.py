"""Counters of many ranks added up: percentiles, bandwidth, and who comes late."""

from __future__ import annotations

import random
from typing import Any

import pytest

from distdbg.diagnose.counting import OpTally, add_up, from_counter, late_shares, percentile
from distdbg.record.entries import KIND_LABELS, Counter


def buckets_of(values: list[int]) -> tuple[int, ...]:
    found = [0] * 40
    for value in values:
        found[min(max(value, 1).bit_length() - 1, 39)] += 1
    return tuple(found)


def count(
    kind: str, durations: list[int], waits: list[int], nbytes: int = 0, **more: Any
) -> Counter:
    return Counter(
        group=more.get("group", 1),
        kind=KIND_LABELS.index(kind),
        ended=len(durations),
        failed=more.get("failed", 0),
        nbytes=nbytes * len(durations),
        duration_ns=sum(durations),
        wait_ns=sum(waits),
        longest_ns=max(durations),
        duration_buckets=buckets_of(durations),
        wait_buckets=buckets_of(waits),
        size_buckets=buckets_of([nbytes] * len(durations)),
    )


def simulate(lateness: list[list[int]]) -> dict[int, tuple[int, int]]:
    """By rank its calls and waits, from when it came to each op."""
    waits = dict.fromkeys(range(len(lateness[0])), 0)
    for arrivals in lateness:
        last = max(arrivals)
        for rank, at in enumerate(arrivals):
            waits[rank] += last - at
    return {rank: (len(lateness), wait) for rank, wait in waits.items()}


def test_the_rank_that_is_always_last_is_late_for_all() -> None:
    ops = [[0, 0, 0, 5_000_000] for _ in range(100)]
    assert late_shares(simulate(ops)) == ((3, 1.0),)


def test_an_arrival_counts_by_how_late_it_was() -> None:
    ops = [[0, 0, 5_000_000 * (at % 2), 0] for at in range(100)]
    assert late_shares(simulate(ops)) == ((2, 1.0),)
    ops = [[0, 0, 0, 9_000_000] if at == 0 else [0, 0, 1_000_000, 0] for at in range(10)]
    assert late_shares(simulate(ops)) == ((2, 0.5), (3, 0.5))


def test_two_ranks_that_take_turns_share_the_late_arrivals() -> None:
    ops = [[5_000_000 * (at % 2), 5_000_000 * (1 - at % 2), 0, 0] for at in range(100)]
    assert late_shares(simulate(ops)) == ((0, 0.5), (1, 0.5))


def test_ranks_that_come_in_any_order_are_not_late() -> None:
    chance = random.Random(7)
    ops = [[chance.randrange(1_000_000) for _ in range(8)] for _ in range(5000)]
    assert all(share < 0.1 for _, share in late_shares(simulate(ops)))


def test_one_rank_that_waits_for_something_else_makes_nobody_late() -> None:
    waits = dict.fromkeys(range(8), (100, 100 * 50000)) | {3: (100, 100 * 90_000_000)}
    assert late_shares(waits) == ()


def test_waits_that_are_the_scheduler_s_make_nobody_late() -> None:
    assert late_shares({0: (100, 100 * 15_000), 1: (100, 0)}) == ()
    assert late_shares({0: (100, 10**9)}) == ()
    assert late_shares({0: (0, 0), 1: (0, 0)}) == ()


def test_what_ranks_have_counted_is_added_up_by_group_and_kind() -> None:
    one = count("all_reduce", [3_000_000, 5_000_000], [2_000_000, 4_000_000], nbytes=1000)
    two = count("all_reduce", [1_000_000, 1_000_000], [0, 0], nbytes=1000)
    parts = [from_counter(0, "0", 2, one), from_counter(1, "0", 2, two)]
    (row,) = add_up(parts)
    assert (row.ended, row.count, row.nbytes, row.longest_ns) == (4, 2, 4000, 5_000_000)
    # 4,000 bytes in 2 ms of moving on both ranks together, times 2 (2 - 1) / 2.
    assert row.bus_nbytes_per_s == pytest.approx(4000 / 4e6 * 1e9)
    assert row.late == ((1, 1.0),)
    assert add_up([*parts, from_counter(2, "1", 2, two)])[1].group == "1"


def test_the_dtypes_of_one_kind_are_added_up_and_a_rank_has_waited_for_all_of_them() -> None:
    small = count("all_reduce", [3_000_000], [2_000_000], nbytes=8)
    large = count("all_reduce", [1_000_000, 1_000_000], [500_000, 0], nbytes=4096)
    parts = [from_counter(rank, "0", 2, each) for rank in (0, 1) for each in (small, large)]
    (row,) = add_up(parts)
    assert (row.ended, row.count) == (6, 3)
    assert row.waits == {0: (3, 2_500_000), 1: (3, 2_500_000)}
    assert add_up([add_up(parts[:2])[0], add_up(parts[2:])[0]]) == [row]


def test_messages_are_counted_by_call_and_have_no_late_rank() -> None:
    send = count("send", [10_000_000], [9_000_000], nbytes=8)
    (row,) = add_up([from_counter(rank, "0", 4, send) for rank in range(3)])
    assert (row.count, row.late) == (3, ())
    # The bytes are those of the other end.
    assert row.bus_nbytes_per_s is None
    recv = count("recv", [10_000_000], [9_000_000], nbytes=8)
    assert from_counter(0, "0", 4, recv).bus_nbytes_per_s == pytest.approx(8 / 1e-3)
    barrier = count("barrier", [10], [5])
    assert from_counter(0, "0", 4, barrier).bus_nbytes_per_s is None


@pytest.mark.parametrize("share", [0.5, 0.9, 0.99])
def test_a_percentile_is_right_to_its_bucket(share: float) -> None:
    chance = random.Random(3)
    values = sorted(int(chance.lognormvariate(11, 1)) for _ in range(10_000))
    found = percentile(buckets_of(values), share)
    true = values[int(share * len(values))]
    assert found is not None
    assert true / 1.3 < found < true * 1.3


def test_a_percentile_is_never_beyond_the_longest() -> None:
    row: OpTally = from_counter(0, "0", 1, count("barrier", [1025] * 9, [1025] * 9))
    assert row.duration(0.99) == 1025
    assert percentile([0] * 40, 0.5) is None
    assert percentile([1] + [0] * 39, 1.0) == 2

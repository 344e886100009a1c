"""Plans on a simulated network take what their algorithms say, and troubles show where they are."""

from __future__ import annotations

import pytest

from distdbg.ops.call import Kind
from distdbg.runtime.plan import Topology
from distdbg.runtime.plan.between.choose import choose, fastest, names_for
from distdbg.runtime.plan.between.estimate import estimate_s
from distdbg.runtime.plan.compare import (
    ComparedProblem,
    blocks_of,
    bound_s,
    bytes_bound_s,
    compare,
    is_too_much,
    latency_bound_s,
    time_of,
)
from distdbg.runtime.plan.draw_passages import MAX_RANKS, draw_passages
from distdbg.runtime.plan.layout import make_hosts
from distdbg.runtime.plan.names import NAMES
from distdbg.runtime.plan.timing import SimulatedFaults


def question(
    kind: Kind = Kind.ALL_REDUCE, nbytes: int = 1 << 20, size: int = 16, hosts: int = 4
) -> ComparedProblem:
    topology = Topology(single_copy=True, slot_nbytes=1 << 20, hosts=make_hosts(size, hosts))
    return ComparedProblem(kind=kind, nbytes=nbytes, topology=topology)


@pytest.mark.parametrize("kind", NAMES)
def test_nothing_is_faster_than_the_bound(kind: Kind) -> None:
    asked = question(kind, 256 << 10)
    bound = bound_s(kind, asked.nbytes, asked.topology)
    assert all(row.time_s >= bound for row in compare(asked))


@pytest.mark.parametrize(("kind", "nbytes"), [(kind, n) for kind in NAMES for n in (64, 1 << 20)])
def test_estimates_are_near_what_plans_take(kind: Kind, nbytes: int) -> None:
    asked = question(kind, nbytes)
    total = nbytes * blocks_of(kind, asked.size)
    for name in names_for(kind, asked.topology):
        if name != "slots" or nbytes == 64:
            estimated_s = estimate_s(kind, name, total, asked.topology)
            assert 0.5 < estimated_s / time_of(asked, name).total_s < 2, name


@pytest.mark.parametrize("kind", NAMES)
def test_what_is_chosen_is_not_much_slower_than_the_best(kind: Kind) -> None:
    for nbytes in (64, 64 << 10, 4 << 20):
        rows = compare(question(kind, nbytes))
        [chosen] = [row for row in rows if row.is_chosen]
        best = [row for row in rows if row.algorithm != "bruck" or kind is not Kind.ALL_TO_ALL]
        assert chosen.time_s <= 1.6 * best[0].time_s, (nbytes, chosen, best[0])


def test_a_ring_takes_rounds_of_all_hosts_and_halves_of_their_digits() -> None:
    asked = question(size=32, hosts=32)
    gate = 5
    assert (
        time_of(asked, "ring").rounds == gate + 2 * 31 - 1
    )  # its first message goes with the gate
    assert time_of(asked, "halving").rounds == gate + 2 * 5
    assert time_of(asked, "doubling").rounds == gate + 5


def test_much_data_get_near_the_bound_of_the_bytes() -> None:
    asked = question(nbytes=256 << 20, size=8, hosts=8)
    assert bound_s(asked.kind, asked.nbytes, asked.topology) == pytest.approx(
        latency_bound_s(asked.topology) + 2 * 7 / 8 * asked.nbytes / 1.25e9
    )
    bound = bytes_bound_s(asked.kind, asked.nbytes, asked.topology)
    assert time_of(asked, "ring").total_s < 1.25 * bound


def test_lanes_share_the_card_of_a_host() -> None:
    lanes = time_of(question(), "ring")
    leaders = time_of(question(), "ring_leaders")
    assert lanes.sent_nbytes == leaders.sent_nbytes // 4
    assert lanes.total_s > bytes_bound_s(Kind.ALL_REDUCE, 1 << 20, question().topology)


def test_latency_decides_for_little_data_and_bytes_for_much() -> None:
    topology = question(size=64, hosts=64).topology
    assert fastest(Kind.ALL_REDUCE, 2048, topology) == "doubling"
    assert fastest(Kind.ALL_REDUCE, 64 << 20, topology) in ("ring", "halving")
    assert choose(question(nbytes=8).problem(0), question().topology) == "slots"


def test_a_late_rank_makes_all_late_and_a_slow_host_too() -> None:
    well_s = time_of(question()).total_s
    late_s = time_of(question(), troubles=SimulatedFaults(late_s={5: 0.01})).total_s
    assert late_s == pytest.approx(well_s + 0.01, rel=0.05)
    slow_s = time_of(question(), troubles=SimulatedFaults(slow_hosts={1: 10.0})).total_s
    assert slow_s > 3 * well_s


def test_all_wait_for_a_rank_that_died_before_the_gate() -> None:
    timing = time_of(question(), troubles=SimulatedFaults(dead_s={5: 0.0}))
    assert timing.ends_s == {}
    assert [wait.rank for wait in timing.waits] == [rank for rank in range(16) if rank != 5]
    assert all(wait.on == (5,) for wait in timing.waits)


def test_who_waits_for_a_rank_that_died_on_the_way_leads_to_it() -> None:
    well_s = time_of(question(size=8, hosts=8), "ring").total_s
    timing = time_of(
        question(size=8, hosts=8), "ring", troubles=SimulatedFaults(dead_s={3: well_s / 2})
    )
    waits = {wait.rank: wait.on for wait in timing.waits}
    assert waits[4] == (3,)
    assert all(0 < wait.since_s < 2 * well_s for wait in timing.waits)
    for rank in waits:
        seen = rank
        while seen in waits:
            [seen] = waits[seen]
        assert seen == 3


def test_a_thousand_ranks_take_rounds_by_their_digits() -> None:
    timing = time_of(question(size=1024, hosts=128))
    assert timing.rounds == 7 + 2 * 7
    assert timing.connections == 7
    assert len(timing.ends_s) == 1024


def test_long_plans_are_estimated_and_not_run() -> None:
    asked = question(size=4096, hosts=4096)
    assert is_too_much(asked, "ring")
    assert not is_too_much(asked, "doubling")
    assert not is_too_much(question(Kind.BARRIER, 0, 4096, 512), "gate")


def test_one_host_is_predicted_without_messages() -> None:
    [row] = compare(question(size=4, hosts=1))
    assert row.timing is None
    assert row.is_chosen


def test_a_drawing_has_a_line_for_each_rank_and_an_arrow_for_each_message() -> None:
    asked = question(size=4, hosts=4)
    timing = time_of(asked, "doubling", keep_passages=True)
    drawing = draw_passages(timing, asked.topology.hosts, "a <title>")
    assert drawing.count("marker-end") == len(timing.passages) == 4 * 2 * 2
    assert drawing.count(">rank ") == 4
    assert "a &lt;title&gt;" in drawing


def test_a_drawing_of_many_ranks_says_what_it_leaves_out() -> None:
    asked = question(size=80, hosts=80)
    timing = time_of(asked, "doubling", keep_passages=True)
    drawing = draw_passages(timing, asked.topology.hosts, "many")
    assert drawing.count(">rank ") == MAX_RANKS
    assert "messages are not drawn" in drawing

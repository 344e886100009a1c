"""The cost model ranks algorithms as measurements do, and lets costs grow as algorithms do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from distdbg.ops.call import Kind
from distdbg.runtime.plan import Plan, Problem, Topology, make_plan
from distdbg.runtime.plan import all_reduce as maker
from distdbg.runtime.plan.compare import Cost, predict_s, predict_sampled_s, segment_costs_s
from distdbg.runtime.plan.problem import uniform_problem

TOPOLOGY = Topology(single_copy=True, slot_nbytes=1 << 20)
COST = Cost(cores=64)


def problems(size: int, nbytes: int) -> list[Problem]:
    return [uniform_problem(Kind.ALL_REDUCE, r, size, nbytes, itemsize=4) for r in range(size)]


def flat_s(size: int, nbytes: int) -> float:
    return predict_s([maker.flat(p, TOPOLOGY) for p in problems(size, nbytes)], COST)


def slots_s(size: int, nbytes: int) -> float:
    plans = [maker.two_phase_slots(p, TOPOLOGY) for p in problems(size, nbytes)]
    return predict_s(plans, COST)


def two_phase_s(size: int, nbytes: int) -> float:
    return predict_s([maker.two_phase(p) for p in problems(size, nbytes)], COST)


def test_one_gate_is_best_for_a_few_bytes() -> None:
    assert flat_s(4, 8) < slots_s(4, 8) < two_phase_s(4, 8)


def test_single_copy_is_best_for_many_bytes() -> None:
    nbytes = 64 << 20
    assert two_phase_s(4, nbytes) < slots_s(4, nbytes) < flat_s(4, nbytes)


def test_two_ranks_fold_flat_rather_than_share_through_slots() -> None:
    assert flat_s(2, 1 << 20) < slots_s(2, 1 << 20)


def test_work_is_limited_by_the_cores() -> None:
    plans = [maker.two_phase(p) for p in problems(8, 1 << 20)]
    assert predict_s(plans, Cost(cores=2)) > 3 * predict_s(plans, Cost(cores=8))


def test_every_kind_of_step_costs_something() -> None:
    for kind in Kind:
        if kind not in (Kind.SEND, Kind.RECV, Kind.BARRIER):
            plan = make_plan(uniform_problem(kind, 0, 4, 1 << 20, root=0), TOPOLOGY)
            peer = make_plan(uniform_problem(kind, 1, 4, 1 << 20, root=0), TOPOLOGY)
            assert sum(segment_costs_s(plan, 4, COST)) + sum(segment_costs_s(peer, 4, COST)) > 0


@pytest.mark.parametrize("kind", [Kind.ALL_REDUCE, Kind.BROADCAST, Kind.REDUCE, Kind.ALL_GATHER])
@pytest.mark.parametrize("single_copy", [False, True])
def test_a_sample_of_the_ranks_predicts_the_same_as_all(kind: Kind, single_copy: bool) -> None:
    topology = replace(TOPOLOGY, single_copy=single_copy)

    def plan_of(rank: int) -> Plan:
        return make_plan(uniform_problem(kind, rank, 24, 3 << 20, root=7, itemsize=4), topology)

    exact = predict_s([plan_of(rank) for rank in range(24)], Cost(cores=2))
    sampled = predict_sampled_s(plan_of, 24, Cost(cores=2), root=7)
    assert sampled == pytest.approx(exact, rel=0.05)


def test_a_small_group_is_not_sampled() -> None:
    plans = [maker.two_phase(p) for p in problems(5, 4096)]
    assert predict_sampled_s(plans.__getitem__, 5, COST) == predict_s(plans, COST)


def test_ten_thousand_ranks_with_a_core_each_cost_a_gate_more_but_no_more_data() -> None:
    def all_reduce_s(size: int) -> float:
        return predict_sampled_s(
            lambda rank: maker.two_phase(
                uniform_problem(Kind.ALL_REDUCE, rank, size, 64 << 20, itemsize=4)
            ),
            size,
            Cost(cores=size, gate_rank_s=0.0, read_s=0.0),
        )

    assert all_reduce_s(10_000) < 2 * all_reduce_s(4)

"""Plans that add up in gloo's order: they are right, others are found out, and the chunks are gloo's."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distdbg.ops.call import Kind
from distdbg.runtime.plan import Plan, Problem, Space, Step, StepKind, Topology, make_plan
from distdbg.runtime.plan.draw import format_step
from distdbg.runtime.plan.gloo_order import (
    GlooOrder,
    order_of_all_reduce,
    order_of_reduce,
    order_of_reduce_scatter,
)
from distdbg.runtime.plan.in_place import plan_in_place
from distdbg.runtime.plan.problem import uniform_problem
from distdbg.runtime.plan.simulate import FaultKind, simulate

KINDS = (Kind.ALL_REDUCE, Kind.REDUCE, Kind.REDUCE_SCATTER)
MIB = 1 << 20

checked = settings(max_examples=80, deadline=None, database=None)

topologies = st.builds(
    Topology,
    single_copy=st.booleans(),
    slot_nbytes=st.one_of(st.integers(64, 600), st.sampled_from([4096, 1 << 16])),
    fold_flat_nbytes=st.sampled_from([0, 64, 1000, 5000, 1 << 20]),
    slots_nbytes=st.sampled_from([0, 64, 1000, 5000, 1 << 20]),
    split_nbytes=st.sampled_from([0, 64, 1000, 5000, 1 << 20]),
    in_place_nbytes=st.just(0),
)


def order_of(problem: Problem, *, is_list: bool) -> GlooOrder:
    nbytes, size, itemsize = problem.in_nbytes[0], problem.size, problem.itemsize
    if problem.kind is Kind.REDUCE_SCATTER:
        return order_of_reduce_scatter(problem.in_nbytes, itemsize, is_list=is_list)
    order = order_of_reduce if problem.kind is Kind.REDUCE else order_of_all_reduce
    return order(nbytes, size, itemsize)


@st.composite
def problems_in_order(draw: st.DrawFn) -> list[Problem]:
    size, itemsize = draw(st.integers(3, 9)), draw(st.sampled_from([2, 4, 8]))
    nbytes = draw(st.one_of(st.integers(1, 40), st.integers(1, 3000))) * itemsize
    kind, root = draw(st.sampled_from(KINDS)), draw(st.integers(0, size - 1))
    is_list = draw(st.booleans())
    made = [
        uniform_problem(kind, rank, size, nbytes, root=root, itemsize=itemsize)
        for rank in range(size)
    ]
    return [replace(each, order=order_of(each, is_list=is_list)) for each in made]


@checked
@given(problems_in_order(), topologies)
def test_plans_add_up_in_gloos_order(problems: list[Problem], topology: Topology) -> None:
    plans = [make_plan(problem, topology) for problem in problems]
    assert simulate(problems, plans, topology) == []
    by_rank = [replace(problem, order=None) for problem in problems]
    kinds = {fault.kind for fault in simulate(by_rank, plans, topology)}
    assert kinds == {FaultKind.WRONG_RESULT}


@checked
@given(problems_in_order(), topologies)
def test_plans_in_shared_arrays_do_so_too(problems: list[Problem], topology: Topology) -> None:
    plans: list[Plan] = []
    for problem in problems:
        plan = plan_in_place(problem, topology)
        assert plan is not None
        plans.append(plan)
    assert simulate(problems, plans, topology) == []


def test_a_plan_in_the_order_of_the_ranks_is_found_out() -> None:
    topology = Topology(single_copy=False, slot_nbytes=4096)
    problems = [uniform_problem(Kind.ALL_REDUCE, rank, 3, 64, itemsize=4) for rank in range(3)]
    plans = [make_plan(problem, topology) for problem in problems]
    wanted = [replace(each, order=order_of_all_reduce(64, 3, 4)) for each in problems]
    assert {fault.kind for fault in simulate(wanted, plans, topology)} == {FaultKind.WRONG_RESULT}


def test_between_hosts_it_is_not_kept() -> None:
    topology = Topology(single_copy=False, slot_nbytes=4096, hosts=((0, 1), (2,)))
    problem = uniform_problem(Kind.ALL_REDUCE, 0, 3, 64, itemsize=4)
    ordered = replace(problem, order=order_of_all_reduce(64, 3, 4))
    assert make_plan(ordered, topology) == make_plan(problem, topology)


# What gloo of torch 2.13 did, on 3, 4 and 5 ranks.
@pytest.mark.parametrize(
    ("nbytes", "size", "itemsize", "chunk_nbytes"),
    [
        (52, 3, 4, 24),
        (6 * MIB, 3, 4, 2 * MIB),
        (6 * MIB + 4, 3, 4, 2097156),
        (7_340_036, 3, 4, 2_446_680),
        (9_999_998, 4, 2, 2_500_002),
        (12_233_392, 5, 4, 2_446_680),
    ],
)
def test_a_chunk_of_an_all_reduce(nbytes: int, size: int, itemsize: int, chunk_nbytes: int) -> None:
    assert order_of_all_reduce(nbytes, size, itemsize).rings == ((0, chunk_nbytes),)


@pytest.mark.parametrize(
    ("nbytes", "size", "itemsize", "chunk_nbytes"),
    [
        (48, 3, 4, 16),
        (6 * MIB, 3, 4, 2 * MIB),
        (6 * MIB + 4, 3, 4, 3 * MIB),
        (19_999_996, 4, 4, 5 * MIB),
        (9_999_998, 5, 2, 2_000_000),
    ],
)
def test_a_chunk_of_a_reduce(nbytes: int, size: int, itemsize: int, chunk_nbytes: int) -> None:
    assert order_of_reduce(nbytes, size, itemsize).rings == ((0, chunk_nbytes),)


def test_runs_are_cut_where_a_chunk_ends() -> None:
    order = order_of_all_reduce(52, 3, 4)
    assert list(order.runs(0, 0, 52)) == [(0, 24, 2), (24, 24, 0), (48, 4, 1)]
    assert list(order.runs(0, 20, 8)) == [(20, 4, 2), (24, 4, 0)]
    assert list(order.runs(0, 4, 0)) == []
    part = order_of_all_reduce(52, 3, 4, begin=20)
    assert list(part.runs(0, 0, 32)) == [(0, 4, 2), (4, 24, 0), (28, 4, 1)]
    blocks = order_of_reduce_scatter([16, 16, 16], 4, is_list=False)
    assert list(blocks.runs(1, 4, 12)) == [(4, 12, 0)]
    each = order_of_reduce_scatter([16, 16, 16], 4, is_list=True)
    assert list(each.runs(1, 4, 12)) == [(4, 4, 2), (8, 8, 0)]


def test_a_drawing_says_where_a_fold_begins() -> None:
    fold = Step(StepKind.FOLD_ALL, -1, Space.SLOT, 0, 0, Space.OUTPUT, 0, 0, 8, first=2)
    assert format_step(fold) == "output 0 [0:8] = fold from rank 2 down slot [0:8]"
    everywhere = replace(fold, kind=StepKind.FOLD_TO, src=Space.INPUT, first=0)
    drawn = "all ranks output 0 [0:8] = fold from rank 0 down input 0 [0:8]"
    assert format_step(everywhere) == drawn

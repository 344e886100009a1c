"""Plans for shared arrays: right for any group, and wrong ones are found out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distdbg.ops.call import Kind
from distdbg.runtime.plan import Plan, Problem, Space, Step, StepKind, Topology
from distdbg.runtime.plan.draw import format_step
from distdbg.runtime.plan.in_place import plan_in_place
from distdbg.runtime.plan.problem import uniform_problem
from distdbg.runtime.plan.simulate import FaultKind, simulate

KINDS = [kind for kind in Kind if kind not in (Kind.SEND, Kind.RECV, Kind.BARRIER)]
# Nobody may read what is not shared.
TOPOLOGY = Topology(single_copy=False, slot_nbytes=4096, in_place_nbytes=0)
GATE = Step(StepKind.GATE)


def plans_for(problems: list[Problem]) -> list[Plan]:
    plans = [plan_in_place(problem, TOPOLOGY) for problem in problems]
    made = [plan for plan in plans if plan is not None]
    assert len(made) == len(plans)
    return made


def faults_of(
    problems: list[Problem], plans: list[Plan], *, in_place: bool = True
) -> set[FaultKind]:
    return {fault.kind for fault in simulate(problems, plans, TOPOLOGY, in_place=in_place)}


@settings(max_examples=150, deadline=None, database=None)
@given(
    kind=st.sampled_from(KINDS),
    size=st.integers(2, 9),
    count=st.integers(1, 5000),
    itemsize=st.sampled_from([1, 2, 4, 8, 16]),
    root=st.integers(0, 8),
    in_place=st.booleans(),
)
def test_every_plan_in_place_is_right(
    kind: Kind, size: int, count: int, itemsize: int, root: int, in_place: bool
) -> None:
    problems = [
        uniform_problem(kind, rank, size, count * itemsize, root=root % size, itemsize=itemsize)
        for rank in range(size)
    ]
    # all_reduce and reduce work in the array itself.
    if kind in (Kind.ALL_REDUCE, Kind.REDUCE):
        in_place = True
    assert not faults_of(problems, plans_for(problems), in_place=in_place)


@pytest.mark.parametrize("kind", [Kind.ALL_GATHER, Kind.REDUCE_SCATTER])
def test_blocks_may_differ(kind: Kind) -> None:
    blocks = (4096, 0, 12, 70_000)
    problems = [
        Problem(
            kind=kind,
            rank=rank,
            size=4,
            itemsize=4,
            in_nbytes=(blocks[rank],) if kind is Kind.ALL_GATHER else blocks,
            out_nbytes=blocks if kind is Kind.ALL_GATHER else (blocks[rank],),
        )
        for rank in range(4)
    ]
    assert not faults_of(problems, plans_for(problems))


def test_there_is_none_where_the_slots_do_as_well() -> None:
    topology = replace(TOPOLOGY, in_place_nbytes=64 << 10)
    short = uniform_problem(Kind.ALL_REDUCE, 0, 2, (64 << 10) - 4, itemsize=4)
    assert plan_in_place(short, topology) is None
    assert plan_in_place(uniform_problem(Kind.ALL_REDUCE, 0, 2, 64 << 10), topology) is not None
    assert plan_in_place(uniform_problem(Kind.BARRIER, 0, 2, 0), TOPOLOGY) is None
    assert plan_in_place(uniform_problem(Kind.ALL_REDUCE, 0, 1, 8), TOPOLOGY) is None
    assert plan_in_place(uniform_problem(Kind.ALL_REDUCE, 0, 2, 0), TOPOLOGY) is None
    hosts = replace(TOPOLOGY, hosts=((0,), (1,)))
    assert plan_in_place(uniform_problem(Kind.ALL_REDUCE, 0, 2, 8), hosts) is None


def two_ranks() -> tuple[list[Problem], list[Plan]]:
    problems = [uniform_problem(Kind.ALL_REDUCE, rank, 2, 1024, itemsize=4) for rank in range(2)]
    return problems, plans_for(problems)


def without_exposing(plans: list[Plan]) -> list[Plan]:
    return [plans[0], replace(plans[1], exposes=frozenset({Space.INPUT}))]


def without_last_gate(plans: list[Plan]) -> list[Plan]:
    return [replace(plan, steps=plan.steps[:-1]) for plan in plans]


def without_first_gate(plans: list[Plan]) -> list[Plan]:
    return [replace(plan, steps=[*plan.steps[1:], GATE]) for plan in plans]


def with_one_share_for_both(plans: list[Plan]) -> list[Plan]:
    return [plans[0], plans[0]]


def without_writing_to_the_peer(plans: list[Plan]) -> list[Plan]:
    steps = [replace(s, kind=StepKind.FOLD_ALL) if s != GATE else s for s in plans[0].steps]
    return [replace(plans[0], steps=steps), plans[1]]


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        (without_exposing, FaultKind.NOT_REACHABLE),
        (without_last_gate, FaultKind.NOT_RELEASED),
        (without_first_gate, FaultKind.TOO_EARLY),
        (with_one_share_for_both, FaultKind.RACE),
        (without_writing_to_the_peer, FaultKind.WRONG_RESULT),
    ],
)
def test_a_damaged_plan_is_found_out(
    damage: Callable[[list[Plan]], list[Plan]], found: FaultKind
) -> None:
    problems, plans = two_ranks()
    assert found in faults_of(problems, damage(plans))


def test_two_ranks_that_write_to_one_place_race() -> None:
    problems = [uniform_problem(Kind.ALL_GATHER, rank, 3, 64) for rank in range(3)]
    plans = plans_for(problems)
    wrong = [replace(s, dst_block=0) if s != GATE else s for s in plans[1].steps]
    plans[1] = replace(plans[1], steps=wrong)
    assert FaultKind.RACE in faults_of(problems, plans)


def test_steps_say_where_they_write() -> None:
    fold = Step(StepKind.FOLD_TO, -1, dst_offset=8, src_offset=8, nbytes=8)
    assert format_step(fold) == "all ranks output 0 [8:16] = fold input 0 [8:16]"
    assert format_step(replace(fold, kind=StepKind.PUSH, peer=2)) == (
        "rank 2 output 0 [8:16] = input 0 [8:16]"
    )

"""Every plan of every group is right, and every damaged plan is found to be wrong.

The second half is what makes the first one worth something: a checker that cannot fail proves
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from distdbg.ops.call import Kind
from distdbg.runtime.plan import Plan, Problem, Space, Step, StepKind, Topology, make_plan
from distdbg.runtime.plan.all_reduce import two_phase_slots
from distdbg.runtime.plan.problem import uniform_problem
from distdbg.runtime.plan.results import expected_value
from distdbg.runtime.plan.simulate import FaultKind, simulate

COLLECTIVES = [kind for kind in Kind if kind not in (Kind.SEND, Kind.RECV)]
UNEVEN = [Kind.ALL_GATHER, Kind.REDUCE_SCATTER, Kind.ALL_TO_ALL]

checked = settings(max_examples=60, deadline=None, database=None)


@dataclass(frozen=True)
class Group:
    """A group of ranks, each with its problem and its plan."""

    problems: list[Problem]
    topology: Topology
    plans: list[Plan]


def make_group(problems: list[Problem], topology: Topology) -> Group:
    """Plan for every rank on its own, as real ranks do."""
    return Group(problems, topology, [make_plan(problem, topology) for problem in problems])


def uneven_problems(kind: Kind, counts: list[list[int]], itemsize: int) -> list[Problem]:
    """Problems whose block sizes differ; counts[r][p] is what rank r sends to rank p."""
    n = len(counts)
    table = [[count * itemsize for count in row] for row in counts]
    first = tuple(table[0])
    problems = []
    for rank in range(n):
        inputs: tuple[int, ...] = first
        outputs: tuple[int, ...] = (first[rank],)
        if kind is Kind.ALL_GATHER:
            inputs, outputs = outputs, inputs
        elif kind is Kind.ALL_TO_ALL:
            inputs, outputs = tuple(table[rank]), tuple(row[rank] for row in table)
        problems.append(
            Problem(
                kind=kind,
                rank=rank,
                size=n,
                itemsize=itemsize,
                in_nbytes=inputs,
                out_nbytes=outputs,
            )
        )
    return problems


sizes = st.sampled_from([0, 64, 1000, 5000, 1 << 20])

topologies = st.builds(
    Topology,
    single_copy=st.booleans(),
    slot_nbytes=st.one_of(st.integers(64, 600), st.sampled_from([4096, 1 << 16])),
    fold_flat_nbytes=sizes,
    slots_nbytes=sizes,
    split_nbytes=sizes,
)

itemsizes = st.sampled_from([1, 2, 4, 8, 16])
counts = st.one_of(st.integers(0, 3), st.integers(0, 40), st.integers(0, 700))


#: Few plans that move few bytes have two steps that differ in nothing but where they read.
swappable_counts = st.integers(30, 700)
SWAPPABLE = [kind for kind in COLLECTIVES if kind not in (Kind.BARRIER, Kind.ALL_TO_ALL)]


@st.composite
def groups(
    draw: st.DrawFn,
    least: int = 1,
    kinds: Sequence[Kind] = COLLECTIVES,
    counts: st.SearchStrategy[int] = counts,
) -> Group:
    """Any group that may call any collective."""
    n = draw(st.integers(least, 17))
    topology = draw(topologies)
    itemsize = draw(itemsizes)
    if draw(st.booleans()):
        kind = draw(st.sampled_from(kinds))
        nbytes = draw(counts) * itemsize
        root = draw(st.integers(0, n - 1))
        problems = [
            uniform_problem(kind, rank, n, nbytes, root=root, itemsize=itemsize)
            for rank in range(n)
        ]
    else:
        kind = draw(st.sampled_from([kind for kind in UNEVEN if kind in kinds]))
        base, step, wrap = draw(counts), draw(st.integers(0, 50)), draw(st.integers(1, 7))
        table = [[base // wrap + step * ((3 * r + p) % wrap) for p in range(n)] for r in range(n)]
        problems = uneven_problems(kind, table, itemsize)
    return make_group(problems, topology)


@checked
@given(groups(), st.integers(0, 1000), st.booleans())
def test_plans_of_any_group_are_right(group: Group, first_gate: int, in_place: bool) -> None:
    faults = simulate(
        group.problems, group.plans, group.topology, first_gate=first_gate, in_place=in_place
    )
    assert faults == []


@checked
@given(groups())
def test_plans_declare_the_slot_they_use(group: Group) -> None:
    for plan in group.plans:
        ends = [
            step.dst_offset + step.nbytes
            for step in plan.steps
            if step.kind is not StepKind.GATE and step.dst is Space.SLOT
        ]
        assert plan.slot_nbytes == max(ends, default=0) <= group.topology.slot_nbytes


@checked
@given(groups())
def test_plans_have_no_empty_moves(group: Group) -> None:
    moves = (StepKind.COPY, StepKind.PULL, StepKind.FOLD_ALL)
    assert all(step.nbytes > 0 for plan in group.plans for step in plan.steps if step.kind in moves)


def gates_of(plan: Plan) -> list[int]:
    """Where the gates are."""
    return [i for i, step in enumerate(plan.steps) if step.kind is StepKind.GATE]


def without(plan: Plan, at: int) -> Plan:
    """The plan without one step."""
    return replace(plan, steps=[*plan.steps[:at], *plan.steps[at + 1 :]])


def with_step(plan: Plan, at: int, step: Step) -> Plan:
    """The plan with one step replaced."""
    return replace(plan, steps=[*plan.steps[:at], step, *plan.steps[at + 1 :]])


def is_caught(group: Group, plans: list[Plan], parity: int) -> bool:
    """Whether the simulation finds damaged plans wrong; outputs lie apart from inputs."""
    return simulate(group.problems, plans, group.topology, first_gate=parity, in_place=False) != []


@checked
@given(groups(least=2), st.data())
def test_dropping_a_gate_on_one_rank_is_a_deadlock(group: Group, data: st.DataObject) -> None:
    victim = data.draw(st.integers(0, len(group.plans) - 1))
    at = data.draw(st.sampled_from(gates_of(group.plans[victim])))
    plans = list(group.plans)
    plans[victim] = without(plans[victim], at)
    faults = simulate(group.problems, plans, group.topology)
    assert FaultKind.DEADLOCK in {fault.kind for fault in faults}


@checked
@given(groups(), st.integers(0, 1), st.data())
def test_dropping_a_gate_on_all_ranks_is_caught(
    group: Group, parity: int, data: st.DataObject
) -> None:
    number = data.draw(st.integers(0, len(gates_of(group.plans[0])) - 1))
    plans = [without(plan, gates_of(plan)[number]) for plan in group.plans]
    assert is_caught(group, plans, parity)


def draw_move(group: Group, data: st.DataObject) -> tuple[int, int, Step]:
    """Some rank, and one of its steps that moves bytes."""
    moves = [
        (rank, at)
        for rank, plan in enumerate(group.plans)
        for at, step in enumerate(plan.steps)
        if step.kind not in (StepKind.GATE, StepKind.EXCHANGE)
    ]
    assume(moves)
    rank, at = data.draw(st.sampled_from(moves))
    return rank, at, group.plans[rank].steps[at]


@checked
@given(groups(), st.integers(0, 1), st.data())
def test_dropping_a_move_is_caught(group: Group, parity: int, data: st.DataObject) -> None:
    rank, at, _ = draw_move(group, data)
    plans = list(group.plans)
    plans[rank] = without(plans[rank], at)
    assert is_caught(group, plans, parity)


@checked
@given(groups(least=2), st.integers(0, 1), st.data())
def test_a_wrong_place_is_caught(group: Group, parity: int, data: st.DataObject) -> None:
    rank, at, step = draw_move(group, data)
    itemsize = group.problems[rank].itemsize
    damaged = [
        replace(step, src_offset=step.src_offset + itemsize),
        replace(step, src_offset=step.src_offset - itemsize),
        replace(step, dst_offset=step.dst_offset + itemsize),
        replace(step, dst_offset=step.dst_offset - itemsize),
        replace(step, src_block=step.src_block + 1),
        replace(step, dst_block=step.dst_block + 1),
        replace(step, nbytes=step.nbytes - itemsize),
        replace(step, dst=Space.INPUT),
    ]
    if step.kind is StepKind.PULL:
        damaged.append(replace(step, peer=(step.peer + 1) % len(group.plans)))
    plans = list(group.plans)
    plans[rank] = with_step(plans[rank], at, data.draw(st.sampled_from(damaged)))
    # A slot has one block only; the simulation, like the interpreter, does not look at its number.
    after = plans[rank].steps[at]
    assume(after.src_block == step.src_block or step.src is not Space.SLOT)
    assume(after.dst_block == step.dst_block or step.dst is not Space.SLOT)
    assert is_caught(group, plans, parity)


@settings(checked, suppress_health_check=[HealthCheck.filter_too_much])
@given(groups(3, SWAPPABLE, swappable_counts), st.integers(0, 1), st.data())
@pytest.mark.slow
def test_swapped_offsets_are_caught(group: Group, parity: int, data: st.DataObject) -> None:
    rank = data.draw(st.integers(0, len(group.plans) - 1))
    steps = group.plans[rank].steps[:40]
    swappable = [
        (i, j)
        for i, a in enumerate(steps)
        for j, b in enumerate(steps[:i])
        if (a.kind, a.src, a.src_block) == (b.kind, b.src, b.src_block)
        and a.src_offset != b.src_offset
    ]
    # Plans of one step between gates, and of one round, have nothing to swap: most of the small.
    assume(swappable)
    i, j = data.draw(st.sampled_from(swappable))
    a, b = steps[i], steps[j]
    plan = with_step(group.plans[rank], i, replace(a, src_offset=b.src_offset))
    plans = list(group.plans)
    plans[rank] = with_step(plan, j, replace(b, src_offset=a.src_offset))
    assert is_caught(group, plans, parity)


@pytest.mark.parametrize("single_copy", [False, True])
@pytest.mark.parametrize("kind", [kind for kind in COLLECTIVES if kind is not Kind.REDUCE_SCATTER])
@pytest.mark.slow
def test_plans_of_64_ranks_and_several_rounds_are_right(kind: Kind, single_copy: bool) -> None:
    # Slots are used by turns: the third round is the first that finds one used before.
    topology = Topology(single_copy=single_copy, slot_nbytes=1 << 20)
    problems = [uniform_problem(kind, rank, 64, 3 << 20, root=5, itemsize=4) for rank in range(64)]
    group = make_group(problems, topology)
    assert simulate(group.problems, group.plans, topology) == []


def test_large_blocks_of_64_ranks_are_folded_right() -> None:
    topology = Topology(single_copy=False, slot_nbytes=4 << 20)
    problems = [uniform_problem(Kind.REDUCE_SCATTER, rank, 64, 512 << 10) for rank in range(64)]
    group = make_group(problems, topology)
    assert simulate(group.problems, group.plans, topology) == []


@pytest.mark.parametrize("kind", [Kind.SEND, Kind.RECV])
def test_point_to_point_has_no_plan(kind: Kind) -> None:
    topology = Topology(single_copy=True, slot_nbytes=64)
    with pytest.raises(ValueError, match="point to point"):
        make_plan(Problem(kind=kind, rank=0, size=2), topology)
    with pytest.raises(ValueError, match="point to point"):
        uniform_problem(kind, 0, 2, 8)


def test_a_slot_smaller_than_a_cache_line_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 64"):
        Topology(single_copy=True, slot_nbytes=63)


@pytest.mark.parametrize("size", [2, 4, 64])
def test_small_all_reduce_needs_one_gate(size: int) -> None:
    topology = Topology(single_copy=True, slot_nbytes=1 << 20)
    plan = make_plan(uniform_problem(Kind.ALL_REDUCE, 1, size, 8, itemsize=4), topology)
    kinds = [step.kind for step in plan.steps]
    assert kinds == [StepKind.COPY, StepKind.GATE, StepKind.FOLD_ALL]


def test_sharing_nothing_is_a_gate() -> None:
    topology = Topology(single_copy=False, slot_nbytes=64)
    plan = two_phase_slots(uniform_problem(Kind.ALL_REDUCE, 0, 2, 0), topology)
    assert [step.kind for step in plan.steps] == [StepKind.GATE]


def test_a_barrier_promises_no_bytes() -> None:
    with pytest.raises(ValueError, match="barrier has no result"):
        expected_value(uniform_problem(Kind.BARRIER, 0, 2, 0), 0)

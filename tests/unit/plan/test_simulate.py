"""Each kind of fault, provoked by the shortest plan that has it."""

from __future__ import annotations

import pytest

from distdbg.ops.call import Kind
from distdbg.runtime.plan import Plan, Problem, Space, Step, StepKind, Topology
from distdbg.runtime.plan.problem import uniform_problem
from distdbg.runtime.plan.simulate import Fault, FaultKind, simulate

GATE = Step(StepKind.GATE)
FAR = Topology(single_copy=False, slot_nbytes=128)
NEAR = Topology(single_copy=True, slot_nbytes=128)


def fill(nbytes: int = 8, dst_offset: int = 0, src_offset: int = 0) -> Step:
    """Input to slot."""
    return Step(StepKind.COPY, -1, Space.INPUT, 0, src_offset, Space.SLOT, 0, dst_offset, nbytes)


def fold(src: Space = Space.SLOT, dst: Space = Space.OUTPUT, nbytes: int = 8, at: int = 0) -> Step:
    """All of `src` to own `dst`."""
    return Step(StepKind.FOLD_ALL, -1, src, 0, 0, dst, 0, at, nbytes)


def pull(peer: int, src: Space, nbytes: int = 8, dst_offset: int = 0) -> Step:
    """A peer's `src` to own output."""
    return Step(StepKind.PULL, peer, src, 0, 0, Space.OUTPUT, 0, dst_offset, nbytes)


def kinds_of(faults: list[Fault]) -> set[FaultKind]:
    return {fault.kind for fault in faults}


def run(
    *plans: list[Step],
    kind: Kind = Kind.ALL_REDUCE,
    nbytes: int = 8,
    itemsize: int = 4,
    topology: Topology = FAR,
    in_place: bool = False,
) -> set[FaultKind]:
    """The faults of plans that declare the slot they use."""
    problems = [
        uniform_problem(kind, rank, len(plans), nbytes, itemsize=itemsize)
        for rank in range(len(plans))
    ]
    made = [Plan(algorithm="test", steps=steps, slot_nbytes=128) for steps in plans]
    return kinds_of(simulate(problems, made, topology, in_place=in_place))


FLAT = [fill(), GATE, fold()]


def test_a_right_plan_has_no_faults() -> None:
    assert run(FLAT, FLAT) == set()


def test_ranks_with_different_algorithms_are_found() -> None:
    problems = [uniform_problem(Kind.ALL_REDUCE, rank, 2, 8) for rank in range(2)]
    plans = [Plan(algorithm=name, steps=FLAT, slot_nbytes=8) for name in ("one", "other")]
    faults = simulate(problems, plans, FAR)
    assert kinds_of(faults) == {FaultKind.DIFFERENT_ALGORITHMS}
    assert str(faults[0]) == "rank 1: different algorithms: 'other', but 'one' on rank 0"


def test_a_gate_too_many_is_a_deadlock() -> None:
    assert run(FLAT, [*FLAT, GATE]) == {FaultKind.DEADLOCK}


def test_an_exchange_that_a_peer_does_not_make_is_a_deadlock() -> None:
    exchange = [GATE, Step(StepKind.EXCHANGE), GATE]
    assert run(exchange, [GATE, GATE], kind=Kind.ALL_TO_ALL) == {FaultKind.DEADLOCK}


def test_a_plan_without_gates_is_found() -> None:
    assert run([], [], kind=Kind.BARRIER) == {FaultKind.NO_GATE}


def test_a_missing_step_is_a_wrong_result() -> None:
    assert run(FLAT, [fill(), GATE]) == {FaultKind.WRONG_RESULT}


def test_folding_twice_is_a_wrong_result() -> None:
    twice = [fill(), GATE, fold(dst=Space.SLOT), GATE, fold()]
    assert run(twice, twice) == {FaultKind.WRONG_RESULT}


def test_a_value_in_a_slot_lives_for_one_gate_only() -> None:
    late = [fill(), GATE, GATE, fold()]
    assert run(late, late) == {FaultKind.WRONG_RESULT}


def test_reading_what_its_owner_writes_is_a_race() -> None:
    unguarded = [GATE, fold(src=Space.INPUT), GATE]
    assert run(unguarded, unguarded, topology=NEAR, in_place=True) == {FaultKind.RACE}
    assert run(unguarded, unguarded, topology=NEAR, in_place=False) == set()


def test_a_race_names_both_steps() -> None:
    problems = [uniform_problem(Kind.ALL_REDUCE, rank, 2, 8) for rank in range(2)]
    plans = [
        Plan(algorithm="test", steps=[GATE, pull(1, Space.OUTPUT), GATE]),
        Plan(algorithm="test", steps=[GATE, fold(src=Space.INPUT), GATE]),
    ]
    race = next(f for f in simulate(problems, plans, NEAR) if f.kind is FaultKind.RACE)
    assert (race.rank, race.step) == (0, 1)
    assert "while rank 1 writes [0, 8) in step 1" in race.text


def test_reads_of_all_before_and_after_a_write_are_compared() -> None:
    # The first write is long and the second one short, so that only the first one overlaps.
    writer = [GATE, pull(0, Space.INPUT, nbytes=64), pull(0, Space.INPUT, 8, 64), GATE]
    reader = [GATE, pull(1, Space.OUTPUT, nbytes=8), GATE]
    assert FaultKind.RACE in run(reader, writer, nbytes=72, topology=NEAR)


def test_filling_a_slot_twice_before_one_gate_is_found() -> None:
    double = [fill(), fill(nbytes=4, dst_offset=4), GATE, fold()]
    assert run(double, double) == {FaultKind.SLOT_REWRITTEN}


def test_more_than_the_slot_holds_is_an_overflow() -> None:
    large = [fill(nbytes=132), GATE, fold(nbytes=132)]
    assert FaultKind.SLOT_OVERFLOW in run(large, large, nbytes=132)


def test_more_than_the_plan_declares_is_an_overflow() -> None:
    problems = [uniform_problem(Kind.ALL_REDUCE, rank, 2, 8) for rank in range(2)]
    plans = [Plan(algorithm="test", steps=FLAT, slot_nbytes=4)] * 2
    assert FaultKind.SLOT_OVERFLOW in kinds_of(simulate(problems, plans, FAR))


@pytest.mark.parametrize(
    "early",
    [
        pytest.param(pull(1, Space.INPUT), id="reads an array of a peer"),
        pytest.param(fold(src=Space.SLOT), id="reads a slot"),
        pytest.param(
            Step(StepKind.COPY, -1, Space.INPUT, 0, 0, Space.OUTPUT, 0, 0, 8),
            id="writes the output",
        ),
    ],
)
def test_nothing_is_read_or_written_before_the_first_gate(early: Step) -> None:
    assert FaultKind.TOO_EARLY in run([early, GATE], [GATE], topology=NEAR)


def test_filling_a_slot_after_the_last_gate_is_found() -> None:
    assert run([*FLAT, fill()], FLAT) == {FaultKind.TOO_LATE}


def test_a_gate_must_follow_after_reading_an_array_of_a_peer() -> None:
    unreleased = [GATE, fold(src=Space.INPUT)]
    assert run(unreleased, unreleased, topology=NEAR) == {FaultKind.NOT_RELEASED}


def test_an_exchange_needs_a_gate_before_it() -> None:
    plan = [Step(StepKind.EXCHANGE), GATE]
    assert FaultKind.TOO_EARLY in run(plan, plan, kind=Kind.ALL_TO_ALL)


def test_an_exchange_brings_its_own_last_gate() -> None:
    plan = [GATE, Step(StepKind.EXCHANGE)]
    assert run(plan, plan, kind=Kind.ALL_TO_ALL) == set()


def test_arrays_of_peers_need_single_copy() -> None:
    direct = [GATE, fold(src=Space.INPUT), GATE]
    assert run(direct, direct, topology=FAR) == {FaultKind.NOT_REACHABLE}


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(pull(1, Space.OUTPUT, nbytes=12), id="reads behind the end"),
        pytest.param(pull(5, Space.OUTPUT), id="no such rank"),
        pytest.param(Step(StepKind.COPY, src_block=1, nbytes=8), id="no such input block"),
        pytest.param(Step(StepKind.COPY, dst_block=1, nbytes=8), id="no such output block"),
        pytest.param(fold(src=Space.INPUT, at=4), id="writes behind the end"),
        pytest.param(fold(src=Space.INPUT, at=-4), id="writes before the beginning"),
    ],
)
def test_places_outside_of_a_block_are_found(step: Step) -> None:
    assert FaultKind.OUT_OF_BOUNDS in run([GATE, step, GATE], [GATE, GATE], topology=NEAR)


def test_exchange_blocks_must_fit_each_other() -> None:
    problems = [
        Problem(kind=Kind.ALL_TO_ALL, rank=0, size=2, in_nbytes=(4, 8), out_nbytes=(4, 4)),
        Problem(kind=Kind.ALL_TO_ALL, rank=1, size=2, in_nbytes=(4, 4), out_nbytes=(4, 4)),
    ]
    plan = Plan(algorithm="exchange", steps=[GATE, Step(StepKind.EXCHANGE), GATE])
    faults = simulate(problems, [plan, plan], NEAR)
    assert [(fault.kind, fault.rank) for fault in faults] == [(FaultKind.OUT_OF_BOUNDS, 1)]


def test_source_and_destination_may_be_equal_but_not_overlap() -> None:
    shifted = [GATE, Step(StepKind.FOLD_ALL, src_offset=0, dst_offset=4, nbytes=8), GATE]
    assert FaultKind.OVERLAP in run(shifted, nbytes=12, in_place=True)
    assert FaultKind.OVERLAP not in run(shifted, nbytes=12, in_place=False)


def test_a_copy_onto_itself_is_nothing() -> None:
    plans = [
        [
            GATE,
            Step(StepKind.COPY, dst_block=rank, nbytes=8),
            Step(StepKind.PULL, 1 - rank, dst_block=1 - rank, nbytes=8),
            GATE,
        ]
        for rank in range(2)
    ]
    assert run(*plans, kind=Kind.ALL_GATHER, topology=NEAR, in_place=True) == set()
    assert run(*plans, kind=Kind.ALL_GATHER, topology=NEAR, in_place=False) == set()


def test_folds_are_of_whole_elements() -> None:
    half = [fill(), GATE, fold(nbytes=2), GATE]
    assert FaultKind.PART_OF_ELEMENT in run(half, half)


def test_the_input_is_never_written() -> None:
    plan = [GATE, Step(StepKind.COPY, dst=Space.INPUT, nbytes=8)]
    assert FaultKind.READ_ONLY in run(plan, plan)


def test_results_say_what_was_found_instead() -> None:
    problems = [uniform_problem(Kind.BROADCAST, rank, 2, 8) for rank in range(2)]
    plans = [Plan(algorithm="test", steps=[GATE])] * 2
    [fault] = simulate(problems, plans, FAR)
    assert str(fault) == (
        "rank 1: wrong result: output block 0 [0, 8) holds nothing, not rank 0 block 0"
    )

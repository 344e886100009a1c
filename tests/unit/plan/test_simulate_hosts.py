"""Each kind of fault between hosts, provoked by the shortest plan that has it."""

from __future__ import annotations

from distdbg.ops.call import Kind
from distdbg.runtime.plan import Plan, Space, Step, StepKind, Topology
from distdbg.runtime.plan.problem import uniform_problem
from distdbg.runtime.plan.simulate import FaultKind, simulate

GATE = Step(StepKind.GATE)
HOST_GATE = Step(StepKind.HOST_GATE)
APART = ((0,), (1,))
PAIRS = ((0, 1), (2, 3))


def send(peer: int, nbytes: int = 8, src: Space = Space.INPUT) -> Step:
    return Step(StepKind.SEND, peer, src, nbytes=nbytes)


def recv(peer: int, nbytes: int = 8, dst: Space = Space.SCRATCH, at: int = 0) -> Step:
    return Step(StepKind.RECV, peer, Space.INPUT, 0, 0, dst, 0, at, nbytes)


def fold_own(kind: StepKind, src: Space = Space.SCRATCH, dst: Space = Space.OUTPUT) -> Step:
    return Step(kind, -1, src, 0, 0, dst, 0, 0, 8)


def copy(src: Space, dst: Space, nbytes: int = 8) -> Step:
    return Step(StepKind.COPY, -1, src, 0, 0, dst, 0, 0, nbytes)


def divide(space: Space = Space.OUTPUT) -> Step:
    return Step(StepKind.DIVIDE, -1, space, 0, 0, space, 0, 0, 8)


def run(
    *plans: list[Step],
    kind: Kind = Kind.ALL_REDUCE,
    hosts: tuple[tuple[int, ...], ...] = APART,
    nbytes: int = 8,
    in_place: bool = False,
) -> set[FaultKind]:
    """The faults of plans with 128 bytes of slot and of scratch memory."""
    topology = Topology(single_copy=True, slot_nbytes=128, hosts=hosts)
    problems = [
        uniform_problem(kind, rank, len(plans), nbytes, itemsize=4) for rank in range(len(plans))
    ]
    made = [
        Plan(algorithm="test", steps=steps, slot_nbytes=128, scratch_nbytes=128) for steps in plans
    ]
    return {fault.kind for fault in simulate(problems, made, topology, in_place=in_place)}


def swap(peer: int, *, lower: bool) -> list[Step]:
    """all_reduce of two hosts with a rank each; inputs lie apart from outputs."""
    order = StepKind.FOLD_AFTER if lower else StepKind.FOLD_BEFORE
    return [
        GATE,
        send(peer),
        recv(peer),
        copy(Space.INPUT, Space.OUTPUT),
        fold_own(order),
        divide(),
    ]


def test_a_right_plan_has_no_faults() -> None:
    assert run(swap(1, lower=True), swap(0, lower=False)) == set()


def test_ranks_that_fold_in_another_order_may_differ_in_the_last_bits() -> None:
    assert run(swap(1, lower=True), swap(0, lower=True)) == {FaultKind.DIFFERENT_BITS}


def test_an_average_that_is_not_divided_or_twice_is_a_wrong_result() -> None:
    first, second = swap(1, lower=True), swap(0, lower=False)
    assert FaultKind.WRONG_RESULT in run(first[:-1], second)
    assert FaultKind.WRONG_RESULT in run([*first, divide()], second)


def test_ranks_that_wait_for_one_another_are_a_deadlock() -> None:
    late = [GATE, recv(1), send(1)]
    assert run(late, [GATE, recv(0), send(0)]) == {FaultKind.DEADLOCK}


def test_a_deadlock_says_who_waits_for_whom() -> None:
    topology = Topology(single_copy=True, slot_nbytes=128, hosts=APART)
    problems = [uniform_problem(Kind.BARRIER, rank, 2, 0) for rank in range(2)]
    plans = [
        Plan(algorithm="test", steps=steps, scratch_nbytes=8) for steps in ([GATE, recv(1)], [GATE])
    ]
    [fault] = simulate(problems, plans, topology)
    assert str(fault) == "rank 0 step 1: deadlock: waits for a message of rank 1"


def test_a_message_of_another_size_is_found() -> None:
    assert FaultKind.WRONG_SIZE in run([GATE, send(1, 4)], [GATE, recv(0, 8)], kind=Kind.BARRIER)


def test_messages_arrive_in_the_order_in_which_they_are_sent() -> None:
    plans = [GATE, send(1, 4), send(1, 8)], [GATE, recv(0, 8), recv(0, 4, at=8)]
    assert FaultKind.WRONG_SIZE in run(*plans, kind=Kind.BARRIER)


def test_a_message_that_nobody_receives_is_found() -> None:
    topology = Topology(single_copy=True, slot_nbytes=128, hosts=APART)
    problems = [uniform_problem(Kind.BROADCAST, rank, 2, 8) for rank in range(2)]
    plans = [Plan(algorithm="test", steps=s) for s in ([GATE, send(1)], [GATE])]
    faults = simulate(problems, plans, topology)
    assert {fault.kind for fault in faults} == {FaultKind.NOT_RECEIVED}


def test_what_is_sent_must_not_be_written_before_the_next_gate() -> None:
    early = [GATE, copy(Space.INPUT, Space.SCRATCH), send(1, src=Space.SCRATCH)]
    early.append(copy(Space.INPUT, Space.SCRATCH))
    receiver = [GATE, recv(0)]
    assert FaultKind.SENT_REWRITTEN in run(early, receiver)
    guarded = [*early[:-1], GATE, early[-1]]
    assert FaultKind.SENT_REWRITTEN not in run(guarded, [*receiver, GATE])


def test_a_gate_of_the_host_does_not_wait_for_messages() -> None:
    early = [GATE, copy(Space.INPUT, Space.SCRATCH), send(1, src=Space.SCRATCH), HOST_GATE]
    early.append(copy(Space.INPUT, Space.SCRATCH))
    assert FaultKind.SENT_REWRITTEN in run(early, [GATE, recv(0), HOST_GATE])


def test_there_are_no_messages_within_a_host() -> None:
    plans = [[GATE, send(1)], [GATE, recv(0)], [GATE], [GATE]]
    assert FaultKind.SAME_HOST in run(*plans, hosts=PAIRS)


def test_messages_are_taken_after_the_comparison() -> None:
    assert FaultKind.TOO_EARLY in run([send(1), GATE], [recv(0), GATE])
    assert FaultKind.TOO_EARLY not in run([send(1), GATE], [GATE, recv(0)])


def test_a_rank_that_is_not_alone_on_its_host_sends_after_the_comparison() -> None:
    plans = [[send(2), GATE], [GATE], [GATE, recv(0)], [GATE]]
    assert FaultKind.TOO_EARLY in run(*plans, hosts=PAIRS)


def test_what_comes_early_is_taken_before_the_next_gate() -> None:
    late = [GATE, GATE, recv(0)]
    assert FaultKind.NOT_RECEIVED in run([send(1), GATE, GATE], late)
    assert FaultKind.NOT_RECEIVED not in run([GATE, send(1), GATE], late)


def test_what_left_early_may_be_written_behind_the_gate() -> None:
    sender = [send(1, src=Space.OUTPUT), GATE, copy(Space.INPUT, Space.OUTPUT)]
    assert FaultKind.SENT_REWRITTEN not in run(sender, [GATE, recv(0)])


def test_arrays_of_other_hosts_cannot_be_read() -> None:
    pull = Step(StepKind.PULL, 2, nbytes=8)
    plans = [[GATE, pull, GATE], *[[GATE, GATE]] * 3]
    assert FaultKind.OTHER_HOST in run(*plans, hosts=PAIRS)
    fold = Step(StepKind.FOLD_ALL, nbytes=8)
    assert FaultKind.OTHER_HOST in run(*[[GATE, fold, GATE]] * 4, hosts=PAIRS)


def through_slots(published: int) -> list[Step]:
    gate = Step(StepKind.GATE, nbytes=published)
    fold = Step(StepKind.FOLD_ALL, -1, Space.SLOT, 0, 0, Space.OUTPUT, 0, 0, 8)
    return [copy(Space.INPUT, Space.SLOT), gate, fold]


def test_a_slot_is_read_everywhere_up_to_what_its_gate_hands_on() -> None:
    assert run(*[through_slots(8)] * 4, hosts=PAIRS) == set()
    assert FaultKind.OUT_OF_BOUNDS in run(*[through_slots(4)] * 4, hosts=PAIRS)
    assert FaultKind.OTHER_HOST in run(*[through_slots(0)] * 4, hosts=PAIRS)


def test_what_a_gate_hands_on_lives_until_the_next_gate_of_the_host() -> None:
    fill, gate, fold = through_slots(8)
    late = [fill, gate, HOST_GATE, fold]
    assert FaultKind.OTHER_HOST in run(*[late] * 4, hosts=PAIRS)


def test_a_host_folds_its_own_ranks() -> None:
    fold = Step(StepKind.FOLD_HOST, nbytes=8)
    plans = [[GATE, fold, HOST_GATE]] * 4
    assert run(*plans, hosts=PAIRS) == {FaultKind.WRONG_RESULT}


def test_a_gate_of_the_host_releases_what_was_read_there() -> None:
    pull = Step(StepKind.PULL, 1, nbytes=8)
    released = [[GATE, pull, HOST_GATE], [GATE, HOST_GATE], [GATE], [GATE]]
    assert FaultKind.NOT_RELEASED not in run(*released, hosts=PAIRS)
    kept = [[GATE, pull], [GATE], [GATE], [GATE]]
    assert FaultKind.NOT_RELEASED in run(*kept, hosts=PAIRS)


def test_ranks_of_a_host_pass_the_same_gates_and_hosts_need_not() -> None:
    alike = [[GATE, HOST_GATE], [GATE, HOST_GATE], [GATE], [GATE]]
    assert run(*alike, hosts=PAIRS, kind=Kind.BARRIER) == set()
    uneven = [[GATE, HOST_GATE], [GATE], [GATE], [GATE]]
    assert run(*uneven, hosts=PAIRS, kind=Kind.BARRIER) == {FaultKind.DEADLOCK}
    assert run([GATE, GATE], [GATE], kind=Kind.BARRIER) == {FaultKind.DEADLOCK}


def test_a_gate_of_the_host_compares_nothing() -> None:
    plans = [[HOST_GATE, GATE]] * 2 + [[GATE]] * 2
    assert FaultKind.NO_GATE in run(*plans, hosts=PAIRS, kind=Kind.BARRIER)

"""Which messages go with the first gate of a plan."""

from __future__ import annotations

from distdbg.ops.call import Kind
from distdbg.runtime.plan import Plan, Space, Step, StepKind, Topology
from distdbg.runtime.plan.between.choose import MAX_EARLY_NBYTES, plan_by_name, send_early
from distdbg.runtime.plan.layout import make_hosts
from distdbg.runtime.plan.problem import uniform_problem

GATE = Step(StepKind.GATE)


def send(peer: int, src: Space = Space.INPUT, at: int = 0, nbytes: int = 8) -> Step:
    return Step(StepKind.SEND, peer, src, 0, at, nbytes=nbytes)


def recv(peer: int, dst: Space = Space.SCRATCH) -> Step:
    return Step(StepKind.RECV, peer, dst=dst, nbytes=8)


def copy(src: Space, dst: Space, to: int = 0) -> Step:
    return Step(StepKind.COPY, -1, src, 0, 0, dst, 0, to, 8)


def early(*steps: Step) -> tuple[Step, ...]:
    return tuple(send_early(Plan(algorithm="test", steps=steps)).steps)


def test_what_depends_on_nothing_received_goes_with_the_gate() -> None:
    assert early(GATE, send(1), recv(3), send(2)) == (send(1), send(2), GATE, recv(3))


def test_what_was_received_is_sent_behind_it() -> None:
    plan = (GATE, recv(3), send(1, Space.SCRATCH))
    assert early(*plan) == plan


def test_a_copy_for_a_message_goes_before_it() -> None:
    staged = copy(Space.INPUT, Space.SCRATCH)
    assert early(GATE, staged, send(1, Space.SCRATCH), recv(1)) == (
        staged, send(1, Space.SCRATCH), GATE, recv(1),
    )  # fmt: skip


def test_nothing_is_written_to_the_output_before_calls_are_compared() -> None:
    placed = copy(Space.INPUT, Space.OUTPUT, to=16)
    assert early(GATE, placed, send(1, Space.OUTPUT, at=16)) == (send(1), GATE, placed)


def test_messages_to_one_rank_stay_in_order() -> None:
    later = send(1, Space.SCRATCH)
    plan = (GATE, recv(3), later, send(1))
    assert early(*plan) == plan
    long = send(1, nbytes=MAX_EARLY_NBYTES + 1)
    assert early(GATE, long, send(1), send(2)) == (send(2), GATE, long, send(1))


def test_much_for_one_rank_waits() -> None:
    half = send(1, nbytes=MAX_EARLY_NBYTES // 2)
    assert early(GATE, half, half, half) == (half, half, GATE, half)


def test_a_plan_with_a_further_gate_stays_as_it_is() -> None:
    plan = (GATE, send(1), GATE, recv(1))
    assert early(*plan) == plan


def test_where_hosts_have_several_ranks_all_wait() -> None:
    for hosts, sends_early in ((4, True), (2, False)):
        topology = Topology(single_copy=True, slot_nbytes=512 << 10, hosts=make_hosts(4, hosts))
        problem = uniform_problem(Kind.REDUCE_SCATTER, 0, 4, 1 << 10, itemsize=4)
        steps = plan_by_name(problem, topology, "pairwise").steps
        gate = next(at for at, step in enumerate(steps) if step.kind is StepKind.GATE)
        assert any(step.kind is StepKind.SEND for step in steps[:gate]) == sends_early

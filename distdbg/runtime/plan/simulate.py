"""Proves plans right without a process: runs the plans of all ranks on symbolic bytes.

Pure, and quick enough for 64 ranks and any size, because ranges are kept as intervals. Without races (see
`accesses`) the order in which the simulation runs the ranks makes no difference to what it finds, since
messages between two ranks arrive in the order in which they are sent. Between hosts a result need not be
folded in the order of ranks, but all ranks must get the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence

from distdbg.ops.call import Kind
from distdbg.runtime.plan.contents import Content
from distdbg.runtime.plan.faults import Fault, FaultKind
from distdbg.runtime.plan.problem import Problem, Topology
from distdbg.runtime.plan.results import expected_value, is_promised
from distdbg.runtime.plan.simulated_group import SimulatedGroup, SimulatedHost
from distdbg.runtime.plan.steps import Plan, StepKind

__all__ = ["Fault", "FaultKind", "simulate"]

_GATES = (StepKind.GATE, StepKind.HOST_GATE)


def simulate(
    problems: Sequence[Problem],
    plans: Sequence[Plan],
    topology: Topology,
    *,
    first_gate: int = 0,
    in_place: bool = True,
) -> list[Fault]:
    """Run the plans of all ranks of a group; an empty list means that they are right.

    `first_gate` is the number of the plans' first gate in the group's count. `in_place` says
    whether inputs lie inside outputs, or outputs inside inputs, for kinds where that is allowed.
    """
    hosts = topology.hosts or (tuple(range(len(plans))),)
    faults = _compare_shapes(plans, hosts)
    if faults:
        return faults
    run = _Run(problems, plans, topology, hosts, first_gate, in_place)
    run.all()
    if not run.faults:
        run.compare_results()
    return run.faults


class _Run:
    """How far every rank is; what steps do is the group's."""

    def __init__(
        self,
        problems: Sequence[Problem],
        plans: Sequence[Plan],
        topology: Topology,
        hosts: Sequence[Sequence[int]],
        first_gate: int,
        in_place: bool,
    ) -> None:
        self.plans = plans
        self.hosts = [
            SimulatedHost(number, ranks, first_gate, self.count_gates(plans[ranks[0]]))
            for number, ranks in enumerate(hosts)
        ]
        self.group = SimulatedGroup(problems, plans, topology, self.hosts, in_place)
        self.faults = self.group.faults
        self.cursors = [0] * len(plans)

    @staticmethod
    def count_gates(plan: Plan) -> int:
        return sum(step.kind in _GATES for step in plan.steps)

    def all(self) -> None:
        """Run every rank as far as it gets, again and again, until all have ended."""
        while True:
            moved = [self.run_on(rank) for rank in range(len(self.plans))]
            passed = self.pass_gates()
            if all(
                at == len(plan.steps) for at, plan in zip(self.cursors, self.plans, strict=True)
            ):
                break
            if not any(moved) and not passed:
                self.name_deadlock()
                break
            # What is wrong would only be said again and again.
            if len(self.faults) > 100:
                break
        for host in self.hosts:
            self.faults += host.log.take_races()
        for (source, rank), messages in self.group.messages.items():
            if messages and not self.faults:
                text = f"{len(messages)} of them to rank {rank} are left"
                self.group.fault(FaultKind.NOT_RECEIVED, source, -1, text)

    def run_on(self, rank: int) -> bool:
        """Run the steps of a rank up to one that waits; whether there were any."""
        steps, begin = self.plans[rank].steps, self.cursors[rank]
        at = begin
        while at < len(steps) and steps[at].kind not in _GATES:
            step = steps[at]
            if step.kind is StepKind.RECV and not self.group.has_message(rank, step):
                break
            self.group.step(rank, at, step)
            at += 1
        self.cursors[rank] = at
        return at > begin

    def waits_at(self, rank: int, kind: StepKind) -> bool:
        """Whether the rank's next step is such a gate."""
        steps, at = self.plans[rank].steps, self.cursors[rank]
        return at < len(steps) and steps[at].kind is kind

    def pass_gates(self) -> bool:
        """Let those pass a gate who are all there."""
        if all(self.waits_at(rank, StepKind.GATE) for rank in range(len(self.plans))):
            published = [
                plan.steps[at].nbytes for plan, at in zip(self.plans, self.cursors, strict=True)
            ]
            for host in self.hosts:
                self.pass_one(host)
            self.group.mirror(published)
            return True
        passed = False
        for host in self.hosts:
            if all(self.waits_at(rank, StepKind.HOST_GATE) for rank in host.ranks):
                if host.gates_passed == 0:
                    text = "a gate of the host before the one that compares"
                    self.group.fault(FaultKind.NO_GATE, host.ranks[0], -1, text)
                self.pass_one(host)
                passed = True
        return passed

    def pass_one(self, host: SimulatedHost) -> None:
        self.group.pass_gate(host)
        for rank in host.ranks:
            self.cursors[rank] += 1

    def name_deadlock(self) -> None:
        """Nobody gets on: say what each waits for."""
        for rank, at in enumerate(self.cursors):
            steps = self.plans[rank].steps
            if at < len(steps):
                step = steps[at]
                what = "its host" if step.kind is StepKind.HOST_GATE else "all ranks"
                if step.kind is StepKind.RECV:
                    what = f"a message of rank {step.peer}"
                self.group.fault(FaultKind.DEADLOCK, rank, at, f"waits for {what}")

    def compare_results(self) -> None:
        """Whether every output block holds what its kind promises."""
        in_order = len(self.hosts) == 1
        first: dict[int, list[tuple[int, int, Content]]] = {}
        for problem, outputs in zip(self.group.problems, self.group.outputs, strict=True):
            for block, memory in enumerate(outputs):
                if memory.nbytes == 0:
                    continue
                wanted = expected_value(problem, block)
                found = memory.read(0, memory.nbytes)
                for begin, end, content in found:
                    if (
                        content is None
                        or content[1] != 0
                        or not is_promised(
                            problem, block, content[0], begin, end, in_order=in_order
                        )
                    ):
                        text = f"output block {block} [{begin}, {end}) holds"
                        text += f" {_say(begin, content)}, not {wanted}"
                        self.group.fault(FaultKind.WRONG_RESULT, problem.rank, -1, text)
                        found = []
                is_equal_everywhere = problem.kind is Kind.ALL_REDUCE and bool(found)
                if is_equal_everywhere and found != first.setdefault(block, found):
                    text = "its result may differ in the last bits from that of another rank"
                    self.group.fault(FaultKind.DIFFERENT_BITS, problem.rank, -1, text)


def _say(begin: int, content: Content) -> str:
    return "nothing" if content is None else f"{content[0]} from {begin + content[1]}"


_WAITS = (StepKind.GATE, StepKind.HOST_GATE, StepKind.EXCHANGE)


def _compare_shapes(plans: Sequence[Plan], hosts: Sequence[Sequence[int]]) -> list[Fault]:
    """Whether all ranks run the same algorithm, and those of a host meet at the same gates."""
    shapes = [[step.kind for step in plan.steps if step.kind in _WAITS] for plan in plans]
    gates = [shape.count(StepKind.GATE) for shape in shapes]
    first_of = {rank: ranks[0] for ranks in hosts for rank in ranks}
    faults = []
    for rank, (plan, shape) in enumerate(zip(plans, shapes, strict=True)):
        first = first_of[rank]
        if plan.algorithm != plans[0].algorithm:
            text = f"{plan.algorithm!r}, but {plans[0].algorithm!r} on rank 0"
            faults.append(Fault(kind=FaultKind.DIFFERENT_ALGORITHMS, rank=rank, text=text))
        if shape != shapes[first]:
            text = f"{len(shape)} gates and exchanges, or another order, than {len(shapes[first])}"
            faults.append(Fault(kind=FaultKind.DEADLOCK, rank=rank, text=f"{text} on rank {first}"))
        elif gates[rank] != gates[0]:
            text = f"{gates[rank]} gates of all hosts, but {gates[0]} on rank 0"
            faults.append(Fault(kind=FaultKind.DEADLOCK, rank=rank, text=text))
        elif StepKind.GATE not in shape:
            text = "the fingerprints are never compared"
            faults.append(Fault(kind=FaultKind.NO_GATE, rank=rank, text=text))
    return faults

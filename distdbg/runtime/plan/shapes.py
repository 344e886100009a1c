"""Whether the plans of all ranks fit one another, before any of their steps is looked at."""

from __future__ import annotations

from collections.abc import Sequence

from distdbg.runtime.plan.faults import Fault, FaultKind
from distdbg.runtime.plan.steps import Plan, StepKind

_WAITS = (StepKind.GATE, StepKind.HOST_GATE, StepKind.EXCHANGE)


def compare_shapes(plans: Sequence[Plan], hosts: Sequence[Sequence[int]]) -> list[Fault]:
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

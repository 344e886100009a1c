"""Plans of all_to_all: input block p of rank r becomes output block r of rank p.

One step does it, whatever the sizes: a rank does not know how its peers split their arrays (one may
pass split sizes and another none), so how the bytes travel is decided by the step itself, after the
first gate, from the sizes that all ranks have published.
"""

from __future__ import annotations

from distdbg.runtime.plan.build import StepBuilder
from distdbg.runtime.plan.problem import Problem, Topology
from distdbg.runtime.plan.steps import Plan


def plan_all_to_all(problem: Problem, topology: Topology) -> Plan:
    """A gate and an exchange."""
    del topology
    steps = StepBuilder()
    steps.gate()
    steps.exchange(sum(problem.in_nbytes))
    return steps.plan("exchange")

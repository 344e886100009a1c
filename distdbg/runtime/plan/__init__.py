"""Plans: collectives as data, made by pure functions and carried out by the native interpreter.

Start at `steps.py`, the vocabulary; `make.py` is the entrance, `simulate.py` the proof.

accesses          who reads and writes what between two gates of a host, and what of it must not be
all_gather        plans of all_gather and gather
all_reduce        plans of all_reduce
all_to_all        plans of all_to_all
between           plans for groups over several hosts
broadcast         plans of broadcast and scatter
build             the list of steps of one rank while it is made
compare           all algorithms for one call side by side
contents          what bytes mean in a simulation
cut               how bytes are cut
draw              draws plans as text
draw_passages     draws the messages of a plan over time, as SVG
simulated_group   steps on symbolic memory
faults            what can be wrong with plans, and where
gloo_order        in which order gloo adds up
in_place          plans for shared arrays
layout            where the ranks of a group sit
link              what the elementary things cost between hosts
make              from a problem to a plan
names             the names of the algorithms between hosts, for each kind
overrides         what DISTDBG_ALGO says
problem           what a plan is made from
results           what each kind promises
reduce            plans of reduce
reduce_scatter    plans of reduce_scatter
simulate          proves plans right without a process
steps             the vocabulary of plans
timing            runs plans on a simulated network
"""

from __future__ import annotations

from distdbg.runtime.plan.make import make_plan
from distdbg.runtime.plan.problem import Problem, Topology
from distdbg.runtime.plan.steps import Plan, Space, Step, StepKind

__all__ = ["Plan", "Problem", "Space", "Step", "StepKind", "Topology", "make_plan"]

"""Plans: collectives as data, made by pure functions and carried out by the native interpreter.

Start at `steps.py`, the vocabulary; `make.py` is the entrance, `simulate.py` the proof.
"""

from __future__ import annotations

from distdbg.runtime.plan.make import make_plan
from distdbg.runtime.plan.problem import Problem, Topology
from distdbg.runtime.plan.steps import Plan, Space, Step, StepKind

__all__ = ["Plan", "Problem", "Space", "Step", "StepKind", "Topology", "make_plan"]

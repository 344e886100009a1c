"""Drawings of plans."""

from __future__ import annotations

from distdbg.ops.call import Kind
from distdbg.runtime.plan import Step, StepKind, Topology, make_plan
from distdbg.runtime.plan.draw import draw, format_step
from distdbg.runtime.plan.problem import uniform_problem


def test_draw_shows_ranks_side_by_side_and_gates_across() -> None:
    topology = Topology(single_copy=True, slot_nbytes=64)
    plans = [make_plan(uniform_problem(Kind.BROADCAST, r, 2, 8), topology) for r in range(2)]
    assert draw(plans) == (
        "rank 0                       rank 1\n"
        "slot [0:8] = input 0 [0:8]\n"
        "-- gate -------------------------------------------------------\n"
        "                             output 0 [0:8] = rank 0 slot [0:8]\n"
    )


def test_draw_shows_folds_and_exchanges() -> None:
    topology = Topology(single_copy=True, slot_nbytes=64, fold_flat_nbytes=0, slots_nbytes=0)
    fold = [make_plan(uniform_problem(Kind.REDUCE_SCATTER, 0, 2, 8), topology)]
    assert "output 0 [0:8] = fold input 0 [0:8]" in draw(fold)
    exchange = [make_plan(uniform_problem(Kind.ALL_TO_ALL, 0, 2, 8), topology)]
    assert "each output p = input `rank` of rank p" in draw(exchange)


def test_a_step_alone_reads_as_an_assignment() -> None:
    assert format_step(Step(StepKind.GATE)) == "gate"
    assert format_step(Step(StepKind.COPY, nbytes=8)) == "output 0 [0:8] = input 0 [0:8]"

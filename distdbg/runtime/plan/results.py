"""What each kind promises: which places are one memory, and what the outputs hold in the end."""

from __future__ import annotations

from distdbg.ops.call import Kind
from distdbg.runtime.plan.contents import Value
from distdbg.runtime.plan.gloo_order import down_from
from distdbg.runtime.plan.problem import Problem


def in_place_block(problem: Problem) -> tuple[int, int] | None:
    """The (input block, output block) of `problem` that are, or may be, the same memory."""
    match problem.kind:
        case Kind.ALL_REDUCE:
            return 0, 0
        case Kind.BROADCAST | Kind.REDUCE:
            return (0, 0) if problem.rank == problem.root else None
        case Kind.ALL_GATHER:
            return 0, problem.rank
        case Kind.GATHER:
            return (0, problem.rank) if problem.rank == problem.root else None
        case Kind.SCATTER:
            return (problem.rank, 0) if problem.rank == problem.root else None
        case Kind.REDUCE_SCATTER:
            return problem.rank, 0
        case _:
            return None


def expected_value(problem: Problem, block: int, first: int = -1) -> Value:
    """What output block `block` must hold in the end, or a part of it whose fold begins at `first`."""
    ranks = range(problem.size) if first < 0 else down_from(first, problem.size)
    match problem.kind:
        case Kind.ALL_REDUCE | Kind.REDUCE:
            return Value(tuple((rank, 0, 0) for rank in ranks), 1)
        case Kind.REDUCE_SCATTER:
            return Value(tuple((rank, problem.rank, 0) for rank in ranks), 1)
        case Kind.BROADCAST:
            return Value(((problem.root, 0, 0),), 0)
        case Kind.SCATTER:
            return Value(((problem.root, problem.rank, 0),), 0)
        case Kind.ALL_GATHER | Kind.GATHER:
            return Value(((block, 0, 0),), 0)
        case Kind.ALL_TO_ALL:
            return Value(((block, problem.rank, 0),), 0)
        case Kind.BARRIER | Kind.SEND | Kind.RECV:
            raise ValueError(f"{problem.kind.label} has no result")


def is_promised(
    problem: Problem, block: int, value: Value, begin: int, end: int, *, in_order: bool
) -> bool:
    """Whether output block `block` may hold `value` there; `in_order`: folds have one order only."""
    wanted = expected_value(problem, block)
    if in_order and problem.order is not None:
        of = problem.rank if problem.kind is Kind.REDUCE_SCATTER else 0
        runs = problem.order.runs(of, begin, end - begin)
        return all(value == expected_value(problem, block, first) for _, _, first in runs)
    if in_order or value.folds != wanted.folds:
        return value == wanted
    return tuple(sorted(value.terms)) == wanted.terms

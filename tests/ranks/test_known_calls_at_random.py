"""Any calls of the functions whose calls native code knows: both ways come to the same.

A program is drawn, of legal and illegal calls, each of which comes by several times; the ranks run it with
known calls and without.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from tests.ranks.known_calls import SIZE, hits, run, world

#: Programs of each sort; `make stress` has more.
SEEDS = int(os.environ.get("STRESS_ARGUMENTS", "4"))
DTYPES = ("f4", "f8", "i4", "?", "c8", ">f4", "S3", "f2")
LAYOUTS = (
    "plain",
    "plain",
    "plain",
    "strided",
    "read-only",
    "view",
    "empty",
    "column",
    "scalar",
    "list",
)
OPS = (
    dist.ReduceOp.SUM,
    dist.ReduceOp.SUM,
    dist.ReduceOp.MAX,
    dist.ReduceOp.AVG,
    dist.ReduceOp.BAND,
    dist.ReduceOp(dist.ReduceOp.PRODUCT),
    dist.make_premul_sum(0.5),
    "sum",
)
RANKS = (0, 1, 1, None, 2, -1, True, np.int64(1), 1.0)
COLLECTIVES = (
    "all_reduce",
    "broadcast",
    "all_gather_into_tensor",
    "reduce_scatter_tensor",
    "all_to_all_single",
    "barrier",
)


@dataclass(frozen=True)
class Drawn:
    """One call: all that its arrays and arguments are made from, of each rank."""

    function: str
    dtypes: tuple[str, str]
    layouts: tuple[str, str]
    counts: tuple[int, int]
    op: Any
    rank: Any
    group: str
    is_async: bool
    #: Where in the output the input begins, when it is a part of it; -1: it is none.
    within: int = -1
    group_rank: Any = None
    #: Elements that rank 1 has more.
    more: int = 0


def draw(random: Random) -> Drawn:
    """Mostly legal on one rank; each choice now and then is not."""

    def mostly(usual: Any, others: Any, share: float = 0.85) -> Any:
        return usual if random.random() < share else random.choice(others)

    dtype = mostly("f4", DTYPES, 0.7)
    count = mostly(4, (0, 1, 3, 6, 4000), 0.7)
    return Drawn(
        function=random.choice(COLLECTIVES),
        dtypes=(dtype, mostly(dtype, DTYPES, 0.95)),
        layouts=(mostly("plain", LAYOUTS), mostly("plain", LAYOUTS)),
        counts=(mostly(count, (0, 1, 5), 0.93), mostly(count, (0, 2, 7), 0.93)),
        within=mostly(-1, (0, 1), 0.8),
        op=random.choice(OPS),
        rank=mostly(0, RANKS, 0.8),
        group_rank=mostly(None, RANKS, 0.9),
        group=mostly("default", ("given", "other", "wrong")),
        is_async=random.random() < 0.3,
    )


def draw_legal(random: Random) -> Drawn:
    """Legal on each of two ranks alone; but now and then they differ."""
    function = random.choice([*COLLECTIVES, "send"])
    count = random.choice((1, 2, 3, 40, 4000))
    first, second = {
        "all_gather_into_tensor": (count * SIZE, count),
        "reduce_scatter_tensor": (count, count * SIZE),
    }.get(function, (count * SIZE, count * SIZE))
    return Drawn(
        function=function,
        dtypes=(random.choice(("f4", "f8", "i4")),) * 2,
        layouts=(random.choice(("plain", "plain", "strided", "view")), "plain"),
        counts=(first, second),
        op=random.choice(OPS[:3]),
        rank=1,
        group=random.choice(("default", "given", "other")),
        is_async=random.random() < 0.3,
        more=int(function in ("all_reduce", "broadcast", "send") and random.random() < 0.1),
    )


#: Of two ranks: their lengths differ.
WRONG = Drawn(
    function="all_reduce",
    dtypes=("f4", "f4"),
    layouts=("plain", "plain"),
    counts=(4, 4),
    op=dist.ReduceOp.MAX,
    rank=1,
    group="default",
    is_async=False,
    more=1,
)


def make(dtype: str, layout: str, count: int, rank: int) -> Any:
    values = (np.arange(max(count, layout == "scalar")) + rank + 1).astype(dtype)
    match layout:
        case "strided":
            return np.repeat(values, 2)[::2]
        case "read-only":
            values.flags.writeable = False
        case "view":
            return np.concatenate([values, values])[:count]
        case "empty":
            return values[:0]
        case "column":
            return values[:, None]
        case "scalar":
            return values[:1].reshape(())
        case "list":
            return values.tolist()
    return values


def carry_out(drawn: Drawn, rank: int, other: Any) -> tuple[list[Any], list[Any]]:
    """How it ended, and its arrays afterwards."""
    size = drawn.more if rank == 1 else 0
    first = make(drawn.dtypes[0], drawn.layouts[0], drawn.counts[0] + size, rank)
    second = make(drawn.dtypes[1], drawn.layouts[1], drawn.counts[1] + size, rank)
    if drawn.within >= 0 and isinstance(first, np.ndarray):
        second = first.reshape(-1)[drawn.within :][: drawn.counts[1]]
    arrays = [first, second]
    group = {"default": None, "given": world(), "other": other, "wrong": "world"}[drawn.group]
    more: dict[str, Any] = {"group": group}
    if drawn.is_async and drawn.function != "send":
        more["async_op"] = True
    try:
        result = call(drawn, rank, arrays, more)
        if isinstance(result, dist.Work):
            result.wait()
            result = None
    except Exception as error:  # of whatever type, it must be the same
        return reported(error), arrays
    return ([] if result is None else [result]), arrays


def call(drawn: Drawn, rank: int, arrays: list[Any], more: dict[str, Any]) -> Any:
    x, y = arrays
    match drawn.function:
        case "all_reduce":
            return dist.all_reduce(x, drawn.op, **more)
        case "broadcast":
            return dist.broadcast(x, drawn.rank, group_src=drawn.group_rank, **more)
        case "reduce_scatter_tensor":
            return dist.reduce_scatter_tensor(x, y, drawn.op, **more)
        case "barrier":
            return dist.barrier(**more)
        case "send":
            return dist.send(x, 1, **more) if rank == 0 else dist.recv(x, 0, **more)
        case _:
            return getattr(dist, drawn.function)(x, y, **more)


def reported(error: Exception) -> list[Any]:
    text = re.sub(r"\b[0-9.]+ m?s\b|0x[0-9a-f]+", "_", str(error))  # times, addresses
    return [type(error).__name__, text]


def run_program(program: list[Drawn], size: int, expect_known: bool) -> list[Any]:
    def ranks(rank: int) -> list[Any]:
        other = dist.new_group(list(range(size)))
        outcomes: list[Any] = []
        for drawn in program:
            outcome, arrays = carry_out(drawn, rank, other)
            left = [each.tolist() if isinstance(each, np.ndarray) else each for each in arrays]
            outcomes.append([drawn.function, outcome, left])
        assert (hits() > len(program) // 8) == expect_known
        return outcomes

    return run(ranks, size)


def draw_program(random: Random, draw_one: Callable[[Random], Drawn]) -> list[Drawn]:
    """Calls come by again, at once or later."""
    pool = [draw_one(random) for _ in range(30)]
    program = [random.choice(pool) for _ in range(50)]
    return [each for drawn in program for each in [drawn] * random.choice((1, 2, 3))]


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize(("draw_one", "size"), [(draw, 1), (draw_legal, SIZE)])
def test_both_ways_come_to_the_same(
    draw_one: Callable[[Random], Drawn], size: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = draw_program(Random(f"{draw_one.__name__} {seed}"), draw_one)
    program += [WRONG] * 2
    known = run_program(program, size, expect_known=True)
    monkeypatch.setenv("DISTDBG_KNOWN_CALLS", "0")
    slow = run_program(program, size, expect_known=False)
    for ours, theirs in zip(known, slow, strict=True):
        for one, another in zip(ours, theirs, strict=True):
            assert str(one) == str(another)  # a NaN is none of its equals
    names = {str(outcome[0]) for _, outcome, _ in known[0] if outcome}
    assert ("UsageError" if draw_one is draw else "MismatchError") in names

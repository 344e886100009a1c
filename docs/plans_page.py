"""The page about plans: what a few ranks do, drawn from the plans that they would carry out."""

from __future__ import annotations

from distdbg.ops.call import Kind
from distdbg.runtime.plan import Topology, make_plan
from distdbg.runtime.plan.draw import draw
from distdbg.runtime.plan.in_place import plan_in_place
from distdbg.runtime.plan.problem import uniform_problem

#: Kind, bytes of a block, whether ranks may read each other's arrays.
DRAWN = (
    (Kind.BARRIER, 0, True),
    (Kind.ALL_REDUCE, 1 << 10, True),
    (Kind.ALL_REDUCE, 96 << 10, True),
    (Kind.ALL_REDUCE, 3 << 20, True),
    (Kind.BROADCAST, 1 << 10, True),
    (Kind.BROADCAST, 1 << 20, True),
    (Kind.ALL_GATHER, 1 << 20, True),
    (Kind.REDUCE_SCATTER, 1 << 20, True),
    (Kind.ALL_TO_ALL, 1 << 20, True),
)
RANKS = 3
SLOT_NBYTES = 256 << 10


def drawn_plans() -> str:
    """The page."""
    lines = [
        "# Plans",
        "",
        f"What {RANKS} ranks do, side by side. What stands between two gates happens in any",
        "order; no rank passes a gate before all have reached it. Ranges are bytes, root is",
        "rank 0. Why it is so: [how it works](../explanation/how-it-works.md).",
        "",
    ]
    for kind, nbytes, single_copy in DRAWN:
        topology = Topology(single_copy=single_copy, slot_nbytes=SLOT_NBYTES)
        plans = [
            make_plan(uniform_problem(kind, rank, RANKS, nbytes, itemsize=4), topology)
            for rank in range(RANKS)
        ]
        size = f", {nbytes:,} bytes" if nbytes else ""
        lines += [f"## {kind.label}{size}: {plans[0].algorithm}", ""]
        lines += ["```text", draw(plans).rstrip(), "```", ""]
    lines += plans_in_place()
    return "\n".join(lines).rstrip() + "\n"


def plans_in_place() -> list[str]:
    """The same in shared arrays."""
    topology = Topology(single_copy=False, slot_nbytes=SLOT_NBYTES)
    lines: list[str] = []
    for kind in (Kind.ALL_REDUCE, Kind.BROADCAST, Kind.ALL_GATHER, Kind.REDUCE_SCATTER):
        problems = [uniform_problem(kind, r, RANKS, 3 << 20, itemsize=4) for r in range(RANKS)]
        plans = [plan for p in problems if (plan := plan_in_place(p, topology)) is not None]
        lines += [f"## {kind.label} of {3 << 20:,} bytes, shared arrays: {plans[0].algorithm}", ""]
        lines += ["```text", draw(plans).rstrip(), "```", ""]
    return lines

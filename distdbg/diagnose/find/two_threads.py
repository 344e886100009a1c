"""A mismatch where two threads of a rank issue ops on one group at one time: chance orders them. Pure.

    two threads of ranks 1,3 issue ops on group 'world' at one time: barrier at s.py:25, all_reduce at x.py:37

It is no call too many or too few: each rank made its calls in another order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from distdbg.diagnose.find.order_inversion import threads_at_one_time
from distdbg.diagnose.finding import Evidence
from distdbg.diagnose.ops import OpRef
from distdbg.diagnose.session import Session, Stack
from distdbg.diagnose.traits import Advice, Trait
from distdbg.diagnose.wording import say_ranks, site_of

ADVICE: Final = Advice(
    "give each thread a group of its own (new_group): nothing orders the ops of two threads",
    Trait.TWO_THREADS,
)
#: Ranks that are looked at.
_LIMIT: Final = 64
#: Ops of a rank, from the last back.
_MAX_OPS: Final = 2_000


def two_threads(session: Session, group: int, ranks: Iterable[int]) -> Evidence | None:
    """Find two threads of one of the ranks whose calls differ."""
    found = {
        rank: pair
        for rank in sorted(ranks)[:_LIMIT]
        if (pair := threads_at_one_time(session.ranks[rank]).get(group)) is not None
    }
    if not found:
        return None
    rank = min(found)
    ops = [OpRef(rank, at) for at in found[rank]]
    reported = ", ".join(
        f"{session.kind_of(op)} at {site_of(session, op).partition(' (')[0]}" for op in ops
    )
    label = session.groups[group].label
    text = f"two threads of {say_ranks(found)} issue ops on group '{label}' at one time: {reported}"
    return Evidence(text=text, rank=rank, ranks=tuple(found), op=ops[0])


def are_of_threads(session: Session, calls: Mapping[int, OpRef]) -> bool:
    """Whether the lines at which these calls differ are of two threads on one of the ranks."""
    lines = {session.stack_of(op)[:1] for op in calls.values()}
    for rank in [*calls][:_LIMIT] if len(lines) > 1 else ():
        ops = session.ranks[rank].ops
        threads: dict[Stack, int] = {}
        for at in range(len(ops) - 1, max(len(ops) - _MAX_OPS, 0) - 1, -1):
            threads.setdefault(session.stacks[ops.stack[at]][:1], ops.thread[at])
        if len({threads[line] for line in lines if line in threads}) > 1:
            return True
    return False

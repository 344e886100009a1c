"""Ranks that alone ran a forward pass of a DDP model, where the others called something else. Pure.

DDP broadcasts the buffers of the model (those of BatchNorm) before a forward pass: a rank that evaluates on
its own makes a collective that nobody else makes.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from distdbg.diagnose.ops import OpRef
from distdbg.diagnose.session import Session
from distdbg.diagnose.wording import say_ranks

#: How DDP names that op.
_OF_FORWARD: Final = "DDP broadcasts buffers"


def forward_alone(session: Session, calls: Collection[OpRef]) -> str:
    """What to do about it; '' where it is not so, or so on most ranks."""

    def is_forward(op: OpRef) -> bool:
        comm = session.ranks[op.rank].ops.comm[op.at]
        return session.comms[comm].startswith(_OF_FORWARD)

    found = sorted(op.rank for op in calls if is_forward(op))
    if not 0 < 2 * len(found) < len(calls):
        return ""
    return (
        f"{say_ranks(found, 3)} alone ran a forward pass of the DDP model: use model.module there, or run it "
        "on all ranks"
    )

"""Finds the line of a call's stack that tells it from the rank's other calls."""

from __future__ import annotations

from distdbg.diagnose.ops import OpRef
from distdbg.diagnose.session import Session
from distdbg.diagnose.wording import say_site


def telling_site(session: Session, call: OpRef) -> str:
    """The innermost line that no other call of the rank has: of a helper's callers the right one; ''."""
    ops = session.ranks[call.rank].ops
    stack = session.stacks[ops.stack[call.at]]
    others = {session.stacks[index] for index in set(ops.stack)} - {stack}
    for depth, frame in enumerate(stack):
        if not any(frame in other[: depth + 1] for other in others):
            return say_site(frame)
    return say_site(stack[0] if stack else None)

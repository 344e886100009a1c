"""`stop_here`: stops this rank in its debugger; and the sessions of this process (`rank_session.py`)."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from weakref import WeakKeyDictionary

from distdbg.debugger.announce import say_passed
from distdbg.debugger.console import nobody_types
from distdbg.debugger.frames import site_of, user_frame
from distdbg.debugger.identity import rank_of
from distdbg.debugger.outcome import LIMIT_S, StopOutcome
from distdbg.debugger.rank_session import DebugSession
from distdbg.runtime.process.world import World, current

__all__ = ["StopOutcome", "leave_rank", "serve_rank", "served", "session_of", "stop_here"]


def stop_here(
    why: str,
    *,
    frame: FrameType | None = None,
    error: BaseException | None = None,
    limit_s: float | None = LIMIT_S,
) -> StopOutcome:
    """Open the debugger in this thread, at `frame`; else where `error` was raised, or at the user's frame.

    With both, `error` is only told: it has not come to the frame, which runs still.

    Returns after the first command that lets the rank go on; the debugger may stop it again later.
    JobAborted when somebody ends the job meanwhile. Without a limit it is an hour, but where nobody can type
    the rank says so and continues at once.
    """
    reported = error if frame is not None else None
    if frame is None:
        frame = user_frame(sys._getframe(1))
    raised = error if reported is None else None
    if limit_s is None:
        if nobody_types():
            say_passed(rank_of(current()), why, site_of(frame))
            return StopOutcome.UNREACHABLE
        limit_s = LIMIT_S
    return session_of(current()).stop(
        why, frame=frame, error=raised, reported=reported, limit_s=limit_s
    )


def session_of(world: World) -> DebugSession:
    """The debugger of a rank; made when it is first asked for."""
    with _LOCK:
        session = _sessions.get(world)
        if session is None:
            session = _sessions[world] = DebugSession(world)
        return session


def serve_rank(world: World) -> None:
    """From now on clients may attach to this rank while it runs."""
    session_of(world).serve()


@contextmanager
def served(world: World) -> Iterator[None]:
    """While the block runs, clients may come to this rank as to any of a job that is debuggable."""
    session = session_of(world)
    was, session.desk.is_debuggable = session.desk.is_debuggable, True
    if world.run_folder is not None:
        session.serve()
    try:
        yield
    finally:
        session.desk.is_debuggable = was
        session.unserve()


def leave_rank(world: World) -> None:
    """The rank has left its groups: nobody can attach any more."""
    with _LOCK:
        session = _sessions.pop(world, None)
    if session is not None:
        session.close()


_LOCK = threading.Lock()  # protects the next
_sessions: WeakKeyDictionary[World, DebugSession] = WeakKeyDictionary()

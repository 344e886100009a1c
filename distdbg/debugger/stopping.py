"""Carries out one stop of a rank: opens the prompt, and acts on the user's answer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from distdbg.debugger import session
from distdbg.debugger.identity import rank_of
from distdbg.debugger.outcome import LIMIT_S, quit_error
from distdbg.debugger.session import StopOutcome
from distdbg.log.logs import get_logger
from distdbg.ops.sites import call_site, shorten
from distdbg.runtime.process.world import World, use

_log = get_logger("debugger")


class _Prompts(threading.local):
    depth = 0


_prompts = _Prompts()


def is_at_prompt() -> bool:
    """Whether this thread is inside a debugger already: what its user calls there stops nowhere."""
    return _prompts.depth > 0


@contextmanager
def _at_prompt() -> Iterator[None]:
    _prompts.depth += 1
    try:
        yield
    finally:
        _prompts.depth -= 1


def open_prompt(
    why: str,
    *,
    frame: FrameType | None = None,
    error: BaseException | None = None,
    limit_s: float | None = LIMIT_S,
) -> StopOutcome:
    """Open the debugger in this thread; returns when the rank may go on.

    `limit_s` None: LIMIT_S, and not at all where nobody can type.
    """
    with _at_prompt():
        return session.stop_here(why, frame=frame, error=error, limit_s=limit_s)


def stop_or_quit(
    world: World,
    why: str,
    *,
    frame: FrameType | None = None,
    error: BaseException | None = None,
) -> None:
    """Stop in an op or at its error; DebuggerQuit when the user wants this rank to go no further.

    Where there is an error, quitting leaves the rank to that.
    """
    with use(world):  # not this thread's own, where the rank is one of a watched job
        outcome = open_prompt(why, frame=frame, error=error)
    if outcome is StopOutcome.QUIT and error is None:
        raise quit_error(rank_of(world), short_site(call_site()), why)
    if outcome is StopOutcome.EXPIRED:
        _log.warning("no client attached in time: this rank continues", rank=rank_of(world))


def short_site(site: str) -> str:
    """'train.py:88 (step)' of a whole path."""
    return shorten([site])[site]

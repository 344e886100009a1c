"""The session as it was at the last moment before its ops began to fail."""

from __future__ import annotations

from distdbg.diagnose.session import Session


def last_moment(session: Session) -> Session:
    """The same session while nothing has failed."""
    return session

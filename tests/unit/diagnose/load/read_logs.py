"""What is said by a log."""

from __future__ import annotations

from collections.abc import Callable

from distdbg.diagnose.finding import Finding
from distdbg.diagnose.session import Session

#: Where its sources lie in the lines that gloo prints.
GLOO = "/pytorch/third_party/gloo/gloo/transport/tcp"
ReadLog = Callable[[str], Session]


def only(session: Session) -> Finding:
    assert len(session.said) == 1, [f.what for f in session.said]
    return session.said[0]

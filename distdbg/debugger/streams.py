"""Redirects the output of one thread to the prompt, while it executes a statement typed there.

sys.stdout is the process's, and several ranks may be threads of it and all at their prompts.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class _Routed:
    """A stream that is another one for some threads."""

    def __init__(self, usual: Any) -> None:
        self._usual = usual
        self._by_thread: dict[int, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._by_thread.get(threading.get_ident(), self._usual), name)

    def __iter__(self) -> Any:
        return iter(self._by_thread.get(threading.get_ident(), self._usual))


_LOCK = threading.Lock()  # protects what follows and the three names in sys
_users: list[int] = []


@contextmanager
def printing_to(stream: Any) -> Iterator[None]:
    """In this block this thread reads from and prints to `stream`."""
    me = threading.get_ident()
    with _LOCK:
        for name in ("stdin", "stdout", "stderr"):
            routed = getattr(sys, name)
            if not isinstance(routed, _Routed):
                routed = _Routed(routed)
                setattr(sys, name, routed)
            routed._by_thread[me] = stream
        _users.append(me)
    try:
        yield
    finally:
        with _LOCK:
            _users.remove(me)
            for name in ("stdin", "stdout", "stderr"):
                routed = getattr(sys, name)
                if isinstance(routed, _Routed):  # else the statement has put another one there
                    routed._by_thread.pop(me, None)
                    if not _users:
                        setattr(sys, name, routed._usual)

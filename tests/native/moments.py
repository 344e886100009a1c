"""Waiting in the tests of what a native thread writes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

LIMIT_S = 20


def comes(condition: Callable[[], Any]) -> bool:
    """Whether it comes true in time that no machine needs."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        if condition():
            return True
    return False


def spin_ms(ms: int) -> None:
    """Let time pass without giving the core away."""
    end_ns = time.monotonic_ns() + ms * 1_000_000
    while time.monotonic_ns() < end_ns:
        pass

"""The thread that looks after ops that nobody waits for."""

from __future__ import annotations

import threading

from distdbg.runtime.backends.progress import ProgressThread

LIMIT_S = 20


class Failing:
    def done(self) -> bool:
        raise KeyError("what no look raises")


class Asked:
    def __init__(self) -> None:
        self.was_asked = threading.Event()

    def done(self) -> bool:
        self.was_asked.set()
        return True


def test_an_op_that_cannot_be_looked_at_keeps_no_other_from_going_on() -> None:
    thread = ProgressThread("distdbg-test-progress")
    try:
        thread.add(Failing())
        for _ in range(2):  # beside it, and after it
            op = Asked()
            thread.add(op)
            assert op.was_asked.wait(LIMIT_S)
    finally:
        thread.close()

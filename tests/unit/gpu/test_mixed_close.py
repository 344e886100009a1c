"""The thread that looks for ranks with arrays elsewhere ends whenever its group is closed."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from distdbg.runtime.backends.gpu import mixed

if TYPE_CHECKING:
    import pytest


def test_a_close_while_the_thread_goes_to_sleep_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mixed, "_LOOK_S", 0.001)
    monkeypatch.setattr(mixed, "_IDLE_LOOKS", 0)
    group: Any = None  # nothing waits, so nothing is asked of it
    watch = mixed.MixedWatch(group, lambda told: None)

    class ClosedMeanwhile(threading.Event):
        def clear(self) -> None:
            watch._closed.set()
            self.set()  # as `close` does, just before
            super().clear()

    watch._wake = ClosedMeanwhile()
    thread = threading.Thread(target=watch._work, daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()

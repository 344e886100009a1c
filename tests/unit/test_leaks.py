"""What counts as left behind by a test."""

from __future__ import annotations

import gc
import os
import threading
import time
from pathlib import Path

from distdbg.testing.leaks import find_leaks, take_holdings


class Holder:
    """Holds a descriptor, and itself."""

    def __init__(self, path: Path) -> None:
        self.descriptor = os.open(path, os.O_CREAT | os.O_WRONLY)
        self.me = self

    def __del__(self) -> None:
        os.close(self.descriptor)


def test_what_a_thread_leaves_to_the_collector_when_it_ends_is_no_leak(tmp_path: Path) -> None:
    before = take_holdings()
    is_held = threading.Event()

    def work() -> None:
        holder = Holder(tmp_path / "held")
        is_held.set()
        time.sleep(0.2)  # the first look is over
        del holder

    gc.disable()  # when it would run by itself depends on what else is made
    try:
        thread = threading.Thread(target=work)
        thread.start()
        assert is_held.wait(10)
        assert find_leaks(before, patience_s=5.0) == []
    finally:
        gc.enable()
    thread.join()


def test_what_stays_is_named(tmp_path: Path) -> None:
    before = take_holdings()
    with (tmp_path / "held").open("wb") as file:
        assert find_leaks(before, patience_s=0.05) == [
            f"descriptor: {file.fileno()} -> {os.fspath(tmp_path / 'held')}"
        ]

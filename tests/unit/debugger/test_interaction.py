"""The client at a terminal, with a rank that is a queue of words."""

import builtins
import queue
import signal
import sys
import threading
import time
from contextlib import suppress
from typing import Any

import pytest

from distdbg.debugger.interaction import interact
from distdbg.errors import DistNetworkError


class Rank:
    """Stands for a DebugClient."""

    rank = 3
    is_stopped = True
    is_debuggable = False

    def __init__(self) -> None:
        self.says: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def send(self, words: Any) -> None:
        pass

    def receive(self, timeout_s: float | None = None) -> Any:
        words = self.says.get()
        if isinstance(words, Exception):
            raise words
        return words

    def close(self) -> None:
        self.says.put(DistNetworkError("closed"))


def test_a_line_ends_with_the_rank_also_where_the_first_signal_comes_too_early(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rank = Rank()
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)

    def type_nothing(prompt: str) -> str:
        rank.says.put(DistNetworkError("rank 3 is gone"))
        with suppress(KeyboardInterrupt):  # a readline that is about to wait does not see it
            time.sleep(60)
        time.sleep(60)
        return "nothing"

    monkeypatch.setattr(builtins, "input", type_nothing)
    rank.says.put({"prompt": "(Pdb) "})
    began = time.monotonic()
    with pytest.raises(DistNetworkError, match="rank 3 is gone"):
        interact(rank)  # type: ignore[arg-type]
    assert time.monotonic() - began < 30


def test_a_notice_is_shown_above_the_line_that_is_being_typed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rank, shown = Rank(), threading.Event()
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("distdbg.debugger.interaction.typed", lambda: "p x")
    write = sys.stdout.write

    def watch(text: str) -> int:
        if "rank 2 was killed" in text:
            shown.set()
        return write(text)

    monkeypatch.setattr(sys.stdout, "write", watch)

    def type_slowly(prompt: str) -> str:
        rank.says.put({"notice": "*** rank 2 was killed by SIGKILL 0.8 s ago\n"})
        assert shown.wait(10)  # while nothing was typed
        rank.says.put(DistNetworkError("rank 3 is gone"))
        time.sleep(30)
        return ""

    monkeypatch.setattr(builtins, "input", type_slowly)
    rank.says.put({"prompt": "(Pdb) "})
    with pytest.raises(DistNetworkError, match="rank 3 is gone"):
        interact(rank)  # type: ignore[arg-type]
    assert "*** rank 2 was killed by SIGKILL 0.8 s ago\n(Pdb) p x" in capsys.readouterr().out


def test_a_ctrl_c_that_does_not_end_the_wait_for_the_rank_is_sent_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As one that comes after Python has looked for signals, and before the wait begins."""

    class Silent(Rank):
        has_begun = False
        too_late = threading.Timer(20, lambda: rank.says.put(DistNetworkError("not heard")))

        def send(self, words: Any) -> None:
            if "interrupt" in words:
                self.says.put({"ended": "interrupted"})

        def receive(self, timeout_s: float | None = None) -> Any:
            if not self.has_begun:
                self.has_begun = True
                self.too_late.start()
                time.sleep(0.5)  # the main thread waits by then
                # Taken by this thread, it ends no system call of the main thread.
                signal.pthread_kill(threading.get_ident(), signal.SIGINT)
            return super().receive(timeout_s)

    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    rank = Silent()
    try:
        assert interact(rank) == "interrupted"  # type: ignore[arg-type]
    finally:
        rank.too_late.cancel()
        rank.too_late.join()


def test_a_ctrl_c_leaves_a_rank_that_goes_on_and_cannot_be_stopped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(builtins, "input", lambda prompt: "continue")
    sent: list[Any] = []

    class GoesOn(Rank):
        def send(self, words: Any) -> None:
            sent.append(words)
            if words == {"line": "continue"}:
                self.says.put({"running": True})
                threading.Timer(0.5, signal.raise_signal, [signal.SIGINT]).start()

    rank = GoesOn()
    rank.says.put({"prompt": "(Pdb) "})
    assert interact(rank) == "detached"  # type: ignore[arg-type]
    assert "rank 3 goes on; Ctrl-C leaves" in capsys.readouterr().err
    assert sent[-1] == {"detach": True}
    assert not any("interrupt" in words for words in sent)

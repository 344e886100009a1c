"""Answers of threads to pages."""

import threading

import pytest
from textual.containers import Vertical

from distdbg.tui.asking import ask_in_thread


def test_an_answer_for_a_page_that_is_in_no_app_any_more_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failed: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", failed.append)
    reported: list[object] = []
    ask_in_thread(Vertical(), lambda: 1, reported.append, reported.append, reported.append)
    for thread in threading.enumerate():
        if thread.name == "distdbg-top-ask":
            thread.join(30)
    assert failed == []
    assert reported == []

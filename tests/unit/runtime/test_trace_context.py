"""Which events are written about the user's spans; the user's API is played by a few lines here."""

from __future__ import annotations

import logging
import sys
import threading
import types
from typing import Any

import pytest

from distdbg.runtime.recorder.trace_context import TraceContext, names_traces

TRACE = 0x4BF92F3577B34DA6A3CE929D0E0E4736
WORDS = (0x4BF92F3577B34DA6, 0xA3CE929D0E0E4736, 9, True)
NONE = (0, 0, 0, False)


class Api:
    """opentelemetry.context and .trace, as far as they are asked."""

    def __init__(self) -> None:
        self.current: dict[str, Any] = {}
        self.asked = 0

    def get_current(self) -> object:
        self.asked += 1
        return self.current

    def get_current_span(self, context: dict[str, Any]) -> Any:
        ids = context.get("ids", (0, 0, 0))
        found = types.SimpleNamespace(trace_id=ids[0], span_id=ids[1], trace_flags=ids[2])
        return types.SimpleNamespace(get_span_context=lambda: found)

    def enter(self, trace: Any = TRACE, span: Any = 9, flags: Any = 1) -> None:
        self.current = {"ids": (trace, span, flags)}

    def leave(self) -> None:
        self.current = {}


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Api:
    api = Api()
    context: Any = types.ModuleType("opentelemetry.context")
    trace: Any = types.ModuleType("opentelemetry.trace")
    context.get_current = api.get_current
    trace.get_current_span = api.get_current_span
    monkeypatch.setitem(sys.modules, "opentelemetry.context", context)
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", trace)
    return api


@pytest.mark.parametrize("text", ["traces", "all", "metrics,traces", "logs, traces "])
def test_traces_are_named(text: str) -> None:
    assert names_traces(text)


@pytest.mark.parametrize("text", [None, "", "metrics", "metrics,logs", "tracess"])
def test_traces_are_not_named(text: str | None) -> None:
    assert not names_traces(text)


def test_a_span_is_told_once_and_its_end_too(api: Api) -> None:
    ask = TraceContext(4096, 0)
    assert ask(0) is None
    api.enter()
    assert [ask(1), ask(2), ask(3)] == [WORDS, None, None]
    api.enter(span=10, flags=0)
    assert [ask(4), ask(5)] == [(*WORDS[:2], 10, False), None]
    api.leave()
    assert [ask(6), ask(7), ask(99_999)] == [NONE, None, None]


def test_another_context_of_the_same_span_is_no_news(api: Api) -> None:
    ask = TraceContext(4096, 0)
    api.enter()
    assert ask(0) == WORDS
    for number in range(1, 9):
        api.enter()
        assert ask(number) is None


@pytest.mark.parametrize("renews", [False, True])
def test_a_span_that_stays_is_told_again_before_the_ring_has_lost_it(
    api: Api, renews: bool
) -> None:
    ask = TraceContext(64, 0)
    api.enter()
    reported = []
    for number in range(64):
        if renews:
            api.enter()
        if ask(number) is not None:
            reported.append(number)
    assert reported == list(range(0, 64, 8))


def test_each_thread_is_in_spans_of_its_own(api: Api) -> None:
    ask = TraceContext(4096, 0)
    api.enter()
    assert ask(0) == WORDS
    found = []
    thread = threading.Thread(target=lambda: found.extend([ask(1), ask(2)]))
    thread.start()
    thread.join()
    assert found == [WORDS, None]
    assert ask(3) is None


def test_a_new_thread_in_no_span_says_so_once_any_thread_was_in_one(api: Api) -> None:
    # The kernel may give it the number of a thread that was.
    ask = TraceContext(4096, 0)
    found = []

    def in_a_thread() -> None:
        thread = threading.Thread(target=lambda: found.append(ask(1)))
        thread.start()
        thread.join()

    in_a_thread()
    api.enter()
    ask(0)
    api.leave()
    in_a_thread()
    assert found == [None, NONE]


@pytest.mark.parametrize(
    "ids",
    [(0, 9, 1), (TRACE, 0, 1), (2**128, 9, 1), (TRACE, 2**64, 1), (-1, 9, 1), (TRACE, -9, 1)],
)
def test_ids_that_are_none_are_no_span(api: Api, ids: tuple[int, int, int]) -> None:
    ask = TraceContext(4096, 0)
    api.enter(*ids)
    assert ask(0) is None


@pytest.mark.parametrize("odd", ["trace", None, float("nan"), object()])
def test_an_api_that_is_odd_is_dropped_after_one_line(
    api: Api, odd: object, caplog: pytest.LogCaptureFixture
) -> None:
    ask = TraceContext(4096, 3)
    api.enter(trace=odd)
    with caplog.at_level(logging.WARNING, logger="distdbg"):
        assert [ask(0), ask(1), ask(2)] == [None, None, None]
    (line,) = caplog.messages
    assert line.startswith("[rank 3] the spans of this program are not recorded: ")
    assert api.asked == 1


def test_an_api_that_is_being_loaded_is_asked_later(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = TraceContext(4096, 0)
    api.enter()
    trace = sys.modules["opentelemetry.trace"]
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", types.ModuleType("opentelemetry.trace"))
    assert ask(0) is None
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", trace)
    assert ask(1) == WORDS

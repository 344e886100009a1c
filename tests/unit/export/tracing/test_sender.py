"""Queues and the sender: bounded, counted, and never in anybody's way."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from typing import Any

from distdbg.export.tracing.exporters import Listener, listen
from distdbg.export.tracing.queues import DROPPED, FAILED, SENT, Latest, Queue
from distdbg.export.tracing.sender import Sender, SignalSender
from distdbg.export.tracing.settings import Batching, Signal, read_settings
from distdbg.export.tracing.trace_events import RanksStarted
from distdbg.export.tracing.tracing import Tracing

S = 10**9
BATCHING = Batching(delay_ns=5 * S, most_queued=10, most_batch=4)


class Collector:
    """Implements Exporter: in memory."""

    def __init__(self) -> None:
        self.why = "nobody is there"
        self.taken: list[Any] = []
        self.is_up = True
        self.is_shut = threading.Event()
        self.holds = False

    def send(self, batch: Sequence[Any]) -> bool:
        if self.holds:
            self.is_shut.wait(60)
            return False
        if self.is_up:
            self.taken += batch
        return self.is_up

    def shutdown(self) -> None:
        self.is_shut.set()


class Bench:
    """A sender whose thread is not started, and its clock."""

    def __init__(self) -> None:
        self.now_ns = 0
        news = threading.Condition()
        self.queue: Queue[int] = Queue(BATCHING, news)
        self.metrics: Latest[int] = Latest(news)
        self.collector = Collector()
        queues = {"traces": self.queue, "metrics": self.metrics}
        self.sender = Sender(queues, lambda _: self.collector, news, clock=lambda: self.now_ns)

    def run(self) -> None:
        """What the thread would do now."""
        while True:
            signal, due_ns = self.sender.next_due()
            if signal is None or due_ns > self.now_ns:
                return
            self.sender.send_one(signal)


def test_a_batch_is_sent_when_it_is_full_or_old() -> None:
    bench = Bench()
    bench.queue.put([1, 2], 0)
    bench.run()
    assert bench.collector.taken == []
    bench.queue.put([3, 4], 0)
    bench.run()
    assert bench.collector.taken == [1, 2, 3, 4]
    bench.queue.put([5], 0)
    bench.now_ns = 5 * S
    bench.run()
    assert bench.collector.taken == [1, 2, 3, 4, 5]
    assert bench.queue.counts[SENT] == 5


def test_what_has_no_room_is_dropped_and_counted() -> None:
    bench = Bench()
    bench.queue.put(range(25), 0)
    assert (len(bench.queue), bench.queue.counts[DROPPED]) == (10, 15)


def test_of_metrics_the_newest_are_sent() -> None:
    bench = Bench()
    bench.metrics.put(1)
    bench.metrics.put(2)
    bench.run()
    assert bench.collector.taken == [2]
    assert bench.metrics.counts[DROPPED] == 1


def test_a_collector_that_is_down_is_asked_more_and_more_seldom_and_said_once(
    caplog,
) -> None:
    caplog.set_level(logging.WARNING)
    bench = Bench()
    bench.collector.is_up = False
    for second in range(100):
        bench.now_ns = second * S
        bench.queue.put([second] * 4, bench.now_ns)
        bench.run()
    failures = bench.sender.failures["traces"]
    assert 4 <= failures <= 8
    assert bench.queue.counts[FAILED] == 4 * failures
    assert bench.queue.counts[DROPPED] + bench.queue.counts[FAILED] + len(bench.queue) == 400
    bench.collector.is_up = True
    bench.now_ns += 60 * S
    bench.run()
    assert bench.collector.taken
    texts = [record.getMessage() for record in caplog.records]
    assert texts == [
        "traces cannot be sent to the collector: nobody is there",
        "the collector takes traces again",
    ]


def test_an_exporter_that_cannot_be_made_is_a_collector_that_is_down() -> None:
    bench = Bench()

    def make(_: Signal) -> SignalSender:
        raise OSError("no such file: cert.pem")

    bench.sender._make = make
    bench.queue.put(range(4), 0)
    bench.run()
    assert bench.queue.counts[FAILED] == 4


def test_the_end_does_not_wait_for_a_collector_that_holds_a_request(tmp_path) -> None:
    collector = Collector()
    collector.holds = True
    tracing = Tracing("r", "h", frozenset({"logs"}), {}, make=lambda _: collector)
    tracing.put(RanksStarted(tmp_path, 1, 0))  # says that the ranks are started again
    began = time.monotonic()
    assert tracing.close(time.monotonic_ns() + S)
    assert time.monotonic() - began < 30  # of the 60 s that the request is held
    assert collector.is_shut.is_set()


def test_what_is_cut_off_at_the_end_and_what_waits_then_is_said_and_counted(caplog) -> None:
    caplog.set_level(logging.WARNING)
    news = threading.Condition()
    queue: Queue[int] = Queue(BATCHING, news)
    metrics: Latest[int] = Latest(news)
    is_asked, clock_ns = threading.Event(), [0]

    class Held(Collector):
        def send(self, batch: Sequence[Any]) -> bool:
            is_asked.set()
            return super().send(batch)

        def shutdown(self) -> None:
            clock_ns[0] = 0  # so that its thread has all the time that it needs to end
            super().shutdown()

    collector = Held()
    collector.holds = True
    queues = {"traces": queue, "metrics": metrics}
    sender = Sender(queues, lambda _: collector, news, clock=lambda: clock_ns[0])
    queue.put([1, 2, 3, 4, 5], 0)
    metrics.put(7)
    sender.start()
    assert is_asked.wait(60)
    clock_ns[0] = 60 * S
    assert sender.close(60 * S)
    assert (queue.counts[FAILED], queue.counts[DROPPED], metrics.counts[DROPPED]) == (4, 1, 1)
    assert sender.failures == {"traces": 2, "metrics": 1}
    assert [record.getMessage() for record in caplog.records] == [
        "traces cannot be sent to the collector: nobody is there",
        "metrics cannot be sent to the collector: no time was left at the end of the job",
    ]


def test_an_exporter_that_is_not_made_in_time_is_said(caplog) -> None:
    caplog.set_level(logging.WARNING)
    news = threading.Condition()
    queue: Queue[int] = Queue(BATCHING, news)
    is_asked, may_go_on = threading.Event(), threading.Event()

    def make(_: Signal) -> SignalSender:
        is_asked.set()
        may_go_on.wait(60)
        late = Collector()
        late.is_up = False
        return late

    sender = Sender({"traces": queue}, make, news)
    queue.put([1], 0)
    sender.start()
    sender.begin_close(time.monotonic_ns() + 60 * S)
    assert is_asked.wait(60)
    assert not sender.close(time.monotonic_ns() + S // 2)
    may_go_on.set()
    sender._thread.join(60)
    assert sender.failures == {"traces": 1}
    assert [record.getMessage() for record in caplog.records] == [
        "traces cannot be sent to the collector: no time was left at the end of the job"
    ]


def test_of_a_request_that_nobody_answers_is_said_where_it_went(caplog) -> None:
    caplog.set_level(logging.WARNING)
    news = threading.Condition()
    queue: Queue[int] = Queue(BATCHING, news)
    is_sent, may_end = threading.Event(), threading.Event()

    class Deaf(Collector):
        why = ""

        def send(self, batch: Sequence[Any]) -> bool:
            self.why = "http://collector:4318 does not take them"
            is_sent.set()
            may_end.wait(60)
            return False

    sender = Sender({"traces": queue}, lambda _: Deaf(), news)
    queue.put([1], 0)
    sender.start()
    sender.begin_close(time.monotonic_ns() + 60 * S)
    assert is_sent.wait(60)
    assert not sender.close(time.monotonic_ns() + S // 2)
    may_end.set()
    sender._thread.join(60)
    assert sender.failures == {"traces": 1}
    assert [record.getMessage() for record in caplog.records] == [
        "traces cannot be sent to the collector: http://collector:4318 does not take them"
    ]


def test_what_an_exporter_logs_after_it_is_cut_off_is_no_reason() -> None:
    listener, is_cut_off = Listener(), threading.Event()
    name = "opentelemetry.exporter.otlp"
    listener.begin(is_cut_off.is_set)
    is_cut_off.set()
    listener.emit(logging.makeLogRecord({"name": name, "msg": "Shutdown in progress"}))
    assert listener.end() == ""


def test_at_the_end_all_that_waits_is_sent(tmp_path) -> None:
    collector = Collector()
    environ = {"OTEL_BLRP_SCHEDULE_DELAY": "60000"}
    tracing = Tracing("r", "h", frozenset({"logs"}), environ, make=lambda _: collector)
    tracing.put(RanksStarted(tmp_path, 1, 0))
    assert tracing.close(time.monotonic_ns() + 30 * S)
    ((_, log),) = collector.taken
    assert log.body == "the ranks were started again: start 1"


def test_an_sdk_that_is_disabled_starts_no_thread() -> None:
    before = threading.active_count()
    tracing = Tracing("r", "h", frozenset({"traces"}), {"OTEL_SDK_DISABLED": "true"})
    assert threading.active_count() == before
    assert tracing.close(0)


def test_settings_are_read_as_the_sdk_does() -> None:
    environ = {
        "OTEL_BSP_MAX_QUEUE_SIZE": "100",
        "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "400",
        "OTEL_BSP_SCHEDULE_DELAY": "250",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
        "OTEL_EXPORTER_OTLP_LOGS_PROTOCOL": "http/json",
        "OTEL_METRIC_EXPORT_INTERVAL": "soon",
        "OTEL_METRICS_EXPORTER": "none",
    }
    settings = read_settings(frozenset({"traces", "metrics", "logs"}), environ, slow_s=1.0)
    assert settings.signals == {"traces", "logs"}
    assert settings.spans == Batching(delay_ns=S // 4, most_queued=100, most_batch=100)
    assert settings.protocols == {"traces": "grpc", "metrics": "grpc", "logs": "http/protobuf"}
    assert settings.metrics_ns == 60 * S
    assert len(settings.wrong) == 2


def test_a_collector_that_is_known_to_be_down_is_not_waited_for_at_the_end() -> None:
    news = threading.Condition()
    queue: Queue[int] = Queue(Batching(delay_ns=0, most_queued=10, most_batch=4), news)
    collector = Collector()
    collector.is_up = False
    sender = Sender({"traces": queue}, lambda _: collector, news)
    sender.start()
    queue.put([1], time.monotonic_ns())
    while not sender.failures["traces"]:
        time.sleep(0.001)  # its thread tells nobody else
    collector.holds = True
    queue.put([2], time.monotonic_ns())
    began = time.monotonic()
    assert sender.close(time.monotonic_ns() + 60 * S)
    assert time.monotonic() - began < 30
    assert (queue.counts[FAILED], queue.counts[DROPPED]) == (2, 0)


def test_the_words_of_an_exporter_are_those_that_are_said_and_nothing_is_said_of_the_end(
    caplog,
) -> None:
    caplog.set_level(logging.WARNING)
    listener = listen()
    assert listen() is listener
    exporter, other = (logging.getLogger(f"opentelemetry.{n}") for n in ("exporter.otlp", "util"))
    exporter.warning("it says so when nobody sends")
    listener.begin()
    exporter.warning("the %s is\nclosed", "door")
    exporter.error("it was tried for long enough")
    for _ in range(3):
        other.warning("a header is wrong")
    assert listener.end() == "the door is closed"
    listener.begin()
    assert listener.end() == ""
    assert [record.getMessage() for record in caplog.records] == ["a header is wrong"]

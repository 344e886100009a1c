"""One thread that sends what waits in the queues, and what it does while nobody takes it.

A batch that a collector does not take is lost: the exporters have tried again for as long as
OTEL_EXPORTER_OTLP_TIMEOUT lets them. Then there is a pause, which grows. Meanwhile the queues fill, and what
has no room is counted. It says once that it fails, and once that it works again.

`next_due` and `send_one` decide, without the thread and by a clock that is given; the state is changed in
place, for it is one with the queues, which other threads fill.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from distdbg.export.tracing.queues import FAILED, SENT, AnyQueue
from distdbg.export.tracing.settings import Signal

_S: Final = 1_000_000_000
_FIRST_PAUSE_NS: Final = _S
_MAX_PAUSE_NS: Final = 30 * _S
#: How long the thread waits for news at the most; what it waits for announces itself.
_LOOK_S: Final = 60.0
#: How long is tried at the end where nothing was taken when it was tried last.
_LAST_TRY_NS: Final = _S // 2

_NO_TIME: Final = "no time was left at the end of the job"

_log = logging.getLogger("distdbg.agent")


class SignalSender(Protocol):
    """Sends batches of one signal; used by one thread alone, but for `shutdown`."""

    why: str
    """By whom the last batch was not taken, or has not been yet, and what is known of the reason; or ''."""

    def send(self, batch: Sequence[Any]) -> bool:
        """Whether they were taken. May take as long as its timeout says."""
        ...

    def shutdown(self) -> None:
        """Give up what is under way, and let go of connections."""
        ...


class Sender:
    """The thread. `make` is called in it, when the first batch of a signal is due: to import takes long."""

    def __init__(
        self,
        queues: Mapping[Signal, AnyQueue],
        make: Callable[[Signal], SignalSender],
        news: threading.Condition,
        *,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._queues = queues
        self._make = make
        self._news = news
        self._clock = clock
        self._exporters: dict[Signal, SignalSender] = {}
        self._paused: dict[Signal, tuple[int, int]] = {}
        """Until when a signal is not sent, and how long that pause was."""
        self._is_failing: set[Signal] = set()
        self._is_working: set[Signal] = set()
        """The signals whose last batch was not taken, or was."""
        self._given_up: set[Signal] = set()
        self.failures: Counter[Signal] = Counter()
        """Batches that did not arrive."""
        self._is_closing = False
        self._is_shut = False
        self._is_over = False
        self._under_way: Signal | None = None
        self._until_ns = 0
        self._thread = threading.Thread(target=self._run, name="distdbg-otlp", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def begin_close(self, deadline_ns: int) -> None:
        """From now on send what there is, signal after signal, whether a batch is full or not."""
        with self._news:
            self._is_closing, self._until_ns = True, deadline_ns
            self._news.notify()

    def close(self, deadline_ns: int) -> bool:
        """Send what there is until then, and give up the rest; whether the thread has ended."""
        self.begin_close(deadline_ns)
        if self._is_failing and not self._is_working:  # nobody will be there now
            deadline_ns = min(deadline_ns, self._clock() + _LAST_TRY_NS)
            self._until_ns = deadline_ns
        # The last moments are for whoever has to be told that it is over.
        self._join(deadline_ns - _S // 4)
        self._is_shut = True
        for exporter in list(self._exporters.values()):
            try:
                exporter.shutdown()
            except Exception:  # noqa: BLE001  # it is over anyway
                _log.debug("an exporter did not end well", exc_info=True)
        self._join(deadline_ns)
        is_alive = self._thread.is_alive()
        why = dict.fromkeys((s for s, queue in self._queues.items() if len(queue)), _NO_TIME)
        if is_alive and (signal := self._under_way) is not None:
            made = self._exporters.get(signal)
            why[signal] = (made.why if made is not None else "") or _NO_TIME
        for queue in self._queues.values():
            queue.drop_all()
        for signal, words in why.items():
            self._note(signal, False, words)
        self._is_over = True
        return not is_alive

    def _join(self, deadline_ns: int) -> None:
        if self._thread.is_alive():
            self._thread.join(max(0.0, (deadline_ns - self._clock()) / 1e9))

    # ------------------------------------------------------------------------------- the thread

    def _run(self) -> None:
        while not self._is_shut and (signal := self._wait()) is not None:
            self.send_one(signal)

    def _wait(self) -> Signal | None:
        """The signal of which a batch is due; None: it is over."""
        with self._news:
            while True:
                now_ns = self._clock()
                if self._is_closing and now_ns >= self._until_ns - _S // 4:
                    return None
                signal, due_ns = self.next_due()
                if signal is not None and due_ns <= now_ns:
                    return signal
                if self._is_closing:
                    return None
                wait_s = _LOOK_S if signal is None else (due_ns - now_ns) / 1e9
                self._news.wait(min(wait_s, _LOOK_S))

    def next_due(self) -> tuple[Signal | None, int]:
        """What is to be sent next, and when."""
        best: tuple[Signal | None, int] = (None, 0)
        for signal, queue in self._queues.items():
            due_ns = queue.due_ns()
            if due_ns is None:
                continue
            paused_ns, _ = self._paused.get(signal, (0, 0))
            if self._is_closing:
                if signal in self._given_up:
                    continue  # nobody will take it now
                due_ns = paused_ns = 0
            due_ns = max(due_ns, paused_ns)
            if best[0] is None or due_ns < best[1]:
                best = signal, due_ns
        return best

    def send_one(self, signal: Signal) -> None:
        queue = self._queues[signal]
        batch = queue.take(self._clock())
        if not batch:
            return
        self._under_way = signal
        why = "it does not take them"
        try:
            exporter = self._exporters.get(signal)
            if exporter is None:
                exporter = self._exporters[signal] = self._make(signal)
            is_sent = exporter.send(batch)
            why = exporter.why or why
        except Exception as error:  # noqa: BLE001  # an observer that fails says so and goes on
            is_sent, why = False, f"{type(error).__name__}: {error}"
        queue.counts[SENT if is_sent else FAILED] += len(batch)
        self._note(signal, is_sent, why)
        self._under_way = None

    def _note(self, signal: Signal, is_sent: bool, why: str) -> None:
        if self._is_over:
            return  # it is counted as lost
        if is_sent:
            self._is_working.add(signal)
            self._paused.pop(signal, None)
            if signal in self._is_failing:
                self._is_failing.discard(signal)
                _log.warning("the collector takes %s again", signal)
            return
        self._is_working.discard(signal)
        self.failures[signal] += 1
        if self._is_closing:
            self._given_up.add(signal)
        _, pause_ns = self._paused.get(signal, (0, _FIRST_PAUSE_NS // 2))
        pause_ns = min(2 * pause_ns, _MAX_PAUSE_NS)
        self._paused[signal] = self._clock() + pause_ns, pause_ns
        if signal not in self._is_failing:
            self._is_failing.add(signal)
            _log.warning("%s cannot be sent to the collector: %s", signal, why)

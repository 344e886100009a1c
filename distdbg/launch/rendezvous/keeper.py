"""The thread that keeps a launcher alive in the eyes of the others, and listens to them.

It has its own connection, so a launcher that is busy with its ranks still beats. What it has seen last
is read by the launcher's loop without any wait.

Clocks of hosts are never compared: each launcher counts its own beats in the store, and the others look
whether the number has changed. A look is worth a limited time, so a launcher that was stopped itself
does not consider all others dead when it continues.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from distdbg.errors import DistError
from distdbg.launch.rendezvous import state as agreement

if TYPE_CHECKING:
    from distdbg.launch.rendezvous.board import RendezvousBoard
    from distdbg.launch.rendezvous.settings import RendezvousSettings

_PAUSE_S = 0.25
#: For each launcher of the job: all of them together look so often, however many they are.
_PAUSE_OF_EACH_S = 0.001
#: How long nobody looks at an agreement that has not changed, for each launcher of the job: it is as long as
#: they are many.
_READ_OF_EACH_S = 0.05
_JOIN_S = 5.0


class KeepAlive:
    """Beats, listens, and takes the dead out of the agreement."""

    def __init__(self, board: RendezvousBoard, name: str, settings: RendezvousSettings) -> None:
        interval_s = settings.keep_alive_interval_s
        self._board = board  # the thread's own
        self._name = name
        self._interval_s = interval_s
        self._promised_s = settings.silence_s
        self._pause_s = min(_PAUSE_S, interval_s / 4)
        self._silence = SilentHosts(limit_s=self._promised_s, longest_look_s=interval_s)
        self._set_pause(1)
        self._changes = self._counted = -1
        self._watched: tuple[str, ...] = ()
        self._beaten_at_s = self._read_at_s = float("-inf")
        self._has_acknowledged = False
        self._stop = threading.Event()
        #: Replaced as a whole by the thread, read by others.
        self.state: agreement.RendezvousState | None = None
        self.trouble: DistError | None = None
        self._thread = threading.Thread(target=self._run, name="distdbg-rendezvous", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(_JOIN_S)
        if not self._thread.is_alive():
            self._board.store.close()

    def _set_pause(self, launchers: int) -> None:
        self._longest_s = max(self._interval_s, launchers * _READ_OF_EACH_S)
        self._pause_s = min(max(_PAUSE_S, launchers * _PAUSE_OF_EACH_S), self._interval_s / 4)
        # Two looks shorter than what is promised: a beat, or its absence, is seen that much later.
        self._silence.limit_s = self._promised_s - 2 * self._pause_s

    def _run(self) -> None:
        try:
            while not self._stop.wait(self._pause_s):
                self._step(time.monotonic())
        except DistError as error:
            self.trouble = error

    def _step(self, now_s: float) -> None:
        if now_s - self._beaten_at_s >= self._interval_s - self._pause_s / 2:
            self._board.beat(self._name)
            self._beaten_at_s = now_s
        self._refresh(now_s)
        state = self.state
        if state is None:
            return
        if state.closing is not None and not self._has_acknowledged:
            self._board.acknowledge(self._name)
            self._has_acknowledged = True
        dead = self._silence.look(now_s, self._board.count_beats(self._watched))
        if dead:
            self._take(self._board.change(lambda now: agreement.go(now, dead)))

    def _refresh(self, now_s: float) -> None:
        before, self._counted = self._counted, self._board.count_changes()
        # While they come one after the other, nobody need know of each.
        is_unrest = (
            self._counted != before and self.state is not None and not self.state.is_complete
        )
        is_news = self._counted != self._changes and not is_unrest
        # Now and then in any case: whoever changed it may have died before it counted that.
        if is_news or now_s - self._read_at_s >= self._longest_s:
            self._take(self._board.read())
            self._changes, self._read_at_s = self._counted, now_s

    def _take(self, state: agreement.RendezvousState) -> None:
        self.state = state
        self._watched = agreement.watched_by(state, self._name)
        self._set_pause(len(state.nodes))


class SilentHosts:
    """How long each of the others has been silent."""

    def __init__(self, *, limit_s: float, longest_look_s: float) -> None:
        #: May change as time goes by.
        self.limit_s = limit_s
        self._longest_look_s = longest_look_s
        self._counts: dict[str, int] = {}
        self._silent_s: dict[str, float] = {}
        self._looked_at_s: float | None = None

    def look(self, now_s: float, counts: Mapping[str, int]) -> tuple[str, ...]:
        """Take in how often each has beaten; returns those that are silent for too long."""
        before_s = now_s if self._looked_at_s is None else self._looked_at_s
        step_s = min(now_s - before_s, self._longest_look_s)
        self._looked_at_s = now_s
        silent_s: dict[str, float] = {}
        for name, count in counts.items():
            is_heard = self._counts.get(name) != count
            silent_s[name] = 0.0 if is_heard else self._silent_s.get(name, 0.0) + step_s
        self._counts = dict(counts)
        self._silent_s = silent_s
        return tuple(name for name, seconds in silent_s.items() if seconds >= self.limit_s)

"""Which launchers have been silent for too long. Pure: counts and the own clock in, names out.

Clocks of hosts are never compared: each launcher counts its own beats in the store, and the others look
whether the number has changed. A look is worth a limited time, so a launcher that was stopped itself
does not consider all others dead when it continues.
"""

from __future__ import annotations

from collections.abc import Mapping


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

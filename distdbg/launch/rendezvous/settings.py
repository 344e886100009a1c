"""The settings of --rdzv-conf. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from distdbg.errors import UsageError

#: Keys of torchrun's that mean nothing here, taken so that its command lines work.
_WITHOUT_EFFECT = frozenset({"heartbeat_timeout", "rank", "store_type"})
_SECONDS = {
    "join_timeout": "join_timeout_s",
    "timeout": "join_timeout_s",  # what the static kind calls it
    "last_call_timeout": "last_call_timeout_s",
    "close_timeout": "close_timeout_s",
    "keep_alive_interval": "keep_alive_interval_s",
    "read_timeout": "read_timeout_s",
}
_YES = frozenset({"1", "true", "t", "yes", "y"})
_NO = frozenset({"0", "false", "f", "no", "n"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RendezvousSettings:
    """The times and counts of a rendezvous; the defaults are torchrun's."""

    join_timeout_s: float = 600.0
    """How long a launcher waits for a round to be complete."""
    last_call_timeout_s: float = 30.0
    """How long further launchers are waited for when there are enough of them."""
    close_timeout_s: float = 30.0
    """How long the launcher that serves the store waits until the others know that it ends."""
    keep_alive_interval_s: float = 5.0
    keep_alive_max_attempt: int = 3
    """A launcher that was not heard of for so many intervals is taken for dead."""
    read_timeout_s: float = 60.0
    is_host: bool | None = None
    """Whether this launcher serves the store; None: if the endpoint is on this host."""

    @property
    def silence_s(self) -> float:
        """After which a launcher is taken for dead."""
        return self.keep_alive_interval_s * self.keep_alive_max_attempt

    @property
    def call_timeout_s(self) -> float:
        """After which the launcher that serves the store is taken for dead."""
        return min(self.read_timeout_s, max(self.silence_s, 1.0))

    @classmethod
    def read(cls, conf: Mapping[str, Any]) -> Self:
        """Take the keys of --rdzv-conf; UsageError names the one that is wrong."""
        found: dict[str, Any] = {}
        for key, value in conf.items():
            text = str(value).strip()
            if field := _SECONDS.get(key):
                found[field] = _positive(key, text)
            elif key == "keep_alive_max_attempt":
                found[key] = int(_positive(key, text))
            elif key == "is_host":
                found[key] = _yes_or_no(key, text)
            elif key == "store_type" and text.lower() != "tcp":
                raise UsageError(
                    f"--rdzv-conf store_type={text} is not supported",
                    hint="leave it out: launchers meet at a TCP store",
                )
            elif key not in _WITHOUT_EFFECT:
                known = sorted({*_SECONDS, "keep_alive_max_attempt", "is_host"})
                raise UsageError(
                    f"--rdzv-conf knows no {key!r}", hint=f"it knows {', '.join(known)}"
                )
        return cls(**found)


def _positive(key: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 < number < 1e9:
        raise UsageError(f"--rdzv-conf {key}={text} is not a number above 0")
    if key == "keep_alive_max_attempt" and number != int(number):
        raise UsageError(f"--rdzv-conf {key}={text} is not a whole number")
    return number


def _yes_or_no(key: str, text: str) -> bool:
    if text.lower() in _YES:
        return True
    if text.lower() in _NO:
        return False
    raise UsageError(f"--rdzv-conf {key}={text} is neither true nor false")

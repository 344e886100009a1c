"""Log messages of OpenTelemetry's own code, for the agent's one line about failures.

Its exporters return only whether a batch was taken; why not, they log, with each try. What else it has to
say, of variables that do not fit, is said once.
"""

from __future__ import annotations

import logging
import threading
from typing import Final

from distdbg.record.printable import printable

_OURS: Final = "opentelemetry"
_EXPORTERS: Final = ("opentelemetry.exporter", "opentelemetry.sdk")
_MOST_LETTERS: Final = 400
_MOST_SAID: Final = 32

_log = logging.getLogger("distdbg.agent")


class Listener(logging.Handler):
    """Hears what is logged in the thread that sends."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._local = threading.local()
        self._said: set[str] = set()

    def begin(self) -> None:
        """From now on this thread sends a batch."""
        self._local.words = ""

    def end(self) -> str:
        """Why it was not taken, by the first that was said; '' for nothing."""
        words: str = getattr(self._local, "words", "")
        self._local.words = None
        return words

    def emit(self, record: logging.LogRecord) -> None:
        try:
            words = printable(" ".join(record.getMessage().split()))[:_MOST_LETTERS]
        except Exception:  # noqa: BLE001  # a record of somebody else's that cannot be put into words
            return
        is_of_exporter = record.name.startswith(_EXPORTERS)
        if is_of_exporter and getattr(self._local, "words", None) is not None:
            self._local.words = self._local.words or words
        elif not is_of_exporter and words not in self._said and len(self._said) < _MOST_SAID:
            self._said.add(words)
            _log.warning("%s", words)


def listen() -> Listener:
    """The one of this process; from now on OpenTelemetry says nothing by itself."""
    logger = logging.getLogger(_OURS)
    for handler in logger.handlers:
        if isinstance(handler, Listener):
            return handler
    listener = Listener()
    logger.addHandler(listener)
    logger.propagate = False
    return listener

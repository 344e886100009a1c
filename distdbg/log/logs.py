"""The log: one tree of Python loggers, `distdbg`, with the rank in each line.

As a library, distdbg leaves logging to the program: without a level variable it installs no handler, so
only warnings are shown, by Python's handler of last resort. DISTDBG_LOG_LEVEL or TORCH_CPP_LOG_LEVEL sets
the level of the tree; and where the program has no handler of its own, one that writes to stderr.

The tree belongs to the process. Ranks that are threads share its level; the rank in a line is of the
thread that wrote it.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, MutableMapping
from typing import Any, TextIO

from distdbg import config
from distdbg.errors import ConfigError
from distdbg.log.log_levels import SPELLINGS, DebugLevel, LogLevel, effective_log_level

_ROOT = "distdbg"
_FORMAT = "%(asctime)s.%(msecs)03d %(levelname)s %(message)s"

#: Returns the global rank of the calling thread, None where it has none; set by the runtime, which is above.
_rank_source: Callable[[], int | None] | None = None


def set_rank_source(source: Callable[[], int | None]) -> None:
    """Say who knows the rank of a thread that writes a line."""
    global _rank_source
    _rank_source = source


class RankLogger(logging.LoggerAdapter[logging.Logger]):
    """Puts `[rank N]` before each message; `rank=` says which where no world can be asked."""

    def process(
        self, msg: object, kwargs: MutableMapping[str, Any]
    ) -> tuple[str, MutableMapping[str, Any]]:
        """Called by Python for lines that will be written only."""
        rank = kwargs.pop("rank", None)
        if rank is None and _rank_source is not None:
            rank = _rank_source()
        return f"[rank {'?' if rank is None else rank}] {msg}", kwargs


class _Stderr(logging.StreamHandler[TextIO]):
    """Writes to what sys.stderr is at that moment: a program may replace it."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)
        self.setFormatter(logging.Formatter(_FORMAT, "%H:%M:%S"))

    @property
    def stream(self) -> TextIO:  # type: ignore[override]  # an attribute there, which would go stale
        return sys.stderr


def get_logger(package: str) -> RankLogger:
    """Return the logger of one package, `distdbg.<package>`."""
    return RankLogger(logging.getLogger(f"{_ROOT}.{package}"))


def configure(chosen: DebugLevel | None) -> None:
    """Set the tree's level from the environment, if it says one; `chosen` may raise it."""
    asked = _read_level()
    if asked is None:
        return
    root = logging.getLogger(_ROOT)
    logging.addLevelName(LogLevel.TRACE, LogLevel.TRACE.name)
    root.setLevel(effective_log_level(asked, chosen))
    if not root.hasHandlers():
        root.addHandler(_Stderr())


def is_tracing() -> bool:
    """Return whether each op shall be a line."""
    return logging.getLogger(f"{_ROOT}.ops").isEnabledFor(LogLevel.TRACE)


def _read_level() -> LogLevel | None:
    try:
        text = config.read_setting("DISTDBG_LOG_LEVEL")
    except ConfigError as error:
        if os.environ.get("DISTDBG_LOG_LEVEL", "").strip():
            raise
        # torch, too, only says so and goes on with warnings.
        get_logger("check").warning("%s", error)
        return LogLevel.WARNING
    return None if text is None else SPELLINGS[str(text)]

"""The log level: one variable, raised by the debug level as in torch.distributed. Pure.

    log level    debug level chosen    effective
    FATAL        any                   FATAL
    ERROR        any                   ERROR
    WARNING      any                   WARNING
    INFO         none, or OFF          INFO
    INFO         INFO                  DEBUG
    INFO         DETAIL                TRACE: each op is a line when it is issued and when it ended

A debug level that was not set does not raise it: DETAIL is the default here, and INFO should not mean a
line per op.
"""

from __future__ import annotations

from enum import Enum, EnumType, IntEnum


class _ListsAttributes(EnumType):
    """For dir() and what completes by it: an Enum does not list what its members have."""

    def __dir__(cls) -> list[str]:
        return sorted({*super().__dir__(), "name", "value"})


class DebugLevel(Enum, metaclass=_ListsAttributes):
    """The levels of the check, with torch.distributed's numbers; each has a `name` and a `value`."""

    OFF = 0
    INFO = 1
    DETAIL = 2


class LogLevel(IntEnum):
    """The numbers of Python's logging, and TRACE below them."""

    TRACE = 5
    DEBUG = 10
    INFO = 20
    WARNING = 30
    ERROR = 40
    FATAL = 50


#: What the variables may hold, as torch reads TORCH_CPP_LOG_LEVEL (upper and lower case alike).
SPELLINGS = {
    "info": LogLevel.INFO,
    "warning": LogLevel.WARNING,
    "error": LogLevel.ERROR,
    "fatal": LogLevel.FATAL,
    "0": LogLevel.INFO,
    "1": LogLevel.WARNING,
    "2": LogLevel.ERROR,
    "3": LogLevel.FATAL,
}


def effective_log_level(asked: LogLevel, chosen: DebugLevel | None) -> LogLevel:
    """Return the level of the log; `chosen` is None when only the default debug level holds."""
    if asked is not LogLevel.INFO:
        return asked
    match chosen:
        case DebugLevel.INFO:
            return LogLevel.DEBUG
        case DebugLevel.DETAIL:
            return LogLevel.TRACE
        case _:
            return LogLevel.INFO

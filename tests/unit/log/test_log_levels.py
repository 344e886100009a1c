"""The matrix of effective log levels, and how the variables are spelled."""

from __future__ import annotations

import pytest

from distdbg import config
from distdbg.log.log_levels import SPELLINGS, DebugLevel, LogLevel, effective_log_level

OFF, INFO, DETAIL = DebugLevel.OFF, DebugLevel.INFO, DebugLevel.DETAIL

#: (log level, chosen debug level) -> effective; as torch.distributed documents it.
RAISED = {
    (LogLevel.INFO, INFO): LogLevel.DEBUG,
    (LogLevel.INFO, DETAIL): LogLevel.TRACE,
}


@pytest.mark.parametrize(
    ("asked", "chosen"),
    [
        (asked, chosen)
        for asked in (LogLevel.INFO, LogLevel.WARNING, LogLevel.ERROR, LogLevel.FATAL)
        for chosen in (None, OFF, INFO, DETAIL)
    ],
)
def test_only_info_is_raised_and_only_by_a_level_that_was_chosen(
    asked: LogLevel, chosen: DebugLevel | None
) -> None:
    assert effective_log_level(asked, chosen) is RAISED.get((asked, chosen), asked)


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("INFO", LogLevel.INFO),
        ("Warning", LogLevel.WARNING),
        ("error", LogLevel.ERROR),
        ("FATAL", LogLevel.FATAL),
        ("0", LogLevel.INFO),
        ("1", LogLevel.WARNING),
        ("2", LogLevel.ERROR),
        ("3", LogLevel.FATAL),
    ],
)
@pytest.mark.parametrize("name", ["DISTDBG_LOG_LEVEL", "TORCH_CPP_LOG_LEVEL"])
def test_names_and_numbers_as_torch_takes_them(name: str, text: str, level: LogLevel) -> None:
    assert SPELLINGS[str(config.read_setting("DISTDBG_LOG_LEVEL", {name: text}))] is level


def test_every_value_that_is_accepted_has_a_meaning() -> None:
    (variable,) = (v for v in config.VARIABLES if v.name == "DISTDBG_LOG_LEVEL")
    assert set(variable.choices) == set(SPELLINGS)

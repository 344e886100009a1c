"""The table of variables, and how a value is read."""

from __future__ import annotations

import pytest

from distdbg import config
from distdbg.errors import ConfigError


def test_the_table_is_whole() -> None:
    names = [variable.name for variable in config.VARIABLES]
    assert names == sorted(set(names))
    for variable in config.VARIABLES:
        assert variable.name.startswith("DISTDBG_")
        assert variable.about.endswith(".")
        if variable.default is not None:
            assert type(variable.default).__name__ == variable.kind
            assert not variable.choices or variable.default in variable.choices


def test_a_value_is_read_by_its_type() -> None:
    assert config.read_setting("DISTDBG_SINGLE_COPY", {}) is True
    assert config.read_setting("DISTDBG_SINGLE_COPY", {"DISTDBG_SINGLE_COPY": " No "}) is False
    assert config.read_float("DISTDBG_TIMEOUT_S", {"DISTDBG_TIMEOUT_S": "2.5"}) == 2.5
    assert config.read_float("DISTDBG_TIMEOUT_S", {"DISTDBG_TIMEOUT_S": ""}) == 1800.0
    assert config.read_str("DISTDBG_DEBUG", {"DISTDBG_DEBUG": "INFO"}) == "info"
    assert config.read_setting("DISTDBG_TOKEN", {}) is None


def test_another_tools_variable_counts_when_ours_is_not_set() -> None:
    theirs = {"TORCH_DISTRIBUTED_DEBUG": "OFF"}
    assert config.read_str("DISTDBG_DEBUG", theirs) == "off"
    assert config.read_str("DISTDBG_DEBUG", theirs | {"DISTDBG_DEBUG": "detail"}) == "detail"


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("DISTDBG_DEBUG", "loud", "off, info, detail"),
        ("DISTDBG_TIMEOUT_S", "soon", "a number"),
        ("DISTDBG_TIMEOUT_S", "nan", "a number"),
        ("DISTDBG_TIMEOUT_S", "inf", "a number"),
        ("DISTDBG_TIMEOUT_S", "-1", "a number of at least 0"),
        ("DISTDBG_SINGLE_COPY", "maybe", "1 or 0"),
        ("DISTDBG_RUNS_NBYTES", "-1", "a whole number of at least 0"),
        ("DISTDBG_RUNS_DAYS", "7.5", "a whole number of at least 0"),
    ],
)
def test_a_bad_value_names_the_variable(name: str, text: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}='{text}' is not valid; .*{expected}"):
        config.read_setting(name, {name: text})


def test_a_time_longer_than_a_hundred_years_counts_as_that() -> None:
    for text in ("1e10", "1e300"):
        assert config.read_float("DISTDBG_TIMEOUT_S", {"DISTDBG_TIMEOUT_S": text}) == 3.2e9

"""Colours, thresholds and value mappings.

Colours are names of Grafana's palette, which has a shade of each for the dark and the light theme.
Red is the cause and what ended, light yellow who waits for it, orange what is slow, blue what waits as usual,
green what makes progress. A word or a number says the same beside each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from grafana_foundation_sdk.builders.dashboard import ThresholdsConfig
from grafana_foundation_sdk.models.dashboard import (
    Threshold,
    ThresholdsMode,
    ValueMap,
    ValueMappingResult,
)

GREEN: Final = "green"
BLUE: Final = "blue"
ORANGE: Final = "orange"
RED: Final = "red"
GREY: Final = "text"
#: A rank that waits for the cause: it has done nothing wrong.
VICTIM: Final = "super-light-yellow"
PURPLE: Final = "purple"

#: Of `distdbg.record.rank_state`.
STATES: Final = {
    "starting": "super-light-blue",
    "running": GREEN,
    "waiting": BLUE,
    "stopped": PURPLE,
    "traced": "light-purple",
    "in the debugger": "super-light-purple",
    "holds the GIL": ORANGE,
    "busy": "dark-orange",
    "blocked in I/O": "dark-yellow",
    "asleep": "yellow",
    "left": "light-green",
    "ended": GREY,
    "failed": "dark-red",
    "dead": RED,
}


def steps(*pairs: tuple[float, str], base: str = GREEN) -> ThresholdsConfig:
    """`base`, and from each number on another colour."""
    found = [Threshold(color=base), *(Threshold(value=at, color=color) for at, color in pairs)]
    return ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(found)


def words(pairs: Mapping[float | str, tuple[str, str]]) -> ValueMap:
    """A word and a colour in the place of a number or another word."""
    return ValueMap(
        options={
            value if isinstance(value, str) else f"{value:g}": ValueMappingResult(
                text=text, color=color, index=index
            )
            for index, (value, (text, color)) in enumerate(pairs.items())
        }
    )

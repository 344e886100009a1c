"""Numbers as people read them, by Grafana's names of units. Pure."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Final

_SMALL: Final = ((1e-9, "ns"), (1e-6, "µs"), (1e-3, "ms"), (1.0, "s"))
_LONG: Final = ((60.0, "min"), (3600.0, "hour"), (86400.0, "day"))
_BINARY: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_DECIMAL: Final = ("", "K", "Mil", "Bil", "Tri")
_RATE: Final = ("B/s", "kB/s", "MB/s", "GB/s", "TB/s", "PB/s")
_BINARY_RATE: Final = ("B/s", "KiB/s", "MiB/s", "GiB/s", "TiB/s", "PiB/s")


def say(value: float, unit: str, decimals: int | None = None) -> str:
    """The number with its unit."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if unit == "s":
        return _time(value, decimals)
    if unit == "percentunit":
        return f"{_digits(100 * value, decimals)}%"
    if unit == "percent":
        return f"{_digits(value, decimals)}%"
    if unit == "bytes":
        return _scaled(value, 1024, _BINARY, decimals)
    if unit == "decbytes":
        return _scaled(value, 1000, ("B", "kB", "MB", "GB", "TB"), decimals)
    if unit == "Bps":
        return _scaled(value, 1000, _RATE, decimals)
    if unit == "binBps":
        return _scaled(value, 1024, _BINARY_RATE, decimals)
    if unit == "dateTimeAsIso":
        return datetime.fromtimestamp(value / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    if unit == "ops":
        return f"{_scaled(value, 1000, _DECIMAL, decimals)} ops/s"
    if unit == "short":
        return _scaled(value, 1000, _DECIMAL, decimals)
    if unit.startswith("suffix:"):
        return _digits(value, decimals) + unit.removeprefix("suffix:")
    if unit in ("none", ""):
        return _digits(value, decimals)
    return f"{_digits(value, decimals)} {unit}"


def _time(value: float, decimals: int | None) -> str:
    size = abs(value)
    if size == 0:
        return "0 s"
    if size < 60:
        length, word = next((it for it in reversed(_SMALL) if size >= it[0] * 0.9995), _SMALL[0])
    else:
        length, word = next(it for it in reversed(_LONG) if size >= it[0])
        word += "s" if word != "min" and size / length > 1 else ""
    return f"{_digits(value / length, decimals)} {word}"


def _scaled(value: float, base: int, words: tuple[str, ...], decimals: int | None) -> str:
    at = 0
    while abs(value) >= base and at < len(words) - 1:
        value, at = value / base, at + 1
    return f"{_digits(value, decimals)} {words[at]}".strip()


def _digits(value: float, decimals: int | None) -> str:
    if decimals is not None:
        return f"{value:.{decimals}f}"
    if value == 0 or abs(value) >= 100:
        return f"{value:.0f}"
    digits = max(2 - math.floor(math.log10(abs(value))), 0)
    text = f"{value:.{min(digits, 6)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text

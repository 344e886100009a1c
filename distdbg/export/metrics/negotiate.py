"""Which format a scraper has asked for. Pure.

An Accept header is a list of types with a weight each, 1 where there is none:

    application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,
    text/plain;version=0.0.4;q=0.5,*/*;q=0.1

The heaviest that is known here is taken, the first of equals. What is not understood gets the plain text, as
a person with a browser or curl does: for a scrape that is better than an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from distdbg.export.metrics.protobuf import PROTOBUF_TYPE, to_protobuf
from distdbg.export.metrics.text import OPENMETRICS_TYPE, TEXT_TYPE, to_openmetrics, to_text

#: Longer headers are cut: no scraper has one.
_MAX_CHARACTERS: Final = 4096


class Writer(NamedTuple):
    """A format: what it is called in HTTP, and how it is written."""

    content_type: str
    write: Callable[..., bytes]
    """Writes the `Metrics` of one run, or of several together."""


TEXT: Final = Writer(TEXT_TYPE, to_text)
OPENMETRICS: Final = Writer(OPENMETRICS_TYPE, to_openmetrics)
PROTOBUF: Final = Writer(PROTOBUF_TYPE, to_protobuf)


def negotiate(accept: str | None) -> Writer:
    """The writer for a value of the Accept header."""
    best, best_weight = TEXT, 0.0
    for one in (accept or "")[:_MAX_CHARACTERS].split(","):
        type_, *rest = (part.strip().lower() for part in one.split(";"))
        words = dict(part.split("=", 1) for part in rest if "=" in part)
        words = {name.strip(): value.strip().strip('"') for name, value in words.items()}
        writer = _writer(type_, words)
        weight = _weight(words.get("q", "1"))
        if writer is not None and weight > best_weight:
            best, best_weight = writer, weight
    return best


def _writer(type_: str, words: dict[str, str]) -> Writer | None:
    if type_ == "application/openmetrics-text":
        return OPENMETRICS if words.get("version", "1.0.0") in ("1.0.0", "0.0.1") else None
    if type_ == "application/vnd.google.protobuf":
        is_ours = words.get("proto", "").endswith("prometheus.client.metricfamily")
        return PROTOBUF if is_ours and words.get("encoding") == "delimited" else None
    if type_ in ("text/plain", "text/*", "*/*"):
        return TEXT
    return None


def _weight(words: str) -> float:
    try:
        weight = float(words)
    except ValueError:
        return 0.0
    return weight if 0.0 <= weight <= 1.0 else 0.0

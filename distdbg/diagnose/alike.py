"""Tells whether two texts are about the same mistake: of two attempts of one job, say. Pure.

Ranks, numbers of ops and durations may differ; the line of the program that is named first may not. A
launcher reads this without loading the diagnosis.
"""

from __future__ import annotations

import re
from typing import Final

_SITE: Final = re.compile(r"[^\s:(]+:\d+(?= \()|[^\s:(]+\.py:\d+\b")
_RANKS: Final = re.compile(r"\branks? ([\d,-]*\d)")
_NUMBER: Final = re.compile(r"\d+(?:\.\d+)?(?: (?:ns|us|ms|s|min|h|d|B|KiB|MiB|GiB)\b)?")


def is_alike(one: str, other: str) -> bool:
    """Whether they differ in numbers alone, and not in that of the first line of source."""
    return (site_in(one), _stripped(one)) == (site_in(other), _stripped(other))


def site_in(text: str) -> str:
    """'train.py:80': the first line of source that it names; '' for none."""
    found = _SITE.search(text)
    return "" if found is None else found.group()


def ranks_in(text: str) -> tuple[str, ...]:
    """'0-1', '3': the ranks that it names, as they stand there."""
    return tuple(_RANKS.findall(text))


def _stripped(text: str) -> str:
    return _NUMBER.sub("", _RANKS.sub("rank", text).replace("ranks", "rank"))

"""Lists of ranks as text, '0-3,7': what `errors.format_ranks` writes, read."""

from __future__ import annotations

from typing import Final

#: More ranks than any job has; a text of a few bytes must not fill the memory.
_MOST: Final = 1 << 20


def read_ranks(text: str) -> list[int]:
    """'0-3,7' as numbers; ValueError for what is none."""
    ranks: list[int] = []
    for part in filter(None, text.split(",")):
        low, _, high = part.partition("-")
        first, last = int(low), int(high or low)
        if not 0 <= first <= last < _MOST or len(ranks) + last - first >= _MOST:
            raise ValueError(f"{text[:64]!r} are no ranks")
        ranks.extend(range(first, last + 1))
    return ranks

"""Lists of ranks as text, '0-3,7': what `errors.format_ranks` writes, read."""

from __future__ import annotations

import re
from typing import Final

_PART: Final = re.compile(r"\s*(\d{1,18})(?:-(\d{1,18}))?\s*")
#: More ranks than any job has; a text of a few bytes must not fill the memory.
_LIMIT: Final = 1 << 20


def read_ranks(text: str) -> list[int]:
    """'0-3,7' as numbers; ValueError for what is none."""
    ranks: list[int] = []
    for part in filter(None, text.split(",")):
        found = _PART.fullmatch(part)
        low, high = found.groups() if found else ("1", "0")
        first, last = int(low), int(high or low)
        if not first <= last < _LIMIT or len(ranks) + last - first >= _LIMIT:
            raise ValueError(f"{text[:64]!r} are not ranks")
        ranks.extend(range(first, last + 1))
    return ranks


def ranks_of_world(world_size: int) -> str:
    """'ranks 0-3': those of a job of this size."""
    return "rank 0 alone" if world_size == 1 else f"ranks 0-{world_size - 1}"

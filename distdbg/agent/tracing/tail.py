"""What the tail keeps: ops that were slow, failed or are found to be to blame, for all ranks of this host.

Decided by the first rank whose record says so. Other ranks of the host find theirs when they come to it, or
look back to where they have been. Ranks of other hosts decide by their own records.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

Key = tuple[str, int]
"""The name of a group, and the number of a collective there."""
_MOST: Final = 4096
_MOST_NEW: Final = 64


class Tail:
    """The collectives that are kept on this host, and why."""

    def __init__(self) -> None:
        self._why: OrderedDict[Key, str] = OrderedDict()
        self._by_group: dict[str, set[int]] = {}
        self._new: list[Key] = []

    def add(self, group: str, seq: int, why: str) -> None:
        """Keep one from now on."""
        key = group, seq
        if key in self._why:
            return
        self._why[key] = why
        self._by_group.setdefault(group, set()).add(seq)
        if len(self._new) < _MOST_NEW:
            self._new.append(key)
        if len(self._why) > _MOST:
            (old, number), _ = self._why.popitem(last=False)
            numbers = self._by_group[old]
            numbers.discard(number)
            if not numbers:
                del self._by_group[old]

    def why(self, group: str, seq: int) -> str:
        """'slow', 'failed', 'found'; '' when it is not kept by this."""
        return self._why.get((group, seq), "")

    def of(self, group: str) -> set[int]:
        """The numbers of one group that are kept."""
        return self._by_group.get(group, set())

    def take_new(self) -> list[Key]:
        """Those that came since this was asked last: who has passed them has to look back."""
        new, self._new = self._new, []
        return new

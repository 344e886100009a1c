"""Tail sampling: keeps ops that were slow, failed or are in a finding, for all ranks of this host.

Decided by the first rank whose record says so. Other ranks of the host find theirs when they come to it, or
look back to where they have been. Hosts tell each other (`hosts.tail_sampling`), as far as it concerns them.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Final

from distdbg.hosts.tail_sampling import KeptOp

Key = tuple[str, int]
"""The name of a group and the number of a collective there; of other ops '' and their trace."""
_MAX: Final = 4096
_MAX_NEW: Final = 64


class TailSampler:
    """The collectives that are kept on this host, and why."""

    def __init__(self) -> None:
        self._why: OrderedDict[Key, str] = OrderedDict()
        self._by_group: dict[str, set[int]] = {}
        self._new: list[Key] = []
        self._unreported: deque[KeptOp] = deque(maxlen=_MAX_NEW)

    def add(self, group: str, seq: int, why: str, *, is_wide: bool = False) -> None:
        """Keep one from now on; `is_wide`: ranks of other hosts were in it, who are to be told."""
        key = group, seq
        if key in self._why:
            return
        self._why[key] = why
        self._by_group.setdefault(group, set()).add(seq)
        if len(self._new) < _MAX_NEW:
            self._new.append(key)
        if is_wide:
            self._unreported.append(KeptOp(group, seq, why))
        if len(self._why) > _MAX:
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

    def take_unreported(self) -> list[KeptOp]:
        """Those that other hosts are to be told; from any thread."""
        unreported = []
        while self._unreported:
            unreported.append(self._unreported.popleft())
        return unreported

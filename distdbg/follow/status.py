"""RankStatus: the row of a rank in the API and in the tree of agents. Pure."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final

from distdbg.record.rank_state import RankState


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStatus:
    """What is known of one rank now. Ages are seconds at `RankStatus`'s making, not points in time:
    they mean the same on every host."""

    rank: int
    host: str
    pid: int
    state: RankState
    attempt: int = 0
    state_age_s: float = 0.0
    """How long it has been in this state."""
    progress_age_s: float = 0.0
    """Since it last began or ended an op."""
    last_number: int = 0
    """The number of the op that it issued last, as its record counts."""
    seqs: tuple[tuple[str, int], ...] = ()
    """Per group: its name and the collective issued last."""
    op: str = ""
    """The op it is in: "all_reduce #1042 on group 'dp'"; '' outside any."""
    site: str = ""
    """Where it called that op, or was last seen: 'train.py:88 (step)'."""
    why: str = ""
    """What a person wants to know of the state: 'was killed by SIGSEGV', 'by SIGSTOP from ...'."""
    cpu_s: float = 0.0
    """CPU time the process has used."""
    rss_nbytes: int = 0

    def plain(self) -> dict[str, Any]:
        """For JSON. Said of every rank four times a second, so it copies nothing."""
        return {name: getattr(self, name) for name in _NAMES}


_NAMES: Final = tuple(field.name for field in fields(RankStatus))

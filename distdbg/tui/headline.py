"""The headline over every view: what is wrong, at the same moment as the rows below. Pure.

A verdict is made now and then, and its words say how long things had lasted then. Where ranks wait for one
that may still come, the line is therefore made here, from the rows: the state is the one that its row shows,
and the time is the one that the rows of those that wait show. All other verdicts have no age in their words.
"""

from __future__ import annotations

from typing import Final

from distdbg.diagnose.finding import Finding, FindingKind, Severity
from distdbg.record.rank_state import RankState
from distdbg.render.words import ranks_text
from distdbg.tui.cells import Tone, age, one_line
from distdbg.tui.parts import RankRoles
from distdbg.tui.verdict import root_of
from distdbg.view.snapshot import RankRow, Snapshot

#: What is found of ranks that others wait for and that are alive.
_WAITED_FOR: Final = (FindingKind.STALL, FindingKind.STUCK_RANK)
_TONES: Final = {
    Severity.ERROR: Tone.FAULT, Severity.WARNING: Tone.WARN, Severity.NOTE: Tone.VICTIM
}  # fmt: skip


def headline(snapshot: Snapshot, parts: RankRoles, now: float) -> tuple[str, Tone]:
    """The words, and how bad it is; '' while nothing is wrong."""
    if not snapshot.lines:
        return "", Tone.PLAIN
    root = root_of(snapshot.verdict)
    text = _waiting(snapshot, parts, root, now) if root is not None else ""
    tone = _TONES[root.severity] if root is not None else Tone.FAULT
    return text or one_line(snapshot.lines[0]), tone


def _waiting(snapshot: Snapshot, parts: RankRoles, root: Finding, now: float) -> str:
    """'rank 2 is asleep at slp.py:6 (load); ranks 0-1,3 have waited 12 s for it'; '' if no row says so."""
    causes = [row for rank in sorted(parts.causes) if (row := snapshot.ranks.get(rank)) is not None]
    waiting = [
        row for rank in sorted(parts.victims) if (row := snapshot.ranks.get(rank)) is not None
    ]
    if root.kind not in _WAITED_FOR or len(causes) != 1 or not waiting:
        return ""
    cause = causes[0]
    if cause.state.is_over or any(row.state is not RankState.WAITING for row in waiting):
        return ""
    since = age(now - min(row.state_at for row in waiting))
    verb = "has" if len(waiting) == 1 else "have"
    # The cause first: on a narrow screen the rest is cut.
    text = (
        f"rank {cause.rank} is {_doing(cause)}; "
        f"{ranks_text([row.rank for row in waiting])} {verb} waited {since} for it"
    )
    return text + (f" in {one_line(waiting[0].op)}" if waiting[0].op else "")


def _doing(row: RankRow) -> str:
    """'asleep at slp.py:6 (load)'."""
    where = f" at {one_line(row.site)}" if row.site else ""
    return f"{row.state}{where}"

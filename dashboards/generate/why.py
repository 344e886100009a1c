"""Texts of the Cause table: why a rank is listed, by kind of finding.

The kinds are those of `distdbg analyze`.
"""

from __future__ import annotations

from typing import Final

from dashboards.generate.look import GREY, ORANGE, RED
from distdbg.diagnose.finding import FindingKind

#: What numbers let one guess while the diagnosis says nothing.
WAITED_FOR: Final = "its process is gone, and others waited for it"
GONE: Final = "its process is gone"
ABSENT: Final = "has not called what others wait in"
COMES_LATE: Final = "comes late, and others wait for it"

_OF_KINDS: Final = {
    FindingKind.DEAD_RANK: ("its process died", RED),
    FindingKind.MISMATCH: ("it called a different op, or the same op with other arguments", RED),
    FindingKind.DEADLOCK: ("deadlock: it waits for a rank that waits for it", RED),
    FindingKind.MISSING_RANK: ("it has not called what others wait in", RED),
    FindingKind.STUCK_RANK: ("others wait for it, and it does not continue by itself", RED),
    FindingKind.STALL: ("others wait for it, and it is busy", ORANGE),
    FindingKind.FAILED_OP: ("an op of it raised an error", RED),
    FindingKind.STOPPED: ("stopped from outside", GREY),
    FindingKind.STRAGGLER: ("it comes late, and others wait for it", ORANGE),
    FindingKind.SLOW_LINK: ("its messages take longer than those of others", ORANGE),
    FindingKind.SLOW_HOST: ("all ranks of its host are late", ORANGE),
    FindingKind.ORDER_INVERSION: ("it uses groups in another order than other ranks", ORANGE),
    FindingKind.LEAKED_WORK: ("it began ops that it never waited for", ORANGE),
    FindingKind.LEAKED_GROUP: ("it made groups that it never destroyed", ORANGE),
    FindingKind.BUFFER_RACE: ("its array is in two ops at once, or changed during an op", ORANGE),
    FindingKind.MESSAGE_RACE: ("its receive from any rank could have got another message", ORANGE),
    FindingKind.DIVERGED: ("its values differ from those of the other replicas", RED),
    FindingKind.NAN_SOURCE: ("the first NaN or infinity came from it", RED),
    FindingKind.SUSPICION: ("its ops look suspicious to the check", ORANGE),
    FindingKind.RECORDING_LOST: ("its record is incomplete", ORANGE),
}

#: A sentence and a colour for each word that the table may have to show.
WHY: Final[dict[float | str, tuple[str, str]]] = {
    WAITED_FOR: (WAITED_FOR, RED),
    GONE: (GONE, RED),
    ABSENT: (ABSENT, RED),
    COMES_LATE: (COMES_LATE, ORANGE),
} | {kind.value: (f"{kind.value}: {why}", color) for kind, (why, color) in _OF_KINDS.items()}

"""The deadlocks that are found in a session."""

from distdbg.diagnose.find.deadlock import find
from distdbg.diagnose.finding import Finding, Severity
from distdbg.diagnose.matching import match
from distdbg.diagnose.session import Session
from distdbg.diagnose.waits import find_waits
from tests.support.session_builder import SessionBuilder


def deadlocks(session: Session) -> list[Finding]:
    matched = match(session)
    return find(session, matched, find_waits(session, matched))


def only(session: Session, causes: tuple[int, ...] = ()) -> Finding:
    (found,) = deadlocks(session)
    assert len(found.what) <= 120
    assert found.severity is Severity.ERROR
    assert found.deadlocked == {edge.rank for edge in found.edges}
    assert set(found.ranks) == (set(causes) or found.deadlocked)
    return found


def ring_of_recvs(size: int, world_size: int | None = None) -> SessionBuilder:
    build = SessionBuilder(world_size or size)
    for rank in range(size):
        build.op(
            rank,
            "recv",
            peer=(rank + 1) % size,
            at_s=1.0 + rank,
            site="/home/ada/train.py:88 (step)",
        )
    return build

"""Reads logs of a job as a session: output of launchers, torch, NCCL, gloo, Horovod, the kernel.

session = read_logs([Path("logs/attempt_0/0/stderr.log"), Path("dmesg.txt")], root=Path("logs"))
session.said      findings, each with file and line
session.lines     the lines that they come from
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

from distdbg.diagnose.finding import Finding, FindingKind
from distdbg.diagnose.load.log_blocks import LogBlockReader
from distdbg.diagnose.load.log_facts import FactShape, LoggedFact
from distdbg.diagnose.load.log_findings import find_in_facts
from distdbg.diagnose.load.log_lines import LoggedLine, origin_of, read_lines
from distdbg.diagnose.load.log_shapes import facts_of
from distdbg.diagnose.ops import NEVER
from distdbg.diagnose.session import LogLine, RankLog, Session

FORMAT: Final = "logs"
#: Findings of one shape of message in one log: a job in a loop prints millions alike.
_MAX_FACTS: Final = 500
_MAX_STREAMS: Final = 1 << 14
_MAX_LINES: Final = 400
_MAX_RANK: Final = 1 << 20


def read_logs(paths: Iterable[Path], *, root: Path) -> Session:
    """One session of all these files; `root` is what their names are shown without."""
    session = Session(source=str(root), format=FORMAT)
    facts: list[LoggedFact] = []
    for path in paths:
        try:
            facts += facts_of_file(path, root)
        except OSError as error:
            session.lacks.append(f"{path} cannot be read: {error.strerror or error}")
    add_facts(session, facts)
    return session


def facts_of_file(path: Path, root: Path) -> list[LoggedFact]:
    """All that the lines of a file state; OSError when it cannot be read."""
    origin = origin_of(path, root)
    streams: dict[object, LogBlockReader] = {}
    counts: dict[FactShape, int] = {}
    found: list[LoggedFact] = []
    for line in read_lines(path, origin):
        alone = list(facts_of(line))
        blocks = streams.get(line.stream)
        if blocks is None and len(streams) < _MAX_STREAMS:
            blocks = streams[line.stream] = LogBlockReader()
        together = list(blocks.feed(line, alone)) if blocks is not None else []
        for fact in alone + together:
            counts[fact.shape] = counts.get(fact.shape, 0) + 1
            if counts[fact.shape] <= _MAX_FACTS:
                found.append(fact)
    for blocks in streams.values():
        found += blocks.finish()
    return found


def add_facts(session: Session, facts: list[LoggedFact]) -> None:
    """Put findings and lines into a session, and the ranks that they speak of."""
    by_pid = {log.pid: rank for rank, log in session.ranks.items() if log.pid}
    session.said += [_with_victims(session, found) for found in find_in_facts(facts, by_pid)]
    session.lines += _lines(facts)
    if (
        session.format == FORMAT
    ):  # what waits in a dump has waited until the dump, however long logs go on
        times = [fact.line.wall_ns for fact in facts if fact.line.wall_ns is not None]
        session.now_ns = max([session.now_ns, *times])
    for fact in facts:
        named = (*fact.ranks, *(() if fact.rank is None else (fact.rank,)))
        for rank in named:
            if session.format == FORMAT and 0 <= rank < _MAX_RANK:
                log = session.ranks.setdefault(rank, RankLog(rank=rank))
                log.source = log.source or fact.line.source.rpartition(":")[0]
                log.host = log.host or (fact.line.host if rank == fact.rank else "")
        world = fact.numbers.get("world", 0)
        if session.format == FORMAT and world < _MAX_RANK:
            session.world_size = max(
                session.world_size, world, *(r + 1 for r in named if r < _MAX_RANK), 0
            )


def _with_victims(session: Session, found: Finding) -> Finding:
    """Where ops are known, those who wait in a group with a rank that is gone are its victims.

    Lines have no zone, or no time at all: what they began to wait for was not there by then.
    """
    if (
        found.kind not in (FindingKind.DEAD_RANK, FindingKind.STUCK_RANK, FindingKind.MISSING_RANK)
        or not found.ranks
    ):
        return found
    blamed = set(found.ranks)
    since: dict[int, int] = {}
    for rank, log in session.ranks.items():
        for at in log.ops.in_flight():
            if rank not in blamed and blamed.intersection(session.members(log.ops.group[at])):
                since.setdefault(rank, session.time_ns(rank, log.ops.issued_ns[at]))
    if not since:
        return found
    first = min(since.values())
    return replace(
        found,
        victims=tuple(sorted({*found.victims, *since} - blamed)),
        at_ns=first if found.at_ns is None else min(first, found.at_ns),
    )


def _lines(facts: list[LoggedFact]) -> list[LogLine]:
    kept: dict[str, LoggedLine] = {}
    for fact in facts:
        kept.setdefault(fact.line.source, fact.line)
    chosen = list(kept.values())[:_MAX_LINES]
    chosen.sort(key=lambda line: line.wall_ns if line.wall_ns is not None else NEVER)
    return [
        LogLine(
            text=line.text[:500],
            source=line.source,
            rank=line.rank,
            host=line.host,
            wall_ns=line.wall_ns,
        )
        for line in chosen
    ]

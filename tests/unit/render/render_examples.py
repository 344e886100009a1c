"""Sessions with their verdicts, by hand: what the tests of all forms show."""

from __future__ import annotations

from dataclasses import replace

from distdbg.diagnose.finding import Edge, Evidence, Finding, FindingKind, Role, Severity, Verdict
from distdbg.diagnose.session import Session
from distdbg.record.format import Exit
from distdbg.record.rank_state import RankState
from tests.support.session_builder import SessionBuilder

STEP = "/job/src/train.py:80 (step) < /job/src/train.py:120 (main)"


def missing_rank(world_size: int = 4, late: int = 3) -> tuple[Session, Verdict]:
    """All but one rank wait in the 4th all_reduce; that one is in its data loader."""
    build = SessionBuilder(world_size=world_size, now_s=40.0)
    last = {}
    for rank in range(world_size):
        for step in range(3):
            build.op(
                rank,
                "all_reduce",
                at_s=step + 0.001 * rank,
                started_s=step + 0.01,
                ended_s=step + 0.1,
                site=STEP,
                inputs=[(1024,)],
                dtype="float32",
                nbytes=4096,
            )
        if rank != late:
            last[rank] = build.op(
                rank,
                "all_reduce",
                at_s=10.0,
                site=STEP,
                inputs=[(1024,)],
                dtype="float32",
                nbytes=4096,
            )
    build.seen(late, RankState.ASLEEP, since_s=3.0, site="data.py:12 (load)")
    others = tuple(rank for rank in range(world_size) if rank != late)
    waiter = others[0]
    finding = Finding(
        kind=FindingKind.MISSING_RANK,
        severity=Severity.ERROR,
        what=f"rank {late} never called all_reduce #4 on group 'world'; {len(others)} others wait",
        ranks=(late,),
        victims=others,
        group="world",
        seq=4,
        at_ns=10 * 10**9,
        evidence=(
            Evidence(
                text=f"rank {late} is in load() since 37.0 s", rank=late, site="data.py:12 (load)"
            ),
            Evidence(text=f"rank {waiter} came 30.0 s ago", rank=waiter, op=last[waiter]),
        ),
        edges=tuple(
            Edge(
                rank=r,
                on=(late,),
                op=op,
                text="all_reduce #4 on group 'world'",
                site="train.py:80 (step)",
                since_ns=10 * 10**9,
            )
            for r, op in last.items()
        ),
        advice=f"look at what rank {late} reads in load() of data.py",
        numbers={"behind": 1, "waited_s": 30.0},
    )
    roles = dict.fromkeys(others, Role.VICTIM) | {late: Role.ROOT}
    note = Finding(
        kind=FindingKind.LEAKED_GROUP, severity=Severity.NOTE, what="group 'tp' was never destroyed"
    )
    return build.session, Verdict(
        what=finding.what, root=finding, findings=(finding, note), roles=roles
    )


def deadlock() -> tuple[Session, Verdict]:
    """Ranks 0 and 1 receive from each other; 2 and 3 wait for them."""
    build = SessionBuilder(world_size=4, now_s=20.0)
    edges = []
    for rank, peer in ((0, 1), (1, 0)):
        op = build.op(rank, "recv", peer=peer, tag=5, at_s=4.0, site="swap.py:9 (swap)")
        edges.append(
            Edge(
                rank=rank,
                on=(peer,),
                op=op,
                text=build.session.name_of(op),
                site="swap.py:9 (swap)",
                since_ns=4 * 10**9,
            )
        )
    for rank in (2, 3):
        build.op(rank, "barrier", at_s=5.0, site="swap.py:20 (main)")
    timeout = Finding(
        kind=FindingKind.FAILED_OP,
        severity=Severity.ERROR,
        ranks=(2, 3),
        what="ranks 2,3 timed out in barrier #1",
    )
    finding = Finding(
        kind=FindingKind.DEADLOCK,
        severity=Severity.ERROR,
        what="deadlock of ranks 0,1: each waits for the other, and nothing can end it",
        ranks=(0, 1),
        victims=(2, 3),
        edges=tuple(edges),
        advice="let one of them send before it receives",
        follows=(timeout,),
    )
    roles = {0: Role.ROOT, 1: Role.ROOT, 2: Role.VICTIM, 3: Role.VICTIM}
    return build.session, Verdict(what=finding.what, root=finding, findings=(finding,), roles=roles)


def healthy(world_size: int = 4) -> tuple[Session, Verdict]:
    """Three ops, all ended."""
    build = SessionBuilder(world_size=world_size, now_s=40.0)
    for rank in range(world_size):
        for step in range(3):
            build.op(rank, "all_reduce", at_s=step, ended_s=step + 0.1, site=STEP)
    return build.session, Verdict(
        what="nothing is wrong: all 12 ops have ended",
        root=None,
        findings=(),
        roles=dict.fromkeys(range(world_size), Role.BYSTANDER),
    )


def reported_by_a_program(words: str) -> tuple[Session, Verdict]:
    """Names, sites and errors that a program chose."""
    build = SessionBuilder(world_size=2, now_s=9.0)
    site = words.replace("\n", "") + ".py:3 (f)"
    build.group(words, [0, 1])
    build.session.run = build.session.source = words
    build.session.lacks.append(words)
    for rank in (0, 1):
        build.session.ranks[rank].host = words
        build.op(rank, "all_reduce", group=words, ended_s=1, site=site)
        build.op(rank, "all_reduce", group=words, at_s=2, name=words, status=99, error=words)
    build.exit(0, Exit.RAISED, at_s=3, what=words, where=words)
    op = build.op(0, "barrier", group=words, at_s=4, site=site)
    finding = Finding(
        kind=FindingKind.DEAD_RANK,
        severity=Severity.ERROR,
        what=words,
        ranks=(0,),
        victims=(1,),
        group=words,
        seq=3,
        evidence=(Evidence(text=words, rank=0, op=op, site=words, source=words),),
        edges=(Edge(rank=1, on=(0,), text=words, site=words),),
        advice=words,
        numbers={words: 1.0},
    )
    root = replace(finding, follows=(finding,))
    roles = {0: Role.ROOT, 1: Role.VICTIM}
    return build.session, Verdict(
        what=words, root=root, findings=(root,), roles=roles, lacks=(words,)
    )

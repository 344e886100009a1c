"""Diagnoses the accounts of the hosts: a session, its verdict, and its news.

What takes time, and what takes long to import, is here: it runs in a thread of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from distdbg.agent.judging.live_session import LiveFacts, ReceivedAccount, make_session
from distdbg.agent.judging.reports import ReportedRoot
from distdbg.agent.policy import find_hopeless, find_proof
from distdbg.diagnose.finding import Edge, FindingKind, Verdict
from distdbg.diagnose.matching import match
from distdbg.diagnose.session import Session
from distdbg.diagnose.verdict import diagnose
from distdbg.diagnose.waits import find_waits
from distdbg.render.short import short_lines
from distdbg.render.verdict_json import to_plain


@dataclass(frozen=True, slots=True)
class JudgedVerdict:
    """One verdict, and what it stands on."""

    session: Session
    verdict: Verdict
    case: ReportedRoot | None
    lines: list[str]
    plain: dict[str, Any]
    hopeless: frozenset[int]
    """The ranks that wait and can never go on."""
    waits: dict[int, tuple[Edge, ...]] = field(default_factory=dict)


def judge_accounts(heard: Sequence[ReceivedAccount], facts: LiveFacts) -> JudgedVerdict:
    """Say what is wrong, if anything is."""
    session = make_session(heard, facts)
    waits = dict(find_waits(session, match(session)))
    verdict = diagnose(session)
    hopeless = find_hopeless(session, waits)
    root = verdict.root
    case = None
    if root is not None:
        state = None
        if root.kind in (FindingKind.STUCK_RANK, FindingKind.STALL) and root.ranks:
            log = session.ranks.get(root.ranks[0])
            state = log.activity.state if log is not None and log.activity is not None else None
        proof = find_proof(session, root, hopeless)
        case = ReportedRoot(root, proof, bool(hopeless), state)
    return JudgedVerdict(
        session=session,
        verdict=verdict,
        case=case,
        lines=short_lines(session, verdict),
        plain=to_plain(session, verdict),
        hopeless=hopeless,
        waits=waits,
    )


def plain_waits(judged: JudgedVerdict) -> list[dict[str, Any]]:
    """Who waits for whom, as the API gives it."""
    return [
        {
            "rank": edge.rank,
            "on": list(edge.on),
            "is_any": edge.is_any,
            "op": edge.text,
            "site": edge.site,
            "can_go_on": edge.rank not in judged.hopeless,
        }
        for edges in judged.waits.values()
        for edge in edges
    ]

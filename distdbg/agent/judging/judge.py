"""Diagnoses the accounts of the hosts: a session, its verdict, and its news.

What takes time, and what takes long to import, is here: it runs in a thread of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distdbg.agent.judging.diagnosis_events import AccountMade
from distdbg.agent.judging.judged_verdict import JudgedVerdict
from distdbg.agent.judging.live_session import LiveFacts, ReceivedAccount, make_session
from distdbg.agent.judging.reports import ReportedRoot
from distdbg.agent.policy import find_hopeless, find_proof
from distdbg.diagnose.finding import Edge, FindingKind, Verdict
from distdbg.diagnose.session import Session
from distdbg.diagnose.traits import Trait
from distdbg.diagnose.verdict import diagnose_with_waits
from distdbg.hosts.accounts import HostAccountState
from distdbg.record.join_calls import CALL
from distdbg.render.short import short_lines
from distdbg.render.verdict_json import to_plain


def judge_job(
    own: AccountMade,
    others: Sequence[HostAccountState],
    *,
    run: str,
    source: str,
    attempt: int,
) -> JudgedVerdict:
    """Say what is wrong by the account of this host and what others have told."""
    heard = [ReceivedAccount(own.account, own.at_ns)]
    heard += [ReceivedAccount(told.account, told.made_ns) for told in others]
    facts = LiveFacts(
        run=run,
        source=source,
        attempt=attempt,
        now_ns=own.at_ns,
        wall_ns=own.wall_ns,
        found=own.found,
        last_good=own.last_good,
    )
    return judge_accounts(heard, facts)


def judge_accounts(heard: Sequence[ReceivedAccount], facts: LiveFacts) -> JudgedVerdict:
    """Say what is wrong, if anything is."""
    session = make_session(heard, facts)
    diagnosed = diagnose_with_waits(session)
    verdict = diagnosed.verdict
    waits = {rank: diagnosed.waits[rank] for rank in session.ranks if rank in diagnosed.waits}
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
        waits=waits | _waits_to_join(session, verdict),
    )


def _waits_to_join(session: Session, verdict: Verdict) -> dict[int, tuple[Edge, ...]]:
    """Of ranks in init_process_group, which is no op of a record: whom they wait for, where that is known."""
    found = next((one for one in verdict.findings if one.has(Trait.JOINING)), None)
    if found is None or not found.ranks:
        return {}
    return {
        rank: (
            Edge(
                rank=rank,
                on=tuple(one for one in found.ranks if one != rank),
                text=CALL,
                site=log.join.site,
                since_ns=session.time_ns(rank, log.join.since_ns),
            ),
        )
        for rank, log in session.ranks.items()
        if log.join is not None and log.is_joining and rank in found.victims
    }


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

"""Diagnoses the accounts of the hosts: makes a session of them, and its verdict.

It runs in a thread of its own: it takes time, and takes long to import. A verdict of a running job is made of
what is in flight. That a rank ran out of batches is in the records alone, so those of this host are read for
that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from distdbg.agent.judging.diagnosis_events import AccountMade
from distdbg.agent.judging.judged_verdict import JudgedVerdict
from distdbg.agent.judging.live_session import LiveFacts, ReceivedAccount, make_session
from distdbg.agent.judging.reports import ReportedRoot
from distdbg.agent.policy import find_blocked, find_proven_kind
from distdbg.diagnose.finding import Edge, Evidence, Finding, FindingKind, Severity, Verdict
from distdbg.diagnose.session import GroupInfo, Session
from distdbg.diagnose.traits import Trait
from distdbg.diagnose.verdict import diagnose_with_waits
from distdbg.hosts.accounts import HostAccountState
from distdbg.record.batches import UNKNOWN, hint_for
from distdbg.record.join_calls import CALL
from distdbg.record.ran_out import describe, look
from distdbg.render.short import short_lines
from distdbg.render.verdict_json import to_plain

_KINDS: Final = frozenset((FindingKind.DEADLOCK, FindingKind.MISSING_RANK, FindingKind.MISMATCH))
#: Groups that are looked at: one of the finding, or those that its ranks share.
_MAX_GROUPS: Final = 4


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
    heard += [ReceivedAccount(reported.account, reported.made_ns) for reported in others]
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
    blocked = find_blocked(session, waits)
    root = verdict.root
    case = None
    if root is not None:
        state = None
        if root.kind in (FindingKind.STUCK_RANK, FindingKind.STALL) and root.ranks:
            log = session.ranks.get(root.ranks[0])
            state = log.activity.state if log is not None and log.activity is not None else None
        kind = find_proven_kind(session, root, blocked)
        case = ReportedRoot(root, kind, bool(blocked), state)
    return JudgedVerdict(
        session=session,
        verdict=verdict,
        case=case,
        lines=short_lines(session, verdict),
        plain=to_plain(session, verdict),
        blocked=blocked,
        waits=waits | _waits_to_join(session, verdict),
    )


def _waits_to_join(session: Session, verdict: Verdict) -> dict[int, tuple[Edge, ...]]:
    """Whom ranks in init_process_group, which is no op of a record, wait for, where that is known."""
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
    """The waits between ranks, as the API gives them."""
    return [
        {
            "rank": edge.rank,
            "on": list(edge.on),
            "is_any": edge.is_any,
            "op": edge.text,
            "site": edge.site,
            "can_go_on": edge.rank not in judged.blocked,
        }
        for edges in judged.waits.values()
        for edge in edges
    ]


def tell_out_of_batches(judged: JudgedVerdict, folder: Path) -> JudgedVerdict:
    """The same, with one line more behind the first; who is the cause stays as it was proven."""
    root = judged.verdict.root
    if root is None or root.kind not in _KINDS or root.severity is not Severity.ERROR:
        return judged
    ranks = sorted({*root.ranks, *root.victims})
    for group in _groups(judged, root, ranks):
        found = look(folder, group.name, ranks)
        if found is not None:
            return _with(judged, root, describe(found), hint_for(group.backend))
    return judged


def _with(judged: JudgedVerdict, root: Finding, words: str, hint: str) -> JudgedVerdict:
    reported = replace(
        root,
        evidence=(Evidence(text=words), *(one for one in root.evidence if UNKNOWN not in one.text)),
        advice=hint,
    )
    findings = tuple(reported if one is root else one for one in judged.verdict.findings)
    verdict = replace(judged.verdict, root=reported, findings=findings)
    lines = short_lines(judged.session, verdict)
    if f"  {words}" not in lines:  # those of a deadlock are its edges
        lines.insert(1, f"  {words}")
    return replace(judged, verdict=verdict, lines=lines, plain=to_plain(judged.session, verdict))


def _groups(judged: JudgedVerdict, root: Finding, ranks: list[int]) -> list[GroupInfo]:
    session = judged.session
    shared = [
        group
        for at, group in enumerate(session.groups)
        if sum(rank in session.ranks and at in session.ranks[rank].progress for rank in ranks) > 1
    ]
    shared.sort(key=lambda group: group.label != root.group)
    return shared[:_MAX_GROUPS]

"""A verdict as plain values: what `distdbg analyze --json` prints. `schema` says what each key means."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from distdbg.diagnose.finding import Edge, Evidence, Finding, Role, Verdict
from distdbg.diagnose.ops import NEVER, OpRef
from distdbg.diagnose.session import RankLog, Session
from distdbg.render.finding_stacks import to_plain_stacks
from distdbg.render.schema import SCHEMA
from distdbg.render.source_line import SourceLines
from distdbg.render.story import status_text
from distdbg.render.where import place_of
from distdbg.render.words import iso_text


def to_plain(
    session: Session, verdict: Verdict, source: SourceLines | None = None
) -> dict[str, Any]:
    """One document; json.dumps takes it. Without `source` it has no stacks."""
    document = {
        "schema": SCHEMA,
        "source": session.source,
        "format": session.format,
        "run": session.run,
        "attempt": session.attempt,
        "attempts": session.attempts,
        "world_size": session.world_size,
        "is_live": session.is_live,
        "at": _time(session.now_ns),
        **_found(session, verdict),
        "ranks": [
            _rank(session, log, verdict.roles.get(rank, Role.BYSTANDER))
            for rank, log in sorted(session.ranks.items())
        ],
        "groups": [
            {
                "name": group.name,
                "label": group.label,
                "ranks": list(group.ranks),
                "backend": group.backend,
            }
            for group in session.groups
        ],
        "stacks": [] if source is None else to_plain_stacks(session, verdict, source),
        "lacks": lacks_of(session, verdict),
    }
    return {name: _in_letters(value) for name, value in document.items()}


def to_plain_verdict(verdict: Verdict) -> dict[str, Any]:
    """What a verdict says without its session: of a rank only its role, and no ops."""
    return {
        "schema": SCHEMA,
        **_found(None, verdict),
        "ranks": [{"rank": rank, "role": str(role)} for rank, role in verdict.roles.items()],
        "lacks": list(verdict.lacks),
    }


def _found(session: Session | None, verdict: Verdict) -> dict[str, Any]:
    root = next((i for i, one in enumerate(verdict.findings) if one is verdict.root), None)
    return {
        "verdict": {"what": verdict.what, "root": root, "has_faults": verdict.has_faults},
        "findings": [_finding(session, one) for one in verdict.findings],
    }


def _in_letters(value: Any) -> Any:
    """Bytes of names that are no letters as '\\udcff' in words: half a letter is no JSON for many readers."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, list):
        return [_in_letters(one) for one in value]
    if isinstance(value, dict):
        return {name: _in_letters(one) for name, one in value.items()}
    return value


def lacks_of(session: Session, verdict: Verdict) -> list[str]:
    """What is missing, said by either; each once."""
    return list(dict.fromkeys((*verdict.lacks, *session.lacks)))


def state_of(session: Session, log: RankLog) -> str:
    """What a rank did last, in words: 'was killed by SIGKILL', 'in an op', 'asleep' ..."""
    if log.end is not None:
        return log.end.how
    if log.exit is not None:
        how = {1: "left its groups", 2: "returned", 3: "raised"}[log.exit]
        return f"{how} {log.exit_what}".rstrip()
    if log.activity is not None:
        return str(log.activity.state)
    place = place_of(session, log.rank)
    if place is None:
        return "called nothing"
    return "in an op" if place.is_in else "in its own code"


def _finding(session: Session | None, finding: Finding) -> dict[str, Any]:
    return {
        "kind": str(finding.kind),
        "severity": str(finding.severity),
        "what": finding.what,
        "ranks": list(finding.ranks),
        "victims": list(finding.victims),
        "group": finding.group,
        "seq": finding.seq,
        "at": _time(finding.at_ns),
        "evidence": [_evidence(session, fact) for fact in finding.evidence],
        "edges": [_edge(session, edge) for edge in finding.edges],
        "advice": finding.advice,
        "numbers": _numbers(finding.numbers),
        "traits": sorted(map(str, finding.all_traits)),
        "follows": [_finding(session, one) for one in finding.follows],
    }


def _evidence(session: Session | None, fact: Evidence) -> dict[str, Any]:
    return {
        "text": fact.text,
        "rank": fact.rank,
        "ranks": list(fact.all_ranks),
        "op": _op(session, fact.op),
        "site": fact.site,
        "at": _time(fact.at_ns),
        "source": fact.source,
        "kind": None if fact.kind is None else str(fact.kind),
        "detail": fact.detail,
    }


def _edge(session: Session | None, edge: Edge) -> dict[str, Any]:
    return {
        "rank": edge.rank,
        "on": list(edge.on),
        "is_any": edge.is_any,
        "text": edge.text,
        "op": _op(session, edge.op),
        "site": edge.site,
        "since": _time(edge.since_ns),
    }


def _op(session: Session | None, op: OpRef | None) -> dict[str, Any] | None:
    if (
        session is None
        or op is None
        or op.rank not in session.ranks
        or op.at >= len(session.ranks[op.rank].ops)
    ):
        return None
    ops = session.ranks[op.rank].ops
    group, site = session.group_of(op), session.site_of(op)
    return {
        "rank": op.rank,
        "name": session.forms[ops.form[op.at]].name or session.kind_of(op),
        "kind": session.kind_of(op),
        "text": session.name_of(op),
        "seq": ops.seq[op.at],
        "group": group.label if group else "",
        "status": status_text(ops.status[op.at]),
        "issued": _time(session.time_ns(op.rank, ops.issued_ns[op.at])),
        "started": _time(session.time_ns(op.rank, ops.started_ns[op.at])),
        "ended": _time(session.time_ns(op.rank, ops.ended_ns[op.at])),
        "site": str(site) if site else "",
        "stack": [str(frame) for frame in session.stacks[ops.stack[op.at]]],
    }


def _rank(session: Session, log: RankLog, role: Role) -> dict[str, Any]:
    place = place_of(session, log.rank)
    seen = session.time_ns(log.rank, log.heartbeat_ns) if log.heartbeat_ns else None
    return {
        "rank": log.rank,
        "host": log.host,
        "pid": log.pid,
        "role": str(role),
        "state": state_of(session, log),
        "ops": len(log.ops),
        "in_flight": sum(1 for _ in log.ops.in_flight()),
        "last_op": _op(session, place.op if place else None),
        "last_seen": _time(seen),
        "source": log.source,
        "lost": _numbers(log.lost),
    }


def _time(ns: int | None) -> str | None:
    return None if ns is None or ns == NEVER else iso_text(ns) or None


def _numbers(numbers: Mapping[str, float]) -> dict[str, float]:
    """JSON has no NaN and no infinity: what is one is left out."""
    return {name: value for name, value in numbers.items() if math.isfinite(value)}

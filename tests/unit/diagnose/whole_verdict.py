"""Sessions that tests of whole verdicts begin with, and what is asked of a verdict."""

import json
from typing import Any

from distdbg.diagnose.finding import FindingKind, Role, Verdict
from distdbg.record.format import Exit, Status
from tests.support.session_builder import SessionBuilder

ROOT, VICTIM, BYSTANDER = Role.ROOT, Role.VICTIM, Role.BYSTANDER


def words(type: str, what: str = "", ranks: Any = (), **facts: Any) -> str:
    return json.dumps({"type": type, "what": what or type, "ranks": list(ranks), **facts})


def trained(world_size: int, **facts: Any) -> SessionBuilder:
    build = SessionBuilder(world_size, **facts)
    for rank in range(world_size):
        build.op(rank, "all_reduce", at_s=1, ended_s=1.1, site="/job/train.py:80 (step)")
    return build


def give_up(
    build: SessionBuilder,
    rank: int,
    kind: str,
    *,
    at_s: float,
    ended_s: float,
    on: Any,
    **facts: Any,
) -> None:
    """An op that times out, and a rank that ends with it."""
    build.op(
        rank,
        kind,
        at_s=at_s,
        ended_s=ended_s,
        status=Status.TIMEOUT,
        error=words("OpTimeout", "it waited", on),
        **facts,
    )
    build.exit(rank, Exit.RAISED, at_s=ended_s + 0.1, what="OpTimeout: it waited")
    build.end(rank, at_s=ended_s + 0.5, cause="exited", exit_code=1)


def roles(verdict: Verdict) -> list[Role]:
    return [verdict.roles[rank] for rank in sorted(verdict.roles)]


def kinds(verdict: Verdict) -> list[FindingKind]:
    return [finding.kind for finding in verdict.findings]

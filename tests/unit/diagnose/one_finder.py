"""What one finder says of a session, and the sessions that tests of several finders begin with."""

import json
from typing import Any

from distdbg.diagnose.finding import Finding
from distdbg.diagnose.matching import match
from distdbg.diagnose.waits import find_waits
from tests.support.session_builder import SessionBuilder


def find(finder: Any, build: SessionBuilder) -> list[Finding]:
    matched = match(build.session)
    found: list[Finding] = finder.find(build.session, matched, find_waits(build.session, matched))
    return found


def find_one(finder: Any, build: SessionBuilder) -> Finding:
    (finding,) = find(finder, build)
    return finding


def texts(finding: Finding) -> list[str]:
    return [line.text for line in finding.evidence]


def error(type: str, what: str, **facts: Any) -> str:
    return json.dumps({"type": type, "what": what, **facts})


def trained(world_size: int, *, is_live: bool = False) -> SessionBuilder:
    """All ranks have done one op."""
    build = SessionBuilder(world_size, is_live=is_live)
    for rank in range(world_size):
        build.op(rank, "all_reduce", at_s=1, ended_s=1.1, site="/job/train.py:80 (step)")
    return build


def waiting_for_0(*, is_live: bool = True, at_s: float = 88) -> SessionBuilder:
    build = trained(4, is_live=is_live)
    for rank in (1, 2, 3):
        build.op(rank, "barrier", at_s=at_s, site="/job/train.py:90 (main)")
    return build

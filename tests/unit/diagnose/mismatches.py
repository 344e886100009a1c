"""The mismatches that are found in a session, and ranks that have made steps alike."""

import json
from typing import Any

from distdbg.diagnose.find import mismatch
from distdbg.diagnose.finding import Finding
from distdbg.diagnose.matching import match
from distdbg.diagnose.session import Session
from tests.support.session_builder import SessionBuilder


def find(session: Session) -> list[Finding]:
    return mismatch.find(session, match(session), {})


def find_one(build: SessionBuilder) -> Finding:
    (finding,) = find(build.session)
    return finding


def texts(finding: Finding) -> str:
    return "\n".join(line.text for line in finding.evidence)


def steps(build: SessionBuilder, ranks: Any, count: int = 2, **facts: Any) -> None:
    for rank in ranks:
        for step in range(count):
            facts = {"inputs": [(4,)], "dtype": "float32", "site": "train.py:80 (step)"} | facts
            build.op(rank, "all_reduce", at_s=step + 1, ended_s=step + 1.1, **facts)


def error(what: str, **facts: Any) -> str:
    return json.dumps({"type": "MismatchError", "what": what, **facts})

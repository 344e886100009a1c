"""What the diagnosis says of a start of a job, within bounded memory.

Judging holds all ops at once. So where there are more than `MOST_OPS`, what the agent has written into the
run's folder is taken instead (verdict.json, as long as something is wrong), and `lacks` says so.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from distdbg.diagnose.finding import Finding, FindingKind, Severity
from distdbg.diagnose.verdict import diagnose
from distdbg.export.reading import RunStart
from distdbg.record.folders import VERDICT_NAME

#: About 150 MiB.
MOST_OPS: Final = 250_000
_MOST_NBYTES: Final = 1 << 26


def find_findings(start: RunStart, *, most_ops: int = MOST_OPS) -> list[Finding]:
    """Root cause first; those that follow from another come behind it."""
    if start.count_at_most() <= most_ops:
        found: Sequence[Finding] = ()
        session = start.load()
        if session is not None:
            verdict = diagnose(session)
            found = verdict.findings
            if verdict.root is not None and all(one is not verdict.root for one in found):
                found = (verdict.root, *found)
        return list(_flat(found))
    told = [finding for folder in start.folders for finding in read_verdict(folder / VERDICT_NAME)]
    start.session.lacks.append(
        f"more than {most_ops:,} ops: findings are those of the agent, {len(told):,}; "
        "distdbg analyze judges all of it"
    )
    return told


def _flat(findings: Sequence[Finding]) -> Iterator[Finding]:
    for finding in findings:
        yield finding
        yield from _flat(finding.follows)


def read_verdict(path: Path) -> list[Finding]:
    """The findings of a verdict.json, without their evidence; [] where there is none."""
    try:
        if path.stat().st_size > _MOST_NBYTES:
            return []
        document = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return []
    found = document.get("findings") if isinstance(document, dict) else None
    return list(_read(found if isinstance(found, list) else []))


def _read(items: Sequence[Any]) -> Iterator[Finding]:
    for item in items:
        if not isinstance(item, dict):
            continue
        with suppress(ValueError, TypeError):  # of a later version, or written by somebody else
            yield Finding(
                kind=FindingKind(str(item.get("kind"))),
                severity=Severity(str(item.get("severity"))),
                what=str(item.get("what", "")),
                ranks=_ranks(item, "ranks"),
                victims=_ranks(item, "victims"),
                group=str(item.get("group", "")),
                seq=int(item.get("seq") or 0),
                at_ns=_time(item.get("at")),
                advice=str(item.get("advice", "")),
            )
            follows = item.get("follows")
            yield from _read(follows if isinstance(follows, list) else [])


def _ranks(item: Mapping[str, Any], key: str) -> tuple[int, ...]:
    ranks = item.get(key)
    return tuple(n for n in ranks if type(n) is int) if isinstance(ranks, list) else ()


def _time(text: object) -> int | None:
    if not isinstance(text, str):
        return None
    seconds = datetime.fromisoformat(text).timestamp()
    return int(seconds * 1e9) if math.isfinite(seconds) else None

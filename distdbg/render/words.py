"""Ranks, sites, times and facts in the words of messages. Pure; what comes from a program is escaped."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable
from typing import Final

from distdbg.diagnose import headline
from distdbg.diagnose.finding import Edge, Evidence, Finding, FindingKind, Severity
from distdbg.errors import format_ranks
from distdbg.record.durations import duration_text
from distdbg.record.folders import VERDICT_NAME
from distdbg.record.printable import printable, shorten_middle
from distdbg.record.recorded_frame import RecordedFrame

#: A line of a program's making may be a megabyte.
MAX_LETTERS: Final = 300

#: Before a word that is the same for one rank and for several.
_OF_RANK: Final = re.compile(r"rank (\d{1,9})(?=: | called | did | never )")


def safe(text: str, most: int = MAX_LETTERS) -> str:
    """One line that a terminal obeys in nothing."""
    line = printable(text)
    return shorten_middle(line, most)


def ranks_text(ranks: Iterable[int]) -> str:
    """'rank 3', 'ranks 0-2,7'."""
    text = format_ranks(ranks)
    return f"rank {text}" if text.isdecimal() else f"ranks {text}"


def site_text(site: RecordedFrame | None) -> str:
    """'train.py:88 (step)'; '' for None."""
    return (
        ""
        if site is None
        else f"{os.path.basename(site.file) or '?'}:{site.line} ({site.function})"
    )


def seconds_text(nanoseconds: float) -> str:
    """'33.6 ms', '1.2 s', '12 min 5 s', '3 h 5 min'."""
    return duration_text(nanoseconds / 1e9)


def iso_text(wall_ns: int) -> str:
    """'2026-11-22T04:10:00.125000Z'; '' for a time that no calendar has."""
    try:
        whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(wall_ns // 10**9))
    except (OSError, OverflowError, ValueError):
        return ""
    return f"{whole}.{wall_ns % 10**9 // 1000:06}Z"


def evidence_text(evidence: Evidence) -> str:
    """Its words, and the places that they do not name themselves."""
    text = evidence.text
    if evidence.site and evidence.site not in text:
        text += f" at {evidence.site}"
    if evidence.source not in ("", VERDICT_NAME) and evidence.source not in text:
        text += f" [{evidence.source}]"
    return text


def fold_facts(texts: Iterable[str]) -> list[str]:
    """'rank 1: it failed' and 'rank 2: it failed' as 'ranks 1-2: it failed'."""
    ranks: dict[str, list[int]] = {}
    for text in texts:
        found = _OF_RANK.match(text)
        rest = text[found.end() :] if found else text
        ranks.setdefault(rest, []).extend([int(found[1])] if found else [])
    return [f"{ranks_text(who)}{rest}" if who else rest for rest, who in ranks.items()]


def facts_of(finding: Finding) -> list[str]:
    """Its evidence, and for ranks that have none there, whom they wait for."""
    texts = fold_facts(map(evidence_text, finding.evidence))
    reported = {fact.rank for fact in finding.evidence}
    blamed = set(finding.ranks)
    texts += [
        edge_text(edge)
        for edge in finding.edges
        if edge.rank not in reported and (edge.rank in blamed or not finding.evidence)
    ]
    return texts


def edge_text(edge: Edge) -> str:
    """'rank 0 waits in barrier #3 on group 'dp' at a.py:3 (run) for ranks 1,2'."""
    at = f" at {edge.site}" if edge.site else ""
    return f"rank {edge.rank} waits in {edge.text or 'an op'}{at}{_for_whom(edge)}"


def _for_whom(edge: Edge) -> str:
    """Nothing where the op has said it: 'recv from rank 1'."""
    whom = ranks_text(edge.on)
    if len(edge.on) == 1 and f"{whom} " in f"{edge.text} ":
        return ""
    return f" for {'any of ' if edge.is_any and len(edge.on) > 1 else ''}{whom}"


def tag_text(root: Finding) -> str:
    """'DEADLOCK', 'FAILED: NaN source', 'warning: straggler': errors by the word of the launcher's report."""
    if root.severity is not Severity.ERROR:
        return f"{root.severity}: {root.kind}"
    word = headline.of_kind(root.kind.value, root.what)
    is_plain = word != headline.FAILED or root.kind in (
        FindingKind.FAILED_OP,
        FindingKind.DEAD_RANK,
    )
    return word if is_plain else f"{word}: {root.kind}"

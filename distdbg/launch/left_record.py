"""Reads how a rank ended from its record.

Imported when there is a record to read: a launcher starts without the reader of records.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

from distdbg.errors import RecordError
from distdbg.launch.record_facts import RecordFacts
from distdbg.record.ends import RankEnd
from distdbg.record.entries import Finding
from distdbg.record.format import Exit
from distdbg.record.known_marks import THREAD_ERROR
from distdbg.record.rank_words import Clock, describe, read_boot_id
from distdbg.record.reader import RecordFile

#: How far back in a record the last finding is looked for.
_MOST_NOTES: Final = 64


def read_facts(path: Path, end: RankEnd) -> RecordFacts | None:
    """What a record says of its rank at its end; None: there is none that can be read."""
    try:
        with RecordFile(path, salvage=True) as record:
            if record.header.pid != end.pid:
                return None  # of another start of the same rank
            clock = Clock(record.header, end.ended_ns, read_boot_id())
            state = record.state()
            kind, ranks = _last_error(record)
            raised = ""
            if state.exit is Exit.RAISED:
                raised = str(_words(state.exit_text).get("what", "an exception"))
            return RecordFacts(
                path=str(path),
                doing=describe(record, clock) or "",
                how=state.exit,
                raised=raised,
                raised_wall_ns=record.header.to_wall_ns(state.exit_ns) if raised else 0,
                error_type=kind,
                error_ranks=ranks,
                thread_error=_thread_error(record),
            )
    except RecordError:
        return None


def _last_error(record: RecordFile) -> tuple[str, tuple[int, ...]]:
    last = record.state().last_number
    for number in range(last, max(0, last - _MOST_NOTES), -1):
        event = record.event(number)
        words = _words(event.text) if isinstance(event, Finding) else {}
        if isinstance(event, Finding) and words.get("type") != THREAD_ERROR:
            ranks = words.get("ranks")
            named = [r for r in ranks if isinstance(r, int)] if isinstance(ranks, list) else []
            return str(words.get("type", "")), tuple(named)
    return "", ()


def _thread_error(record: RecordFile) -> str:
    last = record.state().last_number
    for number in range(last, max(0, last - _MOST_NOTES), -1):
        event = record.event(number)
        words = _words(event.text) if isinstance(event, Finding) else {}
        if words.get("type") == THREAD_ERROR:
            details = words.get("details")
            where = str(details[0]) if isinstance(details, list) and details else ""
            return f"{words.get('what')}{f' at {os.path.basename(where)}' if where else ''}"
    return ""


def _words(text: str | None) -> dict[str, object]:
    try:
        found = json.loads(text or "")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}

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
from distdbg.record.entries import FindingEntry, MarkEntry
from distdbg.record.format import Exit
from distdbg.record.known_marks import EXIT_CALL, LATENT, NOT_REDUCED, SYS_EXIT, THREAD_ERROR
from distdbg.record.rank_words import Clock, describe, read_boot_id
from distdbg.record.reader import RecordFile

#: How far back in a record the last finding is looked for.
_MAX_NOTES: Final = 64
#: Findings about the rank itself, and about no op.
_NO_ERRORS: Final = (EXIT_CALL, THREAD_ERROR)


def read_facts(path: Path, end: RankEnd) -> RecordFacts | None:
    """What a record says of its rank at its end; None: there is none that can be read."""
    try:
        with RecordFile(path, salvage=True) as record:
            if record.header.pid != end.pid:
                return None  # of another start of the same rank
            clock = Clock(record.header, end.ended_ns, read_boot_id())
            state = record.state()
            kind, ranks = _last_error(record)
            exit_call, exit_site = _exit_call(record)
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
                thread_error=thread_error(record),
                exit_call=exit_call,
                exit_site=exit_site,
                has_latent_errors=_has_latent_errors(record),
            )
    except RecordError:
        return None


def _last_error(record: RecordFile) -> tuple[str, tuple[int, ...]]:
    last = record.state().last_number
    for number in range(last, max(0, last - _MAX_NOTES), -1):
        event = record.event(number)
        words = _words(event.text) if isinstance(event, FindingEntry) else {}
        if isinstance(event, FindingEntry) and words.get("type") not in _NO_ERRORS:
            ranks = words.get("ranks")
            named = [r for r in ranks if isinstance(r, int)] if isinstance(ranks, list) else []
            return str(words.get("type", "")), tuple(named)
    return "", ()


def _has_latent_errors(record: RecordFile) -> bool:
    last = record.state().last_number
    for number in range(last, max(0, last - _MAX_NOTES), -1):
        match record.event(number):
            case MarkEntry(name=str(name)) if name.startswith(NOT_REDUCED):
                return True
            case FindingEntry(text=text) if _words(text).get("type") in LATENT:
                return True
    return False


def _last_note(record: RecordFile, kind: str) -> tuple[str, list[str], str]:
    """What the rank wrote of such a kind last, the lines that go with it, and how."""
    last = record.state().last_number
    for number in range(last, max(0, last - _MAX_NOTES), -1):
        event = record.event(number)
        words = _words(event.text) if isinstance(event, FindingEntry) else {}
        if words.get("type") == kind:
            details = words.get("details")
            sites = [str(one) for one in details] if isinstance(details, list) else []
            names = [os.path.basename(one) for one in sites]
            return str(words.get("what")), names, str(words.get("how") or "")
    return "", [], ""


def thread_error(record: RecordFile) -> str:
    """What a thread raised that has ended by an exception, and where; '' without one."""
    what, sites, _ = _last_note(record, THREAD_ERROR)
    return f"{what} at {sites[0]}" if sites else what


def _exit_call(record: RecordFile) -> tuple[str, str]:
    """What the program said of its own end, and where."""
    what, sites, how = _last_note(record, EXIT_CALL)
    if what.startswith(SYS_EXIT) and record.state().exit is None:
        return "", ""  # caught: something else ended the rank
    if not sites:
        return what, ""
    how = f" {how}" if how else ""
    meanwhile = [f"; the main thread was at {one}" for one in sites[1:2] if one]
    return f"{what} at {sites[0]}{how}{''.join(meanwhile)}", sites[0].partition(" ")[0]


def _words(text: str | None) -> dict[str, object]:
    try:
        found = json.loads(text or "")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}

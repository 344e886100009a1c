"""Times of the errors of ranks, and of their last op that went well.

A program may catch an error and go on. A later diagnosis must know that an op went well since: else an old
error would be the cause of whatever the ranks wait for next. The words of errors (`findings`) have neither;
their entries in the records do, as long as the rings have them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from distdbg.errors import RecordError
from distdbg.follow.findings import read_words
from distdbg.follow.tail import TailedRecord
from distdbg.follow.watched_rank import WatchedRank

#: Read of one record at once: more come between two looks only where it is full of errors.
_MAX_NEW: Final = 256

_Reported = dict[str, Any]
_Words = tuple[str, str]


@dataclass(slots=True)
class _Known:
    """What was read of one record."""

    record: TailedRecord
    text_count: int = 0
    last: int = 0
    """The number of the last entry that is in `at_ns`."""
    at_ns: dict[_Words, int] = field(default_factory=dict)
    """By type and what, when the rank has written it last."""


class ErrorTimes:
    """Dates the errors that the ranks of one host found in one start of the job."""

    def __init__(self) -> None:
        self._known: dict[int, _Known] = {}

    def put(
        self, found: Sequence[_Reported], watched_ranks: Mapping[int, WatchedRank]
    ) -> list[_Reported]:
        """The same with their times; without what is older than all that its record still has."""
        words: dict[int, set[_Words]] = {}
        for reported in found:
            words.setdefault(reported["rank"], set()).add(_words_of(reported))
        for rank, theirs in words.items():
            watched = watched_ranks.get(rank)
            if watched is not None and watched.record is not None:
                self._read(rank, watched.record, theirs)
        return [
            dated
            for reported in found
            if (dated := self._dated(reported, watched_ranks.get(reported["rank"])))
        ]

    def _read(self, rank: int, record: TailedRecord, words: set[_Words]) -> None:
        known = self._known.get(rank)
        if known is None or known.record is not record:
            known = self._known[rank] = _Known(record)
        try:
            count = record.pulse().text_count
            # The words of an error are there a moment before its entry.
            if count == known.text_count and words <= known.at_ns.keys():
                return
            for finding in record.findings(known.last, _MAX_NEW):
                known.at_ns[_words_of(read_words(finding.text or ""))] = finding.issued_ns
                known.last = finding.number
        except RecordError:
            return
        known.text_count = count

    def _dated(self, reported: _Reported, watched: WatchedRank | None) -> _Reported | None:
        known = self._known.get(reported["rank"])
        if "at_ns" in reported:
            return reported
        if watched is None or known is None or known.record is not watched.record:
            return reported
        at_ns = known.at_ns.get(_words_of(reported))
        if at_ns is not None:
            return {**reported, "at_ns": at_ns}
        is_old = watched.pulse is not None and watched.pulse.last_number > known.record.ring_count
        return None if is_old else reported


def last_good(
    found: Sequence[_Reported], watched_ranks: Mapping[int, WatchedRank]
) -> dict[int, int]:
    """When those of the ranks that have found something issued the last op that went well."""
    times = {}
    for rank in {reported["rank"] for reported in found}:
        watched = watched_ranks.get(rank)
        if watched is None or watched.record is None:
            continue
        try:
            at_ns = watched.record.last_good_ns()
        except RecordError:
            continue
        if at_ns is not None:
            times[rank] = at_ns
    return times


def _words_of(reported: Mapping[str, Any]) -> _Words:
    return str(reported.get("type") or ""), str(reported.get("what") or "")

"""The groups of one record, looked up once each."""

from __future__ import annotations

from distdbg.export.otel.recorded_ops import TracedGroup
from distdbg.follow.tail import TailedRecord


class Groups:
    """By their numbers in the record."""

    def __init__(self, record: TailedRecord) -> None:
        self._record = record
        self._known: dict[int, TracedGroup] = {}

    def __getitem__(self, number: int) -> TracedGroup:
        """What is known of it; nothing, when the record has no such group any more."""
        facts = self._known.get(number)
        if facts is None:
            group = self._record.group(number)
            if group is None:
                return TracedGroup()
            facts = self._known[number] = TracedGroup.of(group)
        return facts

    def number_of(self, name: str) -> int | None:
        """Of one that ops were seen of."""
        return next((n for n, facts in self._known.items() if facts.name == name), None)

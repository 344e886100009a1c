"""Roots of collectives that failed without the first rank of their group: as another rank saw them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from distdbg.errors import RecordError
from distdbg.export.otel.model import SpanData
from distdbg.export.otel.recorded_ops import TracedGroup, facts_of
from distdbg.export.tracing.follower import Follower
from distdbg.record.entries import OpEntry


def tell_roots(followers: Mapping[int, Follower], wall_ns: int) -> None:
    """Where that rank is of this host and never came: as another rank saw it."""
    told: set[tuple[str, int]] = set()
    for follower in followers.values():
        for group, seq, why in follower.failed.values():
            first = group.global_rank(0)
            home = None if first is None else followers.get(first)
            if home is None or (group.name, seq) in told:
                continue
            with suppress(RecordError):
                root = _root_of(follower, group, seq, why, wall_ns)
                if root is not None and not _has_come(home, group.name, seq):
                    told.add((group.name, seq))
                    follower.emit(root)


def _has_come(follower: Follower, name: str, seq: int) -> bool:
    """Whether the rank has called this collective."""
    for group, progress in follower.record.groups():
        if group.name == name and progress.issued_seq >= seq:
            return True
    number = follower.groups.number_of(name)
    return number is not None and follower.record.find_op(number, seq) is not None


def _root_of(
    follower: Follower, group: TracedGroup, seq: int, why: str, now_ns: int
) -> SpanData | None:
    number = follower.groups.number_of(group.name)
    number = None if number is None else follower.record.find_op(number, seq)
    event = None if number is None else follower.record.event(number)
    if not isinstance(event, OpEntry):
        return None
    return follower.spans.make_root(facts_of(event, follower.rank, group), why, now_ns)

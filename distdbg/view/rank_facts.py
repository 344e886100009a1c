"""The facts of one rank, as its page lists them. Whoever does not know one of them leaves it out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from distdbg.record.durations import nbytes_text
from distdbg.record.text import error_words

_LEVELS: Final = ("off", "info", "detail")
_MAX_FAILED: Final = 5
NO_RECORD: Final = (("record", "none: it has not called init_process_group of distdbg"),)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    """How far a rank has come in one of its groups."""

    label: str
    rank: int | None
    """Its rank there; None: not known."""
    size: int
    issued: int
    ended: int
    timeout_s: float | None = None
    is_closed: bool = False
    is_broken: bool = False

    @property
    def words(self) -> str:
        words = f"#{self.ended} of #{self.issued} ended"
        words += "" if self.rank is None else f", rank {self.rank} of {self.size}"
        words += "" if self.timeout_s is None else f", timeout {self.timeout_s:g} s"
        return (
            words + (", closed" if self.is_closed else "") + (", broken" if self.is_broken else "")
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFacts:
    """What is known of a rank beside its row."""

    argv: Sequence[str] = ()
    level: str = ""
    version: str = ""
    """The version of distdbg."""
    python: str = ""
    threads: int | None = None
    gpu_nbytes: int | None = None
    gpu: float | None = None
    began: str = ""
    ops: int | None = None
    """Issued so far."""
    groups: Iterable[GroupFacts] = ()
    waits: Iterable[tuple[int, str, int]] = ()
    """Thread, site and number of the op that is waited for."""
    failed: Iterable[tuple[str, str, str]] = ()
    """Op, status and error of those that failed, the newest first."""
    lost: Mapping[str, int] = field(default_factory=dict)
    """How much its record had no room for, by what it was."""
    gaps: int = 0
    """Places at which its record is damaged."""
    record: str = ""


def level_name(number: int) -> str:
    """'detail'; of the check."""
    return _LEVELS[number] if 0 <= number < len(_LEVELS) else str(number)


def fact_rows(facts: RankFacts) -> tuple[tuple[str, str], ...]:
    """Names and texts, in the order of the page."""
    return tuple((name, text) for name, text in _rows(facts) if text)


def _rows(facts: RankFacts) -> Iterator[tuple[str, str]]:
    yield "program", " ".join(facts.argv)
    yield "level", facts.level
    yield "distdbg", f"{facts.version}, Python {facts.python}" if facts.version else ""
    yield "threads", str(facts.threads) if facts.threads else ""
    if facts.gpu_nbytes is not None:
        busy = "" if facts.gpu is None else f", {facts.gpu:.0%} of the time"
        yield "GPU", nbytes_text(facts.gpu_nbytes) + busy
    yield "began", facts.began
    yield "ops so far", f"{facts.ops:,}" if facts.ops else ""
    for group in facts.groups:
        yield f"group '{group.label}'", group.words
    for thread, site, number in facts.waits:
        yield "waits", f"thread {thread} in {site} for op {number}"
    for op, status, error in list(facts.failed)[:_MAX_FAILED]:
        yield "failed", f"{op}: {error_words(error) or status}"
    lost = [f"{count} {name}" for name, count in facts.lost.items() if count]
    yield "no room for", ", ".join(lost)
    yield "damaged", f"{facts.gaps} places" if facts.gaps else ""
    yield "record", facts.record

"""Why an attempt of a job failed, in three lines, and what all attempts that failed have in common. Pure.

distdbg run: attempt 1 of 3: FAILED: rank 1 raised ValueError: no data
  at train.py:80 (step): y = x / 0
  hint: ...
distdbg run: restarting all ranks (attempt 2 of 3)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from distdbg.diagnose.alike import is_alike, ranks_in, site_in
from distdbg.errors import format_ranks

_MAX_PLACES: Final = 2
_MAX_CAUSES: Final = 6
_MAX_LETTERS: Final = 300
#: 'train.py:80 (step)', 'load.py:7': a line of a program within a text.
_PLACE: Final = re.compile(r"\S:\d+ \(|\.py:\d+\b")
_OF_PROCESS: Final = re.compile(r" \(host [^()]*, pid \d+\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Why one attempt failed."""

    word: str
    """The kind of failure: 'FAILED', 'RANK DIED'."""
    what: str
    places: tuple[str, ...] = ()
    """The first details that name a line of the program."""
    hint: str = ""
    attempt: int = 1
    """From 1."""

    @property
    def lines(self) -> list[str]:
        """One for what happened, and one or two more."""
        below = [*self.places[: 1 if self.hint else _MAX_PLACES]]
        return [f"{self.word}: {self.what}", *below, *([f"hint: {self.hint}"] if self.hint else [])]

    @property
    def site(self) -> str:
        """'train.py:80': the first line that it names; '' for none."""
        return next(filter(None, map(site_in, (self.what, *self.places))), "")

    def is_like(self, other: Cause) -> bool:
        """Whether it is the same mistake, of these ranks or of others."""
        is_one = (self.word, self.site) == (other.word, other.site)
        return is_one and is_alike(self.what, other.what)


def make_cause(word: str, lines: Sequence[str], hint: str = "", attempt: int = 1) -> Cause:
    """Make it of the lines of a report: the first, and the first of the others that name a line."""
    first, *details = lines
    named = [line.strip() for line in details if _PLACE.search(line)]
    return Cause(
        word=word,
        what=_OF_PROCESS.sub("", first)[:_MAX_LETTERS],
        places=tuple(line[:_MAX_LETTERS] for line in named[:_MAX_PLACES]),
        hint=hint,
        attempt=attempt,
    )


def say_attempts(failed: Sequence[Cause]) -> Iterator[str]:
    """Which attempts failed of which cause: at the end of a report, or below 'attempt 3 of 3 succeeded'."""
    groups = _group(failed)
    if len(groups) == 1 and len(failed) > 1:
        same = {ranks_in(one.what) for one in failed}
        whose = "same cause each time" if len(same) == 1 else "same cause each time, on other ranks"
        yield f"{whose} ({_attempts(failed)}): {_short(failed[-1])}"
        return
    for group in groups[:_MAX_CAUSES]:
        yield f"{_attempts(group)} failed: {_short(group[-1])}"
    if hidden := groups[_MAX_CAUSES:]:
        rest = [one for group in hidden for one in group]
        yield f"{_attempts(rest)} failed, of {len(hidden)} other causes"


def _group(failed: Sequence[Cause]) -> list[list[Cause]]:
    """Those that are alike together, in the order of their first."""
    groups: list[list[Cause]] = []
    for one in failed:
        known = next((group for group in groups if group[0].is_like(one)), None)
        if known is None:
            groups.append([one])
        else:
            known.append(one)
    return groups


def _short(cause: Cause) -> str:
    """'FAILED: rank 1 raised ValueError: no data, at train.py:80'."""
    site = cause.site
    # Where its last op was called is not where it died.
    word = "last op at" if cause.places and "last op " in cause.places[0] else "at"
    at = f", {word} {site}" if site and site not in cause.what else ""
    return f"{cause.word}: {cause.what}{at}"


def _attempts(failed: Sequence[Cause]) -> str:
    numbers = [one.attempt for one in failed]
    return f"attempt{'s' * (len(numbers) > 1)} {format_ranks(numbers)}"

"""From times to differences, and whether they are within the targets; pure.

Two answers are kept for everything. The 10th percentile is what the code costs when nothing disturbs
it; the median is what a program sees. A target is met, or missed, when both answers say so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median, quantiles

from benchmarks.cases import Case, format_size
from benchmarks.overhead.contests import ASYNC, DETAIL, MESSAGE, OFF, SMALL, UNWRAPPED
from benchmarks.overhead.measure import Samples

MOST_RECORD_S = 300e-9
MOST_CHECK_S = 1.5e-6
MOST_CHECK_SHARE = 0.02
LARGE_NBYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class Answers:
    """One quantity, twice."""

    low: float
    """10th percentile, or the difference of two of them."""
    middle: float
    """Median, or the median of the differences between neighbours in time."""


@dataclass(frozen=True, slots=True)
class Target:
    """What was wanted, and what was found."""

    what: str
    limit: float
    unit: str
    """'s', or '' for a share."""
    found: Answers

    @property
    def verdict(self) -> str:
        """'met', 'MISSED', or 'unclear' when the two answers differ."""
        fits = {self.found.low <= self.limit, self.found.middle <= self.limit}
        return "unclear" if len(fits) == 2 else "met" if True in fits else "MISSED"


def answers(times: Sequence[float]) -> Answers:
    """The 10th percentile and the median."""
    return Answers(_percentile(times, 10), median(times))


def spread(times: Sequence[float]) -> float:
    """90th percentile over 10th."""
    return _percentile(times, 90) / _percentile(times, 10)


def difference(times: Sequence[float], base: Sequence[float]) -> Answers:
    """What `times` take longer than `base`; equal places were measured next to each other."""
    pairs = [ours - theirs for ours, theirs in zip(times, base, strict=True)]
    return Answers(_percentile(times, 10) - _percentile(base, 10), median(pairs))


def judge(samples: Samples) -> list[Target]:
    """The targets of one contest of calls."""
    size = samples.contest.world_size
    targets = []
    for case in samples.contest.cases:
        times = {s.name: samples.times_s.get((case, s.name), []) for s in (UNWRAPPED, OFF, DETAIL)}
        if not all(times.values()):
            continue
        if size == 1:
            if case == SMALL:
                found = difference(times["OFF"], times["unwrapped"])
                targets.append(Target("record of an all_reduce, 8 B", MOST_RECORD_S, "s", found))
            continue
        found = difference(times["DETAIL"], times["OFF"])
        name = f"check of {place(case)}, {size} ranks"
        if case in (SMALL, ASYNC, MESSAGE) or case.kind == "barrier":
            targets.append(Target(name, MOST_CHECK_S, "s", found))
        elif case.nbytes >= LARGE_NBYTES:
            off = answers(times["OFF"])
            share = Answers(found.low / off.low, found.middle / off.middle)
            targets.append(Target(name, MOST_CHECK_SHARE, "", share))
    return targets


def place(case: Case) -> str:
    """A case in words."""
    return f"{case.kind}, {format_size(case.nbytes)}" if case.nbytes else case.kind


def _percentile(times: Sequence[float], percent: int) -> float:
    if len(times) == 1:
        return times[0]
    return quantiles(times, n=100, method="inclusive")[percent - 1]

"""Counts: what a rank did between two passes of a reducer, which all ranks most often have alike. Pure.

Ranks with different numbers of forward passes, or of batches, are legal: one of them may evaluate the model.
It is also what a rank looks like that has skipped a pass. So it is a warning, once, and part of later errors;
an error at once where the forward pass was the same call as that of the others, and was thrown away.
"""

from __future__ import annotations

from collections.abc import Sequence

from distdbg.runtime.parallel.reducer.pass_report import PassReport, UnevenPass
from distdbg.runtime.parallel.reducer.passes import find_uneven


class Counts:
    """What is counted of one reducer."""

    def __init__(self) -> None:
        #: Forward passes since the last backward pass, and how many all ranks had before it last.
        self.forwards = 0
        self.usual_forwards = 1
        #: The same of batches; 0: not known.
        self.batches = 0
        self._usual_batches = 1
        #: How many of those forward passes were thrown away, and where; set by whoever knows.
        self.thrown_away = 0
        self.thrown_site = ""
        self._usual_thrown_away = 0
        #: The first pass before which ranks had different numbers of them. No more is compared then.
        self.uneven: UnevenPass | None = None

    @property
    def is_usual(self) -> bool:
        """Whether the others have to be told of them."""
        if not self.forwards:
            return False  # all ranks must have gone forward, or none
        if self.thrown_away != self._usual_thrown_away:
            return False
        is_usual = self.forwards == self.usual_forwards and self.batches in (0, self._usual_batches)
        return is_usual or self.uneven is not None

    def end_pass(self) -> int:
        """Count anew; returns how many forward passes there were."""
        forwards, self.forwards = self.forwards, 0
        return forwards

    def learn(
        self, reports: Sequence[PassReport], ranks: Sequence[int], group: str, at: int
    ) -> str:
        """What all ranks had; `at` is this one's place. A warning, where they differ for the first time."""
        mine = reports[at]
        self.usual_forwards = mine.forwards or self.usual_forwards
        self._usual_batches = mine.batches or self._usual_batches
        self._usual_thrown_away = min(report.thrown_away for report in reports)
        if self.uneven is not None:
            return ""
        self.uneven = find_uneven(reports, ranks, group)
        return "" if self.uneven is None else self.uneven.text

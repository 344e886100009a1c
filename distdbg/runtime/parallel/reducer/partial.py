"""Partial: which gradients have come since the forward pass, where backward passes have some of them. Pure.

Of several losses each may have a backward pass of its own, by which its own part of the model gets
gradients: after the last one all must have come. What has not is owed: an error where the optimizer steps or
the model goes forward, and in the pass itself where nothing is left that could bring it.
"""

from __future__ import annotations

from collections.abc import Sequence

from distdbg.errors import DistError


class Partial:
    """The gradients that have come of one reducer's parameters, which go by their numbers."""

    def __init__(self, count: int) -> None:
        self._everyone = frozenset(range(count))
        #: Since the forward pass, on any rank.
        self._come: frozenset[int] = self._everyone
        #: Parameters without a gradient in this pass: those that may not be without one, and the other ones.
        self.missing: list[int] = []
        self.had: list[int] = []
        #: Whether a further backward pass may bring what is missing; set by whoever knows.
        self.awaits_more = False
        #: What is to come in a further pass; with the error, where none brings it.
        self.owed: list[int] = []
        self._error: DistError | None = None

    @property
    def is_odd(self) -> bool:
        """Whether the others have to be told what this rank lacks in this pass."""
        return bool(self.missing or self.had)

    def lack(self, lacking: Sequence[int], is_first: bool) -> None:
        """A pass ends without these; `is_first`: after a forward pass."""
        if is_first:
            self._come = frozenset()
        self.missing = [index for index in lacking if index not in self._come]
        self.had = [index for index in lacking if index in self._come]

    def end(self, used: Sequence[bool] | None, error: DistError | None) -> None:
        """A pass has ended in which some rank had these gradients, None: all; `error` if some are owed."""
        if used is None:
            self._come = self._everyone
        else:
            self._come |= {index for index, is_used in enumerate(used) if is_used}
        self.owed = [] if error is None else list(self.missing)
        self._error = error

    def take_error(self) -> DistError | None:
        """Return the error where something is owed, once."""
        self.owed = []
        error, self._error = self._error, None
        return error

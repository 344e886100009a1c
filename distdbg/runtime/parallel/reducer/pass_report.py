"""What one rank saw in one pass, and which passes ranks did not begin alike. Plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PassReport:
    """What one rank saw in one pass."""

    #: The number of the pass, from 1.
    number: int
    #: Forward passes since the backward pass before.
    forwards: int
    #: Batches that `dist.batches` has begun since the pass before, in the same loop; 0: not known.
    batches: int = 0
    #: The parameters without a gradient that may not be without one.
    missing: tuple[str, ...] = ()
    #: Those that had none in the first pass, with static_graph, and have one now.
    surplus: tuple[str, ...] = ()
    #: Those without one in this pass that had one in a pass before it, after the same forward pass.
    had: tuple[str, ...] = ()
    #: Whether another backward pass may bring those that are missing: the model has further outputs.
    awaits_more: bool = False
    #: How many of the forward passes were called where the one of this pass was, and then let go; and where.
    thrown_away: int = 0
    thrown_site: str = ""
    #: Why this rank has given up the pass; what was left of it is zeros.
    given_up: str = ""
    #: What the user called, and the line.
    function: str = ""
    site: str = ""


@dataclass(frozen=True, slots=True)
class UnevenPass:
    """A pass before which some ranks did more than others."""

    text: str
    #: Those that did more.
    ranks: Sequence[int]
    #: What one of them did that has left early: 'it skipped a backward pass at step 3'.
    skipped: str

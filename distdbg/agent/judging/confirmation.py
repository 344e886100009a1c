"""The last questions to all hosts before a verdict aborts the job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distdbg.agent.judging.judge import Judged


@dataclass(slots=True)
class Doubt:
    """A proof that other hosts have still to vouch for."""

    judged: Judged
    vouch: int
    until_ns: int

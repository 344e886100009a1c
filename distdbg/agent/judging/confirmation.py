"""The last questions to all hosts before a verdict aborts the job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distdbg.agent.judging.judge import JudgedVerdict


@dataclass(slots=True)
class PendingProof:
    """A proof that other hosts have still to vouch for."""

    judged: JudgedVerdict
    vouch: int
    until_ns: int

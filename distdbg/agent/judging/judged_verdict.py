"""A verdict of a running job, with what it stands on, and its words."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from distdbg.agent.judging.reports import ReportedRoot
from distdbg.diagnose.finding import Edge, Verdict
from distdbg.diagnose.session import Session


@dataclass(frozen=True, slots=True)
class JudgedVerdict:
    session: Session
    verdict: Verdict
    case: ReportedRoot | None
    lines: list[str]
    plain: dict[str, Any]
    blocked: frozenset[int]
    """The ranks that wait and can never go on."""
    waits: dict[int, tuple[Edge, ...]] = field(default_factory=dict)

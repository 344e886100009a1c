"""The root cause of a session."""

from __future__ import annotations

from distdbg.diagnose.finding import Finding
from distdbg.diagnose.verdict import diagnose
from tests.support.session_builder import SessionBuilder


def root_of(build: SessionBuilder) -> Finding:
    root = diagnose(build.session).root
    assert root is not None
    return root

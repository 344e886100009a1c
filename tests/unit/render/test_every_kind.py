"""Findings of every kind, from real sessions: each form of the verdict can show them."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from distdbg.diagnose.verdict import diagnose
from distdbg.render.html import to_html
from distdbg.render.schema import faults
from distdbg.render.short import MAX_LINES, short_lines
from distdbg.render.text import print_verdict
from distdbg.render.verdict_json import to_plain
from tests.support.planted import FAULTS, plant


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_shown_in_every_form(fault: str) -> None:
    session = plant(16, 100, fault)
    verdict = diagnose(session)
    lines = short_lines(session, verdict)
    assert lines[0] == verdict.what
    assert len(lines) <= MAX_LINES
    document = json.loads(json.dumps(to_plain(session, verdict), allow_nan=False))
    assert list(faults(document)) == []
    out = io.StringIO()
    print_verdict(Console(file=out, width=80), session, verdict)
    assert len(out.getvalue().splitlines()) < 70
    if verdict.root is not None and verdict.root.ranks:
        assert f"{verdict.root.ranks[0]}" in out.getvalue()
    print_verdict(Console(file=out, width=80), session, verdict, verbose=True)
    assert "<h1>" in to_html(session, verdict)

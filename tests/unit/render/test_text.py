"""A verdict on a terminal of 80 columns."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
import render_examples as examples
from rich.console import Console

from distdbg.diagnose.finding import Evidence, Finding, FindingKind, Severity
from distdbg.render.text import attempt_lines, print_verdict, session_line

GOLDEN = Path(__file__).parent / "golden"


def shown(session, verdict, *, verbose: bool = False, width: int = 80, **how) -> str:
    out = io.StringIO()
    print_verdict(Console(file=out, width=width, **how), session, verdict, verbose=verbose)
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())


@pytest.mark.parametrize("name", ["missing_rank", "deadlock", "healthy"])
def test_the_text_is_the_one_that_was_judged_good(name: str) -> None:
    # To accept a change: write `shown(...)` into the file, and read it.
    assert shown(*getattr(examples, name)()) == (GOLDEN / f"{name}.txt").read_text()


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("name", ["missing_rank", "deadlock", "healthy"])
def test_no_line_is_wider_than_the_terminal(name: str, width: int) -> None:
    text = shown(*getattr(examples, name)(), width=width, verbose=True)
    assert max(map(len, text.splitlines())) <= width


def test_thousands_of_ranks_fit_on_a_screen() -> None:
    assert len(shown(*examples.missing_rank(4096, 77)).splitlines()) < 40


def test_without_colours_the_words_are_the_same() -> None:
    plain = shown(*examples.deadlock())
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system="truecolor")
    print_verdict(console, *examples.deadlock())
    coloured = console.file.getvalue()
    assert "\x1b[" in coloured
    words = Console(file=io.StringIO(), width=80, force_terminal=True, no_color=True)
    print_verdict(words, *examples.deadlock())
    assert "\x1b[3" not in words.file.getvalue()
    assert "\x1b" not in plain


def test_nothing_of_a_program_is_obeyed() -> None:
    words = "\x1b[2J[red]x[/red]\r\n\u202e"
    text = shown(*examples.reported_by_a_program(words), verbose=True)
    assert all(line.isprintable() for line in text.splitlines())
    assert "[red]x[/red]" in text


def test_much_evidence_is_cut_and_verbose_shows_it() -> None:
    session, verdict = examples.missing_rank()
    facts = tuple(Evidence(text=f"fact {i}") for i in range(50))
    notes = tuple(
        Finding(kind=FindingKind.SUSPICION, severity=Severity.NOTE, what=f"note {i}")
        for i in range(50)
    )
    root = replace(verdict.root, evidence=facts)
    verdict = replace(verdict, root=root, findings=(root, *notes), lacks=("a", "b"))
    text = shown(session, verdict)
    assert "... 45 more; --verbose shows them" in text
    assert "note 49" not in text
    assert "What is missing\n  a\n  b\n" in text
    everything = shown(session, verdict, verbose=True)
    assert "fact 49" in everything
    assert "note 49" in everything
    assert "--verbose" not in everything


def test_a_session_says_what_it_is() -> None:
    session, _ = examples.missing_rank()
    session.ranks[0].host = "n02"
    session.attempt, session.attempts, session.is_live = 1, 3, True
    assert session_line(session) == (
        "run example, 4 ranks on 2 hosts, attempt 2 of 3, live: the job still runs"
    )


def test_attempts_that_failed_alike_are_one_line() -> None:
    session, verdict = examples.missing_rank()
    sessions = [replace(session, attempt=n, attempts=4) for n in range(3)]
    other = replace(verdict, root=None)
    said = attempt_lines(
        [(sessions[0], verdict), (sessions[1], other), (sessions[2], verdict)], verdict
    )
    assert [line.plain for line in said] == [
        f"attempts 1,3 of 4 (--attempt 2): {verdict.what}; the last one: the same cause",
        f"attempt 2 of 4 (--attempt 1): {other.what}",
    ]

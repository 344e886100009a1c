"""How wide a report is and where it has colours."""

from __future__ import annotations

from distdbg.launch.report_layout import lay_out, wants_colour, width_of

LINES = [
    "ranks 0-2 wait for each other: recv from rank 1, recv from rank 2, recv from rank 0, all of them",
    "rank 0 in recv at deadlock.py:5 (main)",
    "hint: " + "let one side send while the other receives " * 3,
    "run folder: /tmp/distdbg-1000/" + "x" * 90,
]


def test_a_file_gets_whole_lines() -> None:
    text = lay_out("DEADLOCK", LINES)
    assert text.splitlines() == [f"DEADLOCK: {LINES[0]}", *(f"  {line}" for line in LINES[1:])]


def test_a_terminal_of_80_columns_is_enough() -> None:
    lines = lay_out("DEADLOCK", LINES, width=80).splitlines()
    assert all(len(line) <= 80 for line in lines[:-1])
    assert lines[0].startswith("DEADLOCK: ranks 0-2")
    assert lines[1].startswith("  ")
    assert lines[-1].endswith("x" * 90)  # a path stays whole
    assert " ".join(" ".join(lines).split()) == " ".join(f"DEADLOCK: {' '.join(LINES)}".split())


def test_the_first_word_is_coloured_and_nothing_else_changes() -> None:
    text = lay_out("HUNG", ["rank 2 was asleep", "next: distdbg analyze x"], is_coloured=True)
    assert text.startswith("\x1b[1;31mHUNG\x1b[0m: rank 2")
    assert "\x1b[1mnext:\x1b[0m distdbg analyze x" in text
    assert lay_out("STOPPED", ["by Ctrl-C"], is_coloured=True).startswith("\x1b[1;33m")


def test_only_a_terminal_that_wants_it_has_colours() -> None:
    assert wants_colour(True, {"TERM": "xterm"})
    assert not wants_colour(False, {})
    assert not wants_colour(True, {"NO_COLOR": "1"})
    assert not wants_colour(True, {"TERM": "dumb"})
    assert width_of(True, 80) == 80
    assert width_of(False, 80) is None
    assert width_of(True, 0) is None

"""Where an interrupt of what was typed may be raised, and where it has to wait."""

from __future__ import annotations

import sys
from types import FrameType

from distdbg.debugger.interrupt import is_at_console
from distdbg.debugger.rank_pdb import ConsoleFile


def test_what_shows_something_is_not_broken_off_in_between_and_what_was_typed_is() -> None:
    found: list[tuple[bool, FrameType]] = []

    def look(*_: object) -> None:
        frame = sys._getframe(1)
        found.append((is_at_console(frame), frame))

    console = ConsoleFile(lambda prompt: None, look)
    names = {"look": look, "console": console}
    exec(compile("look()\nprint('begun', file=console)\n", "<stdin>", "exec"), names)
    assert [is_there for is_there, _ in found] == [False, True]
    assert found[1][1].f_code.co_name == "write"

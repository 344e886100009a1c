"""Failures of the dashboard itself: one line on the screen, the rest in a private log.

TroubleLog      the file; there is none until something is written
TroublePage     replaces a page that has failed
"""

from __future__ import annotations

import os
import tempfile
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Final

from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import Static

from distdbg.errors import format_error
from distdbg.tui.cells import one_line
from distdbg.tui.view import Page

#: What the file has room for; a page that fails ten times a second fills no disk.
_MAX_ENTRIES: Final = 100


class TroubleLog:
    """Tracebacks, for whoever mends it."""

    def __init__(self) -> None:
        self.path: Path | None = None
        self._seen: set[str] = set()

    def note(self, what: str, error: BaseException) -> str:
        """Write it down; return it as one line."""
        line = one_line(f"{what}: {format_error(error)}".split("\n")[0])
        if line not in self._seen and len(self._seen) < _MAX_ENTRIES:
            self._seen.add(line)
            text = "".join(traceback.format_exception(error))
            with suppress(OSError):  # a full disk is no reason to end
                self._append(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}\n{text}\n")
        return line

    def _append(self, text: str) -> None:
        if self.path is None:
            descriptor, name = tempfile.mkstemp(prefix="distdbg-top-", suffix=".log")
            os.close(descriptor)
            self.path = Path(name)
        with self.path.open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)


class TroublePage(Page):
    """Says that a page has failed, and that the rest goes on."""

    DEFAULT_CSS = "TroublePage Static { padding: 1 2; }"

    def __init__(self, crumb: str, line: str, log: Path | None) -> None:
        super().__init__()
        self._crumb = crumb
        self._line = line
        self._log = log

    @property
    def crumb(self) -> str:
        return self._crumb

    def compose(self) -> ComposeResult:
        text = Content.styled(self._line, "bold $text-error")
        text += Content("\n\nThis page failed, not the job; everything else keeps working.")
        text += Content("\nesc, or the key of a view, leaves it; the view is rebuilt then.")
        if self._log is not None:
            text += Content(f"\nMore is in {self._log}")
        yield Static(text, markup=False)

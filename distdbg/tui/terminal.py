"""Checks whether a terminal can show a dashboard, and whether its background is light."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from distdbg.errors import UsageError

_LIGHT: Final = frozenset(("7", "15"))


def require_terminal(is_terminal: bool, environ: Mapping[str, str]) -> None:
    """UsageError where nothing can be drawn."""
    if environ.get("TEXTUAL_DRIVER"):  # a browser, or whatever else textual draws on
        return
    hint = "`distdbg top --once` prints one frame, `distdbg ps` a table"
    if not is_terminal:
        raise UsageError("distdbg top needs a terminal for its input and output", hint=hint)
    if environ.get("TERM", "") in ("", "dumb"):
        raise UsageError(
            f"distdbg top cannot draw on a terminal of the kind TERM={environ.get('TERM', '')!r}",
            hint=hint,
        )


def theme_of(environ: Mapping[str, str]) -> str | None:
    """'textual-light' where the terminal says that it is light; None: whatever textual takes.

    Terminals say it in COLORFGBG, as '0;15'. Who has set TEXTUAL_THEME has chosen already.
    """
    if environ.get("TEXTUAL_THEME"):
        return None
    background = environ.get("COLORFGBG", "").rpartition(";")[2]
    return "textual-light" if background in _LIGHT else None

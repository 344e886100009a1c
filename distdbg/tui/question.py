"""Question: one line that waits for y or n before something happens that cannot be taken back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from textual import events
from textual.content import Content
from textual.widgets import Static

from distdbg.tui.cells import one_line


class Question(Static, can_focus=True):
    """Where the footer is; y is yes, any other key is no."""

    def __init__(self, **more: Any) -> None:
        super().__init__(markup=False, **more)
        self._then: Callable[[], None] | None = None
        self._after: Callable[[], None] | None = None

    @property
    def is_open(self) -> bool:
        return self._then is not None

    def open(self, text: str, then: Callable[[], None], after: Callable[[], None]) -> None:
        """Do `then` when the answer is yes; `after` whatever it is."""
        self._then, self._after = then, after
        self.update(
            Content.styled(f"{one_line(text)}  ", "bold $text-warning") + Content("y yes  n no")
        )
        self.add_class("is-open")
        self.focus()

    def on_key(self, event: events.Key) -> None:
        event.stop()
        event.prevent_default()
        self._close(event.key in ("y", "Y"))

    def on_blur(self) -> None:
        self._close(False)

    def _close(self, is_yes: bool) -> None:
        then, after = self._then, self._after
        self._then = self._after = None
        self.remove_class("is-open")
        if after is not None:
            after()
        if is_yes and then is not None:
            then()

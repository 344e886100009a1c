"""Line: what is typed behind `:` and `/`, with completion and a history.

    tab, right      take the completion that is shown in grey;  tab again: the next one that fits
    up, down        previous and next lines
    enter, esc      run, cancel

It knows neither commands nor filters: its owner supplies the completions. Question: y or n, before something
happens that cannot be taken back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final

from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.suggester import Suggester
from textual.widgets import Input, Static

from distdbg.tui.cells import one_line

Completer = Callable[[str], Sequence[str]]
"""For what is typed: all of the line as it could be, the most likely first."""
_MAX_KEPT: Final = 100


class Line(Input):
    """One line of text for a purpose."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "cancel", show=False),
        Binding("ctrl+c", "leave", "cancel", show=False, priority=True),
        Binding("tab", "complete(1)", "complete", show=False),
        Binding("shift+tab", "complete(-1)", "complete", show=False),
        Binding("up", "recall(-1)", "previous line", show=False),
        Binding("down", "recall(1)", "next line", show=False),
    ]

    class Done(Message):
        def __init__(self, kind: str, text: str) -> None:
            super().__init__()
            self.kind = kind
            self.text = text

    class Left(Message):
        """Escape: what was before comes back."""

        def __init__(self, kind: str, before: str) -> None:
            super().__init__()
            self.kind = kind
            self.before = before

    def __init__(self, **more: Any) -> None:
        super().__init__(compact=True, suggester=_FromLine(self), select_on_focus=False, **more)
        self.kind = ""
        """':' or '/'; '' while it is closed."""
        self._before = ""
        self._completer: Completer = _nothing
        self._histories: dict[str, list[str]] = {}
        self._at = 0
        self._stem: str | None = None
        self._choice = 0

    def open(self, kind: str, text: str, placeholder: str, completer: Completer) -> None:
        """Begin to type; the focus comes here."""
        self.kind, self._before, self._completer = kind, text, completer
        self.placeholder = placeholder
        self._at = len(self._histories.get(kind, []))
        self._stem = None
        self.value = text
        self.cursor_position = len(text)
        self.add_class("is-open")
        self.focus()

    def close(self) -> None:
        """Be no more to be seen."""
        self.kind = ""
        self.remove_class("is-open")

    def fitting(self) -> Sequence[str]:
        """What could become of what is typed."""
        return self._completer(self.value if self._stem is None else self._stem)

    def remember(self, kind: str, text: str) -> None:
        """Keep it for `up`, once."""
        history = self._histories.setdefault(kind, [])
        if text in history:
            history.remove(text)
        history.append(text)
        del history[:-_MAX_KEPT]

    async def action_submit(self) -> None:
        text = self.value.strip()
        if text:
            self.remember(self.kind, text)
        self.post_message(self.Done(self.kind, text))

    def action_leave(self) -> None:
        self.post_message(self.Left(self.kind, self._before))

    def action_complete(self, by: int) -> None:
        if self._stem is None:
            self._stem, self._choice = self.value, -1 if by > 0 else 0
        fitting = self._completer(self._stem)
        if not fitting:
            return
        self._choice = (self._choice + by) % len(fitting)
        stem = self._stem
        self._put(fitting[self._choice])
        self._stem = stem

    def action_recall(self, by: int) -> None:
        history = self._histories.get(self.kind, [])
        at = self._at + by
        if 0 <= at < len(history):
            self._at = at
            self._put(history[at])
        elif at >= len(history):
            self._at = len(history)
            self._put("")

    def _put(self, text: str) -> None:
        self.value = text
        self.cursor_position = len(text)

    def on_key(self, event: Any) -> None:
        """Any other key than tab ends the choice that tab has begun."""
        if event.key not in ("tab", "shift+tab"):
            self._stem = None


class _FromLine(Suggester):
    def __init__(self, line: Line) -> None:
        super().__init__(use_cache=False, case_sensitive=True)
        self._line = line

    async def get_suggestion(self, value: str) -> str | None:
        return next((text for text in self._line.fitting() if text.startswith(value)), None)


def _nothing(text: str) -> Sequence[str]:
    return ()


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

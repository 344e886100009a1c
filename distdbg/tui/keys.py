"""Names of keys, and which of them a page has: for the footer, the help and the documentation. Pure.

A binding says two things. Its description is one or two words, for the footer: 'zoom in'. Its tooltip is a
sentence, for the help; where there is none, the description is that too. What a footer has no room for is
left out at the end, so the most important comes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from textual.binding import Binding, BindingType

from distdbg.tui.sheet import Sheet
from distdbg.tui.table import RowTable
from distdbg.tui.view import Dashboard, Page

_NAMES: Final = {
    "colon": ":",
    "slash": "/",
    "question_mark": "?",
    "greater_than_sign": ">",
    "less_than_sign": "<",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "left_curly_bracket": "{",
    "right_curly_bracket": "}",
    "left_parenthesis": "(",
    "right_parenthesis": ")",
    "escape": "esc",
    "plus": "+",
    "minus": "-",
    "equals_sign": "=",
    "underscore": "_",
    "exclamation_mark": "!",
    "full_stop": ".",
    "comma": ",",
    "pageup": "page up",
    "pagedown": "page down",
}
_MOVING: Final = frozenset(
    ("up", "down", "left", "right", "pageup", "pagedown", "home", "end", "tab")
)
#: What a footer takes for a word; a longer description is none.
_MAX_WORD: Final = 16


#: Actions of the app that change the job.
_CHANGES: Final = frozenset(("pause", "attach"))


@dataclass(frozen=True, slots=True)
class KeyHint:
    """One key, or several that do the same."""

    name: str
    """As it is on the keyboard: 'esc', 'up  k'."""
    word: str
    """What it does, in a footer."""
    about: str
    """The same as a sentence."""
    action: str
    key: str
    """The first of them, as textual calls it."""

    @property
    def short(self) -> str:
        return self.name.split("  ")[0]

    @property
    def moves(self) -> bool:
        """Whether it only goes from one thing to the next, as everybody expects."""
        return self.key.removeprefix("shift+") in _MOVING


def key_name(key: str) -> str:
    """'escape,q' as it is on the keyboard: 'esc  q'."""
    return "  ".join(_one_name(part.strip()) for part in key.split(","))


def _one_name(key: str) -> str:
    if key.startswith("ctrl+"):
        return f"^{_one_name(key.removeprefix('ctrl+'))}"
    return _NAMES.get(key, key)


def keys_of(bindings: Iterable[BindingType]) -> list[KeyHint]:
    """All of them, in their order; a binding may be a tuple."""
    keys = []
    for binding in bindings:
        if isinstance(binding, Binding):
            key, action, word = binding.key, binding.action, binding.description
            about = binding.tooltip or word
        else:
            key, action = binding[0], binding[1]
            word = about = binding[2] if len(binding) == 3 else ""
        if len(word) > _MAX_WORD or not word:
            word = action.partition("(")[0].replace("_", " ")
        keys.append(KeyHint(key_name(key), word, about or word, action, key.split(",")[0].strip()))
    return keys


def fit(words: Sequence[tuple[str, str]], width: int, gap: int = 2) -> int:
    """How many of these pairs, 'key word', a line has room for."""
    left = width + gap
    for count, (key, word) in enumerate(words):
        left -= len(key) + 1 + len(word) + gap
        if left < 0:
            return count
    return len(words)


def is_there(app: Dashboard, key: KeyHint) -> bool:
    """Whether the help has this key of the app: what changes the job is not for who only reads."""
    name = key.action.partition("(")[0]
    return bool(app.check_action(name, ())) and not (app.is_readonly and name in _CHANGES)


def page_keys(page: Page) -> list[KeyHint]:
    """The keys of a page and of what is alone of its kind in it, but for those it may not use now."""
    keys = []
    widget = page.first_focus()
    bindings = [*page.BINDINGS]
    if not isinstance(widget, Page | RowTable | Sheet):
        bindings += widget.BINDINGS
    for key in keys_of(bindings):
        name = key.action.partition("(")[0]
        if page.check_action(name, ()) and not (page.top.is_readonly and name in page.changes):
            keys.append(replace(key, action=f"press({key.key!r})"))
    return keys

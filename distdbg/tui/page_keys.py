"""Which keys there are now: of the app for whoever only reads, and of a page."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Protocol

from distdbg.tui.keys import KeyHint, keys_of
from distdbg.tui.sheet import Sheet
from distdbg.tui.table import RowTable
from distdbg.tui.view import Dashboard, Page

#: Actions of the app that change the job.
_CHANGES: Final = frozenset(("pause", "attach"))


class KeyedApp(Dashboard, Protocol):
    """A dashboard that says which of its actions there are now."""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Whether there is this one."""
        ...


def is_there(app: KeyedApp, key: KeyHint) -> bool:
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

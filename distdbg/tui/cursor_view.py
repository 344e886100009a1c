"""CursorView: what a table and a sheet share: lines that they draw themselves, one of them under a cursor."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from rich.style import Style
from textual.binding import BindingType
from textual.scroll_view import ScrollView

from distdbg.tui.cells import Filter, Tone


class CursorView(ScrollView, can_focus=True):
    """Moves a cursor over its lines, and keeps the styles of their parts."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("up,k", "move(-1)", "up"),
        ("down,j", "move(1)", "down"),
        ("pageup", "page(-1)", "page up"),
        ("pagedown", "page(1)", "page down"),
        ("home", "top", "first"),
        ("end", "bottom", "last"),
        ("enter", "choose", "open"),
    ]
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "table--head",
        "table--cursor",
        *(f"tone--{tone}" for tone in Tone),
    }
    DEFAULT_CSS = """
    CursorView { scrollbar-size-horizontal: 0; scrollbar-size-vertical: 1; }
    CursorView > .table--head { text-style: bold; color: $foreground-muted; }
    CursorView > .table--cursor { background: $block-cursor-blurred-background; }
    CursorView:focus > .table--cursor { background: $primary-muted; }
    CursorView > .tone--plain { color: $foreground; }
    CursorView > .tone--muted { color: $foreground-muted; }
    CursorView > .tone--good { color: $text-success; }
    CursorView > .tone--warn { color: $text-warning; }
    CursorView > .tone--victim { color: $text-warning; text-style: dim; }
    CursorView > .tone--fault { color: $text-error; text-style: bold; }
    CursorView > .tone--accent { color: $text-accent; text-style: bold; }
    CursorView > .tone--title { text-style: bold; }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._all: Sequence[Any] = ()
        self.filter: Filter | None = None
        self.only_faults = False
        self.nothing = ""
        """What is said where there is no line."""
        self._said = ""
        self._at = 0
        self._styles: dict[tuple[str, Tone], Style] = {}

    def _why_nothing(self) -> str:
        if self._all and self.filter is not None:
            return f"no match for /{self.filter.text}"
        return "no faults" if self._all and self.only_faults else self.nothing

    def _style(self, part: str, tone: Tone) -> Style:
        """The style of a piece of text, kept: textual looks through all of the CSS for it."""
        style = self._styles.get((part, tone))
        if style is None:
            style = self.rich_style
            if part:
                style += self._part_style(f"table--{part}")
            if part != "head" and tone is not Tone.PLAIN:
                style += self._part_style(f"tone--{tone}")
            self._styles[part, tone] = style
        return style

    def _part_style(self, name: str) -> Style:
        """What the component class adds to the widget's own style.

        A colour that lets the background through is mixed with it: textual does so only for whole widgets.
        """
        styles = self.get_component_styles(name)
        style = styles.partial_rich_style
        if styles.has_rule("color") and 0 < styles.color.a < 1:
            mixed = self.background_colors[1] + styles.color
            style += Style.from_color(mixed.rich_color)
        return style

    def notify_style_update(self) -> None:
        self._styles.clear()
        super().notify_style_update()

    @abstractmethod
    def again(self) -> None:
        """Draw it all anew: the lines, the filter or the width have changed."""

    @abstractmethod
    def _go(self, at: int) -> None:
        """Put the cursor on a line, on the nearest one where there is none."""

    @abstractmethod
    def _count(self) -> int:
        """How many lines there are."""

    def action_move(self, by: int) -> None:
        self._go(self._at + by)

    def action_top(self) -> None:
        self._go(0)

    def action_bottom(self) -> None:
        self._go(self._count() - 1)

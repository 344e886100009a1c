"""The style of a tone or another part of a widget, from its CSS, for what draws its own lines."""

from __future__ import annotations

from rich.style import Style
from textual.widget import Widget


def part_style(widget: Widget, name: str) -> Style:
    """What the component class adds to the widget's own style.

    A colour that lets the background through is mixed with it: textual does so only for whole widgets.
    """
    styles = widget.get_component_styles(name)
    style = styles.partial_rich_style
    if styles.has_rule("color") and 0 < styles.color.a < 1:
        mixed = widget.background_colors[1] + styles.color
        style += Style.from_color(mixed.rich_color)
    return style

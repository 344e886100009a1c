"""Colours of Grafana's dark theme; thresholds; words in the place of numbers. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from zlib import crc32

from dashboards.draw.fill import Json

CANVAS: Final = "#111217"
PANEL: Final = "#181b1f"
BORDER: Final = "#2c2f36"
TEXT: Final = "#ccccdc"
WEAK: Final = "#8e8e9b"
GRID: Final = "#2a2d34"

#: Shades from dark to super-light.
_SHADES: Final = ("dark-", "semi-dark-", "", "light-", "super-light-")
_PALETTE: Final = {
    "red": ("#C4162A", "#E02F44", "#F2495C", "#FF7383", "#FFA6B0"),
    "orange": ("#FA6400", "#FF780A", "#FF9830", "#FFB357", "#FFCB7D"),
    "yellow": ("#E0B400", "#F2CC0C", "#FADE2A", "#FFEE52", "#FFF899"),
    "green": ("#37872D", "#56A64B", "#73BF69", "#96D98D", "#C8F2C2"),
    "blue": ("#1F60C4", "#3274D9", "#5794F2", "#8AB8FF", "#C0D8FF"),
    "purple": ("#8F3BB8", "#A352CC", "#B877D9", "#CA95E5", "#DEB6F2"),
}
_NAMED: Final = {
    f"{shade}{name}": color
    for name, colors in _PALETTE.items()
    for shade, color in zip(_SHADES, colors, strict=True)
} | {"text": TEXT, "transparent": "none"}
_CLASSIC: Final = (
    "#73BF69", "#F2CC0C", "#8AB8FF", "#FF780A", "#F2495C", "#5794F2", "#B877D9", "#705DA0",
    "#37872D", "#FADE2A", "#447EBC", "#C15C17", "#890F02", "#0A437C", "#6D1F62", "#584477",
    "#B7DBAB", "#F4D598", "#70DBED", "#F9BA8F", "#F29191", "#82B5D8", "#E5A8E2", "#AEA2E0",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Field:
    """How the numbers of one series or column are shown: the defaults of a panel with its overrides."""

    unit: str
    decimals: int | None
    color: Json
    steps: list[Json]
    mappings: list[Json]
    custom: Json

    def color_of(self, value: float | str | None) -> str:
        """By the words for it, else by the thresholds, which are for numbers."""
        if value is not None and (word := self._mapped(value)) and word.get("color"):
            return paint(word["color"])
        found = TEXT
        if isinstance(value, str):
            return found
        for step in self.steps:
            if step.get("value") is None or (value is not None and value >= step["value"]):
                found = paint(step["color"])
        return found

    def word_for(self, value: float | str) -> str | None:
        word = self._mapped(value)
        return word["text"] if word else None

    def _mapped(self, value: float | str) -> Json | None:
        key = value if isinstance(value, str) else f"{value:g}"
        for mapping in self.mappings:
            if mapping["type"] == "value" and key in mapping["options"]:
                found: Json = mapping["options"][key]
                return found
        return None


def field_of(panel: Json, name: str = "") -> Field:
    """With what overrides say of a series or column of this name."""
    config = panel.get("fieldConfig", {})
    defaults = config.get("defaults", {})
    found = {
        "unit": defaults.get("unit", ""),
        "decimals": defaults.get("decimals"),
        "color": defaults.get("color", {}),
        "thresholds": defaults.get("thresholds", {}),
        "mappings": defaults.get("mappings", []),
    }
    custom = dict(defaults.get("custom", {}))
    for override in config.get("overrides", ()):
        if override["matcher"] == {"id": "byName", "options": name}:
            for it in override["properties"]:
                if it["id"].startswith("custom."):
                    custom[it["id"].removeprefix("custom.")] = it["value"]
                else:
                    found[it["id"]] = it["value"]
    steps = found.pop("thresholds").get("steps") or []
    found.pop("links", None)
    return Field(steps=steps, custom=custom, **found)


def paint(name: str) -> str:
    """A colour's name, or the colour itself."""
    return _NAMED.get(name, name)


def line_colors(panel: Json, names: list[str]) -> list[str]:
    """Of the series with these names."""
    found = []
    for at, name in enumerate(names):
        color = field_of(panel, name).color
        if color.get("mode") == "fixed":
            found.append(paint(color["fixedColor"]))
        elif color.get("mode") == "palette-classic-by-name":
            found.append(_CLASSIC[crc32(name.encode()) % len(_CLASSIC)])
        else:
            found.append(_CLASSIC[at % len(_CLASSIC)])
    return found


def turbo(share: float) -> str:
    """From 0 (dark blue) over green to 1 (dark red), as the colour map of this name; by its polynomial."""
    x = min(max(share, 0.0), 1.0)
    red = 34.61 + x * (1172.33 - x * (10793.56 - x * (33300.12 - x * (38394.49 - x * 14825.05))))
    green = 23.31 + x * (557.33 + x * (1225.33 - x * (3574.96 - x * (1073.77 + x * 707.56))))
    blue = 27.2 + x * (3211.1 - x * (15327.97 - x * (27814.0 - x * (22569.18 - x * 6838.66))))
    return "#" + "".join(f"{round(min(max(it, 0), 255)):02x}" for it in (red, green, blue))

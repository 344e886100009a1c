"""A screenshot of the dashboard as SVG: self-contained, and the same for the same screen."""

from __future__ import annotations

import html
import re

_FONT = re.compile(r"\s*@font-face \{.*?\}\s*", re.DOTALL)
_ID = re.compile(r"terminal-\d+-")
_TEXT = re.compile(r'<text [^>]*?x="([\d.]+)" y="([\d.]+)"[^>]*>(.*?)</text>', re.DOTALL)


def plain_picture(svg: str) -> str:
    """What `App.export_screenshot` gives, without foreign fonts and without a number in each name."""
    text = _FONT.sub("\n", svg).replace("Fira Code", "DejaVu Sans Mono")
    return (
        "\n".join(line.rstrip() for line in _ID.sub("t-", text).splitlines() if line.strip()) + "\n"
    )


def lines_of(svg: str) -> list[str]:
    """The text of a picture, line by line, from the top; what is of one line stands in its order."""
    lines: dict[float, list[tuple[float, str]]] = {}
    for x, y, text in _TEXT.findall(svg):
        lines.setdefault(float(y), []).append((float(x), html.unescape(text).replace("\xa0", " ")))
    return [
        "".join(text for _, text in sorted(parts)).rstrip() for _, parts in sorted(lines.items())
    ]

"""Sphinx: Markdown pages, the furo theme, no network."""

from importlib import metadata

project = "distdbg"
author = "the distdbg authors"
release = metadata.version("distdbg")
extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"distdbg {release}"
# `console` blocks hold output, too, which no lexer understands as a whole.
suppress_warnings = ["misc.highlighting_failure"]

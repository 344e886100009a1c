"""The page of hints that the source of a program gives: the rows of its table, and examples."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator

from distdbg.render.source_hint import HINTS


def hints_page() -> Iterator[str]:
    """Each module of hints once, in the order in which the first of its hints is asked for."""
    modules = dict.fromkeys(rule.hint.__module__ for rule in HINTS)
    for name in modules:
        about, *examples = (inspect.getdoc(sys.modules[name]) or "").split("\n\n")
        yield f"## {name.rpartition('.')[2].capitalize()}\n"
        yield f"{about}\n"
        for hint in dict.fromkeys(rule.hint for rule in HINTS if rule.hint.__module__ == name):
            yield f"- {' '.join((inspect.getdoc(hint) or '').split())}"
        yield "\n```text"
        yield from (f"hint: {one}" for one in examples)
        yield "```\n"

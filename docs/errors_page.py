"""The page of errors: the tree, then one section per class."""

from __future__ import annotations

import inspect
from typing import get_args, get_type_hints

from distdbg import errors


def error_classes() -> list[type[errors.DistError]]:
    """In the order of the source, which is the order of the tree."""
    return [
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, errors.DistError)
    ]


def keywords_of(cls: type[errors.DistError]) -> list[str]:
    """What it is made with, its own first; those that it hands on are in a TypedDict."""
    parameters = inspect.signature(cls).parameters.values()
    names = [one.name for one in parameters if one.kind is inspect.Parameter.KEYWORD_ONLY]
    for one in parameters:
        if one.kind is inspect.Parameter.VAR_KEYWORD:
            (more,) = get_args(get_type_hints(cls.__init__)[one.name])
            names += get_type_hints(more)
    return sorted(names, key=get_type_hints(errors.ErrorText).__contains__)


def error_sections() -> str:
    """The tree, then one section per class."""
    tree = inspect.getdoc(errors) or ""
    tree = tree[tree.index("DistError(") : tree.index("\n\n", tree.index("DistError("))]
    lines = [
        "# Errors",
        "",
        "The type says who has to act. The first line of the text stands alone in a log;",
        "indented details follow, and at most one hint. The facts are attributes, so a program",
        "need not read the text. Every error pickles.",
        "",
        "```text",
        inspect.cleandoc("    " + tree),
        "```",
        "",
    ]
    for cls in error_classes():
        lines += [f"## {cls.__name__}", "", inspect.getdoc(cls) or "", ""]
        bases = ", ".join(f"`{base.__name__}`" for base in cls.__bases__)
        lines += [f"Is a {bases}; its `exit_code` is {cls.exit_code}.", ""]
        facts = ", ".join(f"`{name}`" for name in keywords_of(cls))
        lines += [f"Attributes: `what` (the first line), {facts}.", ""]
    return "\n".join(lines).rstrip() + "\n"

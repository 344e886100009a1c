"""Writes the table of promises into the page about parity: read from the tests in tests/parity."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "tests" / "parity"
PAGE = ROOT / "docs" / "reference" / "parity.md"
BEGIN = "<!-- Promises: made by docs/generate.py from tests/parity; edit that, then run `make docs`. -->"
END = "<!-- End of the promises. -->"

#: The files, in the order of torch's page, and what they are about.
SECTIONS = {
    "initialization": "Initialization",
    "queries": "After initialization",
    "shutdown": "Shutdown",
    "groups": "Groups",
    "mesh": "Device meshes",
    "point_to_point": "Point to point",
    "work": "Synchronous and asynchronous ops",
    "collectives": "Collectives",
    "blocks": "Collectives of blocks",
    "reduce_ops": "Reductions",
    "objects": "Objects",
    "stores": "Stores",
    "store_kinds": "Kinds of stores",
    "backends": "Backends",
    "launch": "Launch and spawn",
    "debugging": "Debugging",
    "errors": "Exceptions",
}


class Row(NamedTuple):
    """One promise."""

    words: str
    here: str
    note: str
    test: str


def rows(section: str) -> list[Row]:
    """The promises of one file, in its order."""
    path = FOLDER / f"test_{section}.py"
    found = []
    for node in ast.parse(path.read_text()).body:
        for call in getattr(node, "decorator_list", ()):
            if not (isinstance(call, ast.Call) and getattr(call.func, "id", "") == "promise"):
                continue
            given = {name: ast.literal_eval(value) for name, value in _arguments(call)}
            test = f"tests/parity/{path.name}::{node.name}"
            found.append(
                Row(given["words"], given.get("here", "as torch"), given.get("note", ""), test)
            )
    return found


def _arguments(call: ast.Call) -> list[tuple[str, ast.expr]]:
    named = [(keyword.arg or "", keyword.value) for keyword in call.keywords]
    return list(zip(("words", "here", "note"), call.args, strict=False)) + named


def table() -> str:
    """What stands between the two marks."""
    every = {title: rows(section) for section, title in SECTIONS.items()}
    counts: dict[str, int] = {}
    for row in (row for found in every.values() for row in found):
        counts[row.here] = counts.get(row.here, 0) + 1
    total = sum(counts.values())
    lines = [f"{total} promises: {', '.join(f'{n} {here}' for here, n in counts.items())}.", ""]
    for title, found in every.items():
        lines += [f"### {title}", "", "| promise | here | test |", "|---|---|---|"]
        for row in found:
            here = f"{row.here}: {row.note}" if row.note else row.here
            lines.append(f"| {row.words} | {here} | `{row.test}` |")
        lines.append("")
    return "\n".join(lines)


def parity_page() -> str:
    """The page as it is, with the table as the tests are."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{table()}\n{END}{after}"

"""A calm table: on a terminal with rich, elsewhere plain columns that other programs can cut."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from distdbg.record.printable import printable


def print_table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print to stdout; columns in which nothing stands are left out."""
    cells = [[printable(cell) for cell in row] for row in rows]
    named = 0 if heads[0] else 1  # the first column that has a name stays
    used = [i for i in range(len(heads)) if i == named or any(row[i] for row in cells)]
    heads = [heads[i] for i in used]
    cells = [[row[i] for i in used] for row in cells]
    if sys.stdout.isatty():
        _print_rich(printable(title), heads, cells)
        return
    sys.stdout.write(printable(title) + "\n")
    widths = [max(len(head), *(len(row[i]) for row in cells), 0) for i, head in enumerate(heads)]
    for row in [list(heads), *cells]:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        sys.stdout.write(f"  {line.rstrip()}\n")


def _print_rich(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for head in heads:
        table.add_column(head, no_wrap=head in ("rank", "host", "pid", "state", "for"))
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console = Console(highlight=False)
    console.print(Text(title, style="bold"))
    console.print(table)

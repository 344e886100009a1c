"""Writes the page of the columns of `distdbg export --to csv` and `--to parquet`."""

from __future__ import annotations

from distdbg.export.tables import csv, parquet
from distdbg.export.tables.columns import COLUMNS, ColumnUnit

#: What a value is in CSV and in Parquet.
_FORMS = {
    ColumnUnit.TEXT: ("text", "string"),
    ColumnUnit.INTEGER: ("integer", "int64"),
    ColumnUnit.NUMBER: ("number", "double"),
    ColumnUnit.FLAG: ("`true`, `false`", "boolean"),
    ColumnUnit.TIME: ("ISO 8601, UTC, nine digits", "timestamp in ns, UTC"),
    ColumnUnit.LENGTH: ("seconds, nine digits", "duration in ns"),
}


def tables_page() -> str:
    """The page."""
    lines = [
        "# Columns of a run as a table",
        "",
        "`distdbg export --to csv` and `--to parquet` write one table: a row for each op of each rank, then",
        "its marks and `span()` blocks, and behind the ranks of a start what `distdbg analyze` says of it.",
        "`type` tells them apart. Rows come start by start, rank by rank, ops in the order in which the rank",
        "called them. All times are on one clock: wall time of the first host.",
        "",
        "What is not known, or is not there for such a row, is empty in CSV and null in Parquet.",
        "",
        "| column | CSV | Parquet | what it is |",
        "|---|---|---|---|",
    ]
    for column in COLUMNS:
        text, typed = _FORMS[column.unit]
        if column.name in parquet.NARROW:
            typed = "int32"
        names = dict.fromkeys((csv.name_of(column), parquet.name_of(column)))
        lines.append(
            f"| {', '.join(f'`{name}`' for name in names)} | {text} | {typed} | {column.about} |"
        )
    lines += [
        "",
        "The columns with lengths of time say their unit, so their names differ: `wait_s` in CSV,",
        "`wait_ns` in Parquet. Parquet itself has no type for them: pandas and polars, which read what Arrow",
        "has written beside it, show a duration; DuckDB shows the number. Spark reads times in ns as numbers",
        "too, and only with `spark.sql.legacy.parquet.nanosAsLong`.",
        "",
        "## CSV",
        "",
        "RFC 4180: commas, quotes where they are needed, lines that end with CR and LF, a first line of",
        "names; UTF-8 without a mark. A time is text, because a count of nanoseconds loses its last",
        "digits in a spreadsheet, and a length of time has all nine digits. A spreadsheet runs a cell that",
        "begins with `=`, `+`, `-` or `@`, and a run may come from anybody: text that begins so gets `'`",
        "before it. Numbers do not. Characters that a terminal obeys are written as `\\x1b`.",
        "",
        "## Parquet",
        "",
        "Needs the extra `parquet`. Compressed with Zstandard. Text is plain text, with a dictionary inside",
        "the file. A row group holds whole ranks, or a part of a large one, so that a question about",
        "some ranks reads those alone. The metadata of the file have, under `distdbg`, JSON about the",
        "run: its starts, hosts and groups, who wrote it, and `lacks`: what could not be read. The",
        "metadata of each field have what the last column above says.",
        "",
    ]
    return "\n".join(lines)

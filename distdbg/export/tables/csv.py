r"""A run as text: commas, CRLF and quotes by RFC 4180, a head of names, UTF-8.

    run,attempt,rank,host,type,number,group,..,issued,..,wait_s,..
    0412,0,3,n14,op,17,world,..,2026-11-20T12:00:00.123456789Z,..,0.000012345,..

A time is ISO 8601 with nine digits: a count of nanoseconds loses its last digits in whatever reads numbers as
doubles, spreadsheets first. A length of time is decimal seconds, for the same reason, and its column is
called so. What is not there is empty.

Such a file is also opened by a double click, and a spreadsheet runs what begins with `=`, `+`, `-` or `@`.
Paths, names of groups and words of errors may come from anybody's run, so text that begins so, or with a
tab, gets `'` before it; numbers do not. What a terminal might obey is escaped. Parquet has the words as they
are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, BinaryIO, Final

from distdbg.export.findings import find_findings
from distdbg.export.reading import OpenedRun
from distdbg.export.tables.columns import ABSENT, COLUMNS, ColumnUnit, ExportColumn, Rank, Value
from distdbg.export.tables.rank_columns import Distinct, RowBatch, finding_part, parts
from distdbg.record.printable import printable

if TYPE_CHECKING:
    from distdbg.export.tables.columns import Numbers

_END: Final = "\r\n"
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n")
_SECOND: Final = 10**9


def write(run: OpenedRun, output: BinaryIO) -> None:
    """Write the head, then the rows as they are read."""
    output.write((",".join(map(name_of, COLUMNS)) + _END).encode())
    for start in run.starts:
        for log in start.read():
            rank = Rank(run.name, start.session, log)
            output.writelines(map(_to_bytes, parts(rank)))
        if findings := find_findings(start):
            output.write(_to_bytes(finding_part(run.name, start.session, findings)))


def name_of(column: ExportColumn) -> str:
    """As the head has it."""
    return f"{column.name}_s" if column.unit is ColumnUnit.LENGTH else column.name


def _to_bytes(part: RowBatch) -> bytes:
    columns = [_cells(column, part.columns[column.name]) for column in COLUMNS]
    text = _END.join(map(",".join, zip(*columns, strict=True))) + _END
    return text.encode("utf-8", "backslashreplace")


def _cells(column: ExportColumn, values: Distinct | Numbers) -> Iterable[str]:
    if isinstance(values, Distinct):
        words = [to_cell(word) for word in values.words]
        return map(words.__getitem__, values.codes.tolist())
    return _FORMATS[column.unit](values.tolist())


def to_cell(value: Value) -> str:
    """One value that is no time."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        return repr(value)
    if value.startswith(_FORMULA):
        value = "'" + value
    text = printable(value)
    if '"' in text or "," in text:
        return '"' + text.replace('"', '""') + '"'
    return text


def _integers(values: Sequence[int]) -> Iterable[str]:
    return ["" if value == ABSENT else str(value) for value in values]


def _lengths(values: Sequence[int]) -> Iterable[str]:
    return [
        ""
        if ns == ABSENT
        else f"{ns // _SECOND}.{ns % _SECOND:09d}"
        if ns >= 0
        else f"-{-ns // _SECOND}.{-ns % _SECOND:09d}"
        for ns in values
    ]


def _times(values: Sequence[int]) -> Iterable[str]:
    seconds: dict[int, str] = {}
    return ["" if ns == ABSENT else to_time(ns, seconds) for ns in values]


def to_time(ns: int, seconds: dict[int, str]) -> str:
    """'2026-11-20T12:00:00.123456789Z'; `seconds` keeps what was worked out before."""
    second, rest = divmod(ns, _SECOND)
    text = seconds.get(second)
    if text is None:
        try:
            text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        except (OverflowError, ValueError, OSError):  # a damaged word
            text = "0001-01-01T00:00:00"
        seconds[second] = text
    return f"{text}.{rest:09d}Z"


_FORMATS: Final[dict[ColumnUnit, Callable[[Sequence[int]], Iterable[str]]]] = {
    ColumnUnit.INTEGER: _integers,
    ColumnUnit.LENGTH: _lengths,
    ColumnUnit.TIME: _times,
}

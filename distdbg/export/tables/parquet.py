"""A run as Apache Parquet, by pyarrow: one table, sorted by start and rank.

    import pandas; pandas.read_parquet("0412.parquet").query("status != 'ok'")
    duckdb -c "SELECT kind, avg(wait_ns) FROM '0412.parquet' GROUP BY kind"

A time is a timestamp in ns, UTC. A length of time is a duration in ns; Parquet itself has no such type, so
what is no Arrow shows the number, and the column says its unit: `wait_ns`. Text is plain text with a
dictionary inside the file, not a type of its own: whoever groups by two categories gets all their
combinations from pandas. A row group holds whole ranks, or a part of a large one, so that a question about
some ranks reads those alone. What is known of the run is in the metadata of the file, under `distdbg`, as
JSON; what is known of a column, in that of its field.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import distdbg
from distdbg.errors import UsageError
from distdbg.export.findings import find_findings
from distdbg.export.reading import OpenedRun
from distdbg.export.tables.columns import ABSENT, COLUMNS, ColumnUnit, ExportColumn, Rank, Value
from distdbg.export.tables.rank_columns import Distinct, RowBatch, finding_part, parts

if TYPE_CHECKING:
    from distdbg.export.tables.columns import Numbers

#: Small ranks share a row group: a file with a thousand of them is slow to open.
_GROUP_ROWS: Final = 1 << 16
_KEY: Final = b"distdbg"
NARROW: Final = frozenset(("attempt", "rank", "group_size"))
_MAX: Final = 2**63 - 1


def check() -> None:
    """UsageError without the library."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError as error:
        raise UsageError(
            f"--to parquet needs pyarrow: {error}", hint='pip install "distdbg[parquet]"'
        ) from error


def write(run: OpenedRun, output: BinaryIO) -> None:
    """Write row group after row group as ranks are read."""
    check()
    import pyarrow.parquet as pq

    schema = make_schema()
    with pq.ParquetWriter(output, schema, compression="zstd") as writer:
        group: list[Any] = []
        facts: list[dict[str, Any]] = []
        for start in run.starts:
            session = start.session
            hosts: dict[str, None] = {}
            for log in start.read():
                hosts[log.host] = None
                for part in parts(Rank(run.name, session, log)):
                    if sum(batch.num_rows for batch in group) + part.count > _GROUP_ROWS:
                        _flush(writer, group)
                    group.append(_to_batch(part, schema))
            if findings := find_findings(start):
                group.append(_to_batch(finding_part(run.name, session, findings), schema))
            facts.append(
                {
                    "attempt": start.number,
                    "format": session.format,
                    "world_size": session.world_size,
                    "hosts": [host for host in hosts if host],
                    "groups": {g.label: list(g.ranks) for g in session.groups},
                    "is_live": session.is_live,
                }
            )
        _flush(writer, group)
        about = {
            "run": run.name,
            "source": run.source,
            "written_by": f"distdbg {distdbg.__version__}",
            "starts": facts,
            "lacks": run.lacks(),
        }
        writer.add_key_value_metadata({_KEY: json.dumps(about).encode()})


def name_of(column: ExportColumn) -> str:
    """As the file has it."""
    return f"{column.name}_ns" if column.unit is ColumnUnit.LENGTH else column.name


def make_schema() -> Any:
    """Names, types and words about each column."""
    import pyarrow as pa

    return pa.schema(
        [
            pa.field(name_of(column), _type(column), metadata={b"about": column.about.encode()})
            for column in COLUMNS
        ]
    )


def _type(column: ExportColumn) -> Any:
    import pyarrow as pa

    match column.unit:
        case ColumnUnit.TEXT:
            return pa.string()
        case ColumnUnit.INTEGER:
            return pa.int32() if column.name in NARROW else pa.int64()
        case ColumnUnit.NUMBER:
            return pa.float64()
        case ColumnUnit.FLAG:
            return pa.bool_()
        case ColumnUnit.TIME:
            return pa.timestamp("ns", tz="UTC")
        case ColumnUnit.LENGTH:
            return pa.duration("ns")


def _to_batch(part: RowBatch, schema: Any) -> Any:
    import pyarrow as pa

    arrays = [
        _to_array(part.columns[column.name], field.type)
        for column, field in zip(COLUMNS, schema, strict=True)
    ]
    return pa.record_batch(arrays, schema=schema)


def _to_array(values: Distinct | Numbers, kind: Any) -> Any:
    import pyarrow as pa

    if isinstance(values, Distinct):
        words = [_clean(word) for word in values.words]
        return pa.array(words, kind).take(pa.array(values.codes))
    return pa.array(values, pa.int64(), mask=values == ABSENT).cast(kind)


def _clean(word: Value) -> Value:
    """Names of files may be no UTF-8, and numbers of damaged forms of any size."""
    if isinstance(word, str) and not word.isascii():
        return word.encode("utf-8", "backslashreplace").decode()
    if isinstance(word, int) and not -_MAX <= word <= _MAX:
        return None
    return word


def _flush(writer: Any, group: list[Any]) -> None:
    import pyarrow as pa

    if group:
        table = pa.Table.from_batches(group)
        writer.write_table(table, row_group_size=table.num_rows)
        group.clear()

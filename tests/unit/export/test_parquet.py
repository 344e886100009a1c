"""A run as Parquet, read back by pyarrow."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from distdbg.cli.export import main
from distdbg.errors import UsageError
from distdbg.export.reading import OpenedRun
from distdbg.export.tables.columns import COLUMNS
from distdbg.export.tables.parquet import write
from distdbg.record.format import Status
from distdbg.record.forms import write_form
from tests.unit.export.made_run import WALL_NS, MadeRun, every_kind

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


def file_of(run: OpenedRun) -> Any:
    output = io.BytesIO()
    write(run, output)
    return pq.ParquetFile(io.BytesIO(output.getvalue()))


def columns_of(run: OpenedRun, *names: str) -> list[tuple[Any, ...]]:
    """Times and lengths as their nanoseconds."""
    table = file_of(run).read()
    table = table.filter(pa.compute.equal(table["type"], "op"))
    columns = []
    for name in names:
        column = table[name]
        if not pa.types.is_string(column.type) and pa.types.is_temporal(column.type):
            column = column.cast(pa.int64())
        columns.append(column.to_pylist())
    return list(zip(*columns, strict=True))


def test_types_are_those_that_readers_expect(tmp_path: Path) -> None:
    schema = file_of(MadeRun(1).open(tmp_path)).schema_arrow
    assert schema.field("issued").type == pa.timestamp("ns", tz="UTC")
    assert schema.field("wait_ns").type == pa.duration("ns")
    assert schema.field("rank").type == pa.int32()
    assert schema.field("nbytes").type == pa.int64()
    assert schema.field("is_async").type == pa.bool_()
    assert schema.field("kind").type == pa.string()
    assert schema.field("value").type == pa.float64()
    assert all(field.metadata[b"about"] for field in schema)
    assert len(schema) == len(COLUMNS)


def test_text_has_a_dictionary_in_the_file(tmp_path: Path) -> None:
    file = file_of(every_kind().open(tmp_path))
    places = {field.name: at for at, field in enumerate(file.schema_arrow)}
    for name in ("run", "host", "group", "kind", "dtype", "site", "status"):
        chunk = file.metadata.row_group(0).column(places[name])
        assert "RLE_DICTIONARY" in chunk.encodings, name


def test_values_come_back_as_they_were(tmp_path: Path) -> None:
    run = MadeRun(2)
    run.op(1, "all_reduce", op="SUM")
    run.op(1, "broadcast", root=1, has_ended=False)
    run.op(1, "barrier", has_ended=False, status=Status.TIMEOUT, error="it said so")
    names = (
        "rank", "kind", "op", "root", "nbytes", "status", "error", "issued", "wait_ns", "transfer_ns",
    )  # fmt: skip
    assert columns_of(run.open(tmp_path), *names) == [
        (1, "all_reduce", "sum", None, 16, "ok", None, WALL_NS + 10_000, 1_000, 1_000),
        (1, "broadcast", None, 1, 16, "in_flight", None, WALL_NS + 20_000, None, None),
        (1, "barrier", None, None, 0, "timeout", "it said so", WALL_NS + 30_000, None, None),
    ]


def test_words_that_begin_a_formula_are_left_as_they_are(tmp_path: Path) -> None:
    run = MadeRun(1)
    run.op(0, "barrier", site=[("=x.py", 1, "f")])
    assert columns_of(run.open(tmp_path), "site") == [("=x.py:1 (f)",)]


def test_marks_are_rows_with_their_number(tmp_path: Path) -> None:
    run = MadeRun(1)
    run.builds[0].mark("loss", 0.5, at_ns=1)
    table = file_of(run.open(tmp_path)).read(["type", "name", "value", "rank"]).to_pylist()
    assert table == [{"type": "mark", "name": "loss", "value": 0.5, "rank": 0}]


def test_facts_of_the_run_are_in_the_metadata(tmp_path: Path) -> None:
    run = MadeRun(3)
    run.group("pair", (0, 2))
    facts = json.loads(file_of(run.open(tmp_path)).metadata.metadata[b"distdbg"])
    assert facts["run"] == "made"
    assert facts["starts"][0]["groups"] == {"world": [0, 1, 2], "pair": [0, 2]}
    assert facts["starts"][0]["world_size"] == 3
    assert facts["lacks"] == []


def test_a_row_group_holds_whole_ranks_or_a_part_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("distdbg.export.tables.parquet._GROUP_ROWS", 10)
    monkeypatch.setattr("distdbg.export.tables.rank_columns._MAX_ROWS", 8)
    run = MadeRun(4)
    for rank, count in enumerate((4, 5, 20, 1)):
        for _ in range(count):
            run.op(rank, "barrier")
    file = file_of(run.open(tmp_path))
    sizes = [file.metadata.row_group(at).num_rows for at in range(file.num_row_groups)]
    ranks = [set(file.read_row_group(at, ["rank"])["rank"].to_pylist()) for at in range(len(sizes))]
    assert sum(sizes) >= 30
    assert ranks[0] == {0, 1}
    assert {2} in ranks


def test_numbers_that_no_column_holds_are_absent(tmp_path: Path) -> None:
    run = MadeRun(1)
    build = run.builds[0]
    form = build.add_form(
        write_form(name="x\udc80", kind="broadcast", root=2**70, nbytes=2**70, inputs=[(4,)])
    )
    build.end(build.write_event(1, issued_ns=5, seq=1, group=1, form=form), after_ns=1)
    assert columns_of(run.open(tmp_path), "root", "name") == [(None, "x\\udc80")]


def test_an_empty_run_is_a_table_without_rows(tmp_path: Path) -> None:
    assert file_of(MadeRun(2).open(tmp_path)).metadata.num_rows == 0


def test_without_pyarrow_one_error_names_the_extra_before_anything_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    (tmp_path / "run").mkdir()  # with nothing in it, which nobody sees
    with pytest.raises(UsageError) as raised:
        main([str(tmp_path / "run"), "--to", "parquet", "-o", str(tmp_path / "out.parquet")])
    assert "needs pyarrow" in str(raised.value)
    assert 'pip install "distdbg[parquet]"' in str(raised.value)
    assert list(tmp_path.iterdir()) == [tmp_path / "run"]

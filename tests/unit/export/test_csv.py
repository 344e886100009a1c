"""A run as CSV: what is in each cell, and who can read it."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest

from distdbg.export.reading import OpenedRun, RunSelection, open_run
from distdbg.export.tables.columns import COLUMNS, to_json
from distdbg.export.tables.csv import name_of, to_cell, to_time, write
from distdbg.record.ends import RankEnd, write_end
from distdbg.record.folders import record_name
from distdbg.record.format import OP, Section, Status
from distdbg.record.forms import Listing
from tests.unit.export.made_run import WALL_NS, MadeRun, every_kind


def text_of(run: OpenedRun) -> str:
    output = io.BytesIO()
    write(run, output)
    return output.getvalue().decode()


def rows_of(run: OpenedRun) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text_of(run), newline=""), strict=True))


def ops_of(run: OpenedRun) -> list[dict[str, str]]:
    return [row for row in rows_of(run) if row["type"] == "op"]


# ------------------------------------------------------------------------------------- the cells


def test_a_row_says_all_of_an_op(tmp_path: Path) -> None:
    run = MadeRun(2)
    run.op(1, "all_reduce", op="SUM", comm="grads")
    (row,) = ops_of(run.open(tmp_path))
    assert row == {
        "run": "made",
        "attempt": "0",
        "rank": "1",
        "host": "n00",
        "type": "op",
        "number": "1",
        "group": "world",
        "group_size": "2",
        "seq": "1",
        "kind": "all_reduce",
        "name": "all_reduce",
        "dtype": "float32",
        "op": "sum",
        "root": "",
        "inputs": "[[4]]",
        "outputs": "[[4]]",
        "nbytes": "16",
        "peer": "",
        "tag": "",
        "is_async": "false",
        "status": "ok",
        "error": "",
        "issued": "2026-09-21T14:13:20.000010000Z",
        "started": "2026-09-21T14:13:20.000011000Z",
        "ended": "2026-09-21T14:13:20.000012000Z",
        "duration_s": "0.000002000",
        "wait_s": "0.000001000",
        "transfer_s": "0.000001000",
        "site": "/job/train.py:88 (step)",
        "thread": "1",
        "comm": "grads",
        "value": "",
    }


def test_every_row_has_every_column_and_lines_end_as_the_rfc_says(tmp_path: Path) -> None:
    text = text_of(every_kind().open(tmp_path))
    lines = text.split("\r\n")
    assert lines[0] == ",".join(name_of(column) for column in COLUMNS)
    assert lines[-1] == ""
    rows = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    assert {len(row) for row in rows} == {len(COLUMNS)}
    assert "\n" not in text.replace("\r\n", "")


def test_an_op_that_never_ended_has_no_end(tmp_path: Path) -> None:
    run = MadeRun(1)
    run.op(0, "barrier", has_ended=False)
    (row,) = ops_of(run.open(tmp_path))
    assert (row["status"], row["ended"], row["duration_s"], row["wait_s"]) == (
        "in_flight", "", "", "",
    )  # fmt: skip


def test_an_op_that_failed_says_how_and_with_what(tmp_path: Path) -> None:
    run = MadeRun(1)
    words = '{"type": "OpTimeout", "what": "barrier #1 waited, \\"long\\""}'
    run.op(0, "barrier", has_ended=False, status=Status.TIMEOUT, error=words)
    (row,) = ops_of(run.open(tmp_path))
    assert (row["status"], row["error"]) == ("timeout", 'barrier #1 waited, "long"')


def test_messages_name_their_peer_and_tag(tmp_path: Path) -> None:
    run = MadeRun(3)
    run.group("odd", (2, 1))
    run.send(2, 1, group="odd", tag=7)
    run.message("recv", 0, None, source=2)
    run.message("recv", 0, None, has_ended=False)
    found = {
        (row["rank"], row["kind"], row["peer"], row["tag"]) for row in ops_of(run.open(tmp_path))
    }
    assert found == {
        ("2", "send", "1", "7"),
        ("1", "recv", "2", "7"),
        ("0", "recv", "2", "0"),
        ("0", "recv", "", "0"),
    }


def test_marks_and_spans_are_rows(tmp_path: Path) -> None:
    run = MadeRun(1)
    build = run.builds[0]
    build.mark("loss", 0.25, at_ns=5)
    build.mark("epoch", at_ns=6)
    begin = build.begin_span("forward", at_ns=7)
    build.end_span(begin, at_ns=9)
    build.begin_span("backward", at_ns=10)
    rows = rows_of(run.open(tmp_path))
    assert [
        (row["type"], row["name"], row["value"], row["duration_s"], row["ended"] != "", row["rank"])
        for row in rows
    ] == [
        ("mark", "loss", "0.25", "", False, "0"),
        ("mark", "epoch", "", "", False, "0"),
        ("span", "forward", "", "0.000000002", True, "0"),
        ("span", "backward", "", "", False, "0"),
    ]


def test_what_the_diagnosis_finds_is_a_row(tmp_path: Path) -> None:
    run = MadeRun(3)
    for rank in range(3):
        dtype = "int32" if rank == 2 else "float32"
        run.op(rank, "all_reduce", has_ended=False, fingerprint=1 + (rank == 2), dtype=dtype)
    rows = [row for row in rows_of(run.open(tmp_path)) if row["type"] == "finding"]
    first = rows[0]
    assert (first["rank"], first["name"], first["status"]) == ("2", "mismatch", "error")
    assert (first["group"], first["seq"]) == ("world", "1")
    assert first["error"].startswith("all_reduce #1")


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        (None, ""),
        (True, "true"),
        (-5, "-5"),
        (0.5, "0.5"),
        ("plain", "plain"),
        ("a,b", '"a,b"'),
        ('say "x"', '"say ""x"""'),
        ("=1+1", "'=1+1"),
        ("+x", "'+x"),
        ("-x", "'-x"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ('=HYPERLINK("x","y")', '"\'=HYPERLINK(""x"",""y"")"'),
        ("\tx", "'\\tx"),
        ("two\nlines", "two\\nlines"),
        ("\x1b[2J", "\\x1b[2J"),
    ],
)
def test_text_is_quoted_and_starts_no_formula(value: Any, cell: str) -> None:
    assert to_cell(value) == cell


def test_times_are_iso_also_before_1970_and_after_the_end_of_the_calendar() -> None:
    assert to_time(WALL_NS + 123_456_789, {}) == "2026-09-21T14:13:20.123456789Z"
    assert to_time(-1, {}) == "1969-12-31T23:59:59.999999999Z"
    assert to_time(2**63 - 1, {}).startswith("2262-")


def test_a_list_of_shapes_that_was_cut_says_how_many_follow() -> None:
    assert to_json(Listing(((4,), (2, 3)), 2)) == "[[4],[2,3]]"
    assert to_json(Listing(((4,),), 500, "hash")) == '[[4],"and 499 more"]'
    assert to_json(Listing()) is None


# ------------------------------------------------------------------------------------- the runs


def test_a_run_without_ops_is_a_head_alone(tmp_path: Path) -> None:
    assert rows_of(MadeRun(2).open(tmp_path)) == []


def test_ranks_that_left_no_record_have_no_ops(tmp_path: Path) -> None:
    run = MadeRun(2)
    run.op(0, "barrier")
    run.save(tmp_path, ranks=[0])
    end = RankEnd(rank=1, pid=7, host="n00", cause="signal", signal=9, ended_ns=5, wall_ns=WALL_NS)
    write_end(tmp_path, end)
    rows = rows_of(open_run([tmp_path]))
    assert [row["rank"] for row in rows if row["type"] == "op"] == ["0"]


def test_an_op_of_a_kind_that_nobody_knows_is_a_row(tmp_path: Path) -> None:
    run = MadeRun(1)
    number = run.builds[0].write_event(1, issued_ns=5, seq=1, group=1, kind=77)
    run.builds[0].end(number, after_ns=5)
    (row,) = ops_of(run.open(tmp_path))
    assert (row["kind"], row["name"], row["dtype"], row["nbytes"]) == ("an op", "an op", "", "")


def test_what_is_damaged_is_empty_and_the_rest_is_there(tmp_path: Path) -> None:
    run = MadeRun(1)
    for _ in range(3):
        run.op(0, "all_reduce")
    folder = run.save(tmp_path)
    path = folder / record_name(0)
    data = bytearray(path.read_bytes())
    data[run.builds[0].offset_of(Section.RING, 1) + OP["ended"].offset + 3] ^= 0x40
    data[run.builds[0].offset_of(Section.RING, 2) + OP["seq"].offset] ^= 1
    path.write_bytes(bytes(data))
    opened = open_run([folder])
    rows = ops_of(opened)
    assert [(row["number"], row["ended"] == "", row["status"]) for row in rows] == [
        ("1", True, "ok"),
        ("3", False, "ok"),
    ]
    assert any("damaged" in lack for lack in opened.lacks())


def test_a_ring_that_came_round_says_how_much_is_gone(tmp_path: Path) -> None:
    run = MadeRun(1, ring_count=8)
    for _ in range(20):
        run.op(0, "barrier")
    opened = run.open(tmp_path)
    assert [row["number"] for row in ops_of(opened)] == [str(n) for n in range(13, 21)]
    assert opened.counted.lost["ops"] == 12


def test_starts_are_told_apart(tmp_path: Path) -> None:
    for attempt in range(2):
        run = MadeRun(1)
        run.op(0, "barrier")
        run.save(tmp_path / f"attempt_{attempt}")
    assert [row["attempt"] for row in ops_of(open_run([tmp_path]))] == ["0", "1"]


def test_ranks_can_be_chosen(tmp_path: Path) -> None:
    opened = every_kind().open(tmp_path, RunSelection(ranks=frozenset({2})))
    assert {row["rank"] for row in ops_of(opened)} == {"2"}


def test_parts_follow_each_other_without_a_seam(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = every_kind()
    whole = text_of(run.open(tmp_path))
    monkeypatch.setattr("distdbg.export.tables.rank_columns._MAX_ROWS", 3)
    assert text_of(run.open(tmp_path)) == whole

"""`distdbg query` and `distdbg diff` by their command lines: what is printed where, and the exit code."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from distdbg.cli.main import main
from distdbg.record.folders import record_name
from tests.support.record_builder import RecordBuilder

Capture = pytest.CaptureFixture[str]


def save_run(folder: Path, *, took_ns: int = 1_000_000, ranks: int = 2, run: str = "one") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for rank in range(ranks):
        build = RecordBuilder(
            rank=rank, world_size=2, run=run, boot_id="one", monotonic_ns=1, strings_nbytes=1024
        )
        group = build.add_group("world", ranks="0-1", size=2, rank=rank)
        for index in range(4):
            site = ("/job/train.py", 80 + index % 2, "step")
            number = build.issue(
                "all_reduce", group, at_ns=1 + index * 10**9, stack=[site], dtype="float32",
                inputs=[(1024,)], nbytes=4096,
            )  # fmt: skip
            build.start(number, after_ns=took_ns // 2)
            build.end(number, after_ns=took_ns)
        build.issue("recv", group, at_ns=5 * 10**9, peer=1 - rank)
        (folder / record_name(rank)).write_bytes(build.to_bytes())
    return folder


@pytest.fixture
def run(tmp_path: Path) -> str:
    return str(save_run(tmp_path / "run"))


def test_ops_are_a_table(run: str, capsys: Capture) -> None:
    assert main(["query", run, "rank=1 and seq<=2 and kind=all_reduce"]) == 0
    said = capsys.readouterr()
    lines = said.out.splitlines()
    assert lines[0] == "run one: 2 rows"
    assert lines[1].split() == [
        "rank", "group", "kind", "seq", "nbytes", "status", "issued", "duration", "wait", "site",
    ]  # fmt: skip
    assert lines[2].split(maxsplit=9)[:6] == ["1", "world", "all_reduce", "1", "4.0", "KiB"]
    assert lines[2].endswith("1 ms      500 us  train.py:80 (step)")
    assert said.err == ""


def test_an_expression_needs_no_quotes_where_the_shell_needs_none(
    run: str, capsys: Capture
) -> None:
    assert main(["query", run, "rank=0", "and", "kind=recv", "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [(row["rank"], row["peer"], row["status"]) for row in rows] == [("0", "1", "in_flight")]


def test_ops_are_summed_up(run: str, capsys: Capture) -> None:
    assert main(["query", run, "--by", "kind,size", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["run"] == "one"
    row = found["rows"][0]
    assert (row["kind"], row["nbytes"], row["count"], row["in_flight"]) == (
        "all_reduce",
        4096,
        8,
        0,
    )
    assert row["p50_ns"] == row["p99_ns"] == row["max_ns"] == 1_000_000
    assert row["algbw_bytes_per_s"] == pytest.approx(4096 / 0.0005)
    assert row["busbw_bytes_per_s"] == pytest.approx(4096 / 0.0005)  # 2 ranks: 2 * 1 / 2
    assert found["rows"][1] == {
        "kind": "recv", "nbytes": 0, "count": 2, "in_flight": 2, "total_nbytes": 0, "total_ns": 0,
        "p50_ns": None, "p99_ns": None, "max_ns": None,
        "algbw_bytes_per_s": None, "busbw_bytes_per_s": None,
    }  # fmt: skip


def test_rows_are_sorted_and_limited(run: str, capsys: Capture) -> None:
    assert main(["query", run, "--sort", "-issued", "--limit", "3", "--format", "csv"]) == 0
    said = capsys.readouterr()
    rows = list(csv.DictReader(io.StringIO(said.out)))
    assert [row["issued_ns"] for row in rows] == ["4999999999"] * 2 + ["3000000000"]
    assert said.err == "7 more; --limit N shows them\n"


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["duration>10"], "query, column 10: a time has a unit: ns, us, ms, s, min"),
        (["--by", "colour"], "query: ops cannot be summed up by 'colour'"),
        (["--sort", "colour"], "query: no column 'colour'"),
        (["--attempt", "3"], "this run has no start number 3"),
    ],
)
def test_mistakes_are_told(run: str, words: list[str], what: str, capsys: Capture) -> None:
    assert main(["query", run, *words]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"UsageError: {what}\n")


def test_what_is_no_run_has_the_exit_code_of_a_record(tmp_path: Path, capsys: Capture) -> None:
    assert main(["query", str(tmp_path)]) == 7
    assert "no run found here" in capsys.readouterr().err
    assert main(["query", "nobody-has-this-run"]) == 2


def test_what_is_missing_is_said_on_stderr(tmp_path: Path, capsys: Capture) -> None:
    run = save_run(tmp_path / "run", ranks=1)
    assert main(["query", str(run), "seq=1"]) == 0
    assert capsys.readouterr().err == "nothing is known of rank 1 of 2\n"


def test_a_dump_of_another_tool_can_be_asked(tmp_path: Path, capsys: Capture) -> None:
    entry = {
        "record_id": 0, "pg_id": 0, "process_group": ["0", "default_pg"], "collective_seq_id": 1,
        "p2p_seq_id": 0, "op_id": 1, "profiling_name": "gloo:all_reduce", "time_created_ns": 5,
        "input_sizes": [[4]], "input_dtypes": ["Float"], "output_sizes": [[4]],
        "output_dtypes": ["Float"], "state": "scheduled", "is_p2p": False, "retired": False,
        "time_discovered_started_ns": None, "time_discovered_completed_ns": None, "timeout_ms": 1,
    }  # fmt: skip
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}
    dump = {"version": "2.10", "pg_config": config, "pg_status": {}, "entries": [entry]}
    path = tmp_path / "trace_0.json"
    path.write_text(json.dumps(dump))
    assert main(["query", str(path), "kind=all_reduce", "--format", "json"]) == 0
    [row] = json.loads(capsys.readouterr().out)["rows"]
    assert (row["rank"], row["seq"], row["nbytes"], row["status"]) == (0, 1, 16, "in_flight")


def test_equal_runs_have_no_difference(tmp_path: Path, capsys: Capture) -> None:
    first, second = save_run(tmp_path / "a"), save_run(tmp_path / "b", run="two")
    assert main(["diff", str(first), str(second)]) == 0
    assert capsys.readouterr().out == "run two does what run one does, as fast\n"


def test_what_got_slower_is_a_difference(tmp_path: Path, capsys: Capture) -> None:
    first = save_run(tmp_path / "a")
    second = save_run(tmp_path / "b", run="two", took_ns=3_000_000)
    assert main(["diff", str(first), str(second)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["run two against run one", "slower"]
    assert lines[2] == (
        "  all_reduce of 4.0 KiB on group 'world' at train.py:80 (step): "
        "3.00x, median 1 ms -> 3 ms, total 4 ms -> 12 ms, 4 ops"
    )
    assert main(["diff", str(second), str(first), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["runs"] == ["two", "one"]
    assert [change["factor"] for change in found["faster"]] == [pytest.approx(1 / 3)] * 2
    assert main(["diff", str(first), str(second), "--threshold", "300%"]) == 0


def test_an_empty_word_is_no_run(run: str, capsys: Capture) -> None:
    assert main(["query", run, ""]) == 0
    assert capsys.readouterr().out.startswith("run one: ")
    assert main(["diff", run, ""]) == 2
    assert capsys.readouterr().err == "UsageError: the name of the run is empty\n"


@pytest.mark.parametrize(
    ("expression", "field", "hint"),
    [
        ("kind=all_redcue", "kind", "did you mean all_reduce?"),
        ("rank=0 and not kind in (recv, all_redcue)", "kind", "did you mean all_reduce?"),
        ("kind=???", "kind", "kinds: "),
        ("status=timout", "status", "did you mean timeout?"),
        ("status=???", "status", "statuses: aborted, "),
        ("kind=recv and group=wrld", "group", "did you mean world?"),
    ],
)
def test_a_name_that_nothing_has_is_an_error(
    expression: str, field: str, hint: str, run: str, capsys: Capture
) -> None:
    assert main(["query", run, expression]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert f"UsageError: query: unknown {field} '" in said.err
    assert f"hint: {hint}" in said.err


def test_a_kind_that_this_run_has_none_of_is_an_empty_answer(run: str, capsys: Capture) -> None:
    assert main(["query", run, "kind=barrier"]) == 0
    assert capsys.readouterr().out.startswith("run one: 0 rows")


def test_the_run_may_stand_behind_the_expression(run: str, capsys: Capture) -> None:
    assert main(["query", "rank=1", "and", "kind=recv", run]) == 0
    assert capsys.readouterr().out.startswith("run one: 1 row")


def test_an_expression_may_be_longer_than_a_path(run: str, capsys: Capture) -> None:
    expression = " or ".join(f"rank={rank}" for rank in range(200))
    assert main(["query", run, expression, "--limit", "1"]) == 0
    assert capsys.readouterr().out.count("all_reduce") == 1

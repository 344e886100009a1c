"""Exported traces as Perfetto's own trace processor reads them, asked by SQL."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from distdbg.cli.export import main
from tests.perfetto.engine import Row, Trace, load_trace
from tests.unit.export.small_job import END_NS, US, WALL_NS, make_job

pytestmark = [pytest.mark.node, pytest.mark.slow]

#: The clock of a trace begins 1 ns before the run, as nothing may be at 0.
ZERO = 1


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_job(tmp_path_factory.mktemp("job"))


@pytest.fixture(scope="module")
def perfetto(job: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trace]:
    yield from _export(job, "perfetto", tmp_path_factory)


@pytest.fixture(scope="module")
def chrome(job: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trace]:
    yield from _export(job, "chrome", tmp_path_factory)


@pytest.fixture(scope="module", params=["perfetto", "chrome"])
def trace(request: pytest.FixtureRequest) -> Trace:
    found: Trace = request.getfixturevalue(request.param)
    return found


def _export(job: Path, to: str, factory: pytest.TempPathFactory) -> Iterator[Trace]:
    target = factory.mktemp(to) / "out"
    assert main([str(job), "--to", to, "--output", str(target)]) == 0
    with load_trace(target) as found:
        yield found


#: Slices with the rank and the name of their track.
SLICES = """
    select s.id, s.ts, s.dur, s.name, s.category, s.depth,
        coalesce(thread.name, t.name) as track, p.name as process
    from slice s
    left join thread_track tt on s.track_id = tt.id left join thread using (utid)
    left join process_track pt on s.track_id = pt.id
    join process p on p.upid = coalesce(thread.upid, pt.upid)
    join track t on s.track_id = t.id
"""


def slices(trace: Trace, where: str) -> list[Row]:
    sql = f"select * from ({SLICES}) where {where} order by process, ts, depth"
    return trace.query(sql)


def args(trace: Trace, slice_id: int) -> dict[str, str]:
    rows = trace.query(
        f"select key, display_value from args join slice using (arg_set_id) where slice.id = {slice_id}"
    )
    return {row["key"].rpartition(".")[2]: row["display_value"] for row in rows}


@pytest.mark.slow
def test_the_trace_processor_finds_nothing_wrong(trace: Trace) -> None:
    wrong = trace.query("select name, value from stats where severity = 'error' and value > 0")
    assert wrong == []
    lost = trace.query("select name, value from stats where severity = 'data_loss' and value > 0")
    assert lost == []
    assert trace.query("select name from stats where name like 'flow%' and value > 0") == []


def test_each_rank_is_a_process(trace: Trace) -> None:
    rows = trace.query("select pid, name from process where name like 'rank%' order by pid")
    assert rows == [{"pid": 4000 + rank, "name": f"rank {rank} n01"} for rank in range(3)]


def test_an_op_is_a_slice_from_its_issue_to_its_end(trace: Trace) -> None:
    (op, *_) = slices(trace, "process like 'rank 1%' and category = 'all_reduce'")
    offset = 0 if op["ts"] == 14 * US else ZERO
    assert (op["ts"], op["dur"]) == (14 * US + offset, 26 * US)
    facts = args(trace, op["id"])
    assert facts["seq"] == "1"
    assert facts["nbytes"] == "1024"
    assert facts["dtype"] == "float32"
    assert facts["inputs"] == "[256]"
    assert facts["comm"] == "dp grads"
    assert facts["site"] == "train.py:80 (step)"
    assert facts["status"] == "ok"
    assert facts["wait_ns"] == str(16 * US)


def test_the_wait_within_an_op_names_the_rank_that_came_last(trace: Trace) -> None:
    waits = slices(trace, "category = 'wait' and depth = 1 and ts < 40000")
    assert [(row["process"][:6], row["name"], row["dur"]) for row in waits] == [
        ("rank 0", "waits for rank 2", 20 * US),
        ("rank 1", "waits for rank 2", 16 * US),
    ]


def test_ops_that_are_in_flight_at_once_have_lanes(trace: Trace) -> None:
    ops = slices(trace, "process like 'rank 2%' and category = 'all_reduce' and ts >= 50000")
    assert [(row["dur"], row["depth"], row["track"]) for row in ops] == [
        (20 * US, 0, "dp"),
        (18 * US, 0, "dp"),
    ]
    tracks = trace.query(
        "select distinct track_id from slice where category = 'all_reduce' and ts >= 50000 "
        "and ts < 60000"
    )
    assert len(tracks) == 6


def test_what_did_not_end_says_so_and_lasts_to_the_end(perfetto: Trace, chrome: Trace) -> None:
    for trace, dur in ((perfetto, -1), (chrome, END_NS - 100 * US)):
        ops = slices(trace, "name = 'all_reduce (did not end)'")
        assert [(row["process"][:6], row["dur"]) for row in ops] == [
            ("rank 0", dur),
            ("rank 1", dur),
        ]
        waits = slices(trace, "category = 'wait' and ts >= 100000")
        assert [(row["name"], row["dur"]) for row in waits] == [("waits for rank 2", dur)] * 2
        (bounds,) = trace.query("select end_ts from trace_bounds")
        assert bounds["end_ts"] - END_NS in (0, ZERO)
        assert args(trace, ops[0]["id"])["status"] == "did not end"


def test_flows_join_the_ranks_of_a_collective_in_the_order_of_their_coming(trace: Trace) -> None:
    rows = trace.query(
        f"""select a.process as source, b.process as target from flow
        join ({SLICES}) a on a.id = slice_out join ({SLICES}) b on b.id = slice_in
        where a.ts < 40000 order by a.ts"""
    )
    assert [(row["source"][:6], row["target"][:6]) for row in rows] == [
        ("rank 0", "rank 1"),
        ("rank 1", "rank 2"),
    ]


def test_a_flow_goes_from_a_send_to_its_recv_that_was_called_before(trace: Trace) -> None:
    rows = trace.query(
        f"""select a.name as source, b.name as target, a.track from flow
        join ({SLICES}) a on a.id = slice_out join ({SLICES}) b on b.id = slice_in
        where a.category = 'send' or b.category = 'send'"""
    )
    assert rows == [{"source": "send", "target": "transfer", "track": "dp: messages"}]
    (recv,) = slices(trace, "category = 'recv'")
    assert args(trace, recv["id"])["tag"] == "7"


def test_marks_and_spans_have_tracks_of_their_own(trace: Trace) -> None:
    marks = slices(trace, "track = 'marks'")
    assert [(row["name"], row["dur"]) for row in marks] == [("loss", 0), ("loss", 0), ("saved", 0)]
    assert float(args(trace, marks[0]["id"])["value"]) == 0.5
    spans = slices(trace, "track = 'spans'")
    assert [(row["name"], row["depth"]) for row in spans] == [
        ("step 1", 0),
        ("forward", 1),
        ("step 2 (did not end)", 0),
    ]
    assert spans[0]["dur"] == 90 * US


def test_counters_are_there_and_also_the_numbers_of_marks(trace: Trace) -> None:
    rows = trace.query(
        "select t.name, count(*) as n, max(value) as most from counter c join counter_track t "
        "on c.track_id = t.id group by t.name"
    )
    found = {row["name"].strip(): row["most"] for row in rows}
    # Of the older format the unit is behind the name.
    assert any(name.startswith("loss") and most == 0.5 for name, most in found.items())
    assert any(name.startswith("bytes per second") and most > 0 for name, most in found.items())
    assert any(name.startswith("ops in flight") and most >= 1 for name, most in found.items())


def test_findings_are_instants_of_the_run_and_of_the_ranks_to_blame(trace: Trace) -> None:
    rows = trace.query(
        "select s.name, t.name as track from slice s join track t on s.track_id = t.id "
        "where category = 'finding' and dur = 0"
    )
    names = [row["name"] for row in rows]
    (killed,) = {name for name in names if name.startswith("dead rank: rank 1 was killed")}
    assert names.count(killed) == 2
    ends = slices(trace, "category in ('end', 'error')")
    reported = {(row["process"][:6], row["name"]) for row in ends}
    assert ("rank 0", "Suspicion") in reported
    assert ("rank 1", "was killed by SIGKILL") in reported
    assert ("rank 2", "raised ValueError: 7 is not a colour") in reported


def test_absolute_times_are_those_of_the_wall(perfetto: Trace) -> None:
    rows = perfetto.query(
        "select ts, clock_value from clock_snapshot where clock_name = 'REALTIME'"
    )
    (op, *_) = slices(perfetto, "process like 'rank 0%' and category = 'all_reduce'")
    assert op["ts"] + rows[0]["clock_value"] - rows[0]["ts"] == WALL_NS + 10 * US


@pytest.mark.slow
def test_starts_of_a_job_are_processes_of_their_own(tmp_path: Path) -> None:
    make_job(tmp_path / "run" / "attempt_0")
    make_job(tmp_path / "run" / "attempt_1", shift_ns=60_000_000_000)
    for to in ("perfetto", "chrome"):
        assert main([str(tmp_path / "run"), "--to", to, "--output", str(tmp_path / to)]) == 0
        with load_trace(tmp_path / to) as trace:
            rows = trace.query("select name from process where name like 'rank%' order by name")
            assert [row["name"] for row in rows] == [
                f"rank {rank} start {start} n01" for rank in range(3) for start in range(2)
            ]
            rows = trace.query(
                "select min(ts) as ts from slice where name = 'all_reduce' group by ts"
            )
            later = [row["ts"] for row in rows if row["ts"] >= 60_000_000_000]
            assert len(later) == len(rows) / 2
            assert not trace.query(
                "select 1 as n from stats where severity = 'error' and value > 0"
            )


@pytest.mark.slow
def test_a_few_ranks_name_whom_they_waited_for_among_all(job: Path, tmp_path: Path) -> None:
    for to in ("perfetto", "chrome"):
        arguments = [str(job), "--to", to, "--ranks", "0-1", "--output", str(tmp_path / to)]
        assert main(arguments) == 0
        with load_trace(tmp_path / to) as trace:
            rows = trace.query(
                "select distinct name from slice where category = 'wait' and ts < 40000"
            )
            assert rows == [{"name": "waits for rank 2"}]
            assert trace.query("select name from stats where name like 'flow%' and value > 0") == []


def test_a_window_is_a_trace_without_errors(job: Path, tmp_path: Path) -> None:
    arguments = [str(job), "--to", "perfetto", "--since", "1s", "--output", str(tmp_path / "late")]
    assert main(arguments) == 0
    with load_trace(tmp_path / "late") as trace:
        assert trace.query("select 1 as n from stats where severity = 'error' and value > 0") == []
        assert len(slices(trace, "category = 'all_reduce'")) == 2


def test_the_packets_are_what_perfettos_definitions_say(job: Path, tmp_path: Path) -> None:
    definitions = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    target = tmp_path / "out"
    assert main([str(job), "--to", "perfetto", "--output", str(target)]) == 0
    decoded = definitions.Trace.FromString(target.read_bytes())
    events = [packet.track_event for packet in decoded.packet if packet.HasField("track_event")]
    kinds = [event.type for event in events]
    begins, ends = definitions.TrackEvent.TYPE_SLICE_BEGIN, definitions.TrackEvent.TYPE_SLICE_END
    # Four are open: two ops, their waits; and a span.
    assert kinds.count(begins) - kinds.count(ends) == 5
    assert all(event.track_uuid for event in events)


def test_chromes_trace_is_json_of_events_in_microseconds(job: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    assert main([str(job), "--to", "chrome", "--output", str(target)]) == 0
    document = json.loads(target.read_text())
    events = document["traceEvents"]
    assert document["otherData"]["run"] == "small"
    assert {event["ph"] for event in events} == {"M", "X", "C", "i", "s", "t", "f"}
    (first, *_) = (event for event in events if event["ph"] == "X")
    assert (first["name"], first["ts"], first["dur"]) == ("all_reduce", 10.0, 30.0)

"""Dumps for torch's analyzer: what is in them, what is left out, and what our own reader makes of them."""

from __future__ import annotations

import io
import json
import pickle
import pickletools
from pathlib import Path
from typing import Any

import pytest

from distdbg.diagnose.finding import FindingKind
from distdbg.diagnose.load.open import open_paths
from distdbg.diagnose.session import Session
from distdbg.diagnose.verdict import diagnose
from distdbg.errors import RecordError
from distdbg.export.reading import OpenedRun, RunSelection, open_run
from distdbg.export.torch_fr.dumps import FILE_PREFIX, write, write_pickle
from distdbg.export.torch_fr.spelling import to_call
from distdbg.record.ends import RankEnd, write_end
from distdbg.record.folders import record_name
from distdbg.record.format import OP, Section, Status
from distdbg.record.forms import Form, Listing, read_form, write_form
from tests.unit.export.made_run import WALL_NS, MadeRun, every_kind

Dump = dict[str, Any]


def export(
    run: MadeRun, folder: Path, chosen: RunSelection | None = None
) -> tuple[list[Dump], OpenedRun]:
    opened = run.open(folder / "run", chosen)
    return read(opened, folder / "dumps"), opened


def read(opened: OpenedRun, dumps: Path) -> list[Dump]:
    dumps.mkdir()
    write(opened, dumps)
    files = sorted(dumps.iterdir(), key=lambda path: int(path.name.removeprefix(FILE_PREFIX)))
    return [pickle.loads(path.read_bytes()) for path in files]


def session_of(dumps: Path) -> Session:
    (session,) = open_paths([dumps])
    return session


# ------------------------------------------------------------------------------------- an entry


def test_an_entry_has_the_keys_and_values_of_torch(tmp_path: Path) -> None:
    run = MadeRun(2)
    run.all("all_reduce", op="SUM")
    (dump, _), _ = export(run, tmp_path)
    assert dump["pg_config"] == {
        "1:world": {"name": "1:world", "desc": "default_pg", "ranks": "[0, 1]"}
    }
    assert dump["pg_status"]["0"] == {
        "last_enqueued_collective": 1,
        "last_started_collective": 1,
        "last_completed_collective": 1,
    }
    assert dump["entries"] == [
        {
            "frames": [
                {"name": "step", "filename": "/job/train.py", "line": 88},
                {"name": "main", "filename": "/job/train.py", "line": 120},
            ],
            "record_id": 0,
            "pg_id": 0,
            "process_group": ("1:world", "default_pg"),
            "collective_seq_id": 1,
            "p2p_seq_id": 0,
            "op_id": 1,
            "profiling_name": "nccl:all_reduce",
            "time_created_ns": WALL_NS + 10_000,
            "time_discovered_started_ns": WALL_NS + 11_000,
            "time_discovered_completed_ns": WALL_NS + 12_000,
            "duration_ms": 0.001,
            "input_sizes": [[4]],
            "input_dtypes": ["Float"],
            "output_sizes": [[4]],
            "output_dtypes": ["Float"],
            "state": "completed",
            "retired": True,
            "timeout_ms": 0,
            "is_p2p": False,
            "thread_id": "1",
            "called": "all_reduce",
            "reduce_op": "SUM",
        }
    ]


def test_what_has_not_ended_or_failed_is_not_completed(tmp_path: Path) -> None:
    run = MadeRun(1)
    run.op(0, "all_reduce", has_ended=False)
    started = run.op(0, "all_reduce", has_ended=False)
    run.builds[0].start(started, after_ns=5)
    run.op(0, "all_reduce", has_ended=False, status=Status.TIMEOUT)
    (dump,), _ = export(run, tmp_path)
    assert [(e["state"], e["retired"]) for e in dump["entries"]] == [
        ("scheduled", False),
        ("started", False),
        ("scheduled", True),
    ]
    assert [e["time_discovered_completed_ns"] for e in dump["entries"]] == [None] * 3


def test_a_message_is_on_a_group_of_its_direction(tmp_path: Path) -> None:
    run = MadeRun(4)
    run.group("odd", (3, 1))
    run.send(3, 1, group="odd", tag=5)
    dumps, _ = export(run, tmp_path)
    (sent,), (received,) = dumps[3]["entries"], dumps[1]["entries"]
    assert sent["profiling_name"] == "nccl:send 1->0"
    assert received["profiling_name"] == "nccl:recv 0<-1"
    assert sent["process_group"] == received["process_group"] == ("2:odd[3->1]", "odd 3->1")
    assert sent["of_group"] == received["of_group"] == ("2:odd", "odd")
    assert (sent["peer"], received["peer"], sent["tag"]) == (1, 3, 5)
    assert dumps[1]["pg_config"]["2:odd[3->1]"]["ranks"] == "[1, 3]"


@pytest.mark.parametrize(
    ("kind", "inputs", "outputs", "expected"),
    [
        ("all_gather", [(2, 2)], [(2, 2)] * 3, ("all_gather", [[2, 2]], [[12]])),
        ("all_gather", [(4,)], [(12,)], ("all_gather", [[4]], [[12]])),
        ("all_gather", [(1,)], [(1,), (2,)], ("all_gather_v", [[1], [2]], [[1], [2]])),
        ("all_gather", [], [], ("all_gather", [[0]], [[0]])),
        ("reduce_scatter", [(4,)] * 3, [(4,)], ("reduce_scatter", [[12]], [[4]])),
        ("reduce_scatter", [(1,), (2,)], [(2,)], ("reduce_scatter_v", [[1], [2]], [[1], [2]])),
        ("all_to_all", [(2,), (3,)], [(4,)], ("all_to_all", [[5]], [[4]])),
        ("gather", [(4,)], [], ("gather", [[4]], [])),
        ("scatter", [(4,), (4,)], [(4,)], ("scatter", [[8]], [[4]])),
        ("reduce", [(4,)], [], ("reduce", [[4]], [[4]])),
        ("barrier", [], [], ("barrier", [], [])),
    ],
)
def test_sizes_are_those_that_all_ranks_of_a_good_call_agree_in(
    kind: str, inputs: list[Any], outputs: list[Any], expected: tuple[str, Any, Any]
) -> None:
    text = write_form(name=kind, kind=kind, dtype="float32", inputs=inputs, outputs=outputs)
    call = to_call(read_form(text), kind)
    assert (call.name, call.inputs, call.outputs) == expected


def test_a_list_that_was_cut_counts_as_if_its_rest_were_alike() -> None:
    form = read_form(write_form(name="x", kind="all_gather", inputs=[(4,)], outputs=[(4,)] * 5000))
    assert form.outputs.hash
    assert to_call(form, "all_gather").outputs == [[20000]]


def test_a_dtype_that_torch_does_not_know_keeps_its_name() -> None:
    form = Form(kind="all_reduce", dtype="int4", inputs=Listing(((4,),), 1))
    assert to_call(form, "all_reduce").dtype == "int4"
    assert to_call(Form(kind="barrier"), "barrier").dtype == "Undefined"


# ------------------------------------------------------------------------------- what is left out


def test_asides_are_left_out_and_counted(tmp_path: Path) -> None:
    dumps, opened = export(every_kind(), tmp_path)
    assert "4 left out: new_group that torch has no name for" in opened.lacks()
    names = {e["profiling_name"] for dump in dumps for e in dump["entries"]}
    assert not any("new_group" in name for name in names)
    assert opened.counted.ranks == 4


def test_an_op_that_one_rank_has_lost_is_left_out_on_all(tmp_path: Path) -> None:
    run = MadeRun(2)
    for _ in range(3):
        run.all("all_reduce", op="SUM")
    folder = run.save(tmp_path / "run")
    path = folder / record_name(1)
    data = bytearray(path.read_bytes())
    data[run.builds[1].offset_of(Section.RING, 2) + OP["seq"].offset] ^= 1
    path.write_bytes(bytes(data))
    opened = open_run([folder])
    dumps = read(opened, tmp_path / "dumps")
    assert [[e["collective_seq_id"] for e in dump["entries"]] for dump in dumps] == [[1, 3], [1, 3]]
    assert any("left out: ops that another rank" in lack for lack in opened.lacks())
    assert any("damaged" in lack for lack in opened.lacks())


def test_all_begin_where_the_shortest_ring_does(tmp_path: Path) -> None:
    run = MadeRun(2, ring_count=8)
    for step in range(12):
        run.all("all_reduce", op="SUM")
        if step > 6:
            run.send(0, 1)
            run.builds[1].mark("a mark takes a place as well")
    dumps, _ = export(run, tmp_path)
    of_world = [
        [e["collective_seq_id"] for e in dump["entries"] if not e["is_p2p"]] for dump in dumps
    ]
    assert of_world[0] == of_world[1] != []
    sent, received = (
        [e["collective_seq_id"] for e in dump["entries"] if e["is_p2p"]] for dump in dumps
    )
    assert sent == received != []
    assert [e["record_id"] for e in dumps[0]["entries"]] == list(range(len(dumps[0]["entries"])))


def test_an_op_of_a_kind_that_nobody_knows_is_left_out(tmp_path: Path) -> None:
    run = MadeRun(1)
    number = run.builds[0].write_event(1, issued_ns=5, seq=1, group=1, kind=77)
    run.builds[0].end(number, after_ns=5)
    run.op(0, "barrier")
    (dump,), opened = export(run, tmp_path)
    assert [e["profiling_name"] for e in dump["entries"]] == ["nccl:barrier"]
    assert any("torch has no name for" in lack for lack in opened.lacks())


def test_a_recv_from_any_that_waits_is_left_out(tmp_path: Path) -> None:
    run = MadeRun(2)
    run.message("recv", 1, None, has_ended=False)
    dumps, opened = export(run, tmp_path)
    assert [dump["entries"] for dump in dumps] == [[], []]
    assert any("recv from any rank" in lack for lack in opened.lacks())


def test_mixed_tags_are_paired_tag_by_tag(tmp_path: Path) -> None:
    run = MadeRun(2)
    for tag in (1, 2, 1):
        run.message("send", 0, 1, tag=tag)
    for tag in (2, 1, 1):
        run.message("recv", 1, 0, tag=tag)
    dumps, _ = export(run, tmp_path)
    assert [
        [(e["process_group"][0], e["collective_seq_id"]) for e in dump["entries"]] for dump in dumps
    ] == [
        [("1:world[0->1 tag 1]", 1), ("1:world[0->1 tag 2]", 1), ("1:world[0->1 tag 1]", 2)],
        [("1:world[0->1 tag 2]", 1), ("1:world[0->1 tag 1]", 1), ("1:world[0->1 tag 1]", 2)],
    ]


def test_messages_of_which_one_end_was_not_asked_for_are_left_out(tmp_path: Path) -> None:
    run = MadeRun(2)
    for tag in (1, 2, 1):
        run.message("send", 0, 1, tag=tag)
    for tag in (2, 1, 1):
        run.message("recv", 1, 0, tag=tag)
    dumps, opened = export(run, tmp_path, RunSelection(since_ns=WALL_NS + 35_000))
    assert [dump["entries"] for dump in dumps] == [[], []]
    assert any("other side cannot be known" in lack for lack in opened.lacks())


def test_a_message_that_nobody_sent_is_there_also_when_the_beginning_is_not(tmp_path: Path) -> None:
    run = MadeRun(2)
    run.all("barrier")
    run.message("recv", 1, 0, has_ended=False)
    dumps, _ = export(run, tmp_path, RunSelection(since_ns=WALL_NS + 25_000))
    assert [[e["profiling_name"] for e in dump["entries"]] for dump in dumps] == [
        [],
        ["nccl:recv 1<-0"],
    ]


def test_a_run_without_ops_has_dumps_without_entries(tmp_path: Path) -> None:
    dumps, _ = export(MadeRun(2), tmp_path)
    assert [dump["entries"] for dump in dumps] == [[], []]
    assert list(dumps[1]["pg_config"]) == ["1:world"]


def test_a_rank_that_ended_before_it_had_a_record_has_an_empty_dump(tmp_path: Path) -> None:
    run = MadeRun(2)
    run.op(0, "barrier", has_ended=False)
    folder = run.save(tmp_path / "run", ranks=[0])
    end = RankEnd(rank=1, pid=7, host="n00", cause="signal", signal=9, ended_ns=5, wall_ns=WALL_NS)
    write_end(folder, end)
    opened = open_run([folder])
    dumps = read(opened, tmp_path / "dumps")
    assert [len(dump["entries"]) for dump in dumps] == [1, 0]
    assert not any("no dump of" in lack for lack in opened.lacks())


def test_ranks_that_were_not_asked_for_are_named(tmp_path: Path) -> None:
    _, opened = export(MadeRun(4), tmp_path, RunSelection(ranks=frozenset({0, 2})))
    assert any("no dump of ranks 1,3" in lack for lack in opened.lacks())


def test_of_several_starts_the_last_is_written(tmp_path: Path) -> None:
    for attempt, count in enumerate((1, 2)):
        run = MadeRun(1)
        for _ in range(count):
            run.op(0, "barrier")
        run.save(tmp_path / "run" / f"attempt_{attempt}")
    opened = open_run([tmp_path / "run"])
    (dump,) = read(opened, tmp_path / "dumps")
    assert len(dump["entries"]) == 2
    assert any("--attempt N" in lack for lack in opened.lacks())


def test_a_folder_without_records_is_a_record_error(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with pytest.raises((RecordError, ValueError)):
        open_run([tmp_path / "run"])


# ------------------------------------------------------------------------------------- the pickle


@pytest.mark.parametrize("count", [0, 1, 2, 999, 1000, 1001, 3500])
def test_a_pickle_in_batches_is_what_one_pickle_would_be(count: int) -> None:
    items = [{"n": n, "shared": ["x", "x"], "words": f"w{n % 7}"} for n in range(count)]
    output = io.BytesIO()
    write_pickle(
        output, {"head": "é", "other": [1]}, "entries", iter(items), lambda: {"z": {"y": 2}}
    )
    expected = {"head": "é", "other": [1], "entries": items, "z": {"y": 2}}
    assert pickle.loads(output.getvalue()) == expected
    opcodes = {opcode.name for opcode, _, _ in pickletools.genops(output.getvalue())}
    assert not opcodes & {"GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD", "INST", "OBJ", "NEWOBJ"}


def test_the_tail_is_asked_when_all_items_were_made() -> None:
    made: list[int] = []

    def items() -> Any:
        for n in range(5):
            made.append(n)
            yield {"n": n}

    output = io.BytesIO()
    write_pickle(output, {}, "entries", items(), lambda: {"count": len(made), "other": 0})
    assert pickle.loads(output.getvalue())["count"] == 5


# ------------------------------------------------------------------------- our own reader, again


def test_our_reader_finds_nothing_wrong_with_a_run_that_went_well(tmp_path: Path) -> None:
    export(every_kind(), tmp_path)
    session = session_of(tmp_path / "dumps")
    assert diagnose(session).findings == ()
    assert {group.label: group.ranks for group in session.groups} == {
        "world": (0, 1, 2, 3),
        "pair": (2, 3),
    }
    assert not any("look alike" in lack for lack in session.lacks)


def test_our_reader_finds_the_mismatch_that_torch_cannot_see(tmp_path: Path) -> None:
    run = MadeRun(3)
    for rank in range(3):
        op = "MAX" if rank == 1 else "SUM"
        run.op(rank, "all_reduce", op=op, has_ended=False, fingerprint=1 + (rank == 1))
    export(run, tmp_path)
    root = diagnose(session_of(tmp_path / "dumps")).root
    assert root is not None
    assert (root.kind, root.ranks) == (FindingKind.MISMATCH, (1,))


def test_our_reader_finds_the_deadlock_of_messages(tmp_path: Path) -> None:
    run = MadeRun(4)
    run.all("barrier")
    run.message("recv", 1, 2, has_ended=False)
    run.message("recv", 2, 1, has_ended=False)
    export(run, tmp_path)
    root = diagnose(session_of(tmp_path / "dumps")).root
    assert root is not None
    assert (root.kind, root.ranks, root.group) == (FindingKind.DEADLOCK, (1, 2), "world")


def test_head_says_whose_dump_it_is(tmp_path: Path) -> None:
    dumps, _ = export(MadeRun(3), tmp_path)
    assert [(dump["version"], dump["host"], dump["pid"]) for dump in dumps] == [
        ("2.10", "n00", 1000),
        ("2.10", "n00", 1001),
        ("2.10", "n00", 1002),
    ]
    assert json.dumps(dumps[0])  # plain values alone

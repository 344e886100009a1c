from __future__ import annotations

import json
import pickle
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from distdbg.diagnose.load.torch_dump import read_dumps
from distdbg.diagnose.load.torch_dumps import read_torch_dumps
from distdbg.diagnose.load.torch_names import kind_of, rank_of_file, read_op_name
from distdbg.diagnose.ops import IN_FLIGHT, OTHER_KIND, OpRef
from distdbg.diagnose.session import Session
from distdbg.diagnose.verdict import diagnose
from distdbg.errors import RecordError
from tests.support.torch_dump_builder import TorchDumpBuilder, to_json


def names(session: Session, rank: int) -> list[str]:
    return [session.name_of(OpRef(rank, at)) for at in range(len(session.ranks[rank].ops))]


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("comm_lib_trace_rank_3", 3),
        ("nccl_trace_rank_12", 12),
        ("nccl_trace_rank_n01.cluster_12", 12),
        ("trace_rank_3.node17.json", 3),
        ("node17-rank_0.pkl", 0),
        ("dump4", 4),
        ("dump4.json", 4),
        ("host17.5", 5),
        ("dump", None),
    ],
)
def test_the_rank_is_in_the_name(name: str, rank: int | None) -> None:
    assert rank_of_file(name) == rank


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("nccl:_all_gather_base", "all_gather"),
        ("nccl:all_gather_into_tensor_coalesced", "all_gather"),
        ("nccl:reduce_scatter_tensor_coalesced", "reduce_scatter"),
        ("nccl:allreduce_coalesced", "all_reduce"),
        ("nccl:all_reduce_barrier", "barrier"),
        ("nccl:_broadcast_oop", "broadcast"),
        ("gloo:all_to_all_v_single", "all_to_all"),
        ("nccl:ALLGATHER_coalesced", "all_gather"),
        ("ucc:fancy_thing", "fancy_thing"),
        ("no backend", "no backend"),
        ("", "an op"),
    ],
)
def test_names_of_ops_have_a_kind(name: str, kind: str) -> None:
    assert read_op_name(name).kind == kind


@pytest.mark.parametrize(
    ("name", "kind"),
    [("ALLREDUCE", "all_reduce"), ("AllGather", "all_gather"), ("_REDUCE_SCATTER_BASE", "reduce_scatter"),
     ("ALLTOALL_BASE", "all_to_all"), ("BROADCAST", "broadcast"), ("New", "new")],
)  # fmt: skip
def test_names_in_logs_have_a_kind(name: str, kind: str) -> None:
    assert kind_of(name) == kind


def test_ops_have_groups_sites_and_forms(tmp_path: Path) -> None:
    job = TorchDumpBuilder(4)
    job.group("7", [1, 3], desc="tp")
    job.all("_all_gather_base", group="7", sizes=[[2, 3]], outputs=[[4, 3]], dtype="BFloat16")
    session = read_torch_dumps(job.write(tmp_path))
    assert session.world_size == 4
    assert names(session, 3) == ["_all_gather_base #1 on group 'tp'"]
    assert session.groups[session.ranks[3].ops.group[0]].ranks == (1, 3)
    assert str(session.site_of(OpRef(3, 0))) == "/job/train.py:10 (step)"
    form = session.forms[session.ranks[3].ops.form[0]]
    assert form.dtype == "bfloat16"
    assert form.inputs.items == ((2, 3),)
    assert form.nbytes == 12


def test_groups_of_one_name_and_other_members_are_two(tmp_path: Path) -> None:
    job = TorchDumpBuilder(4)
    job.all("all_reduce")
    for rank in range(4):
        entry = job.op(rank, "all_reduce")
        entry["process_group"] = ("5", "undefined")
    dumps = []
    for rank in range(4):
        dump = job.dump(rank)
        dump["pg_config"]["5"] = {
            "name": "5",
            "desc": "undefined",
            "ranks": str([rank // 2 * 2, rank // 2 * 2 + 1]),
        }
        path = tmp_path / f"r{rank}"
        path.write_bytes(pickle.dumps(dump))
        dumps.append(path)
    session = read_torch_dumps(dumps)
    fives = [group for group in session.groups if group.label == "5"]
    assert [group.ranks for group in fives] == [(0, 1), (2, 3)]
    assert len({group.name for group in session.groups}) == 3


def test_messages_go_between_global_ranks(tmp_path: Path) -> None:
    job = TorchDumpBuilder(6)
    job.group("1", [1, 3, 5], desc="pp")
    job.op(3, "send 1->2", group="1", outputs=[], state="started")
    job.op(5, "recv 2<-1", group="1", state="started")
    session = read_torch_dumps(job.write(tmp_path))
    assert names(session, 3) == ["send to rank 5 on group 'pp'"]
    assert names(session, 5) == ["recv from rank 3 on group 'pp'"]
    assert session.ranks[3].ops.seq[0] == session.ranks[5].ops.seq[0] == 1


def test_messages_of_rings_that_came_round_are_counted_from_the_end(tmp_path: Path) -> None:
    job = TorchDumpBuilder(2)
    for _ in range(20):
        job.op(0, "send 0->1", outputs=[])
        job.op(1, "recv 1<-0", outputs=[])
    job.op(0, "send 0->1", outputs=[], state="started")
    job.entries[0] = job.entries[0][-5:]
    job.entries[1] = job.entries[1][-9:]
    session = read_torch_dumps(job.write(tmp_path))
    sent, received = session.ranks[0].ops.seq, session.ranks[1].ops.seq
    assert sent[-2] == received[-1]
    assert sent[-1] == received[-1] + 1


def test_a_batch_of_collectives_is_one_op(tmp_path: Path) -> None:
    job = TorchDumpBuilder(2)
    for rank in range(2):
        for _ in range(3):
            job.op(rank, "all_reduce", seq=1, state="scheduled")
        job.op(rank, "coalesced", seq=1, sizes=[], state="completed")
        job.op(rank, "all_reduce", seq=2, state="started")
    session = read_torch_dumps(job.write(tmp_path))
    assert names(session, 0) == ["all_reduce #1 on group 'world'", "all_reduce #2 on group 'world'"]
    assert list(session.ranks[0].ops.status) == [0, IN_FLIGHT]
    assert session.forms[session.ranks[0].ops.form[0]].inputs.count == 3


def test_an_uneven_all_gather_of_broadcasts_is_one_all_gather(tmp_path: Path) -> None:
    job = TorchDumpBuilder(2)
    for rank in range(2):
        for size in (3, 4):
            job.op(rank, "_broadcast_oop", seq=1, sizes=[[size]], state="scheduled")
        job.op(rank, "ALLGATHER_coalesced", seq=1, sizes=[])
    session = read_torch_dumps(job.write(tmp_path))
    assert session.kind_of(OpRef(0, 0)) == "all_gather"
    assert diagnose(session).findings == ()


def test_messages_of_a_batch_take_the_state_of_its_end(tmp_path: Path) -> None:
    job = TorchDumpBuilder(2)
    for rank in range(2):
        job.op(rank, f"send {rank}->{1 - rank}", seq=1, outputs=[], state="scheduled")
        job.op(rank, f"recv {rank}<-{1 - rank}", seq=1, outputs=[], state="scheduled")
        job.op(rank, "coalesced", seq=1, sizes=[], is_p2p=True, state="completed")
    session = read_torch_dumps(job.write(tmp_path))
    assert list(session.ranks[0].ops.status) == [0, 0]
    assert diagnose(session).findings == ()


def test_messages_in_a_ring_are_a_deadlock(tmp_path: Path) -> None:
    job = TorchDumpBuilder(3)
    for rank in range(3):
        job.op(rank, f"recv {rank}<-{(rank + 2) % 3}", outputs=[], state="started")
    verdict = diagnose(read_torch_dumps(job.write(tmp_path)))
    assert verdict.root is not None
    assert verdict.root.kind in ("deadlock", "missing rank")
    assert set(verdict.root.ranks) | set(verdict.root.victims) == {0, 1, 2}


def test_an_op_of_an_unknown_kind_keeps_its_name(tmp_path: Path) -> None:
    job = TorchDumpBuilder(1)
    job.op(0, "new_window")
    session = read_torch_dumps(job.write(tmp_path))
    assert session.ranks[0].ops.kind[0] == OTHER_KIND
    assert session.kind_of(OpRef(0, 0)) == "new_window"


def test_the_status_of_a_group_knows_ops_that_are_not_in_the_dump(tmp_path: Path) -> None:
    job = TorchDumpBuilder(2)
    job.all("all_reduce")
    path = job.write(tmp_path)
    dump = job.dump(0)
    dump["pg_status"] = {"0": {"last_enqueued_collective": "9", "last_completed_collective": "8"}}
    path[0].write_bytes(pickle.dumps(dump))
    progress = read_torch_dumps(path).ranks[0].progress[0]
    assert (progress.issued_seq, progress.ended_seq) == (9, 8)


def test_of_two_dumps_of_a_rank_the_later_is_taken(tmp_path: Path) -> None:
    job = TorchDumpBuilder(1)
    job.op(0, "all_reduce")
    (tmp_path / "old").mkdir()
    first = job.write(tmp_path / "old")
    job.op(0, "barrier")
    session = read_torch_dumps([*job.write(tmp_path), *first])
    assert len(session.ranks[0].ops) == 2
    assert any("several dumps" in lack for lack in session.lacks)


def test_the_stacks_of_the_pickle_are_taken_before_json(tmp_path: Path) -> None:
    job = TorchDumpBuilder(1)
    job.op(0, "all_reduce")
    job.write(tmp_path)
    other = tmp_path / "trace_rank_0.json"
    other.write_text(json.dumps(to_json(job.dump(0))))
    session = read_torch_dumps([other, tmp_path / "trace_rank_0"])
    assert session.site_of(OpRef(0, 0)) is not None


def test_a_rank_may_be_given(tmp_path: Path) -> None:
    job = TorchDumpBuilder(1)
    job.op(0, "all_reduce")
    path = tmp_path / "dump"
    path.write_bytes(pickle.dumps(job.dump(0)))
    with pytest.raises(RecordError, match="does not have its rank") as caught:
        read_torch_dumps([path])
    assert "ends in the rank" in (caught.value.hint or "")
    assert list(read_torch_dumps([path], ranks={path: 5}).ranks) == [5]


FIRST_VERSIONS: list[Any] = [
    [{"record_id": 0, "pg_id": 0, "seq_id": 1, "profiling_name": "nccl:all_reduce", "state": "started"}],
    {"version": "1.1", "entries": [{"pg_id": 0, "seq_id": 1, "profiling_name": "nccl:all_reduce",
                                    "time_created_us": 5, "state": "started"}]},
    {"version": "2.0", "entries": [{"pg_id": 0, "process_group": "0", "seq_id": 1, "state": "started",
                                    "profiling_name": "nccl:all_reduce", "input_sizes": [[4]]}]},
]  # fmt: skip


@pytest.mark.parametrize("dump", FIRST_VERSIONS)
def test_the_first_versions_are_read(tmp_path: Path, dump: object) -> None:
    (tmp_path / "d0").write_bytes(pickle.dumps(dump))
    session = read_torch_dumps([tmp_path / "d0"])
    assert names(session, 0) == ["all_reduce #1 on group 'world'"]


def test_a_dump_without_entries_is_read(tmp_path: Path) -> None:
    (tmp_path / "d0.json").write_text('{"version": "2.10", "pg_config": {}, "pg_status": {}}')
    assert len(read_torch_dumps([tmp_path / "d0.json"]).ranks[0].ops) == 0


def test_a_debug_server_may_give_texts_in_a_list(tmp_path: Path) -> None:
    job = TorchDumpBuilder(2)
    job.all("all_reduce")
    path = tmp_path / "all.json"
    path.write_text(json.dumps([to_json(job.dump(rank)) for rank in range(2)]))
    assert [dump.rank for dump in read_dumps(path)] == [0, 1]
    path.write_text(json.dumps({str(r): json.dumps(to_json(job.dump(r))) for r in range(2)}))
    assert [dump.rank for dump in read_dumps(path)] == [0, 1]


NONSENSE: list[Any] = [
    None, True, -1, 2**63, 2**200, 1.5, "", "x" * 5000, "nccl:send 9999999->0", [], [[]], [[[[]]]], {},
    {"a": {}}, [None], ["[[["], (1,), ("0",), ("0", None), "scheduled", [2**70], [[-5]], [["x"]],
]  # fmt: skip


def test_no_value_of_any_key_is_more_than_refused(tmp_path: Path) -> None:
    draw = random.Random(3)
    job = TorchDumpBuilder(2)
    for _ in range(3):
        job.all("all_reduce", state="started")
    job.op(0, "send 0->1", state="started")
    for _ in range(250):
        dump = pickle.loads(pickle.dumps(job.dump(0)))
        for _ in range(draw.randrange(1, 4)):
            place = draw.choice([dump, draw.choice(job.dump(0)["entries"]), dump["pg_config"]])
            if not isinstance(place, dict) or not place:
                continue
            place[draw.choice(list(place))] = draw.choice(NONSENSE)
            if isinstance(dump.get("entries"), list) and dump["entries"]:
                entry = draw.choice(dump["entries"])
                if isinstance(entry, dict):
                    entry[draw.choice(list(entry))] = draw.choice(NONSENSE)
            if not isinstance(dump["pg_config"], dict):
                break
        path = tmp_path / "d0"
        path.write_bytes(pickle.dumps(dump))
        with suppress(RecordError):
            diagnose(read_torch_dumps([path]))


def test_one_list_that_a_pickle_names_everywhere_is_read_once(tmp_path: Path) -> None:
    shapes = [[1] * 60] * 4000
    frames = [{"name": "f", "filename": "a.py", "line": 1}] * 5000
    job = TorchDumpBuilder(1)
    for _ in range(3000):
        job.op(0, "all_reduce", input_sizes=shapes, frames=frames)
    (path,) = job.write(tmp_path)
    session = read_torch_dumps([path])
    assert len(session.forms) == 2
    assert len(session.stacks) == 2

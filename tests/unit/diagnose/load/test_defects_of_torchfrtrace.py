"""Dumps on which torch's own analyzer goes wrong (torch 2.13), each with the right answer."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from distdbg.diagnose.finding import FindingKind, Verdict
from distdbg.diagnose.load.open import open_paths
from distdbg.diagnose.verdict import diagnose
from tests.support.torch_dump_builder import TorchDumpBuilder, to_json

Read = Callable[..., Verdict]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def read(job: TorchDumpBuilder, **how: object) -> Verdict:
        job.write(tmp_path, **how)  # type: ignore[arg-type]
        (session,) = open_paths([tmp_path])
        return diagnose(session)

    return read


def a_gloo_dump(job: TorchDumpBuilder, rank: int) -> dict[str, object]:
    entries = [
        {**e, "state": "scheduled", "time_discovered_started_ns": None,
         "time_discovered_completed_ns": None}
        for e in job.entries[rank]
    ]  # fmt: skip
    return {
        "version": "2.10",
        "pg_config": {"": {"name": "", "desc": "", "ranks": "[]"}},
        "comm_lib_version": "",
        "pg_status": {"0": {"last_enqueued_collective": 9, "last_started_collective": -1}},
        "entries": entries,
    }


def test_dumps_of_gloo_are_read_although_they_name_no_members(tmp_path: Path) -> None:
    job = TorchDumpBuilder(3, backend="gloo")
    job.all("all_reduce")
    for rank in (0, 2):
        job.op(rank, "barrier", sizes=[], state="scheduled", retired=False)
    for rank in range(3):
        (tmp_path / f"r_{rank}").write_bytes(pickle.dumps(a_gloo_dump(job, rank), protocol=2))
    (session,) = open_paths([tmp_path])
    verdict = diagnose(session)
    assert session.groups[0].ranks == (0, 1, 2)
    assert verdict.root is not None
    assert verdict.root.kind is FindingKind.MISSING_RANK
    assert verdict.root.ranks == (1,)
    assert verdict.root.victims == (0, 2)


@pytest.mark.parametrize("prefix", ["trace_rank_", "z_rank_"])
@pytest.mark.parametrize("odd", [0, 2, 3])
def test_the_odd_size_is_blamed_whatever_the_order_of_files(
    read: Read, odd: int, prefix: str
) -> None:
    job = TorchDumpBuilder(4)
    job.all("all_reduce", sizes=[[8]])
    for rank in (3, 1, 0, 2):
        job.op(rank, "all_reduce", sizes=[[5 if rank == odd else 4]], state="started")
    verdict = read(job, prefix=prefix, ranks=(2, 0, 3, 1))
    assert verdict.root is not None
    assert verdict.root.kind is FindingKind.MISMATCH
    assert verdict.root.ranks == (odd,)
    assert verdict.root.seq == 2


def test_rings_that_came_round_at_other_records_match_by_seq(read: Read) -> None:
    job = TorchDumpBuilder(2)
    job.group("1", [0], desc="own")
    for _ in range(40):
        job.op(0, "all_reduce", group="1")
    for _ in range(30):
        job.all("all_reduce")
    job.entries[0] = job.entries[0][-25:]
    job.entries[1] = job.entries[1][-20:]
    verdict = read(job)
    assert verdict.findings == ()
    assert any("wrapped around" in lack for lack in verdict.lacks)


def test_a_rank_that_is_behind_is_found_in_rings_that_came_round(read: Read) -> None:
    job = TorchDumpBuilder(2)
    for _ in range(30):
        job.all("all_reduce")
    job.op(0, "all_reduce", state="started")
    job.entries[0] = job.entries[0][-25:]
    job.entries[1] = job.entries[1][-20:]
    verdict = read(job)
    assert verdict.root is not None
    assert (verdict.root.kind, verdict.root.ranks) == (FindingKind.MISSING_RANK, (1,))
    assert verdict.root.seq == 31


def test_a_message_is_nothing_that_a_third_rank_misses(read: Read) -> None:
    job = TorchDumpBuilder(3)
    job.op(0, "send 0->1", outputs=[])
    job.op(1, "recv 1<-0", outputs=[])
    job.all("all_reduce")
    assert read(job).findings == ()


def test_blocks_of_different_sizes_may_be_gathered(read: Read) -> None:
    job = TorchDumpBuilder(2)
    for rank in range(2):
        job.op(rank, "all_gather", sizes=[[3 + rank]], outputs=[[3], [4]])
        job.op(rank, "reduce_scatter", sizes=[[3], [4]], outputs=[[3 + rank]])
    assert read(job).findings == ()


def test_an_op_that_all_called_and_that_does_not_end_is_told(read: Read) -> None:
    job = TorchDumpBuilder(2)
    job.all("all_reduce")
    job.all("all_reduce", state="started")
    verdict = read(job)
    assert verdict.root is not None
    assert verdict.root.kind is FindingKind.FAILED_OP
    assert verdict.root.ranks == ()
    assert verdict.root.victims == (0, 1)
    assert "all 2 ranks called it, and it has not ended" in verdict.what


def test_a_rank_whose_device_has_not_begun_is_no_culprit(read: Read) -> None:
    job = TorchDumpBuilder(3)
    job.group("1", [1, 2], desc="tp")
    job.op(2, "all_reduce", group="1", state="scheduled", at_s=1)
    job.op(1, "all_reduce", group="1", state="scheduled", at_s=1)
    for rank in range(3):
        job.op(rank, "all_gather", state="scheduled" if rank == 2 else "started", at_s=2)
    verdict = read(job)
    finding = next(f for f in verdict.findings if f.group == "world")
    assert finding.ranks == ()
    assert "the devices of ranks 0-1 have begun it, those of rank 2 have not" in finding.what
    assert any(
        "before it, rank 2 called all_reduce #1 on group 'tp'" in e.text for e in finding.evidence
    )


def test_versions_may_differ_between_ranks(tmp_path: Path) -> None:
    job = TorchDumpBuilder(2)
    job.all("all_reduce")
    job.op(0, "broadcast", state="started")
    old = job.dump(1)
    old["version"] = "2.3"
    old["nccl_version"] = old.pop("comm_lib_version")
    for entry in old["entries"]:
        del entry["frames"], entry["op_id"]
    (tmp_path / "d0").write_bytes(pickle.dumps(job.dump(0), protocol=2))
    (tmp_path / "d1").write_bytes(pickle.dumps(old, protocol=2))
    (session,) = open_paths([tmp_path])
    verdict = diagnose(session)
    assert verdict.root is not None
    assert verdict.root.ranks == (1,)
    assert any("different versions: 2.10, 2.3" in lack for lack in session.lacks)


@pytest.mark.parametrize("backend", ["ucc", "mpi", "my-own"])
def test_any_backend_and_any_op_is_read(read: Read, backend: str) -> None:
    job = TorchDumpBuilder(2, backend=backend)
    job.all("all_reduce")
    job.all("a_new_thing", sizes=[[7]])
    job.op(1, "a_new_thing", state="started")
    verdict = read(job)
    assert verdict.root is not None
    assert (verdict.root.kind, verdict.root.ranks) == (FindingKind.MISSING_RANK, (0,))
    assert "a_new_thing #3" in verdict.what


def test_what_the_others_say_is_used_when_a_dump_is_missing(read: Read) -> None:
    job = TorchDumpBuilder(4)
    job.all("all_reduce")
    for rank in (0, 1):
        job.op(rank, "all_gather", state="started")
    verdict = read(job, ranks=(0, 1, 2))
    assert any("no dump of rank 3" in lack for lack in verdict.lacks)
    late = next(f for f in verdict.findings if f.kind is FindingKind.MISSING_RANK and f.ranks)
    assert late.ranks == (2,)


@pytest.mark.parametrize(
    "prefix", ["trace_rank_n01.cluster_", "node17-rank_", "host-3.comm_lib_trace_rank_"]
)
def test_hosts_may_be_in_the_names_of_files(read: Read, prefix: str) -> None:
    job = TorchDumpBuilder(2)
    job.all("all_reduce")
    job.op(0, "barrier", state="started")
    verdict = read(job, prefix=prefix)
    assert verdict.root is not None
    assert verdict.root.ranks == (1,)


def test_json_is_read_as_the_pickle_is(read: Read) -> None:
    job = TorchDumpBuilder(3)
    job.all("all_reduce")
    for rank in (0, 2):
        job.op(rank, "all_reduce", state="started")
    verdict = read(job, as_json=True)
    assert verdict.root is not None
    assert (verdict.root.kind, verdict.root.ranks) == (FindingKind.MISSING_RANK, (1,))


def test_what_the_schema_cannot_hold_is_said(read: Read) -> None:
    job = TorchDumpBuilder(2)
    job.all("all_reduce")
    assert any("no reduce op, root, split sizes" in lack for lack in read(job).lacks)


@pytest.mark.parametrize("fact", [{"reduce_op": ["SUM", "MAX"]}, {"root": [0, 1]}])
def test_a_dump_that_tells_more_is_compared_by_more(
    read: Read, fact: dict[str, list[object]]
) -> None:
    ((key, values),) = fact.items()
    job = TorchDumpBuilder(2)
    for rank in range(2):
        job.op(rank, "reduce", state="started", **{key: values[rank]})
    verdict = read(job)
    assert verdict.root is not None
    assert verdict.root.kind is FindingKind.MISMATCH


def test_a_fault_is_a_fault_of_the_verdict(read: Read) -> None:
    # The exit code of the command is `has_faults`.
    job = TorchDumpBuilder(2)
    job.op(0, "all_reduce", state="started")
    job.op(1, "barrier", sizes=[], state="started")
    assert read(job).has_faults


def test_all_mismatches_of_a_group_are_there_after_the_first(read: Read) -> None:
    job = TorchDumpBuilder(3)
    for step in range(40):
        for rank in range(3):
            job.op(rank, "all_reduce", sizes=[[5 if rank == 1 and step % 2 else 4]])
    job.op(0, "barrier", sizes=[], state="started")
    job.op(2, "barrier", sizes=[], state="started")
    verdict = read(job)
    kinds = {f.kind for f in verdict.findings} | {
        f.kind for top in verdict.findings for f in top.follows
    }
    assert FindingKind.MISMATCH in kinds
    assert FindingKind.MISSING_RANK in kinds


def test_a_debug_server_gives_all_ranks_in_one_file(tmp_path: Path) -> None:
    job = TorchDumpBuilder(2)
    job.all("all_reduce")
    job.op(0, "barrier", state="started")
    both = {f"rank{rank}": to_json(job.dump(rank)) for rank in range(2)}
    (tmp_path / "fr_trace.json").write_text(json.dumps(both))
    (session,) = open_paths([tmp_path])
    verdict = diagnose(session)
    assert verdict.root is not None
    assert verdict.root.ranks == (1,)


def test_an_op_of_gloo_that_others_have_ended_is_not_in_flight(tmp_path: Path) -> None:
    job = TorchDumpBuilder(2, backend="gloo")
    job.all("all_reduce")
    job.op(0, "all_reduce", state="scheduled", retired=True)
    job.op(1, "all_reduce", state="scheduled", retired=False)
    for rank in range(2):
        (tmp_path / f"r_{rank}").write_bytes(pickle.dumps(a_gloo_dump(job, rank), protocol=2))
    (session,) = open_paths([tmp_path])
    assert diagnose(session).findings == ()

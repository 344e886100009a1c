from __future__ import annotations

import errno
import json
import os
import pickle
import socket
from pathlib import Path
from typing import BinaryIO

import pytest

from distdbg.diagnose.finding import FindingKind
from distdbg.diagnose.load.open import open_paths
from distdbg.diagnose.verdict import diagnose
from distdbg.errors import RecordError, UsageError
from tests.support.torch_dump_builder import TorchDumpBuilder


def a_hang(folder: Path) -> TorchDumpBuilder:
    job = TorchDumpBuilder(3)
    job.all("all_reduce")
    for rank in (0, 2):
        job.op(rank, "all_reduce", state="started")
    job.write(folder, ranks=(0, 2))
    return job


def test_dumps_and_logs_of_a_job_are_one_session(tmp_path: Path) -> None:
    a_hang(tmp_path)
    (tmp_path / "torchrun.txt").write_text("Sending process 99 closing signal SIGTERM\n")
    (tmp_path / "rank1.log").write_text(
        'Traceback (most recent call last):\n  File "/job/a.py", line 3, in f\nKeyError: 1\n'
    )
    (session,) = open_paths([tmp_path])
    assert session.format == "torch flight recorder"
    assert sorted(session.ranks) == [0, 2]
    assert {f.kind for f in session.said} == {FindingKind.DEAD_RANK}
    assert {line.source for line in session.lines} == {"torchrun.txt:1", "rank1.log:3"}
    verdict = diagnose(session)
    assert verdict.root is not None
    assert verdict.what == "rank 1 raised KeyError: 1 at a.py:3 (f)"
    assert verdict.root.ranks == (1,)
    assert verdict.root.victims == (0, 2)
    assert FindingKind.MISSING_RANK in {below.kind for below in verdict.root.follows}


def test_starts_in_torchruns_folders_are_sessions(tmp_path: Path) -> None:
    for attempt in range(2):
        for rank in range(2):
            folder = tmp_path / "none_abc" / f"attempt_{attempt}" / str(rank)
            folder.mkdir(parents=True)
            text = (
                f"Traceback (most recent call last):\nValueError: {attempt}\n" if rank else "fine\n"
            )
            (folder / "stderr.log").write_text(text)
    (tmp_path / "torchrun.log").write_text("Connection closed by peer\n")
    first, last = open_paths([tmp_path])
    assert (first.attempt, last.attempt) == (0, 1)
    assert first.said[0].what == "rank 1 raised ValueError: 0"
    assert last.said[0].what == "rank 1 raised ValueError: 1"
    assert last.said[0].evidence[0].source == "none_abc/attempt_1/1/stderr.log:2"
    assert last.said[0].follows


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    a_hang(tmp_path)
    (tmp_path / "trace_rank_1").write_bytes(pickle.dumps(os.system, 2))
    (tmp_path / "trace_rank_7").write_bytes(b"\x80\x02}")
    (tmp_path / "trace_rank_8").write_bytes(b"")
    os.mkfifo(tmp_path / "pipe")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "sock"))
    listener.close()
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "broken").symlink_to(tmp_path / "nowhere")
    (session,) = open_paths([tmp_path])
    lacks = "\n".join(session.lacks)
    assert "tries to load posix.system" in lacks
    assert "truncated pickle" in lacks
    assert "trace_rank_8 is empty" in lacks
    assert "pipe cannot be read" in lacks
    assert sorted(session.ranks) == [0, 2]


def test_a_path_that_is_not_there_is_a_wrong_call(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file or folder"):
        open_paths([tmp_path / "runs"])


@pytest.mark.parametrize("data", [b"", b"\x00\x01\x02" * 400, b"\x7fELF\x02\x01\x01\x00" * 64])
def test_where_nothing_can_be_used_there_is_an_error(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "file").write_bytes(data)
    for path in (tmp_path, tmp_path / "file"):
        with pytest.raises(RecordError, match="no run found here") as caught:
            open_paths([path])
        assert caught.value.hint


def test_a_start_whose_folder_may_not_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "attempt_0").mkdir()
    scandir = os.scandir

    def refuse(path: Path) -> object:
        if Path(path).name == "attempt_0":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(RecordError, match="attempt_0 cannot be read: Permission denied"):
        open_paths([tmp_path])


def test_a_named_pipe_is_never_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(RecordError):
        open_paths([tmp_path / "pipe"])


def test_nothing_is_taken_out_of_a_named_pipe(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    pipe = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    try:
        os.write(pipe, b"of somebody else")
        with pytest.raises(RecordError):
            open_paths([path])
        assert os.read(pipe, 64) == b"of somebody else"
    finally:
        os.close(pipe)


@pytest.mark.parametrize("is_named_dump", [False, True])
def test_a_file_that_has_nothing_at_the_moment_is_an_error_and_no_bug(
    tmp_path: Path, is_named_dump: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "kmsg"
    path.touch()
    ends = os.pipe2(os.O_NONBLOCK)

    def open_empty(path: Path) -> BinaryIO:  # as /proc/kmsg, which is a regular file by its mode
        return open(ends[0], "rb", closefd=False)

    monkeypatch.setattr("distdbg.diagnose.load.open.open_regular", open_empty)
    monkeypatch.setattr("distdbg.diagnose.load.torch_dump.open_regular", open_empty)
    try:
        with pytest.raises(RecordError, match="no run found here"):
            open_paths([path], ranks={path: 0} if is_named_dump else {})
    finally:
        for fd in ends:
            os.close(fd)


def test_a_deep_tree_is_given_up(tmp_path: Path) -> None:
    folder = tmp_path
    for _ in range(40):
        folder = folder / "d"
    folder.mkdir(parents=True)
    (folder / "a.log").write_text("Connection closed by peer\n")
    with pytest.raises(RecordError):
        open_paths([tmp_path])


def test_ranks_of_files_may_be_given(tmp_path: Path) -> None:
    job = TorchDumpBuilder(2)
    job.all("all_reduce")
    paths = []
    for rank, name in enumerate(("first", "second")):
        path = tmp_path / name
        path.write_bytes(pickle.dumps(job.dump(rank)))
        paths.append(path)
    (session,) = open_paths(paths, ranks=dict(zip(paths, (0, 1), strict=True)))
    assert sorted(session.ranks) == [0, 1]


RAS_TEXT = """\
NCCL version 2.26.2 compiled with CUDA 12.6
CUDA runtime version 12060, driver version 12060

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      4          8            1         32       32

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         4         8        32        32   RUNNING  MISMATCH

Errors
======

Warnings
========

#0-0 (fa93daea854b060b) MISMATCH
  Communicator ranks have different AllGather operation counts
  30 ranks have launched up to operation 640
  2 ranks have launched up to operation 641
  Rank 12 -- GPU 4 managed by process 323032 on node 10.137.190.124
  Rank 13 -- GPU 5 managed by process 323033 on node 10.137.190.124
"""


def test_ncclras_lists_those_in_front_and_we_those_behind(tmp_path: Path) -> None:
    (tmp_path / "ras.txt").write_text(RAS_TEXT)
    (session,) = open_paths([tmp_path / "ras.txt"])
    (found,) = session.said
    assert session.format == "ncclras"
    assert session.world_size == 32
    assert (found.kind, found.victims, found.seq) == (FindingKind.MISSING_RANK, (12, 13), 641)
    assert found.ranks == tuple(r for r in range(32) if r not in (12, 13))
    assert found.group == "fa93daea854b060b"


def a_ras_report() -> dict[str, object]:
    ranks = [
        {
            "rank": rank,
            "host": "n01",
            "pid": 100 + rank,
            "status": {"init_state": 0, "async_error": 0},
            "collective_counts": {"AllReduce": 100 if rank == 1 else 101, "Broadcast": 0},
        }
        for rank in range(3)
    ]
    missing = [{"rank": 3, "considered_dead": True, "unresponsive": True, "pid": 7, "host": "n02"}]
    comm = {"hash": "0xab", "size": 4, "ranks": ranks, "missing_ranks": missing}
    return {"nccl_version": "2.28.9", "communicators": [comm]}


@pytest.mark.parametrize("is_malformed", [False, True])
def test_ncclras_json_is_read_also_without_a_comma(tmp_path: Path, is_malformed: bool) -> None:
    text = json.dumps(a_ras_report(), indent=2)
    if is_malformed:
        text = text.replace('"2.28.9",\n', '"2.28.9"\n').replace(
            "},\n          {", "}\n          {", 1
        )
        with pytest.raises(ValueError, match="delimiter"):
            json.loads(text)
    (tmp_path / "ras.json").write_text(text)
    (session,) = open_paths([tmp_path])
    by_kind = {found.kind: found for found in session.said}
    assert by_kind[FindingKind.DEAD_RANK].ranks == (3,)
    assert by_kind[FindingKind.MISSING_RANK].ranks == (1,)
    assert session.world_size == 4
    assert session.ranks[2].pid == 102


def test_logs_beside_one_run_of_ours_are_of_that_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from distdbg.diagnose.load import open as opening
    from tests.support.session_builder import SessionBuilder

    build = SessionBuilder(world_size=2)
    build.op(0, "all_reduce", at_s=1.0)
    run, kernel = tmp_path / "run", tmp_path / "dmesg"
    run.mkdir()
    kernel.write_text(
        "[1.000000] Out of memory: Killed process 1001 (python) total-vm:1kB, anon-rss:1kB\n"
    )
    monkeypatch.setattr(opening, "is_run", lambda path: path == run)
    monkeypatch.setattr(opening, "group_runs", lambda paths: [paths])
    monkeypatch.setattr(opening, "load_runs", lambda paths: build.session)
    (session,) = open_paths([run, kernel])
    (found,) = session.said
    assert (found.kind, found.ranks, found.victims) == (FindingKind.DEAD_RANK, (1,), (0,))


def test_dumps_of_many_ranks_are_read_one_after_the_other(tmp_path: Path) -> None:
    job = TorchDumpBuilder(40)
    job.all("all_reduce")
    for rank in range(40):
        if rank != 17:
            job.op(rank, "all_reduce", state="started")
    job.write(tmp_path)
    (session,) = open_paths([tmp_path])
    assert [len(log.ops) for log in session.ranks.values()].count(2) == 39
    verdict = diagnose(session)
    assert verdict.root is not None
    assert verdict.root.ranks == (17,)


def test_logs_that_go_on_after_the_dumps_make_no_wait_longer(tmp_path: Path) -> None:
    a_hang(tmp_path)
    (alone,) = open_paths([tmp_path])
    later = "2099-01-01 00:00:00,000 Sending process 99 closing signal SIGTERM\n"
    (tmp_path / "torchrun.txt").write_text(later)
    (together,) = open_paths([tmp_path])
    assert together.lines[0].wall_ns is not None
    assert together.lines[0].wall_ns > alone.now_ns
    assert together.now_ns == alone.now_ns

"""Which line gives init_process_group a number that does not fit the job."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from distdbg.diagnose.session import RankLog, Session
from distdbg.diagnose.verdict import diagnose
from distdbg.record.join_calls import JoinCall
from distdbg.record.recorded_frame import RecordedFrame
from distdbg.render.source_hint import with_source_hint
from distdbg.render.source_line import SourceLines

S = 10**9
HINT = "init_process_group(world_size=6), but 2 ranks were started (WORLD_SIZE=2)"
CLUSTER = """\
class Cluster:
    nodes: int = 2
    port = 29743
    @property
    def world_size(self):
        return self.nodes * 3
"""


def hint_of(folder: Path, program: str, *, line: int, same_rank: bool = False) -> str:
    (folder / "job.py").write_text(program)
    stack = (RecordedFrame(str(folder / "job.py"), line, "connect"),)
    session = Session(source="run", world_size=2, is_live=True, now_ns=45 * S)
    for rank in range(2):
        call = JoinCall(
            rank=rank,
            pid=rank + 1,
            host="n01",
            since_ns=S,
            as_rank=0 if same_rank else rank,
            world_size=2 if same_rank else 6,
            started=2,
            stack=stack,
            step="connected",
            is_connected=True,
        )
        session.ranks[rank] = RankLog(rank=rank, host="n01", pid=rank + 1, join=call)
    source = SourceLines(str(folder), time.time_ns() + 10**15)
    root = with_source_hint(session, diagnose(session), source).root
    assert root is not None
    return root.advice


def test_a_property_of_an_imported_class_is_found(tmp_path: Path) -> None:
    (tmp_path / "cluster.py").write_text(CLUSTER)
    program = """\
import torch.distributed as dist
from cluster import Cluster
def connect(cluster):
    dist.init_process_group(
        "gloo",
        world_size=cluster.world_size,
    )
"""
    assert hint_of(tmp_path, program, line=4) == (
        f"{HINT}; see `return self.nodes * 3` (line 6 of cluster.py)"
    )


def test_of_two_classes_with_such_a_member_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "cluster.py").write_text(CLUSTER + CLUSTER.replace("Cluster", "Other"))
    program = "from cluster import Cluster\ndist.init_process_group(world_size=c.world_size)\n"
    assert hint_of(tmp_path, program, line=2) == HINT


@pytest.mark.parametrize(
    ("program", "line", "found"),
    [
        ("dist.init_process_group(world_size=6)\n", 1, "`world_size=6` (line 1 of job.py)"),
        ("init_process_group('gloo', url, None, 6)\n", 1, "`world_size=6` (line 1 of job.py)"),
        ("n = 2 * 3\ndist.init_process_group(world_size=n)\n", 2, "`n = 2 * 3` (line 1 of job.py)"),
        (
            "class C:\n    size: int = 6\ndist.init_process_group(world_size=c.size)\n",
            3,
            "`size: int = 6` (line 2 of job.py)",
        ),
        ("n = 1\nn = 2\ndist.init_process_group(world_size=n)\n", 3, ""),
        ("dist.init_process_group('gloo', *more)\n", 1, ""),
        ("dist.init_process_group()\n", 1, ""),
        ("connect(world_size=6)\n", 1, ""),
    ],
)
def test_the_argument_is_followed_to_the_one_line_that_sets_it(
    tmp_path: Path, program: str, line: int, found: str
) -> None:
    assert hint_of(tmp_path, program, line=line) == (f"{HINT}; see {found}" if found else HINT)


def test_a_rank_that_two_processes_give_is_followed_as_well(tmp_path: Path) -> None:
    program = 'rank = int(os.environ["LOCAL_ID"]) // 2\ndist.init_process_group(rank=rank)\n'
    assert hint_of(tmp_path, program, line=2, same_rank=True) == (
        "give each process a rank of its own: rank 1 was started with RANK=1; see "
        '`rank = int(os.environ["LOCAL_ID"]) // 2` (line 1 of job.py)'
    )

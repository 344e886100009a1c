"""What a timeout says about ranks that did not come."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from distdbg.runtime.members.absent import where_are, where_is


class Ended:
    def is_dead(self) -> bool:
        return True

    def how(self) -> str:
        return "died (signal 9, SIGKILL)"


def group(**facts: Any) -> Any:
    world = SimpleNamespace(run_folder=Path("/runs/1"))
    return SimpleNamespace(members=(), ranks=[4, 6, 9], world=world, **facts)


@pytest.fixture
def records(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("distdbg.record.rank_words")
    module.where_is = (  # type: ignore[attr-defined]
        lambda folder, rank: f"in {folder} as {rank}" if rank != 6 else None
    )
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


@pytest.mark.usefixtures("records")
def test_a_record_is_asked_for_the_global_rank() -> None:
    assert where_is(group(), 2) == "in /runs/1 as 9"
    assert where_are(group(), [0, 1, 2]) == ["rank 4: in /runs/1 as 4", "rank 9: in /runs/1 as 9"]


@pytest.mark.usefixtures("records")
def test_a_process_that_is_gone_is_said_before_its_last_op() -> None:
    here = group()
    here.members = [SimpleNamespace(watched=Ended()), SimpleNamespace(watched=Ended())]
    gone = "its process is gone, it died (signal 9, SIGKILL)"
    assert where_is(here, 0) == f"{gone}; in /runs/1 as 4"
    assert where_is(here, 1) == gone


def test_without_a_record_nothing_is_said(records: ModuleType) -> None:
    def fail(folder: Path, rank: int) -> str:
        raise OSError("torn")

    records.where_is = fail  # type: ignore[attr-defined]
    assert where_is(group(), 0) is None
    unrecorded = group()
    unrecorded.world = SimpleNamespace(run_folder=None)
    assert where_are(unrecorded, [0, 1]) == []


@pytest.mark.usefixtures("records")
def test_eight_ranks_are_shown() -> None:
    many = group()
    many.ranks = list(range(100, 120))
    lines = where_are(many, range(20))
    assert len(lines) == 9
    assert lines[-1] == "and 12 more ranks"


@pytest.mark.usefixtures("records")
def test_where_members_are_on_several_hosts_theirs_are_named() -> None:
    spread = group()
    spread.members = [
        SimpleNamespace(watched=None, process=SimpleNamespace(host=host))
        for host in ("node0", "node1", "node1")
    ]
    assert where_are(spread, [0, 1, 2]) == [
        "rank 4 on host node0: in /runs/1 as 4",
        "rank 6 is on host node1",
        "rank 9 on host node1: in /runs/1 as 9",
    ]

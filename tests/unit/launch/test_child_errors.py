"""The error of a child process counts where it ended the rank, not where the program handled it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from distdbg.launch import evidence
from distdbg.launch.record_facts import RecordFacts
from distdbg.record.ends import RankEnd
from distdbg.record.error_file import read_error_file, to_json
from distdbg.record.format import Exit
from distdbg.runtime.process import exit_reason
from tests.unit.launch.report_facts import BEGAN, ended

CHILD = 47
SAID_EXIT = RecordFacts(
    path="r", how=Exit.RETURNED, exit_call="called sys.exit('no luck') at a.py:9"
)
RAISED = RecordFacts(path="r", how=Exit.RAISED, raised="KeyError: 'x'")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "error.json"


def gathered(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    end: RankEnd,
    record: RecordFacts | None,
    *,
    is_of_child: bool = True,
) -> evidence.LostRankEvidence:
    error = ValueError("trial 1 diverged")
    path.write_text(to_json(error, {}, pid=CHILD, wall_ns=BEGAN, is_of_child=is_of_child))
    monkeypatch.setattr(evidence, "_read_record", lambda *_: record)
    return evidence.gather([end], path.parent, lambda rank: path)[0]


@pytest.mark.parametrize(
    ("facts", "record", "how"),
    [
        ({"signal": 9}, None, "was killed by SIGKILL"),
        ({"exit_code": 3}, None, "exited with code 3"),
        ({"exit_code": 1}, SAID_EXIT, "exited with code 1"),
        ({"exit_code": 1}, RAISED, "raised KeyError: 'x'"),
    ],
)
def test_a_rank_that_ended_in_another_way_has_handled_the_error_of_its_child(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    facts: dict[str, Any],
    record: RecordFacts | None,
    how: str,
) -> None:
    found = gathered(path, monkeypatch, ended(0, **facts), record)
    assert (found.how, found.error, found.error_file) == (how, None, "")
    assert found.failed_wall_ns == found.end.wall_ns


def test_the_error_of_a_child_counts_where_its_exit_code_is_passed_on(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = gathered(path, monkeypatch, ended(0, exit_code=1), None)
    assert found.how == "raised ValueError: trial 1 diverged"


def test_the_error_of_a_program_counts_whatever_ended_the_shell_around_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = ended(0, signal=15, was_asked=True)
    found = gathered(path, monkeypatch, end, None, is_of_child=False)
    assert found.how == "raised ValueError: trial 1 diverged"


@pytest.mark.parametrize(
    ("is_of_child", "since_ns", "said"),
    [
        (True, BEGAN + 1, "ValueError: second"),
        (True, BEGAN - 1, "ValueError: first"),  # both at once: the second may be a consequence
        (False, BEGAN + 1, "ValueError: first"),  # the rank's own
    ],
)
def test_a_child_that_came_after_another_had_failed_replaces_its_error(
    path: Path, monkeypatch: pytest.MonkeyPatch, is_of_child: bool, since_ns: int, said: str
) -> None:
    first = to_json(ValueError("first"), {}, pid=CHILD, wall_ns=BEGAN, is_of_child=is_of_child)
    path.write_text(first)
    monkeypatch.setattr(exit_reason, "error_file_path", lambda: path)
    monkeypatch.setattr(exit_reason, "leave", lambda *_: None)
    exit_reason._leave_child(since_ns, ValueError("second"))
    facts = read_error_file(path)
    assert facts is not None
    assert facts.text == said

"""What one host's agent writes on the page, for ranks that are there and ranks that come later."""

from __future__ import annotations

import json
import selectors
from collections.abc import Iterator
from pathlib import Path

import pytest

from distdbg.agent.launcher_orders import Attempt
from distdbg.agent.steering import Steering
from distdbg.control.holds import OTHER_HOST, Hold, hold_of
from distdbg.control.page import ControlPage

WORDS = {"type": "stopped", "what": "enough", "ranks": [], "details": [], "hint": "", "by": "me"}


@pytest.fixture
def steering(tmp_path: Path) -> Iterator[Steering]:
    with selectors.DefaultSelector() as selector:
        steering = Steering(selector, "n01", "run-a")
        steering.follow(tmp_path)
        yield steering
        steering.close()


def is_aborted_for_a_rank(folder: Path) -> bool:
    page = ControlPage.open(folder, "n01", "run-a", owns_folder=True)
    try:
        return page.is_aborted
    finally:
        page.close()


def test_an_abort_under_a_launcher_is_also_for_ranks_that_join_later(
    steering: Steering, tmp_path: Path
) -> None:
    steering.join(Attempt(number=0, folder=tmp_path))
    steering.order("abort", WORDS)
    assert is_aborted_for_a_rank(tmp_path)
    steering.close()
    assert not is_aborted_for_a_rank(tmp_path)


def test_a_start_of_the_ranks_is_not_ended_by_the_abort_of_the_one_before(
    steering: Steering, tmp_path: Path
) -> None:
    steering.join(Attempt(number=0, folder=tmp_path))
    steering.order("abort", WORDS)
    later = tmp_path / "attempt_1"
    later.mkdir()
    steering.follow(later)
    steering.join(Attempt(number=1, folder=later))
    assert not steering.is_aborted
    assert not is_aborted_for_a_rank(later)


def test_without_a_launcher_the_next_run_in_the_folder_finds_no_abort(
    steering: Steering, tmp_path: Path
) -> None:
    steering.order("abort", WORDS)
    assert not is_aborted_for_a_rank(tmp_path)


def test_breakpoints_are_armed_at_the_next_start_of_the_ranks_as_well(
    steering: Steering, tmp_path: Path
) -> None:
    steering.join(Attempt(number=0, folder=tmp_path))
    rules = {"rules": [{"id": 1, "rule": "rank=0"}]}
    steering.order("arm", rules)
    later, last = tmp_path / "attempt_1", tmp_path / "attempt_2"
    for number, folder in enumerate((later, last), 1):
        folder.mkdir()
        steering.follow(folder)
        steering.join(Attempt(number=number, folder=folder))
        if folder is later:
            assert json.loads(steering.rules()) == rules
            steering.order("disarm")
        assert steering.rules() == b""


def test_a_hold_of_a_process_that_is_gone_is_swept_when_the_agent_looks(
    steering: Steering, tmp_path: Path
) -> None:
    page = ControlPage.open(tmp_path, "n01", "run-a")
    page.hold(Hold(rank=2, pid=1 << 23, start_ticks=5))
    assert page.is_paused
    assert steering.look() == frozenset()
    assert not steering.is_held
    assert not page.is_paused
    page.hold(hold_of(3))
    page.pause()
    assert steering.look() == {3}
    assert steering.is_held
    holds = steering.plain_state()["holds"]
    assert [(hold["kind"], hold["rank"]) for hold in holds] == [("rank", 3), ("user", None)]
    page.close()


def test_an_agent_that_leaves_gives_back_what_it_holds_for_other_hosts(
    steering: Steering, tmp_path: Path
) -> None:
    page = ControlPage.open(tmp_path, "n01", "run-a")
    steering.order("holds", {"hosts": ["n01", "n02"]})
    assert [hold.rank for hold in page.holds()] == [OTHER_HOST]
    steering.close()
    assert page.holds() == ()
    page.close()


def test_only_ranks_are_told_to_continue(steering: Steering) -> None:
    reported: list[list[int]] = []
    steering.on_continue = reported.append
    steering.order("continue", {"ranks": [1, "2", None, 3]})
    steering.order("continue", {"ranks": "all"})
    assert reported == [[1, 3], []]

"""What one host's agent writes on the page, for ranks that are there and ranks that come later."""

from __future__ import annotations

import selectors
from collections.abc import Iterator
from pathlib import Path

import pytest

from distdbg.agent.launcher_orders import Attempt
from distdbg.agent.steering import Steering
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

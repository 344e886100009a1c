"""What a rank says of the line at which it destroys a group."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg.errors import RankLeft
from distdbg.runtime.groups import leaving


def reason_of(destroy: Callable[[], object]) -> str:
    """How the other rank says that rank 0 left, which does so by `destroy`."""
    has_left = threading.Event()

    def rank_main() -> str:
        if dist.get_rank() == 0:
            dist.barrier()
            destroy()
            has_left.set()
            return ""
        dist.barrier()
        with pytest.raises(RankLeft) as caught:
            dist.all_reduce(np.ones(1))
        has_left.wait(20)
        return caught.value.how

    return dist.run_threads(rank_main, 2, timeout_s=60)[1]


def destroyed_in(path: str) -> str:
    scope: dict[str, Any] = {"dist": dist}
    exec(compile("def destroy():\n    dist.destroy_process_group()", path, "exec"), scope)
    return reason_of(scope["destroy"])


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("/home/me/train.py", "train.py:2"),
        ("/home/me/" + "x" * 60 + "mixture.py", "x" * 28 + "mixture.py:2"),
        ("/home/me/" + "\u00fc" * 60 + ".py", "\u00fc" * 17 + ".py:2"),
        ("/home/me/tr\nain\x1b.py", r"tr\nain\x1b.py:2"),
        ("/home/me/tr\udc80ain.py", r"tr\udc80ain.py:2"),
        ("/home/me/tr\ud800ain.py", r"tr\ud800ain.py:2"),
        ("/home/me/", "?:2"),
        ("<stdin>", "<stdin>:2"),
    ],
)
def test_any_file_name_is_shown_and_fits(path: str, place: str) -> None:
    assert destroyed_in(path) == f"left (destroyed the group at {place})"


def test_a_library_that_calls_it_for_the_program_is_passed_over() -> None:
    def destroy() -> None:
        with contextlib.ExitStack() as stack:
            stack.callback(dist.destroy_process_group)

    line = destroy.__code__.co_firstlineno + 1
    assert reason_of(destroy) == f"left (destroyed the group at test_leaving.py:{line})"


def test_a_line_of_a_library_is_not_named() -> None:
    assert destroyed_in(threading.__file__) == "left (destroyed the group)"


def test_a_place_that_cannot_be_told_leaves_no_group_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def cannot(site: str) -> str:
        monkeypatch.undo()
        raise RuntimeError("no words")

    monkeypatch.setattr(leaving, "_place", cannot)

    def destroy() -> None:
        with pytest.raises(RuntimeError, match="no words"):
            dist.destroy_process_group(dist.group.WORLD)

    assert reason_of(destroy) == "left (destroyed the group)"

"""What comes of a group that ends while its links are measured."""

from __future__ import annotations

from typing import cast

import pytest

from distdbg.native import Group, NativeError
from distdbg.runtime.backends.shared_memory import _link
from distdbg.runtime.plan.link import Link


class Ending:
    """A group whose measuring fails."""

    def __init__(self, fault: str) -> None:
        self.fault = fault

    def measure_links(self, deadline_ns: int) -> tuple[int, int, int]:
        error = NativeError("called abort()")
        error.fault = self.fault
        raise error


def test_a_group_that_another_rank_aborts_meanwhile_is_made_all_the_same() -> None:
    assert _link(cast(Group, Ending("broken")), None, 0) == Link()


@pytest.mark.parametrize("fault", ["timeout", "peer_lost", "aborted"])
def test_other_failures_are_failures_of_making_the_group(fault: str) -> None:
    with pytest.raises(NativeError, match="abort"):
        _link(cast(Group, Ending(fault)), None, 0)

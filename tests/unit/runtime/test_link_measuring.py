"""What comes of a group that ends while its links are measured, and who hears the word of rank 0."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import cast

import pytest

from distdbg.control.clock import FREE_CLOCK
from distdbg.native import Group, NativeError
from distdbg.runtime.backends.shared_memory import _Finder, _link, _shape_for
from distdbg.runtime.members.member_liveness import NewGroupMembers
from distdbg.runtime.net.run_links import RunLinks
from distdbg.runtime.plan.link import NetworkLink, parse_link
from distdbg.runtime.rendezvous.process import ProcessIdentity
from distdbg.runtime.store import HashStore, Store
from distdbg.runtime.tuning.profile import Profile

PROCESSES = [
    ProcessIdentity(host="n", boot_id=boot, pid_namespace=1, pid=7, started=1)
    for boot in ("a", "b")
]


class Ending:
    """A group whose measuring fails."""

    def __init__(self, fault: str) -> None:
        self.fault = fault

    def measure_links(self, ring: Sequence[int], deadline_ns: int) -> None:
        error = NativeError("called abort()")
        error.fault = self.fault
        raise error


class Measured:
    """A group whose measuring gives these times."""

    def __init__(self, *times_ns: tuple[int, int]) -> None:
        self.times_ns = list(times_ns)

    def measure_links(
        self, ring: Sequence[int], deadline_ns: int
    ) -> tuple[list[tuple[int, int]], int]:
        return self.times_ns, 1 << 18


def link(group: object, rank: int, store: Store, word: str = "") -> NetworkLink:
    links = RunLinks(store, ((0,), (1,)), PROCESSES)
    lives = NewGroupMembers("g", [0, 1], [])
    finder = _Finder(store, "g", time.monotonic_ns() + 10_000_000_000, FREE_CLOCK, lives)
    return _link(cast(Group, group), rank, _shape_for(2, "", word, Profile()), links, finder)


def test_a_group_that_another_rank_aborts_meanwhile_is_made_all_the_same() -> None:
    assert link(Ending("broken"), 1, HashStore()) == NetworkLink()


@pytest.mark.parametrize("fault", ["timeout", "peer_lost", "aborted"])
def test_other_failures_are_failures_of_making_the_group(fault: str) -> None:
    with pytest.raises(NativeError, match="abort"):
        link(Ending(fault), 1, HashStore())


@pytest.mark.parametrize("fault", ["broken", "timeout"])
def test_ranks_that_were_done_do_not_wait_for_a_rank_0_that_failed(fault: str) -> None:
    store = HashStore()
    if fault == "broken":
        link(Ending(fault), 0, store)
    else:
        with pytest.raises(NativeError):
            link(Ending(fault), 0, store)
    assert link(Measured((30_000, 500_000), (30_000, 500_000)), 1, store) == parse_link(
        NetworkLink().words
    )


def test_all_ranks_go_by_what_rank_0_has_made_of_it() -> None:
    store = HashStore()
    agreed = link(Measured((30_000, 500_000), (30_000, 500_000)), 0, store)
    assert link(Measured((9_000_000, 90_000_000), (1, 2)), 1, store) == agreed


def test_a_link_that_is_known_is_not_measured() -> None:
    assert link(Ending("timeout"), 1, HashStore(), "5us,40Gb") == parse_link("5us,40Gb")

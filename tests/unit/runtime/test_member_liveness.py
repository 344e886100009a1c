"""Errors while a group is made: whose failure they are."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from distdbg.errors import (
    DistBackendError,
    DistError,
    NoSharedMemoryError,
    PeerLost,
    RankLeft,
)
from distdbg.runtime.backends.shared_memory import too_late
from distdbg.runtime.members.member_liveness import MemberProcess, NewGroupMembers
from distdbg.runtime.rendezvous.process import identify_self, read_start


def test_one_that_was_killed_is_named_before_those_that_ended_because_of_it() -> None:
    me = identify_self()
    words = ["import os; input(); os._exit(1)", "import os; input(); os.kill(os.getpid(), 9)"]
    children = [subprocess.Popen([sys.executable, "-c", w], stdin=subprocess.PIPE) for w in words]
    members = [
        MemberProcess(replace(me, pid=child.pid, started=read_start(child.pid) or 0), me)
        for child in children
    ]
    lives = NewGroupMembers("0", range(2), members)
    for child in children:
        child.communicate(b"\n")
    with pytest.raises(PeerLost, match=r"rank 1 died \(signal 9, SIGKILL\)"):
        lives.check()
    assert lives.first_cause(0, "exited (code 1)") == (1, "died (signal 9, SIGKILL)")


def test_when_the_time_is_over_the_error_says_what_is_true_of_all_ranks() -> None:
    late = too_late("1", 3, [2], [0, 2])
    assert late.what == "2 of 3 ranks joined group '1' in time; missing ranks 2"
    assert (late.joined, late.missing) == ([0, 1], [2])
    stuck = too_late("1", 3, [], [2])
    assert "all 3 ranks joined group '1', but ranks 2 did not go on" in stuck.what
    assert (stuck.joined, stuck.missing) == ([0, 1, 2], [2])
    assert too_late("1", 2, [], []).what == "all 2 ranks joined group '1', but not in time"


def make_lives() -> NewGroupMembers:
    """Of this process and one that has ended since."""
    me = identify_self()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        started = read_start(child.pid)
        assert started
        other = replace(me, pid=child.pid, started=started)
        lives = NewGroupMembers("0", range(2), [MemberProcess(me, me), MemberProcess(other, me)])
        child.communicate(b"\n")
    return lives


@pytest.mark.parametrize(
    ("raised", "comes"),
    [
        (DistBackendError, RankLeft),
        # All ranks find this by themselves, so one that has left already did so because of it.
        (NoSharedMemoryError, NoSharedMemoryError),
    ],
)
def test_what_a_rank_that_has_ended_is_the_reason_for(
    raised: type[DistError], comes: type[DistError]
) -> None:
    with pytest.raises(comes), make_lives().blamed():
        raise raised("the memory cannot be opened")

"""Errors while a group is made: whose failure they are."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from distdbg.errors import DistBackendError, DistError, NoSharedMemoryError, RankLeft
from distdbg.runtime.lives import Life, Lives
from distdbg.runtime.rendezvous.process import identify_self, read_start


def make_lives() -> Lives:
    """Of this process and one that has ended since."""
    me = identify_self()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        started = read_start(child.pid)
        assert started
        other = replace(me, pid=child.pid, started=started)
        lives = Lives("0", range(2), [Life(me, me), Life(other, me)])
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

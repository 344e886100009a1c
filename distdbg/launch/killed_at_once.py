"""Whether all ranks of a launcher were killed in one blow from outside: by Slurm, `pkill`, a cgroup. Pure.

None of them is the cause then, whichever the kernel ended first.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import Final

from distdbg.record.ends import RankEnd

#: Ends that are closer than this are one blow: the same as `analyze` has.
_ONE_BLOW_NS: Final = 10**9
_SIGNALS: Final = (
    signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2,
)  # fmt: skip


def struck_at_once(ends: Sequence[RankEnd], count: int) -> int | None:
    """The signal that ended all of `count` ranks; None: they ended otherwise, or one after the other."""
    if len(ends) < max(count, 2):
        return None
    numbers = {one.signal for one in ends if one.cause == "signal"}
    number = numbers.pop() if len(numbers) == 1 else None
    if number not in _SIGNALS or any(one.cause != "signal" for one in ends):
        return None
    times = [one.ended_ns for one in ends]
    # One that died alone makes the launcher end the others, which it was asked to.
    is_by_others = sum(not one.was_asked for one in ends) > len(ends) // 2
    return number if is_by_others and max(times) - min(times) <= _ONE_BLOW_NS else None

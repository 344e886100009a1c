"""Where a rank writes its stacks when it is asked to, and by which signal it is asked.

rank00012.stacks     in the run folder, beside its record; as long as it is there, the signal makes
                     the process append the stacks of all its threads to it
"""

from __future__ import annotations

import signal
from typing import Final

#: Neither glibc, nor the common profilers, runtimes and launchers use it.
STACK_SIGNAL: Final = signal.SIGRTMIN + 7


def stacks_name(rank: int) -> str:
    """The file of a rank in the run folder."""
    return f"rank{rank:05}.stacks"

"""A rank must not outlive whoever started it: ask the kernel to see to that.

PR_SET_PDEATHSIG fires when the parent *thread* ends, so it only fits children that were started by
a thread which lives as long as its process; others watch a file descriptor (see spawn.py).
"""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent_pid: int) -> None:
    """Have the kernel kill this process when its parent thread ends; Linux only.

    If the parent died before the request was made, the process ends here.
    """
    try:
        prctl = ctypes.CDLL(None, use_errno=True).prctl
    except (OSError, AttributeError):
        return  # another system: the caller's own clean-up has to do
    prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent_pid:
        os.kill(os.getpid(), signal.SIGKILL)

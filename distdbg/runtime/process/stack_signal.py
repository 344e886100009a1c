"""Lets an observer dump this rank's stacks without its help: a signal that faulthandler answers.

It answers also while the process holds the GIL. A program that has a handler for that signal keeps it,
and such a rank has no file (`record/stack_file.py`). Of ranks that are threads of one process, one
installs it for all.
"""

from __future__ import annotations

import faulthandler
import os
from contextlib import suppress
from pathlib import Path

from distdbg.record.stack_file import STACK_SIGNAL, stacks_name
from distdbg.runtime.process.world import World


class StackSignal:
    """The handler of this process, and the file it writes to."""

    def __init__(self, path: Path) -> None:
        """OSError when the file cannot be made."""
        self._path = path
        self._pid = os.getpid()
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        self._fd = os.open(path, flags, 0o600)
        faulthandler.register(STACK_SIGNAL, file=self._fd, all_threads=True, chain=False)

    def close(self) -> None:
        """Undo it: first the file, so that nobody sends what nobody would catch."""
        if self._pid == os.getpid():  # not in a fork, whose parent still has both
            with suppress(OSError):
                self._path.unlink()
            faulthandler.unregister(STACK_SIGNAL)
        os.close(self._fd)


def install_stack_signal(world: World, rank: int) -> None:
    """Install the handler, where that is possible and the program has none."""
    remove_stack_signal(world)
    if world.run_folder is None or _is_caught(STACK_SIGNAL):
        return
    # Without it the stacks of this rank are known to py-spy only.
    with suppress(OSError, RuntimeError):
        world.stack_signal = StackSignal(world.run_folder / stacks_name(rank))


def remove_stack_signal(world: World) -> None:
    """Take it away again."""
    if world.stack_signal is not None:
        world.stack_signal.close()
        world.stack_signal = None


def _is_caught(signum: int) -> bool:
    """Whether anybody in this process, Python or not, has a handler; also where that is not known."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            masks = [line.split()[1] for line in file if line.startswith(("SigCgt:", "SigIgn:"))]
    except OSError:
        return True
    return any(int(mask, 16) >> (signum - 1) & 1 for mask in masks)

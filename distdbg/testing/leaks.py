"""What a test may leave behind by mistake: threads, child processes, descriptors, shared memory."""

from __future__ import annotations

import gc
import glob
import os
import threading
import time
from contextlib import suppress
from dataclasses import dataclass

_SHARED_MEMORY = "/dev/shm/distdbg*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """What this process holds at one moment."""

    threads: frozenset[str]
    children: frozenset[str]
    descriptors: frozenset[str]
    segments: frozenset[str]

    def beyond(self, before: Holdings) -> list[str]:
        """Return one line for everything that is held now and was not held `before`."""
        pairs = (
            ("thread", self.threads - before.threads),
            ("child process", {_describe(pid) for pid in self.children - before.children}),
            ("descriptor", self.descriptors - before.descriptors),
            ("shared memory", self.segments - before.segments),
        )
        return [f"{what}: {name}" for what, names in pairs for name in sorted(names)]


def take_holdings() -> Holdings:
    """Look at this process: its threads, children, descriptors, and the host's distdbg segments."""
    return Holdings(
        threads=frozenset(f"{t.name} ({t.ident})" for t in threading.enumerate()),
        children=frozenset(_children()),
        descriptors=frozenset(_descriptors()),
        segments=frozenset(glob.glob(_SHARED_MEMORY)),
    )


def find_leaks(before: Holdings, patience_s: float = 10.0) -> list[str]:
    """Return what is held beyond `before`; things that are just ending get `patience_s`."""
    if not take_holdings().beyond(before):
        return []
    deadline = time.monotonic() + patience_s
    while True:
        # A caught exception and the frame that caught it hold each other, and all that is in the frame: also
        # those of a thread that has just ended.
        gc.collect()
        leaks = take_holdings().beyond(before)
        if not leaks or time.monotonic() >= deadline:
            return leaks
        time.sleep(0.01)  # nothing announces the end of a thread or a process that is not ours


def _children() -> list[str]:
    pids: list[str] = []
    for thread_id in os.listdir("/proc/self/task"):
        with suppress(OSError), open(f"/proc/self/task/{thread_id}/children") as file:
            pids += file.read().split()
    return pids


def _describe(pid: str) -> str:
    # Not part of what tells processes apart: one that has just been started gets its name later.
    command = ""
    with suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
        command = file.read().replace(b"\0", b" ").decode(errors="replace")[:120]
    return f"{pid} {command or '(ended, never waited for)'}"


def _descriptors() -> list[str]:
    found = []
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{descriptor}")
        except OSError:
            continue  # the one that lists the folder
        # The number alone would say nothing, the target alone hides a second one of the same.
        found.append(f"{descriptor} -> {target}")
    return found

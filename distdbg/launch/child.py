"""What a spawned process runs: set-up, the function, and an error report if it fails.

The report goes through a pipe that nobody may be reading yet, so it is kept smaller than what a
pipe holds: a failing process never waits for its parent.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from typing import Any

from distdbg.errors import PeerLost, error_text
from distdbg.launch.own_environment import is_rank_of_launcher, own_environment
from distdbg.launch.parent_death import die_with_parent
from distdbg.record.error_file import write_error_file
from distdbg.record.traceback_text import format_trimmed, is_full

#: Linux's pipes hold 64 KiB; the rest is for the other fields.
_TRACEBACK_LIMIT = 48_000
_LINE_LIMIT = 300
#: If one of these is set, somebody else has said already who is who.
_PLACE_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    summary: str
    traceback: str
    is_consequence: bool
    """Whether it failed because another process did."""

    @classmethod
    def from_exception(cls, error: BaseException) -> Report:
        """Describe `error` within the size of a pipe."""
        text = format_trimmed(error, is_full=is_full())
        if len(text) > _TRACEBACK_LIMIT // 4:  # a character may take four bytes
            kept = _TRACEBACK_LIMIT // 8
            text = f"{text[:kept]}\n... {len(text) - 2 * kept} characters ...\n{text[-kept:]}"
        first_line = error_text(error).partition("\n")[0][:_LINE_LIMIT]
        name = type(error).__name__
        return cls(
            summary=f"{name}: {first_line}" if first_line else name,
            traceback=text,
            is_consequence=isinstance(error, PeerLost),
        )

    def to_json(self) -> bytes:
        fields = (self.summary, self.traceback, self.is_consequence)
        return json.dumps(fields, ensure_ascii=False).encode(errors="replace")

    @classmethod
    def from_json(cls, content: bytes) -> Report:
        summary, text, is_consequence = json.loads(content)
        return cls(summary=summary, traceback=text, is_consequence=is_consequence)


def run_child(
    fn: Callable[..., Any],
    index: int,
    args: tuple[Any, ...],
    reports: Connection,
    environment: Mapping[str, str],
    parent_pid: int,
    is_parent_thread_lasting: bool,
) -> None:
    """Call `fn(index, *args)`; a failure is reported and ends the process with exit code 1."""
    # Without these two a process that is killed leaves its children running, unless they happen to
    # talk to it. The kernel's way ends with the parent *thread*, so it fits the main thread only.
    if is_parent_thread_lasting:
        die_with_parent(parent_pid)
    else:
        threading.Thread(target=_watch_parent, name="distdbg-parent", daemon=True).start()
    if is_rank_of_launcher(os.environ):  # which is who the parent is, not this process
        own = own_environment(os.environ)
        os.environ.clear()
        # An agent of their own would be ended with the job around them before it can tidy up.
        os.environ.update({**own, "DISTDBG_AGENT": "0", **environment})
    elif not any(name in os.environ for name in _PLACE_VARIABLES):
        os.environ.update(environment)
    try:
        fn(index, *args)
    except KeyboardInterrupt:
        # The parent gets Ctrl-C as well and speaks for all; end as by the signal itself.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except Exception as error:  # noqa: BLE001 - whatever it is, the parent raises it
        _leave(error)
        write_error_file(error)
        reports.send_bytes(Report.from_exception(error).to_json())
        reports.close()
        sys.exit(1)


def _leave(error: Exception) -> None:
    """Tell this rank's groups and its record what it raised; a child need not be a rank."""
    if "distdbg.runtime.process.exit_reason" in sys.modules:
        from distdbg.runtime.process.debugger_seam import hold_on_error
        from distdbg.runtime.process.exit_reason import leave
        from distdbg.runtime.process.world import current

        hold_on_error(error)
        leave(current(), error)


def _watch_parent() -> None:
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGKILL)

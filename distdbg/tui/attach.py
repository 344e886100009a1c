"""A debugger on a rank, in the terminal of the dashboard, which steps aside until the debugger is left."""

from __future__ import annotations

import contextlib
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Final

from textual.app import SuspendNotSupported

from distdbg.record.rank_state import RankState
from distdbg.tui.view import Dashboard

#: The exit codes of who leaves a debugger by Ctrl-C.
_LEFT: Final = (-signal.SIGINT, 128 + signal.SIGINT)


def attach_command(rank: int, address: str) -> list[str]:
    """What attaches to a rank of the job at this address."""
    return ["attach", "--rank", str(rank), address]


def attach(app: Dashboard, rank: int) -> None:
    """Do it here, or say which command does it elsewhere."""
    address = app.feed.address
    if not app.feed.can_change or not address or app.snapshot.is_over:
        app.show_message("there is no running process to attach to", "error")
        return
    if app.is_readonly:
        app.show_message("attach: not with --readonly", "error")
        return
    row = app.snapshot.ranks.get(rank)
    is_at_prompt = row is not None and row.state is RankState.DEBUGGED
    if app.snapshot.is_debuggable is False and not is_at_prompt:
        app.show_message(
            f"attach: start the job with `distdbg run --debuggable`; now: `:break rank={rank}`",
            "error",
        )
        return
    command = attach_command(rank, address)
    try:
        with app.suspend(), _ctrl_c_is_the_debuggers():
            done = subprocess.run([sys.executable, "-m", "distdbg", *command], check=False)
    except SuspendNotSupported:
        app.show_message(f"type in a terminal: distdbg {shlex.join(command)}")
        return
    except OSError as error:
        app.show_message(f"attach: {error}", "error")
        return
    if done.returncode not in (0, *_LEFT):
        # Its words are behind us: the dashboard has drawn over them.
        app.show_message(
            f"attach to rank {rank} ended with code {done.returncode}; "
            f"distdbg {shlex.join(command)} shows why",
            "warning",
        )
    app.tick()


@contextlib.contextmanager
def _ctrl_c_is_the_debuggers() -> Iterator[None]:
    """The terminal sends it to us too, and it is meant for the rank's code.

    A handler that does nothing, not SIG_IGN: the program that is started would inherit that.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, lambda number, frame: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)

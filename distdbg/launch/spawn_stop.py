"""When Ctrl-C, SIGTERM or SIGHUP ends a program that waits in `spawn`: what its processes did then.

Whoever ends it mostly does so because it hangs. SIGTERM and SIGHUP still end the program as they would have:
only its processes are ended first, so that nothing is left of them but a job that was stopped.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Final

from distdbg import config
from distdbg.diagnose import headline
from distdbg.errors import DistError
from distdbg.launch.rank_activity import HostActivity, what_ranks_do
from distdbg.launch.report_layout import lay_out, wants_colour, width_of
from distdbg.record.folders import list_runs, record_name, user_folder
from distdbg.record.header import read_opening
from distdbg.record.printable import printable
from distdbg.record.source import ByteSource

_ENDING: Final = (signal.SIGTERM, signal.SIGHUP)
#: The newest runs of this user in which the processes' records are looked for.
_MAX_RUNS: Final = 32


class StopSignal(BaseException):
    """A signal that ends the program arrived while it waited for its processes."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


@contextmanager
def ending_by_signals() -> Iterator[None]:
    """Let what the block started be ended before a signal ends this process.

    Signals that the program handles or ignores stay with it, and so do those of other threads' programs.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ours = [number for number in _ENDING if signal.getsignal(number) is signal.SIG_DFL]
    for number in ours:
        signal.signal(number, _stop)
    try:
        yield
    except StopSignal as stopped:
        signal.signal(stopped.number, signal.SIG_DFL)
        os.kill(os.getpid(), stopped.number)
        raise
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def _stop(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_DFL)  # the next one ends this process at once
    raise StopSignal(number)


def print_stop(error: BaseException, pids: Mapping[int, int]) -> None:
    """Print what the ranks did; nothing where they have no record, or an error ends the program."""
    if isinstance(error, StopSignal):
        how = str(error)
    elif isinstance(error, KeyboardInterrupt):
        how = "Ctrl-C (SIGINT)"
    else:
        return
    with suppress(DistError, OSError, ValueError):
        folder = _find_folder(pids)
        if folder is None:
            return
        word, lines = _say(how, what_ranks_do(folder, pids), _where(folder))
        is_terminal = sys.stderr.isatty()
        text = lay_out(
            word,
            [printable(line) for line in lines],
            width=width_of(is_terminal, shutil.get_terminal_size().columns),
            is_coloured=wants_colour(is_terminal, os.environ),
        )
        sys.stderr.write(text)
        sys.stderr.flush()


def where_to_look(pids: Mapping[int, int]) -> tuple[str, ...]:
    """The run folder and the next command; nothing where the processes have no record."""
    with suppress(DistError, OSError, ValueError):
        folder = _find_folder(pids)
        return _where(folder) if folder is not None else ()
    return ()


def _where(folder: Path) -> tuple[str, ...]:
    name = folder.name if folder.parent == user_folder() else str(folder)
    return f"run folder: {folder}", f"next: distdbg analyze {name}"


def _say(how: str, doing: HostActivity, ends: Sequence[str]) -> tuple[str, list[str]]:
    """The first word, and the lines. Pure."""
    if doing.hang:
        return headline.HUNG, [doing.hang, f"interrupted by {how}", *ends]
    if doing.waited:
        return headline.STOPPED, [f"interrupted by {how} after {doing.waited}", *ends]
    return headline.STOPPED, [f"interrupted by {how}", *doing.lines, *ends]


def _find_folder(pids: Mapping[int, int]) -> Path | None:
    """Where the processes write their records."""
    chosen = config.read_setting("DISTDBG_RUN_DIR")
    folders = [Path(str(chosen)).absolute()] if chosen is not None else list_runs()[-_MAX_RUNS:]
    for folder in reversed(folders):
        for rank, pid in pids.items():
            path = folder / record_name(rank)
            with suppress(DistError, OSError, ValueError), ByteSource(path) as source:
                if read_opening(source).header.pid == pid:
                    return folder
    return None

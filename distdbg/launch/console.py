"""The launcher's terminal, lent to the debugger of a rank that stops: as pdb in a plain script.

    no rank stopped --a rank holds the clock--> lent --the client ends--> the next rank, or none

Ranks have no terminal of their own. While the launcher is in the foreground of one, it runs
`distdbg attach` there for one stopped rank after the other: a process group of its own in the
foreground, so that Ctrl-C goes to the client and the job continues. However the client ends, the launcher
takes the terminal back as it was. A stop that the client has left is not opened again; the next is.
"""

from __future__ import annotations

import os
import signal
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

from distdbg.command import print_error
from distdbg.errors import format_ranks
from distdbg.launch.stopped_ranks import StoppedRank
from distdbg.record.ends import signal_name

#: How often somebody looks whether a rank has stopped.
LOOK_S: Final = 0.2
#: How long a client may take to end when its rank is gone, and when it is told to.
_LAST_WORDS_S: Final = 1.0
_END_S: Final = 1.0
_SLICE_S: Final = 0.02
#: Back to their defaults in the client, whatever the launcher does with them.
_SIGNALS: Final = (
    signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP, signal.SIGTTIN,
    signal.SIGTTOU, signal.SIGPIPE,
)  # fmt: skip

Attributes = list[Any]


class LauncherTerminal:
    """One terminal. For the launcher's main thread alone."""

    def __init__(
        self,
        fd: int,
        *,
        environ: Mapping[str, str] = os.environ,
        command: Callable[[int, str], Sequence[str]] | None = None,
    ) -> None:
        """command: the client for a rank of a run; `distdbg attach` when not given."""
        self._fd = fd
        self._environ = environ
        self._command = command or _attach
        self._former = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        """The handler of a process that writes to a terminal, or takes it back, while another has it."""
        self._pid = 0
        self._stop: StoppedRank | None = None
        """The stop whose client runs, or ran last."""
        self._left: list[StoppedRank] = []
        """What clients have left while it lasted."""
        self._attributes: Attributes = []
        """How the terminal was before it was lent."""
        self._of_client: Attributes = []
        """How a client that was stopped had made it."""
        self._is_stopped = False
        self._is_news = False
        """Whether a client has ended since the last look."""
        self._looked_at = -LOOK_S

    @classmethod
    def here(cls) -> Self | None:
        """The launcher's own; None when nobody sits there."""
        try:
            is_ours = os.isatty(0) and os.isatty(2) and os.tcgetpgrp(0) > 0
        except OSError:  # a terminal, but not of this session
            return None
        return cls(0) if is_ours else None

    @property
    def is_lent(self) -> bool:
        return self._pid != 0

    def look(self, run: str, find_stops: Callable[[], Sequence[StoppedRank]]) -> None:
        """Begin what is to begin, end what has ended; at most every LOOK_S."""
        now = time.monotonic()
        if now - self._looked_at < LOOK_S:
            return
        self._looked_at = now
        if self.is_lent:
            self._is_news = self._has_ended()
            return
        stops = find_stops()
        self._left = [left for left in self._left if any(map(left.is_same, stops))]
        if self._is_news and self._stop in self._left:
            rank = self._stop.rank
            print_error(
                f"distdbg run: rank {rank} is still stopped; "
                f"distdbg attach --rank {rank} {run} returns there"
            )
        self._is_news = False
        waiting = [stop for stop in stops if not any(map(stop.is_same, self._left))]
        if waiting and self._is_in_front():
            self._lend(run, waiting)

    def end(self, patience_s: float = _LAST_WORDS_S) -> None:
        """Take the terminal back; a client whose rank is gone may say so first."""
        if not self.is_lent or self._wait(patience_s):
            return
        for signum in (signal.SIGTERM, signal.SIGKILL):
            for sent in (signum, signal.SIGCONT):
                with suppress(ProcessLookupError):
                    os.killpg(self._pid, sent)
            if self._wait(_END_S):
                return

    def close(self) -> None:
        self.end(0.0)
        signal.signal(signal.SIGTTOU, self._former)

    # ------------------------------------------------------------------------------- lending

    def _lend(self, run: str, waiting: list[StoppedRank]) -> None:
        self._stop, *others = waiting
        rank = self._stop.rank
        more = ""
        if others:
            ranks = sorted(other.rank for other in others)
            more = f"; then rank{'' if len(ranks) == 1 else 's'} {format_ranks(ranks)}, stopped too"
        print_error(f"distdbg run: this terminal now shows the debugger of rank {rank}{more}")
        self._attributes = termios.tcgetattr(self._fd)
        argv = list(self._command(rank, run))
        try:
            self._pid = os.posix_spawn(
                argv[0],
                argv,
                _environ(self._environ),
                file_actions=[(os.POSIX_SPAWN_DUP2, self._fd, 0), (os.POSIX_SPAWN_DUP2, 2, 1)],
                setpgroup=0,
                setsigmask=(),
                setsigdef=_SIGNALS,
            )
        except OSError as error:
            print_error(f"distdbg run: its debugger cannot be opened here: {error.strerror}")
            self._left.append(self._stop)
            return
        self._give()

    def _give(self) -> None:
        self._is_stopped = False
        attributes, self._of_client = self._of_client, []
        with suppress(OSError, termios.error):  # it has ended already
            if attributes:
                termios.tcsetattr(self._fd, termios.TCSADRAIN, attributes)
            os.tcsetpgrp(self._fd, self._pid)
            os.killpg(self._pid, signal.SIGCONT)  # it may have tried to read before it was given

    def _take_back(self) -> None:
        with suppress(OSError):  # nobody has it any more
            os.tcsetpgrp(self._fd, os.getpgrp())
        with suppress(OSError, termios.error):
            termios.tcsetattr(self._fd, termios.TCSADRAIN, self._attributes)

    def _is_in_front(self) -> bool:
        try:
            return os.tcgetpgrp(self._fd) == os.getpgrp()
        except OSError:
            return False

    # ------------------------------------------------------------------------------- ending

    def _wait(self, timeout_s: float) -> bool:
        """Whether the client ends in time."""
        deadline = time.monotonic() + timeout_s
        while not self._has_ended():
            if time.monotonic() >= deadline:
                return False
            time.sleep(_SLICE_S)
        return True

    def _has_ended(self) -> bool:
        if not self.is_lent:
            return True
        if self._is_stopped:
            if self._is_in_front():
                self._give()
            return False
        try:
            pid, status = os.waitpid(self._pid, os.WNOHANG | os.WUNTRACED)
        except ChildProcessError:
            pid, status = self._pid, 0
        if pid == 0:
            return False
        if os.WIFSTOPPED(status):
            with suppress(OSError, termios.error):
                self._of_client = termios.tcgetattr(self._fd)
            self._take_back()
            self._stop_as_well()
            return False
        self._take_back()
        self._pid = 0
        assert self._stop is not None
        self._left.append(self._stop)
        if os.WIFSIGNALED(status):
            signum = os.WTERMSIG(status)
            print_error(f"distdbg run: the debugger's client was killed by {signal_name(signum)}")
            if signum == signal.SIGHUP:  # the terminal is gone
                os.kill(os.getpid(), signal.SIGHUP)
        return True

    def _stop_as_well(self) -> None:
        """Ctrl-Z stops the client alone, but whoever started the launcher waits for that."""
        self._is_stopped = True
        former = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        try:
            os.killpg(os.getpgrp(), signal.SIGTSTP)  # nothing, where nobody could let it go on
        finally:
            signal.signal(signal.SIGTSTP, former)


def _attach(rank: int, run: str) -> Sequence[str]:
    return (sys.executable, "-P", "-m", "distdbg", "attach", "--once", "--rank", str(rank), run)


def _environ(environ: Mapping[str, str]) -> dict[str, str]:
    path = [str(Path(__file__).parents[2]), *filter(None, [environ.get("PYTHONPATH")])]
    return {**environ, "PYTHONPATH": os.pathsep.join(path)}

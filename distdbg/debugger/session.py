"""A rank stops, is debugged in the thread that it runs in, and goes on: `stop_here`, and what is around.

    stopped --n, s, r, until, c with breakpoints--> traced --> stopped ...
    stopped --c, q, nobody came--> over: no trace function, no socket, no hold on the clock

Each stop at a prompt is an op of its own in the record and holds the clock of the job; while the rank
runs, be it to the next line, the clock runs.

A client may leave at any time. At a prompt that the program has asked for, the rank then stays; one that
the client has asked for by attaching is over. And a rank that runs is as if nobody had been there.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from traceback import walk_tb
from types import FrameType, TracebackType
from typing import Any
from weakref import WeakKeyDictionary

from distdbg import config
from distdbg.control.page import read_page
from distdbg.debugger.console import Console, DeskConsole, at_own_terminal
from distdbg.debugger.desk import Desk, Expired
from distdbg.debugger.evaluate import evaluate, evaluate_in
from distdbg.debugger.frames import is_ours, site_of, user_frame
from distdbg.debugger.rank_pdb import RankPdb
from distdbg.debugger.serve import server
from distdbg.errors import ConfigError, DistError
from distdbg.record.folders import attempt_number
from distdbg.record.format import Aside
from distdbg.record.host import host_name
from distdbg.runtime import world as worlds
from distdbg.runtime.aside import aside
from distdbg.runtime.world import World, current

#: How long the name of a stop may be in the record.
_MOST_WHY = 120


class Outcome(StrEnum):
    """How a stop ended."""

    CONTINUED = "continued"
    QUIT = "quit"
    EXPIRED = "expired"
    """Nobody came, or it took longer than allowed."""


def stop_here(
    why: str,
    *,
    frame: FrameType | None = None,
    error: BaseException | None = None,
    limit_s: float = 3600.0,
) -> Outcome:
    """Open the debugger in this thread, at the user's frame or where `error` was raised.

    Returns after the first command that lets the rank go on; the debugger may stop it again later.
    """
    if frame is None:
        frame = user_frame(sys._getframe(1))
    return session_of(current()).stop(why, frame=frame, error=error, limit_s=limit_s)


def session_of(world: World) -> Session:
    """The debugger of a rank; made when it is first asked for."""
    with _LOCK:
        session = _sessions.get(world)
        if session is None:
            session = _sessions[world] = Session(world)
        return session


_LOCK = threading.Lock()  # protects the next
_sessions: WeakKeyDictionary[World, Session] = WeakKeyDictionary()


class Session:
    """The debugger of one rank, whether it is stopped or not."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.rank = _rank_of(world)
        self.desk = Desk(
            self.rank,
            _run_of(world),
            is_debuggable=bool(config.read_setting("DISTDBG_DEBUGGABLE")),
        )
        self.desk.on_left = self._on_left
        self.thread = threading.get_ident()
        self._pdb: RankPdb | None = None
        self._stops = 0
        #: Whether the program has asked for the prompt, and not a client by attaching.
        self._is_breakpoint = True
        #: The client has left a rank that runs: all is undone at the next event.
        self._is_over = False
        self._console: Console | None = None
        self._deadline = 0.0
        self._frame: FrameType | None = None
        self._before: Any = None

    # ------------------------------------------------------------------ stopping

    @property
    def is_stopped(self) -> bool:
        return self._frame is not None

    def stop(
        self,
        why: str,
        *,
        frame: FrameType,
        error: BaseException | None = None,
        limit_s: float,
        is_breakpoint: bool = True,
    ) -> Outcome:
        """Open a prompt; see `stop_here`."""
        if self.is_stopped:
            return Outcome.CONTINUED  # of a statement that was typed at the prompt
        self.thread = threading.get_ident()
        self.rank = self.desk.rank = _rank_of(self._world)
        trace = None if error is None else error.__traceback__
        pdb = self._pdb
        before = sys.gettrace()
        sys.settrace(None)  # not in our own code
        if pdb is None:
            pdb = self._pdb = self._make_pdb()
            self._before = before
            self._is_breakpoint = is_breakpoint
        self._is_over = False
        pdb.prepare(frame)
        outcome = Outcome.EXPIRED
        try:
            outcome = self._sit(why, frame, trace, limit_s)
        finally:
            if outcome is Outcome.CONTINUED and pdb.is_tracing_needed and error is None:
                pdb.start_tracing(frame)
            else:
                self._finish(None)
        return outcome

    def _make_pdb(self) -> RankPdb:
        pdb = RankPdb(self._ask, self._write)
        pdb.on_stop = self._on_stop
        pdb.is_over = lambda: self._is_over
        pdb.on_detach = self._detach
        return pdb

    def _on_stop(self, frame: FrameType | None, trace: TracebackType | None) -> None:
        """What the trace function calls where the rank is to stop again."""
        assert frame is not None and self._pdb is not None  # bdb knows where it is
        outcome = Outcome.EXPIRED
        try:
            outcome = self._sit(_why_again(self._pdb, frame), frame, trace, None)
        finally:
            quits = outcome is Outcome.QUIT and self._is_breakpoint
            if outcome is not Outcome.CONTINUED or not self._pdb.is_tracing_needed:
                pdb = self._pdb
                self._finish(frame)
                pdb.quitting = quits

    def _sit(
        self,
        why: str,
        frame: FrameType,
        trace: TracebackType | None,
        limit_s: float | None,
    ) -> Outcome:
        """One stop at the prompt."""
        if limit_s is not None:
            self._deadline = time.monotonic() + limit_s
        site = _site(frame, trace)
        with at_own_terminal() as terminal:
            if terminal is None and not self._open():
                return Outcome.EXPIRED
            self._console = terminal or DeskConsole(self.desk, self._is_staying)
            self.desk.has_own_terminal = terminal is not None
            self._frame = frame
            self._stops += 1
            group = self._world.default or next(iter(self._world.groups.values()), None)
            try:
                if group is None:
                    return self._prompt(why, site, frame, trace)
                with aside(group, Aside.DEBUGGER, self._stops, why[:_MOST_WHY]):
                    return self._prompt(why, site, frame, trace)
            finally:
                self._frame = None
                self._console = None
                self.desk.has_own_terminal = False

    def _prompt(
        self, why: str, site: str, frame: FrameType, trace: TracebackType | None
    ) -> Outcome:
        pdb = self._pdb
        assert pdb is not None  # whoever stops has made it
        with self._holding():
            self.desk.begin(why, site)
            self._announce(why, site)
            try:
                pdb.prompt_at(None if trace is not None else frame, trace)
            except Expired:
                self._say("nobody has told it to go on in time; it goes on")
                return Outcome.EXPIRED
            finally:
                self.desk.end()
        return Outcome.QUIT if pdb.quitting else Outcome.CONTINUED

    @contextmanager
    def _holding(self) -> Iterator[None]:
        """The clock of the job stands. Rooms that know no holds have none."""
        clock = self._world.control
        hold: Callable[[int], None] | None = getattr(clock, "hold", None)
        release: Callable[[int], None] | None = getattr(clock, "release", None)
        if hold is not None:
            hold(self.rank)
        try:
            yield
        finally:
            if release is not None:
                release(self.rank)

    def _finish(self, frame: FrameType | None) -> None:
        """The rank goes on without a debugger."""
        pdb, self._pdb = self._pdb, None
        if pdb is not None:
            pdb.stop_tracing(frame if frame is not None else sys._getframe(1))
            if pdb.breaks:
                pdb.clear_all_breaks()
        if self._before is not None:
            sys.settrace(self._before)
            self._before = None
        if not self.desk.is_debuggable:
            server().close(self.desk)

    # ------------------------------------------------------------------ the prompt

    def _ask(self, prompt: str) -> str | None:
        console, pdb = self._console, self._pdb
        if console is None or pdb is None:
            return None
        return console.ask(prompt, self._deadline, pdb.complete_line, self._greet)

    def _write(self, text: str) -> None:
        if self._console is not None:
            self._console.write(text)

    def _greet(self) -> None:
        """Show somebody new where the rank is."""
        pdb = self._pdb
        if pdb is not None and pdb.stack:
            pdb.print_stack_entry(pdb.stack[pdb.curindex])

    def _is_staying(self) -> bool:
        """Whether the rank at its prompt has somebody to wait for. Raises what ends the job."""
        self._world.control.check(op="the debugger")
        return self._is_breakpoint or bool(self.desk.client)

    def _detach(self) -> bool | None:
        if self.desk.client:
            server().detach(self.desk)
            return None
        pdb = self._pdb
        return None if pdb is None else pdb.do_continue("")

    def _on_left(self) -> None:
        """In the server's thread: a rank that runs is as if nobody had been there."""
        if not self.is_stopped:
            self._is_over = True

    # ------------------------------------------------------------------ surroundings

    def _open(self) -> bool:
        """Let clients come."""
        if server().is_open(self.desk):
            return True
        folder = self._world.run_folder
        if folder is None:
            self._say("it cannot stop: it has no run folder for a socket, and no terminal")
            return False
        self.desk.run = _run_of(self._world)
        try:
            server().open(self.desk, folder, self.evaluate)
        except ConfigError as error:
            self._say(f"it cannot stop: {error.what}")
            return False
        return True

    def evaluate(self, expression: str) -> dict[str, str]:
        """In the frame that is shown, or where the rank runs."""
        pdb = self._pdb
        if pdb is not None and pdb.is_prompting and pdb.curframe is not None:
            with worlds.use(self._world):
                return evaluate_in(expression, pdb.curframe.f_globals, pdb.curframe_locals)
        frame = self._frame or sys._current_frames().get(self.thread)
        if frame is None:
            return {"error": f"the thread of rank {self.rank} is gone"}
        with worlds.use(self._world):
            return evaluate(expression, user_frame(frame))

    def _announce(self, why: str, site: str) -> None:
        if self.desk.has_own_terminal or self.desk.client:
            return
        self._say(
            f"stopped at {site}, {why}; attach: distdbg attach --rank {self.rank} {self.desk.run}"
        )

    def _say(self, text: str) -> None:
        # Not through sys.stderr: the rank may have been interrupted in the middle of a print.
        with suppress(OSError):
            os.write(2, f"distdbg: rank {self.rank}: {text}\n".encode(errors="backslashreplace"))


def _why_again(pdb: RankPdb, frame: FrameType) -> str:
    number = getattr(pdb, "currentbp", 0)
    return f"breakpoint {number}" if number else "step"


def _site(frame: FrameType, trace: TracebackType | None) -> str:
    """Of the frame, or of the innermost line of the user's where an exception came by."""
    site = "" if trace is not None else site_of(frame)
    for at, line in walk_tb(trace):
        if not site or not is_ours(at):
            site = site_of(at, line)
    return site


def _rank_of(world: World) -> int:
    if world.membership is not None:
        return world.membership.rank
    text = os.environ.get("RANK", "")
    return int(text) if text.isdecimal() else 0


def _run_of(world: World) -> str:
    folder = world.run_folder
    if folder is None:
        return ""
    with suppress(DistError):
        name = read_page(folder, host_name()).run
        if name:
            return name
    return folder.parent.name if attempt_number(folder) is not None else folder.name

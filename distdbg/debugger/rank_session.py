"""Session: the debugger of one rank, in the thread that the rank runs in.

    stopped --n, s, r, until, c with breakpoints--> traced --> stopped ...
    stopped --c, q, no client--> over: no trace function, no socket, no hold on the clock

Each stop at a prompt is an op of its own in the record and holds the clock of the job; while the rank
runs, be it to the next line, the clock runs.

A client may leave at any time. At a prompt that the program has asked for, the rank then stays; one that
the client has asked for by attaching is over. A running rank is as if no client had ever attached.
"""

from __future__ import annotations

import bdb
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

from distdbg import config
from distdbg.debugger.announce import announce, print_line
from distdbg.debugger.console import DebugConsole, DeskConsole, OwnTerminal, at_own_terminal
from distdbg.debugger.deaths import Deaths
from distdbg.debugger.desk import PromptExpired, PromptInput, PromptInterrupted, not_debuggable
from distdbg.debugger.evaluate import evaluate, evaluate_in
from distdbg.debugger.foreign import DebuggerFailed, Foreign, chosen_debugger
from distdbg.debugger.frames import program_frame, site_at, stop_place, user_frame
from distdbg.debugger.given_input import typing_lines
from distdbg.debugger.identity import rank_of, run_of
from distdbg.debugger.interrupt import is_critical, raise_in
from distdbg.debugger.outcome import StopOutcome, quit_error
from distdbg.debugger.rank_pdb import RankPdb
from distdbg.debugger.serve import server
from distdbg.debugger.stop_op import StopOp
from distdbg.debugger.stopper import Stopper
from distdbg.debugger.terminal import ONE_AT_A_TIME, ClientTerminal, client_terminal, over_streams
from distdbg.errors import ConfigError, format_error
from distdbg.runtime.process import world as worlds
from distdbg.runtime.process.world import World

#: How long a rank that leaves waits for its clients to hear of it.
_LAST_WORDS_S = 1.0


class DebugSession:
    """The debugger of one rank, whether it is stopped or not."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.rank = rank_of(world)
        self.desk = PromptInput(
            self.rank,
            run_of(world),
            is_debuggable=bool(config.read_setting("DISTDBG_DEBUGGABLE")),
        )
        self.desk.on_left = self._on_left
        self.desk.interrupt = self._interrupt
        self._stops = 0
        self._frame: FrameType | None = None
        """Where it is stopped; None: it runs."""
        self._last_site = ""
        self._deadline = 0.0
        # What follows is there from the first stop until the rank goes on without a debugger.
        self._pdb: RankPdb | None = None
        self._foreign: Foreign | None = None
        self._first_words = ""
        """What has gone wrong before the first prompt, which says it."""
        self._is_breakpoint = True
        """Whether the program has asked for the prompt, and not a client by attaching."""
        self._is_over = False
        """The client has left while the rank ran: all is undone at the next event."""
        self._tracer_before: Any = None
        self._deaths = Deaths(self.rank, lambda: world.run_folder)
        # What follows is there while it is stopped.
        self._console: DebugConsole | None = None
        self._terminal: ClientTerminal | None = None
        self._stopper = Stopper(
            self.desk,
            groups=lambda: list(world.groups.values()),
            on_signal=self._on_signal,
            stop=self._stop_now,
            stop_soon=self._stop_soon,
        )

    @property
    def is_stopped(self) -> bool:
        return self._frame is not None

    @property
    def _is_begun(self) -> bool:
        return self._pdb is not None or self._foreign is not None

    # ------------------------------------------------------------------ its life

    def serve(self) -> None:
        """Let clients come while it runs."""
        self._stopper.listen()
        self._open()

    def unserve(self) -> None:
        """Clients come no more to a rank that runs, unless its job is debuggable."""
        if not self.desk.is_debuggable and not self._is_begun:
            server().close(self.desk)
            self._stopper.close()

    def close(self) -> None:
        """It can be reached no longer."""
        self._stopper.give_up()
        self._is_over = True
        server().end(self.desk, f"rank {self.rank} has left its groups")
        server().settle(self.desk, _LAST_WORDS_S)
        self._stopper.join(_LAST_WORDS_S)
        self._stopper.close()

    def _open(self) -> bool:
        if server().is_open(self.desk):
            return True
        folder = self._world.run_folder
        if folder is None:
            print_line(
                self.rank,
                "no debugger can attach: it has no run folder for a socket, and no terminal",
            )
            return False
        self.desk.run = run_of(self._world)
        try:
            server().open(self.desk, folder, self.evaluate)
        except ConfigError as error:
            print_line(self.rank, f"no debugger can attach: {error.what}")
            return False
        return True

    # ------------------------------------------------------------------ stopping

    def stop(
        self,
        why: str,
        *,
        frame: FrameType,
        error: BaseException | None = None,
        reported: BaseException | None = None,
        limit_s: float,
        is_breakpoint: bool = True,
    ) -> StopOutcome:
        """Open a prompt; see `stop_here`."""
        if self.is_stopped:
            return StopOutcome.CONTINUED  # of a statement that was typed at the prompt
        tracer = sys.gettrace()
        sys.settrace(None)  # not in our own code
        if not self._is_begun:
            self._tracer_before = tracer
            if not self._begin(is_breakpoint):
                self._finish(frame)
                return StopOutcome.CONTINUED
        self._prepare(frame)
        self._is_over = False
        if reported is not None:
            self._first_words += f"{format_error(reported)}\n"
        trace = None if error is None else error.__traceback__
        outcome = StopOutcome.EXPIRED
        is_traced = False
        try:
            outcome = self._sit(why, frame, trace, limit_s)
            is_traced = outcome is StopOutcome.CONTINUED and trace is None and self._is_needed
        finally:
            if is_traced:
                self._start_tracing(frame)
            else:
                self._finish(frame)
        return outcome

    def _begin(self, is_breakpoint: bool) -> bool:
        """The first stop. False: breakpoints are switched off."""
        self._stopper.thread = threading.get_ident()
        self.rank = self.desk.rank = rank_of(self._world)
        self._is_breakpoint = is_breakpoint
        name = chosen_debugger(os.environ)
        if name is None and is_breakpoint:
            return False
        if name:
            try:
                self._foreign = Foreign(name)
            except ConfigError as error:
                self._fall_back(error.what)
        else:
            self._use_pdb("")
        self._stopper.listen()
        return True

    def _fall_back(self, why: str) -> None:
        print_line(self.rank, f"{why}; pdb is used")
        self._use_pdb(f"*** {why}; this is pdb\n")

    def _use_pdb(self, first_words: str) -> None:
        self._foreign = None
        pdb = self._pdb = RankPdb(self._ask, self._write)
        pdb.on_stop = self._on_stop
        pdb.is_over = lambda: self._is_over
        pdb.on_detach = self._detach
        pdb.quit_error = lambda: quit_error(self.rank, self._last_site)
        pdb.on_prompt = self._say_first_words
        pdb.is_completion_wanted = lambda: self.desk.is_completion_wanted
        pdb.has_keyboard = lambda: self.desk.has_own_terminal
        self._first_words = first_words

    def _prepare(self, frame: FrameType) -> None:
        if self._pdb is not None:
            self._pdb.prepare(frame)

    @property
    def _is_needed(self) -> bool:
        """After a prompt: whether the rank is to stop again."""
        if self._foreign is not None:
            return self._foreign.is_needed
        return self._pdb is not None and self._pdb.is_tracing_needed

    def _start_tracing(self, frame: FrameType) -> None:
        if self._foreign is not None:
            self._foreign.start_tracing(frame)
        elif self._pdb is not None:
            self._pdb.start_tracing(frame)

    def _finish(self, frame: FrameType | None) -> None:
        """The rank goes on without a debugger."""
        pdb, self._pdb = self._pdb, None
        foreign, self._foreign = self._foreign, None
        if pdb is not None:
            pdb.stop_tracing(frame)
        if foreign is not None:
            foreign.stop_tracing(frame)
        if self._tracer_before is not None:
            sys.settrace(self._tracer_before)
            self._tracer_before = None
        self.unserve()

    # ------------------------------------------------------------------ one stop

    def _on_stop(self, frame: FrameType | None, trace: TracebackType | None) -> None:
        """What pdb's trace function calls where the rank is to stop again."""
        pdb = self._pdb
        assert frame is not None  # bdb knows where it is
        assert pdb is not None  # it calls
        number = pdb.take_breakpoint()
        why = f"pdb's breakpoint {number}" if number else "step"
        outcome = StopOutcome.EXPIRED
        try:
            outcome = self._sit(why, frame, None, None, trace)
        finally:
            if outcome is not StopOutcome.CONTINUED or not pdb.is_tracing_needed:
                self._finish(frame)
                pdb.quitting = outcome is StopOutcome.QUIT and self._is_breakpoint

    def _around_foreign(self, show: Callable[[], Any]) -> Any:
        """What a debugger that is not ours calls for each of its prompts."""
        foreign = self._foreign
        if self.is_stopped or foreign is None or foreign.debugger is None:
            return show()  # the first, which is in hand
        frame = foreign.traced_frame()
        if self._is_over:
            self._finish(frame)
            return None
        try:
            return self._sit_over("step", frame, None, show)
        finally:
            if not foreign.is_needed:
                self._finish(frame)

    def _sit(
        self,
        why: str,
        frame: FrameType,
        trace: TracebackType | None,
        limit_s: float | None,
        passing: TracebackType | None = None,
    ) -> StopOutcome:
        """One stop at the prompt. `passing`: an exception that pdb has stopped at on its way."""
        if limit_s is not None:
            self._deadline = time.monotonic() + limit_s

        def show() -> None:
            if self._foreign is not None:
                self._show_foreign(self._foreign, frame, trace)
            elif self._pdb is not None:
                self._pdb.prompt_at(None if trace is not None else frame, trace or passing)

        try:
            try:
                return self._sit_over(why, frame, trace, show)
            except DebuggerFailed as error:
                self._fall_back(str(error))
                self._prepare(frame)
                return self._sit_over(why, frame, trace, show)
        except PromptExpired:
            print_line(self.rank, "no client continued it in time")
            return StopOutcome.EXPIRED
        except PromptInterrupted:
            raise KeyboardInterrupt from None

    def _show_foreign(
        self, foreign: Foreign, frame: FrameType, trace: TracebackType | None
    ) -> None:
        if trace is not None:
            foreign.enter_dead(trace)
            return
        if foreign.debugger is None:
            if not foreign.enter(frame):
                return
            foreign.wrap(self._around_foreign)
        foreign.stop(frame)

    def _sit_over(
        self,
        why: str,
        frame: FrameType,
        trace: TracebackType | None,
        show: Callable[[], Any],
    ) -> StopOutcome:
        """Record it, hold the clock, see that somebody can come, and show the prompt."""
        place = stop_place(frame, trace)
        site = self._last_site = site_at(*place)
        with at_own_terminal(self._tell_deaths) as own:
            if own is None and not self._open():
                return StopOutcome.UNREACHABLE
            self._console = own or DeskConsole(self.desk, self._is_staying)
            self.desk.has_own_terminal = own is not None
            self.desk.mode = "line" if self._foreign is None else "terminal"
            self._stopper.give_up()
            self._stops += 1
            self._frame = frame
            reads = own is None and self._is_breakpoint and self._foreign is None
            try:
                with (
                    typing_lines(self.desk, reads),
                    StopOp(self._world, self._stops, why, None if trace is None else place),
                ):
                    return self._prompt(why, site, own, show)
            finally:
                self._frame = None
                self._console = None
                self.desk.has_own_terminal = False

    def _prompt(
        self, why: str, site: str, own: OwnTerminal | None, show: Callable[[], Any]
    ) -> StopOutcome:
        with self._world.control.held(self.rank):
            self.desk.begin(why, site)
            try:
                announce(self.desk, why, site)
                if own is not None and why != "step":
                    own.write(f"distdbg: rank {self.rank} is at its prompt\n")
                with self._over_terminal(own) as is_staying:
                    if is_staying:
                        show()
            except bdb.BdbQuit:
                return StopOutcome.QUIT
            finally:
                self.desk.end(is_traced=self._is_needed)
        foreign = self._foreign.debugger if self._foreign is not None else None
        quits = foreign.quitting if foreign else self._pdb is not None and self._pdb.quitting
        return StopOutcome.QUIT if quits else StopOutcome.CONTINUED

    @contextmanager
    def _over_terminal(self, own: OwnTerminal | None) -> Iterator[bool]:
        """Debuggers that are not ours need a terminal. Gives False where it is time to go on."""
        if self._foreign is None:
            yield True
            return
        with ONE_AT_A_TIME:
            if own is not None:
                with over_streams(own.fd):
                    yield True
                return
            try:
                with client_terminal(self.desk, self._deadline, self._is_staying) as self._terminal:
                    yield self._terminal is not None
            finally:
                self._terminal = None

    # ------------------------------------------------------------------ the prompt

    def _ask(self, prompt: str) -> str | None:
        console, pdb = self._console, self._pdb
        if console is None or pdb is None:
            return None
        try:
            return console.ask(prompt, self._deadline, pdb.complete_line, self._greet)
        except KeyboardInterrupt:
            if self.desk.has_own_terminal or pdb.is_executing:
                raise  # Ctrl-C of who types there
            raise PromptInterrupted from None

    def _write(self, text: str) -> None:
        if self._console is not None:
            self._console.write(text)

    def _greet(self) -> None:
        """Show somebody new where the rank is."""
        if (pdb := self._pdb) is not None and pdb.stack:
            self._say_first_words()
            pdb.print_stack_entry(pdb.stack[pdb.curindex])

    def _say_first_words(self) -> None:
        """Once, to whoever is there first."""
        if self.desk.client or self.desk.has_own_terminal:
            words, self._first_words = self._first_words, ""
            self._write(words)

    def _is_staying(self) -> bool:
        """Whether the rank at its prompt has somebody to wait for. Raises what ends the job."""
        self._world.control.check(op="the debugger")
        self._tell_deaths()
        return self._is_breakpoint or bool(self.desk.client)

    def _tell_deaths(self) -> None:
        """Show who has died to whoever is at the prompt."""
        if self._console is not None:
            self._deaths.show(self.desk, self._console.notify)

    def _detach(self) -> bool | None:
        """Let go of the client; the prompt finds out by itself what to do without one."""
        if self.desk.client:
            server().detach(self.desk)
            return None
        pdb = self._pdb
        return None if pdb is None else pdb.do_continue("")

    def _on_left(self) -> None:
        """The client has left (server's thread): a rank that runs is as if nobody had been there."""
        self._stopper.give_up()
        if not self.is_stopped:
            self._is_over = True
        elif self._pdb is not None and self._pdb.is_completing:
            self._break_off()

    def evaluate(self, expression: str) -> dict[str, str]:
        """Evaluate an expression in the frame that is shown, or where the rank runs."""
        with worlds.use(self._world):
            pdb = self._pdb
            shown = pdb.curframe if pdb is not None and pdb.is_prompting else None
            if pdb is not None and shown is not None:
                return evaluate_in(expression, shown.f_globals, pdb.curframe_locals)
            if self._frame is not None:
                return evaluate(expression, user_frame(self._frame))
            frame = sys._current_frames().get(self._stopper.thread)
            if frame is None:
                return {"error": f"the thread of rank {self.rank} is gone"}
            return evaluate(expression, program_frame(frame))

    # ------------------------------------------------------------------ interrupting

    def _interrupt(self) -> None:
        """Break off what was typed, or stop the rank (server's thread)."""
        if self.desk.is_stopped:
            self.desk.give_up_completions()
            self._break_off()
        elif not self.desk.is_debuggable and not self._is_begun:
            self.desk.write(f"*** {not_debuggable(self.rank)}\n")
        else:
            self._stopper.want()

    def _break_off(self) -> None:
        if self._stopper.is_main_thread:
            self._stopper.break_off()
        elif self._pdb is not None:
            thread = self._stopper.thread
            self._pdb.break_off(lambda: raise_in(thread, KeyboardInterrupt))

    def _on_signal(self, frame: FrameType | None) -> None:
        """Handle the signal, in the main thread, between any two bytecodes."""
        is_executing = self.is_stopped and self._is_executing
        if self._stopper.takes_break(frame, is_executing, is_foreign=self._terminal is not None):
            raise KeyboardInterrupt
        if self._stopper.is_wanted and frame is not None and not is_critical(frame):
            self._stop_now(frame)  # which does nothing where it has stopped

    @property
    def _is_executing(self) -> bool:
        if self._terminal is not None:
            return self._terminal.takes_interrupts
        return self._pdb is not None and self._pdb.is_executing

    def _stop_now(self, frame: FrameType) -> None:
        """Stop because a client wants it (rank's thread)."""
        if not self.is_stopped:
            self._stopper.give_up()
            at = user_frame(frame)
            self.stop("interrupted", frame=at, limit_s=math.inf, is_breakpoint=False)

    def _stop_soon(self, frame: FrameType) -> None:
        if self._pdb is not None:
            self._pdb.stop_soon(frame)

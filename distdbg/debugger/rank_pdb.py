"""RankPdb: pdb at a console of ours, over the user's frames.

It differs from pdb in this: frames of this package are not shown and not stepped into, nor is what they
call; a statement may go over several lines; what is assigned in a function's frame stays; `c` and the
end of input continue the rank; `detach` disconnects the client.

A stop is noted by pdb's machinery and carried out afterwards, from `trace_dispatch`: so the nearest frame
outside this package is the user's, which the record takes for the call site.
"""

from __future__ import annotations

import ast
import bdb
import code as consoles
import codeop
import pdb
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Final

from distdbg.debugger.frames import is_ours, keep_locals
from distdbg.debugger.streams import printing_to

Ask = Callable[[str], "str | None"]
Noted = tuple["FrameType | None", "TracebackType | None"]

#: What the first line of a stop begins with.
_SKIPPED: Final = ("distdbg", "distdbg.*")


class ConsoleFile:
    """stdin and stdout of pdb and of the statements that are executed: lines from, text to the console."""

    encoding = "utf-8"
    errors = "backslashreplace"

    def __init__(self, ask: Ask, write: Callable[[str], None]) -> None:
        self._ask = ask
        self._write = write
        #: What was written since the last end of a line: input() and plain pdb write their prompts.
        self._begun = ""

    def write(self, text: str) -> int:
        whole, end, rest = (self._begun + text).rpartition("\n")
        if end:
            self._write(whole + end)
        self._begun = rest
        if len(rest) > 4096:
            self.flush()
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Only at the end of a line, or the prompt of input() would be an output."""

    def settle(self) -> None:
        """Write what has no end."""
        if self._begun:
            begun, self._begun = self._begun, ""
            self._write(begun + "\n")

    def readline(self, size: int = -1) -> str:
        begun, self._begun = self._begun, ""
        line = self._ask(begun)
        return "" if line is None or line == "EOF" else line + "\n"

    def __iter__(self) -> ConsoleFile:
        return self

    def __next__(self) -> str:
        line = self.readline()
        if not line:
            raise StopIteration
        return line

    def isatty(self) -> bool:
        return False

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True


class RankPdb(pdb.Pdb):
    """One for a rank's session, from its first stop until the rank goes on without."""

    def __init__(self, ask: Ask, write: Callable[[str], None]) -> None:
        self._ask = ask
        self.console_file = ConsoleFile(ask, write)
        super().__init__(
            completekey=None,  # type: ignore[arg-type]  # None is how cmd leaves readline alone
            stdin=self.console_file,  # type: ignore[arg-type]  # a file as far as pdb needs one
            stdout=self.console_file,  # type: ignore[arg-type]
            skip=_SKIPPED,
            nosigint=True,
        )
        self.prompt = "(Pdb) "
        #: Makes a stop; set by the session.
        self.on_stop: Callable[[FrameType | None, TracebackType | None], None] = (
            lambda frame, trace: self.prompt_at(frame, trace)
        )
        #: Asked before each event: whether the session is over and the trace function to be removed.
        self.is_over: Callable[[], bool] = lambda: False
        #: Called before a prompt shows where it is.
        self.on_prompt: Callable[[], None] = lambda: None
        #: Asked when a completion can be broken off: whether somebody still waits for it.
        self.is_completion_wanted: Callable[[], bool] = lambda: True
        #: Whether who types here types at the keyboard of this process, whose Ctrl-C is then theirs.
        self.has_keyboard: Callable[[], bool] = lambda: False
        self._noted: Noted | None = None
        self._is_noting = False
        self.is_prompting = False
        self.is_executing = False
        self.is_completing = False
        #: So that nothing is raised in this thread after a command, but during it.
        self._executing = threading.Lock()
        #: What ends the rank's program where its debugger is quit.
        self.quit_error: Callable[[], BaseException] = bdb.BdbQuit
        #: Lets go of the client; whether the rank then goes on.
        self.on_detach: Callable[[], bool | None] = lambda: self.do_continue("")

    # ------------------------------------------------------------------ stops

    def prompt_at(self, frame: FrameType | None, trace: TracebackType | None) -> None:
        """The prompt itself; returns after the command that lets the rank go on."""
        self.is_prompting = True
        try:
            while True:
                try:
                    self.on_prompt()
                    super().interaction(frame, trace)
                    return
                except KeyboardInterrupt:  # typed between what is shown of the place and the prompt
                    if not self.has_keyboard():
                        raise
                    self.message("--KeyboardInterrupt--")
        finally:
            self.console_file.settle()
            self.is_prompting = False

    def interaction(self, frame: Any, traceback: Any) -> None:
        if self._is_noting:
            self._noted = frame, traceback
        else:
            self.prompt_at(frame, traceback)

    def trace_dispatch(self, frame: FrameType, event: str, arg: Any) -> Any:
        if self.is_prompting:
            return None  # of a statement at the prompt, which may itself be traced
        if self.is_over():
            self.stop_tracing(frame)
            return None
        self._is_noting = True
        try:
            local = super().trace_dispatch(frame, event, arg)
        finally:
            self._is_noting = False
        noted, self._noted = self._noted, None
        if noted is None:
            return local
        self.on_stop(*noted)
        if event == "return" and self.stopframe is frame and self.stoplineno != -1:
            # `next` and `until` in a frame that is done: as pdb, which has looked at that already.
            self._set_stopinfo(None, None)  # type: ignore[attr-defined]  # bdb's own
        if self.quitting:
            raise self.quit_error()
        return local if self.is_tracing_needed else None

    def stop_here(self, frame: FrameType) -> bool:
        return bool(super().stop_here(frame)) and not self._is_of_ours(frame)

    def _is_of_ours(self, frame: FrameType) -> bool:
        """Whether it was called by a frame of this package, and not by way of the user's code."""
        at: FrameType | None = frame
        while at is not None:
            if is_ours(at):
                return True
            if at.f_trace is not None:
                return False
            at = at.f_back
        return False

    # ------------------------------------------------------------------ tracing

    @property
    def is_tracing_needed(self) -> bool:
        """After a prompt: whether the rank is to stop again."""
        return not self.quitting and (self.stoplineno != -1 or bool(self.breaks))

    def prepare(self, frame: FrameType) -> None:
        """Before a prompt that is not opened from a trace function."""
        bottom = frame
        while bottom.f_back is not None:
            bottom = bottom.f_back
        self.reset()
        self.botframe = bottom
        self._set_stopinfo(None, None)  # type: ignore[attr-defined]  # bdb's own

    def start_tracing(self, frame: FrameType) -> None:
        """Let this thread stop where it was told to, from `frame` on."""
        self._trace_from(frame)
        sys.settrace(self.trace_dispatch)

    def _trace_from(self, frame: FrameType) -> None:
        at: FrameType | None = frame
        while at is not None:
            if not is_ours(at):
                at.f_trace = self.trace_dispatch
            at = at.f_back

    def take_breakpoint(self) -> int:
        """The number of pdb's breakpoint that it has stopped at; 0: none."""
        number: int = getattr(self, "currentbp", 0)
        self.currentbp = 0
        return number

    def break_off(self, raise_here: Callable[[], None]) -> None:
        """Raise in this thread, asked by another one, if a command is being carried out."""
        with self._executing:
            if self.is_executing:
                raise_here()

    def stop_soon(self, frame: FrameType) -> None:
        """Stop this thread at its next event, asked by another one; it is traced and at `frame`."""
        self._trace_from(frame)
        self._set_stopinfo(None, None)  # type: ignore[attr-defined]  # bdb's own

    def stop_tracing(self, frame: FrameType | None) -> None:
        """The session is over: in the thread that is traced."""
        sys.settrace(None)
        while frame is not None:
            if frame.f_trace == self.trace_dispatch:
                frame.f_trace = None
            frame = frame.f_back
        if self.breaks:
            self.clear_all_breaks()

    # ------------------------------------------------------------------ what is shown

    def get_stack(self, f: Any, t: Any) -> Any:
        stack, index = super().get_stack(f, t)
        if not stack:
            return stack, index
        current = stack[index]
        kept = [one for one in stack if one is current or not is_ours(one[0])]
        if is_ours(current[0]) and len(kept) > 1:  # an exception that came out of this package
            before = kept.index(current) - 1
            kept.remove(current)
            return kept, max(before, 0)
        return kept, kept.index(current)

    # ------------------------------------------------------------------ lines

    def cmdloop(self, intro: Any = None) -> None:
        self.preloop()
        stop: Any = None
        while not stop:
            if self.cmdqueue:
                line = self.cmdqueue.pop(0)
            else:
                self.console_file.settle()
                given = self._ask(self.prompt)
                line = "EOF" if given is None else given
            self.is_executing = True
            try:
                with printing_to(self.console_file):
                    stop = self.postcmd(self.onecmd(self.precmd(line)), line)
            finally:
                with self._executing:
                    self.is_executing = False
        self.postloop()

    def complete_line(self, text: str, line: str, begin: int, end: int) -> list[str]:
        """All that fits there: commands, their arguments, names, attributes."""
        stripped = len(line) - len(line.lstrip())
        # Attributes are the user's code, which may take its time, and is then broken off.
        was_executing, self.is_executing = self.is_executing, True
        self.is_completing = True
        try:
            try:
                if not self.is_completion_wanted():
                    return []
                return self._find(text, line[stripped:], begin - stripped, end - stripped)
            finally:
                with self._executing:
                    self.is_executing = was_executing
                    self.is_completing = False
        except (Exception, KeyboardInterrupt):  # noqa: BLE001 - completion is a courtesy
            return []

    def _find(self, text: str, line: str, begin: int, end: int) -> list[str]:
        if begin > 0:
            word = self.parseline(line)[0]
            of_word = getattr(self, f"complete_{word}", None) if word else None
            found = (of_word or self.completedefault)(text, line, begin, end)
        else:
            found = self.completenames(text, line, begin, end)
            found += self._complete_expression(text, line, begin, end)
        return sorted({str(one) for one in found or ()})

    def default(self, line: str) -> None:
        if line[:1] == "!":
            line = line[1:].strip()
        try:
            source = self._whole(line)
            for statement in ast.parse(source, "<stdin>", "single").body if source else ():
                self._execute(statement)
        except BaseException:  # noqa: BLE001 - the user's; told at the prompt
            self._error_exc()  # type: ignore[attr-defined]  # pdb's own
        finally:
            self._keep_locals()

    def _execute(self, statement: ast.stmt) -> None:
        # sys.displayhook is the process's, so values are shown without it.
        assert self.curframe is not None  # statements are typed at a frame
        names, local = self.curframe.f_globals, self.curframe_locals
        if isinstance(statement, ast.Expr):
            value = eval(compile(ast.Expression(statement.value), "<stdin>", "eval"), names, local)
            self.displayhook(value)
        else:
            module = ast.Module([statement], type_ignores=[])
            exec(compile(module, "<stdin>", "exec"), names, local)

    def _whole(self, line: str) -> str | None:
        """The statement with the lines that it goes on in; None when it was given up."""
        source = line
        while True:
            if codeop.compile_command(source, "<stdin>", "single") is not None:
                return source + "\n"
            more = self._ask("...   ")
            if more is None or more == "EOF":
                return None
            source = f"{source}\n{more}"

    def _keep_locals(self) -> None:
        if self.curframe is not None:
            keep_locals(self.curframe)
            self.curframe_locals = self.curframe.f_locals

    # ------------------------------------------------------------------ commands

    def set_continue(self) -> None:
        # What is to be undone is the session's affair.
        self._set_stopinfo(self.botframe, None, -1)  # type: ignore[attr-defined]  # bdb's own

    def do_EOF(self, arg: str) -> bool | None:
        """EOF
        End of the input: the rank goes on, as by continue.
        """
        return self.do_continue(arg)

    def do_detach(self, arg: str) -> bool | None:
        """detach
        Leave the rank. At a breakpoint it stays where it is, and somebody else may attach; a rank
        that was stopped by attaching goes on.
        """
        return self.on_detach()

    def do_run(self, arg: str) -> None:
        """run, restart
        Not here: the launcher starts ranks.
        """
        self.error("the launcher restarts ranks, not the debugger")

    do_restart = do_run

    def do_interact(self, arg: str) -> None:
        """interact
        A Python prompt over the names of the current frame; the end of the input leaves it.
        """
        assert self.curframe is not None  # it is typed at a frame
        names = {**self.curframe.f_globals, **self.curframe_locals}
        prompt = consoles.InteractiveConsole(names, filename="<stdin>")

        def ask(prompt: str = "") -> str:
            line = self._ask(prompt)
            if line is None or line == "EOF":
                raise EOFError
            return line

        prompt.raw_input = ask  # type: ignore[method-assign]  # what its documentation offers
        prompt.write = self.console_file.write  # type: ignore[assignment, method-assign]
        # Values are shown by sys.displayhook, which prints where this thread prints to.
        prompt.interact(banner="*interactive*", exitmsg="*back at the debugger*")

"""Third-party debuggers: which one is used, and how its prompt opens at the user's frame.

A debugger is called as breakpoint() calls one: `module.set_trace()` or `module.function()`. Either it
interacts there and then. Or it is of bdb's family and arms a trace function that would stop at the next
line of its caller, which is ours; then its next line is set to be the user's, and from there on each of
its prompts is one of the rank's stops.
"""

from __future__ import annotations

import bdb
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from types import FrameType, ModuleType, TracebackType
from typing import Any, Final

from distdbg import config
from distdbg.debugger.frames import is_ours, keep_locals
from distdbg.errors import ConfigError, format_error

_OURS: Final = frozenset({"pdb", "pdb.set_trace"})
_FUNCTION: Final = "set_trace"


def chosen_debugger(environ: Mapping[str, str]) -> str | None:
    """'' for pdb as we have it, the name of another, None where breakpoints are switched off."""
    if environ.get("DISTDBG_DEBUGGER", "").strip():
        name = config.read_str("DISTDBG_DEBUGGER", environ).strip()
    else:
        name = environ.get("PYTHONBREAKPOINT", "").strip()
        if name == "0":
            return None
    return "" if not name or name in _OURS else name


class DebuggerFailed(Exception):
    """It cannot be opened here; says why."""


class Foreign:
    """One such debugger, found and not yet called."""

    def __init__(self, name: str) -> None:
        """ConfigError when there is none of this name."""
        self.name = name
        self._enter, self._post_mortem = _find(name)
        #: What it has armed, if it is one of bdb's family.
        self.debugger: bdb.Bdb | None = None

    def enter(self, frame: FrameType) -> bool:
        """Open it; whether it has armed `debugger`, which stops for the first time with `stop`."""
        code = _call_at(frame, self._enter)
        with self._failing(), _stops_at_lines():
            _, tracer, _ = eval(code, frame.f_globals, frame.f_locals)
        armed = getattr(tracer, "__self__", None)
        if not isinstance(armed, bdb.Bdb):
            return False
        self.debugger = armed
        armed.skip = {*(armed.skip or ()), "distdbg", "distdbg.*"}
        _disarm(sys._getframe(), ours=True)
        return True

    def enter_dead(self, trace: TracebackType) -> None:
        """Open it where an exception was raised."""
        if self._post_mortem is None:
            raise DebuggerFailed(f"the debugger {self.name!r} has no post_mortem")
        with self._failing():
            self._post_mortem(trace)

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except bdb.BdbQuit:
            raise
        except Exception as error:
            sys.settrace(None)
            raise DebuggerFailed(
                f"the debugger {self.name!r} has failed: {format_error(error)}"
            ) from error

    def wrap(self, around: Callable[[Callable[[], Any]], Any]) -> None:
        """From now on each of its prompts goes through `around`."""
        debugger: Any = self.debugger
        name = "interaction" if hasattr(debugger, "interaction") else "user_line"
        usual = getattr(debugger, name)

        def interaction(*args: Any, **kwargs: Any) -> Any:
            return around(lambda: usual(*args, **kwargs))

        setattr(debugger, name, interaction)

    def stop(self, frame: FrameType) -> None:
        """Its first stop; BdbQuit when it is quit."""
        assert self.debugger is not None  # it has armed one
        self.debugger.set_step()
        try:
            self.debugger.trace_dispatch(frame, "line", None)
        finally:
            keep_locals(frame)

    @property
    def is_needed(self) -> bool:
        """Whether the rank is to stop again."""
        debugger: Any = self.debugger
        if debugger is None or debugger.quitting:
            return False
        return debugger.stoplineno != -1 or bool(debugger.breaks)

    def start_tracing(self, frame: FrameType) -> None:
        """Let this thread stop where it was told to."""
        assert self.debugger is not None  # it has armed one
        at: FrameType | None = frame
        while at is not None:
            at.f_trace = None if is_ours(at) else self.debugger.trace_dispatch
            at = at.f_back
        sys.settrace(self.debugger.trace_dispatch)

    def stop_tracing(self, frame: FrameType | None) -> None:
        """All is undone, breakpoints too."""
        debugger, self.debugger = self.debugger, None
        if debugger is None:
            return
        sys.settrace(None)
        _disarm(frame, debugger=debugger)
        quits = debugger.quitting
        debugger.set_continue()
        debugger.quitting = quits
        if debugger.breaks:
            debugger.clear_all_breaks()

    def traced_frame(self) -> FrameType:
        """The frame that has stopped at the prompt that is open."""
        at: FrameType | None = sys._getframe(1)
        last = sys._getframe(1)
        while at is not None:
            if getattr(at.f_trace, "__self__", None) is self.debugger:
                return at
            last, at = at, at.f_back
        return last


@contextmanager
def _stops_at_lines() -> Iterator[None]:
    """Since Python 3.13 bdb's set_trace stops at the next instruction, which would be one of ours."""
    usual = vars(bdb.Bdb).get("set_stepinstr")
    if usual is None:
        yield
        return
    bdb.Bdb.set_stepinstr = bdb.Bdb.set_step  # type: ignore[attr-defined]  # typeshed has it since 3.13
    try:
        yield
    finally:
        bdb.Bdb.set_stepinstr = usual  # type: ignore[attr-defined]  # as above


def _find(name: str) -> tuple[Callable[..., Any], Callable[..., Any] | None]:
    try:
        module = _load(name)
    except ImportError as error:
        at, dot, function = name.rpartition(".")
        # Without a dot, or where the module is there and does not load, that is what to tell.
        if not dot or error.name not in (name, at):
            raise ConfigError(f"the debugger {name!r} cannot be loaded: {error}") from error
        try:
            module = _load(at)
        except ImportError as why:
            raise ConfigError(f"the debugger {name!r} cannot be loaded: {why}") from why
    else:
        function = _FUNCTION
    enter = getattr(module, function, None)
    if not callable(enter):
        raise ConfigError(
            f"the debugger {name!r} cannot be loaded: {module.__name__} has no {function}"
        )
    post_mortem = getattr(module, "post_mortem", None)
    return enter, post_mortem if callable(post_mortem) else None


def _load(name: str) -> ModuleType:
    """ImportError when it is not there, ConfigError for all else that is wrong with it."""
    try:
        return import_module(name)
    except ImportError:
        raise
    except Exception as error:  # of its code; or the name is relative
        raise ConfigError(
            f"the debugger {name!r} cannot be loaded: {format_error(error)}"
        ) from error


def _call_at(frame: FrameType, function: Callable[..., Any]) -> Any:
    """Code that calls `function` and looks to it like the line where `frame` is.

    What it arms is taken away again on the same line: it would stop at the next, or at the return.
    """
    functions = {1: function, 2: sys.gettrace, 3: sys.settrace}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # numbers that are called
        code = compile("(1(), 2(), 3(None))", frame.f_code.co_filename, "eval")
    return code.replace(
        co_consts=tuple(functions.get(one, one) for one in code.co_consts),
        co_name=frame.f_code.co_name,
        co_qualname=frame.f_code.co_qualname,
        co_firstlineno=frame.f_lineno,
    )


def _disarm(
    frame: FrameType | None, *, ours: bool = False, debugger: bdb.Bdb | None = None
) -> None:
    while frame is not None:
        if (ours and is_ours(frame)) or (
            debugger is not None and getattr(frame.f_trace, "__self__", None) is debugger
        ):
            frame.f_trace = None
        frame = frame.f_back

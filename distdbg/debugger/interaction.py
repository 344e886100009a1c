"""`interact`: the client of a rank's debugger, for a person or a script.

A thread reads what the rank sends; the main thread types. The rank requests each line, so what is
printed and the prompt come in order. Where the rank continues, or is lost, while a line is being typed, that
line is dropped.
"""

from __future__ import annotations

import getpass
import os
import queue
import select
import signal
import sys
import threading
import time
from contextlib import nullcontext, suppress
from typing import Any, Final, NoReturn

from distdbg.debugger import protocol
from distdbg.debugger.client import DebugClient
from distdbg.debugger.keyboard import editing, handling, raw_keys, typed, window_size
from distdbg.debugger.protocol import Words
from distdbg.errors import DistNetworkError, UsageError
from distdbg.record.durations import duration_text

_COMPLETION_S: Final = 2.0
#: Ctrl-], as telnet has it.
_LEAVE: Final = b"\x1d"
#: How long a debugger at a terminal says nothing before a script that has ended leaves it.
_QUIET_S: Final = 1.0
#: What pdb's quit is called: whether the rank goes on is then not for the client to say.
_QUIT: Final = frozenset({"q", "quit", "exit"})
#: A second Ctrl-C within so long leaves.
_TWICE_S: Final = 5.0
#: After so long a person wants to know that a step has not come to its end.
_LONG_S: Final = 3.0
#: A rank whose process can do nothing says nothing either.
_HELD_S: Final = 6.0
#: A signal that comes just before a wait begins does not end it: the handler runs after so long.
_SIGNALS_S: Final = 0.2
#: How long a line that is given up may take to end, before it is told again.
_AGAIN_S: Final = 0.3
#: What the handler of SIGINT says.
_CTRL_C: Final = "ctrl-c"


class SessionEnded(Exception):
    """There is nothing more to say to this rank; says why."""


def interact(client: DebugClient, *, stays: bool = True) -> str:
    """Let whoever is at stdin debug the rank until he leaves or it ends; returns why it is over.

    UsageError when the rank does not take a client now, DistNetworkError when it is lost.
    `stays`: also while the rank runs on, until its next prompt; else it is over then.
    """
    return _Interaction(client, stays).run()


class _Interaction:
    def __init__(self, client: DebugClient, stays: bool) -> None:
        self._client = client
        self._stays = stays
        #: Simple ones, for a signal handler puts into it.
        self._said: queue.SimpleQueue[Words | DistNetworkError] = queue.SimpleQueue()
        self._completions: queue.SimpleQueue[list[str]] = queue.SimpleQueue()
        self._is_terminal = sys.stdin is not None and sys.stdin.isatty()
        self._is_at_end = False
        """Nothing more can be typed."""
        self._ahead: str | None = None
        """A line of a script that was read before it was wanted."""
        self._has_relayed = False
        self._is_wanted = False
        """The rank is to stop because this client wants it."""
        self._silences = 0
        self._is_stepping = False
        self._has_quit = False
        """The rank is on its way to where it stops again, and nothing was said of that yet."""
        self._interrupted_at = 0.0
        self._cannot_stop = False
        """The rank goes on, and this client was told that Ctrl-C leaves."""
        self._lock = threading.Lock()  # protects the next two
        self._is_typing = False
        self._prompt = ""
        self._breaks = 0
        """How much has been said, and not heard yet, after which no line is wanted any more."""

    def run(self) -> str:
        thread = threading.Thread(target=self._read, name="distdbg client", daemon=True)
        thread.start()
        try:
            with (
                editing(self._complete) if self._is_terminal else nullcontext(),
                handling(signal.SIGINT, self._on_ctrl_c),
            ):
                self._client.send({"attach": f"{_who()}, process {os.getpid()}", **_size()})
                self._watch()
        except SessionEnded as over:
            return str(over)
        finally:
            self._client.close()
            thread.join(1.0)

    # ---------------------------------------------------------------- what the rank says

    def _read(self) -> None:
        try:
            while True:
                words = self._client.receive()
                if "completions" in words:
                    self._completions.put([str(one) for one in words["completions"]])
                elif isinstance(words.get("notice"), str):
                    self._notice(words["notice"])
                else:
                    self._hear(words)
        except DistNetworkError as error:
            self._hear(error)
        except (OSError, ValueError):  # this side has closed it
            self._hear(DistNetworkError("detached"))

    def _hear(self, words: Words | DistNetworkError) -> None:
        ends = isinstance(words, DistNetworkError) or "ended" in words or "running" in words
        with self._lock:
            self._said.put(words)
            if ends:
                self._breaks += 1
                if self._is_typing:
                    threading.Thread(target=self._give_up_line, daemon=True).start()

    def _notice(self, text: str) -> None:
        """What has happened meanwhile: above the line that is being typed."""
        with self._lock:
            if not self._is_typing:
                self._said.put({"write": text})
                return
            sys.stdout.write(f"\r\x1b[K{text}{self._prompt}{typed()}")
            sys.stdout.flush()

    def _give_up_line(self) -> None:
        """Nothing but a signal ends a readline; one that comes just before it begins to wait is lost."""
        while True:
            with self._lock:
                if not (self._is_typing and self._breaks):
                    return
                os.kill(os.getpid(), signal.SIGINT)
            time.sleep(_AGAIN_S)

    def _next(self) -> Words:
        """What is said next, in the main thread; Ctrl-C is the rank's."""
        quiet_since = time.monotonic()
        while True:
            try:
                words = self._said.get(timeout=_SIGNALS_S)
            except queue.Empty:
                silence_s = self._silence_s()
                if silence_s is not None and time.monotonic() - quiet_since >= silence_s:
                    self._tell_of_silence()
                    quiet_since = time.monotonic()
                continue
            if isinstance(words, DistNetworkError):
                raise words
            if _CTRL_C in words:
                self._interrupt()
                quiet_since = time.monotonic()
                continue
            if "ended" in words:
                raise _end(words)
            if "running" in words:
                with self._lock:
                    self._breaks -= 1
            return words

    def _silence_s(self) -> float | None:
        """After how long without a word a person wants to know why."""
        if self._is_wanted:
            return _HELD_S * (1 << self._silences)
        return _LONG_S if self._is_stepping else None

    def _tell_of_silence(self) -> None:
        rank = self._client.rank
        if not self._is_wanted:
            self._is_stepping = False
            _tell(f"rank {rank} runs to its next stop; Ctrl-C stops it")
            return
        # A rank that could, would say itself where it is.
        _tell(
            f"rank {rank} has been silent for {duration_text(_HELD_S * (1 << self._silences))}: "
            "it holds the GIL, or is stopped; still trying"
        )
        self._silences += 1

    def _watch(self) -> NoReturn:
        is_running = not self._client.is_stopped
        if is_running:
            _tell(f"stopping rank {self._client.rank}")
            self._is_wanted = True
        while True:
            words = self._next()
            match words:
                case {"write": str(text)}:
                    _show(text)
                case {"prompt": str(prompt)}:
                    self._is_wanted = False
                    self._type(prompt)
                case {"stopped": dict(where)}:
                    self._interrupted_at = 0.0
                    self._is_stepping = self._is_wanted = self._cannot_stop = False
                    self._silences = 0
                    why = f"{where.get('why', '')}"
                    if not is_running or why not in ("step", ""):
                        rank = self._client.rank
                        _tell(f"rank {rank} stopped at {where.get('site', '')}: {why}")
                    is_running = False
                    if where.get("mode") == "terminal":
                        self._relay()
                        is_running = True
                case {"bytes": str(data)}:
                    _show_bytes(protocol.from_base64(data))
                case {"running": _}:
                    is_running = True
                    self._on_running(bool(words.get("traced")))

    def _on_running(self, is_traced: bool) -> None:
        self._is_stepping = is_traced
        if is_traced:
            return
        rank = self._client.rank
        what = "has left its debugger" if self._has_quit else "goes on"
        if self._is_at_end or not self._stays or not self._has_more():
            self._leave(f"rank {rank} {what}")
        self._cannot_stop = not self._client.is_debuggable
        if self._is_terminal:
            stop = (
                "Ctrl-C stops it, twice leaves" if self._client.is_debuggable else "Ctrl-C leaves"
            )
            _tell(f"rank {rank} {what}; {stop}")

    def _on_ctrl_c(self) -> None:
        """Handle Ctrl-C, in the main thread, between any two bytecodes."""
        if self._is_typing:
            raise KeyboardInterrupt
        self._said.put({_CTRL_C: True})

    def _interrupt(self) -> None:
        now = time.monotonic()
        is_again = self._interrupted_at and now - self._interrupted_at < _TWICE_S
        if is_again or self._cannot_stop:
            self._leave("detached")
        self._interrupted_at = now
        self._is_wanted = True
        self._client.send({"interrupt": True})

    def _leave(self, why: str) -> None:
        with suppress(DistNetworkError):
            self._client.send({"detach": True})
        raise SessionEnded(why)

    # ---------------------------------------------------------------- lines

    def _type(self, prompt: str) -> None:
        """Give the rank the line that it wants, unless it goes on by itself."""
        while True:
            line = self._line(prompt)
            if line is not None:
                self._has_quit = line.strip() in _QUIT
                self._client.send({"line": line})
                return
            with self._lock:
                if self._breaks:
                    return
            if self._is_at_end:
                if self._is_terminal:  # Ctrl-D
                    self._client.send({"line": "EOF"})
                    self._is_at_end = prompt.startswith("(")
                    return
                self._leave("detached: end of input")

    def _line(self, prompt: str) -> str | None:
        """None: there is no more, or no line is wanted any more, or it was given up by Ctrl-C."""
        if not self._is_terminal:
            if self._has_more():
                line, self._ahead = self._ahead, None
                return line
            return None
        with self._lock:
            if self._breaks:
                return None
            self._is_typing, self._prompt = True, prompt
        try:
            return input(prompt)
        except EOFError:
            sys.stdout.write("\n")
            self._is_at_end = True
        except KeyboardInterrupt:
            sys.stdout.write("\n")
        finally:
            self._is_typing = False
        return None

    def _has_more(self) -> bool:
        """Whether there is another line; of a script that is known when it has been read."""
        if self._is_terminal:
            return not self._is_at_end
        if self._ahead is None and not self._is_at_end:
            line = sys.stdin.readline() if sys.stdin is not None else ""
            self._is_at_end = not line
            self._ahead = line.rstrip("\r\n") if line else None
        return self._ahead is not None

    def _complete(self, text: str, line: str, begin: int, end: int) -> list[str]:
        with suppress(queue.Empty):
            while True:
                self._completions.get_nowait()
        with suppress(queue.Empty, DistNetworkError):  # of a rank that is gone the reader says so
            self._client.send({"complete": [text, line, begin, end]})
            return self._completions.get(timeout=_COMPLETION_S)
        self._client.send({"interrupt": True})
        return []

    # ---------------------------------------------------------------- bytes

    def _relay(self) -> None:
        """Be the terminal of the rank's debugger until the rank goes on."""
        if self._is_terminal and not self._has_relayed:
            _tell("Ctrl-] leaves")
        self._has_relayed = True
        before: Any = None
        heard_at = time.monotonic()
        self._send_size()
        with handling(signal.SIGWINCH, self._send_size), raw_keys(self._is_terminal):
            while True:
                typed = [] if self._is_at_end else [sys.stdin.fileno()]
                try:
                    ready = select.select(typed, [], [], 0.02)[0]
                    if ready:
                        self._send_typed(os.read(sys.stdin.fileno(), 1 << 12))
                    elif self._is_at_end and time.monotonic() - heard_at > _QUIET_S:
                        self._leave("detached: end of input")
                    while True:
                        words = self._said.get_nowait()
                        heard_at = time.monotonic()
                        if isinstance(words, DistNetworkError):
                            raise words
                        match words:
                            case {"bytes": str(data)}:
                                _show_bytes(protocol.from_base64(data))
                            case {"write": str(text)}:
                                _show_bytes(text.replace("\n", "\r\n").encode())
                            case {"ended": _}:
                                raise _end(words)
                            case {"running": _}:
                                before = words
                                break
                            case {"ctrl-c": _}:
                                self._interrupt()
                except queue.Empty:
                    continue
                break
        with self._lock:
            self._breaks -= 1
        self._on_running(bool(before.get("traced")))

    def _send_typed(self, data: bytes) -> None:
        if not data:
            self._is_at_end = True
            return
        kept, leaves, _ = data.partition(_LEAVE) if self._is_terminal else (data, b"", b"")
        if kept:
            self._client.send({"bytes": protocol.to_base64(kept)})
        if leaves:
            self._leave("detached")

    def _send_size(self) -> None:
        size = _size()
        if size:
            with suppress(DistNetworkError):  # the reader says so
                self._client.send(size)


def _size() -> Words:
    size = window_size()
    return {} if size is None else {"size": size}


def _end(words: Words) -> Exception:
    why = str(words["ended"])
    return UsageError(why) if words.get("refused") else SessionEnded(why)


def _who() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return f"user {os.getuid()}"


def _tell(text: str) -> None:
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.write(f"distdbg: {text}\n")
        sys.stderr.flush()


def _show(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _show_bytes(data: bytes) -> None:
    sys.stdout.flush()
    while data:
        data = data[os.write(sys.stdout.fileno(), data) :]

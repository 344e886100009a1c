"""Desk: passes requests and answers between the server's thread and the thread of one rank.

The rank's thread asks for lines (`ask`) and writes; the server's thread puts in what has come. What the
program prints while no client is attached is not kept: a new client sees where the rank is.

A signal handler may run in the middle of anything here, so a rank is not interrupted while it is in this
package (`interrupt.py`), and the queue is one that takes that.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from distdbg.debugger import protocol
from distdbg.debugger.protocol import Words

#: How often a rank at its prompt looks whether the job is over.
_SLICE_S: Final = 0.25


class PromptExpired(BaseException):
    """Nobody has said what to do in time. No Exception, so that no code on the way takes it for one."""


class PromptInterrupted(BaseException):
    """SIGINT came while nothing was carried out: whoever sent it wants the rank, not what was typed.

    pdb takes a KeyboardInterrupt for the latter, and asks again.
    """


@dataclass(frozen=True, slots=True)
class TypedLine:
    """Something typed at the prompt."""

    text: str


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """What readline asks: text, line, begin, end."""

    text: str
    line: str
    begin: int
    end: int
    turn: int = 0
    """How often completions had been given up when this one was asked for."""


class ClientsChanged:
    """Somebody has come or left."""


Item = TypedLine | CompletionRequest | ClientsChanged


class PromptInput:
    """One rank's; lives as long as it can be reached."""

    def __init__(self, rank: int, run: str, *, is_debuggable: bool = False) -> None:
        self.rank = rank
        self.run = run
        self.is_debuggable = is_debuggable
        self._inbox: queue.SimpleQueue[Item] = queue.SimpleQueue()
        #: Sends to the attached client; set by the server while there is one.
        self.post: Callable[[Words], None] | None = None
        #: The client that is attached; '': none.
        self.client = ""
        #: Why and where it is stopped; '' when it runs.
        self.why = ""
        self.site = ""
        self.mode = "line"
        #: Whether the rank's thread is waiting for what comes.
        self.is_waiting = False
        self.has_own_terminal = False
        #: In the terminal mode: what takes a client's bytes and the size of its window.
        self.take_bytes: Callable[[bytes], None] | None = None
        self.take_size: Callable[[int, int], None] | None = None
        self.size: tuple[int, int] | None = None
        #: Stops the rank, or breaks off what it does at its prompt.
        self.interrupt: Callable[[], None] = lambda: None
        #: Somebody is attached from now on; nobody is any more.
        self.on_attached: Callable[[], None] = lambda: None
        self.on_left: Callable[[], None] = lambda: None
        #: How many have come so far, and how many of them were shown where the rank is.
        self._visits = 0
        self._greeted = 0
        #: How often completions were given up, and of which count the one in work is.
        self._turn = 0
        self._turn_in_work = 0

    @property
    def is_stopped(self) -> bool:
        return bool(self.why)

    # ------------------------------------------------------------------ by the server's thread

    def put(self, item: Item) -> None:
        """Give something to the rank's thread."""
        self._inbox.put(item)

    def put_completion(self, text: str, line: str, begin: int, end: int) -> None:
        """Ask the rank's thread what fits there."""
        self._inbox.put(CompletionRequest(text, line, begin, end, self._turn))

    def give_up_completions(self) -> None:
        """Nobody waits any more for those asked for so far."""
        self._turn += 1

    def attach(self, name: str, post: Callable[[Words], None]) -> None:
        """This client is it from now on."""
        self.post = post
        self.client = name
        self._visits += 1
        self._inbox.put(ClientsChanged())
        self.on_attached()

    def leave(self) -> None:
        self.client = ""
        self.post = None
        self.give_up_completions()
        self._inbox.put(ClientsChanged())
        self.on_left()

    # ------------------------------------------------------------------ by the rank's thread

    @property
    def is_completion_wanted(self) -> bool:
        """Whether somebody still waits for the one in work."""
        return self.has_own_terminal or self._turn_in_work == self._turn

    def send(self, words: Words) -> None:
        """Say something to whoever is attached."""
        post = self.post
        if post is not None:
            post(words)

    def write(self, text: str) -> None:
        for words in protocol.text_lines(text):
            self.send(words)

    def notify(self, text: str) -> None:
        """What has happened meanwhile, also while somebody types."""
        for words in protocol.text_lines(text):
            self.send({"notice": words["write"]})

    def begin(self, why: str, site: str) -> None:
        """The rank has stopped."""
        self.why, self.site = why or "stopped", site
        self._greeted = self._visits
        self.say_stopped()

    def say_stopped(self) -> None:
        """Where and why."""
        self.send({"stopped": {"why": self.why, "site": self.site, "mode": self.mode}})

    def end(self, *, is_traced: bool) -> None:
        """It goes on; `is_traced`: to stop again."""
        self.why = self.site = ""
        self.send({"running": True, "traced": is_traced})

    def await_client(self, deadline: float, check: Callable[[], bool]) -> bool:
        """Wait until somebody is attached; see `ask`. False: it is time to go on."""
        while not self.client:
            if not check():
                return False
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise PromptExpired
            with suppress(queue.Empty):
                self._inbox.get(timeout=min(left_s, _SLICE_S))
        return True

    def ask(
        self,
        prompt: str,
        deadline: float,
        *,
        complete: Callable[[str, str, int, int], list[str]],
        greet: Callable[[], None],
        check: Callable[[], bool],
    ) -> str | None:
        """The next line that a client types; None when it is time to go on by itself.

        `greet` shows somebody new where the rank is; `check` says whether to go on waiting, and may
        raise. Expired after `deadline`, a point of the monotonic clock.
        """
        self.is_waiting = True
        try:
            self._greet(greet)
            self.send({"prompt": prompt})
            while True:
                if not check():
                    return None
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    raise PromptExpired
                try:
                    item = self._inbox.get(timeout=min(left_s, _SLICE_S))
                except queue.Empty:
                    continue
                match item:
                    case TypedLine(text):
                        return text
                    case CompletionRequest(text, line, begin, end, turn):
                        self._turn_in_work = turn
                        found = complete(text, line, begin, end)
                        if self.is_completion_wanted:
                            self.send({"completions": found})
                    case ClientsChanged():
                        if self._greet(greet):
                            self.send({"prompt": prompt})
        finally:
            self.is_waiting = False

    def _greet(self, greet: Callable[[], None]) -> bool:
        """Show somebody new where the rank is; whether there is somebody new."""
        if not self.client or self._greeted == self._visits:
            return False
        self._greeted = self._visits
        self.say_stopped()
        greet()
        return True


def not_debuggable(rank: int) -> str:
    """Why nobody may attach now, and when they may."""
    return (
        f"rank {rank} runs and the job was not started with --debuggable; it can be attached when it "
        f"sits at a breakpoint: distdbg break rank={rank}"
    )

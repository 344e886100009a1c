"""Asking a feed for what may take long: in a thread of its own, and the answer comes back as a message.

The thread is one that nobody waits for: who leaves the dashboard leaves at once.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import TypeVar

from textual.message import Message
from textual.message_pump import MessagePump

from distdbg.errors import DistError

Result = TypeVar("Result")


class Answered(Message, bubble=False):
    """From another thread; `then` is to be called in that of the app."""

    def __init__(self, then: Callable[[], object]) -> None:
        super().__init__()
        self.then = then


def ask(
    asker: MessagePump,
    question: Callable[[], Result],
    then: Callable[[Result], object],
    refused: Callable[[str], object],
    failed: Callable[[Exception], object],
) -> None:
    """Have one of the three called by `asker`: with the answer, a DistError's words, or our bug."""

    def work() -> None:
        try:
            answer = question()
        except DistError as error:
            line = str(error).split("\n")[0]
            asker.post_message(Answered(lambda: refused(line)))
        except Exception as error:  # noqa: BLE001 - it is told, and written down
            bug = error
            asker.post_message(Answered(lambda: failed(bug)))
        else:
            asker.post_message(Answered(lambda: then(answer)))

    Thread(target=work, name="distdbg-top-ask", daemon=True).start()

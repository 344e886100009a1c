"""Slow requests to a feed: each in a thread of its own, whose answer is posted as a message.

No thread is joined at exit, so the dashboard quits at once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from threading import Thread
from typing import TypeVar

from textual._context import NoActiveAppError
from textual.message import Message
from textual.message_pump import MessagePump

from distdbg.errors import DistError

Result = TypeVar("Result")


class Answered(Message, bubble=False):
    """An answer from another thread; `then` is to be called in that of the app."""

    def __init__(self, then: Callable[[], object]) -> None:
        super().__init__()
        self.then = then


def ask_in_thread(
    asker: MessagePump,
    question: Callable[[], Result],
    then: Callable[[Result], object],
    refused: Callable[[str], object],
    failed: Callable[[Exception], object],
) -> None:
    """Have one of the three called by `asker`: with the answer, a DistError's words, or our bug."""

    def post(what: Callable[[], object]) -> None:
        with contextlib.suppress(NoActiveAppError):  # a page that was closed meanwhile
            asker.post_message(Answered(what))

    def run() -> None:
        try:
            answer = question()
        except DistError as error:
            line = str(error).split("\n")[0]
            post(lambda: refused(line))
        except Exception as error:  # noqa: BLE001 - it is told, and written down
            bug = error
            post(lambda: failed(bug))
        else:
            post(lambda: then(answer))

    Thread(target=run, name="distdbg-top-ask", daemon=True).start()

"""Signals that end a dashboard leave the terminal as it was.

Without a handler the process would be gone at once, and the shell be left on the other screen, deaf and with
a mouse that types.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from typing import Any, Final

from textual.app import App

_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)
#: How long it may take: a terminal that is gone takes no more words.
_MAX_S: Final = 2.0


def leave_on_signals(app: App[Any]) -> None:
    """Have `app` leave as if it had been asked to, with the exit code of a process that was killed so.

    For the thread of its event loop, which takes the handlers away when it is closed.
    """
    if app.is_headless or app.is_web or threading.current_thread() is not threading.main_thread():
        return
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, _leave, app, 128 + number)


def _leave(app: App[Any], code: int) -> None:
    hurry = threading.Timer(_MAX_S, os._exit, (code,))
    hurry.daemon = True
    hurry.start()
    app.exit(return_code=code)

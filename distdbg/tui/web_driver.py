"""The driver of a dashboard whose terminal is a browser: textual's, but it ends with its server.

textual's own keeps running when its input ends. A killed server cannot announce it; its end of the pipe is
closed by the kernel, and that is the sign. What is written then is lost: the input has ended too.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from typing import Final

from textual import messages
from textual.drivers.web_driver import WebDriver

#: What the app has for an orderly end, when nobody looks any more.
_LEAVING_S: Final = 3.0


class TopWebDriver(WebDriver):
    """Named in TEXTUAL_DRIVER."""

    def run_input_thread(self) -> None:
        super().run_input_thread()
        if self.exit_event.is_set():
            return
        last = threading.Timer(_LEAVING_S, os._exit, (1,))
        last.daemon = True
        last.start()
        self._app.post_message(messages.ExitApp())

    def write(self, data: str) -> None:
        with suppress(BrokenPipeError):
            super().write(data)

    def write_meta(self, data: dict[str, object]) -> None:
        with suppress(BrokenPipeError):
            super().write_meta(data)

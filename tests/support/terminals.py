"""A program on a terminal of its own, for tests that type: what it shows can be waited for.

with on_terminal(["-m", "distdbg", "attach"]) as shown:
    shown.expect(r"\\(Pdb\\) ")
    shown.type("p x\\n")
"""

from __future__ import annotations

import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import distdbg

_PATIENCE_S = 120.0
#: What colours and moves the cursor, as readline and others write it.
_ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[A-Za-z]|[=>])|\r")


class ShownProgram:
    """A program and the terminal that it is on."""

    def __init__(self, process: subprocess.Popen[bytes], master: int) -> None:
        self.process = process
        self._master = master
        self._shown = ""
        """What was shown and not yet waited for, without colours."""
        self._past = ""
        """The end of what was shown before that."""
        self._raw = b""

    def type(self, text: str) -> None:
        """Press these keys."""
        os.write(self._master, text.encode())

    def go_on(self) -> None:
        """Let the rank at the prompt of a debugger continue."""
        self.type("c\n")
        self.expect("goes on")

    def interrupt(self) -> None:
        """Ctrl-C."""
        self.type("\x03")

    def resize(self, rows: int, columns: int) -> None:
        """Change the size of the window."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))

    def expect(self, pattern: str, timeout_s: float = _PATIENCE_S) -> str:
        """Wait until this is shown; returns all up to its end. What was not shown is an error."""
        deadline = time.monotonic() + timeout_s
        while (found := re.search(pattern, self._shown)) is None:
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not self._read(left_s):
                what = f"{pattern!r} was not shown, but {self._shown!r}"
                raise AssertionError(f"{what}, after {self._past!r}")
        text, self._shown = self._shown[: found.end()], self._shown[found.end() :]
        self._past = (self._past + text)[-1000:]
        return text

    def wait(self, timeout_s: float = _PATIENCE_S) -> tuple[int, str]:
        """Wait for its end: the exit code and the rest of what it has shown."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline and self._read(max(deadline - time.monotonic(), 0.0)):
            pass
        code = self.process.wait(max(deadline - time.monotonic(), 0.1))
        return code, self._shown

    def _read(self, timeout_s: float) -> bool:
        if not select.select([self._master], [], [], min(timeout_s, 0.5))[0]:
            return True
        try:
            data = os.read(self._master, 1 << 14)
        except OSError:
            return False  # nobody has the terminal open any more
        self._raw += data
        whole, _, rest = self._raw.rpartition(b"\x1b")
        if len(rest) < 16 and whole and not _ESCAPES.search("\x1b" + rest.decode("latin-1")):
            self._raw = b"\x1b" + rest
        else:
            whole, self._raw = self._raw, b""
        self._shown += _ESCAPES.sub("", whole.decode("utf-8", "replace"))
        return bool(data)


@contextmanager
def on_terminal(
    argv: Sequence[str],
    environ: Mapping[str, str] | None = None,
    *,
    cwd: Path | None = None,
    size: tuple[int, int] = (24, 100),
) -> Iterator[ShownProgram]:
    """Start Python with these arguments; killed at the end of the block if it has not ended."""
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("4H", *size, 0, 0))
    package = str(Path(distdbg.__file__).parents[1])
    process = subprocess.Popen(
        [sys.executable, *argv],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**os.environ, "PYTHONPATH": package, "TERM": "dumb", **(environ or {})},
        cwd=cwd,
        start_new_session=True,
        preexec_fn=_take_terminal,
    )
    os.close(slave)
    try:
        yield ShownProgram(process, master)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(master)


def _take_terminal() -> None:
    # So that Ctrl-C is a signal.
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)

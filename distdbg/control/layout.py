"""The control page, byte by byte; the same numbers are in native/core/control.hpp.

One file of 8192 bytes, `control-<host>` in the run folder, little endian, mapped by all ranks of the
host and by whoever steers them. Words of 8 bytes are stored whole.

    offset 0     Page     below
    1024         the words of an abort, JSON
    4096         the armed breakpoints, JSON

ABORT    `abort_state` goes from 0 to 1 (somebody writes the words) to 2 (they are whole) and never back.
PAUSE    `paused_since_ns` is when the deadlines of the job were stopped, 0 while they run. To resume, a
         writer adds the pause to `paused_ns` first and clears `paused_since_ns` then, so a reader that
         looks at `paused_since_ns` first never sees a pause as time that has passed.
JOB TIME is the monotonic clock minus all pauses: paused_since_ns - paused_ns while paused, else
         now - paused_ns. Deadlines are turned into job time when a wait begins and compared in it.
BREAK    the rules are written under an odd `break_generation`, which is even again when they are whole.
"""

from __future__ import annotations

from typing import Final

from distdbg.record.format import Field

MAGIC: Final = int.from_bytes(b"distdbgC", "little")
VERSION: Final = 1
PAGE_NBYTES: Final = 8192
ABORT_OFFSET: Final = 1024
MOST_ABORT_NBYTES: Final = 3072
BREAK_OFFSET: Final = 4096
MOST_BREAK_NBYTES: Final = 4096

#: What `abort_state` can be.
ABORT_NONE: Final = 0
ABORT_WRITING: Final = 1
ABORT_SET: Final = 2

PAGE: Final = {
    "magic": Field(0, "Q"),  # stored last when the page is made
    "version": Field(8, "Q"),
    "paused_since_ns": Field(64, "q"),
    "paused_ns": Field(72, "q"),
    "abort_state": Field(80, "Q"),
    "abort_nbytes": Field(88, "Q"),
    "break_generation": Field(96, "Q"),
    "break_nbytes": Field(104, "Q"),
    "agent_pid": Field(128, "Q"),  # 0: there is none
    "agent_beat_ns": Field(136, "q"),
    "run": Field(192, "64s"),
}


def page_name(host: str) -> str:
    """The file of a host in the run folder."""
    return f"control-{host}"

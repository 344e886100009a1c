"""The control page, byte by byte; the same numbers are in native/core/control.hpp.

One file of 16384 bytes, `control-<host>` in the run folder, little endian, mapped by all ranks of the
host and by whoever steers them. Words of 8 bytes are stored whole.

    offset 0     Page     below
    1024         the words of an abort, JSON
    4096         the armed breakpoints, JSON
    8192         who holds the clock: 256 entries of 32 bytes (holds.py)

ABORT    `abort_state` goes from 0 to 1 (somebody writes the words) to 2 (they are whole) and never back.
CLOCK    0 or more: the clock of the job runs, and so much lies in its pauses; less: it stands, and this is
         ~ of the job time at which it does. One word says both, so no reader sees half of a change.
         `paused_since_ns` is for people: when the pause began by the monotonic clock, 0 without one.
         It stands while the table of holds has an entry, and runs when the last has gone.
JOB TIME is the monotonic clock minus all pauses: now - clock, or ~clock while the job is paused.
         Deadlines are turned into job time when an op is issued or a wait begins, and compared in it.
BREAK    the rules are written under an odd `break_generation`, which is even again when they are whole.

Example: paused for the first time when the monotonic clock shows 5 s, `clock` is ~5,000,000,000; resumed
at 65 s, it is 60,000,000,000, and at 70 s the job time is 10 s.

All writers hold the lock of the page (page.py); whoever uses it holds a shared flock, so a page that
nobody holds is known to be of a job that is over.
"""

from __future__ import annotations

from typing import Final

from distdbg.record.format import EntryField

MAGIC: Final = int.from_bytes(b"distdbgC", "little")
VERSION: Final = 2
PAGE_NBYTES: Final = 16384
ABORT_OFFSET: Final = 1024
MAX_ABORT_NBYTES: Final = 3072
BREAK_OFFSET: Final = 4096
MAX_BREAK_NBYTES: Final = 4096
HOLDS_OFFSET: Final = 8192
HOLD_NBYTES: Final = 32
MAX_HOLDS: Final = 256

#: What `abort_state` can be.
ABORT_NONE: Final = 0
ABORT_WRITING: Final = 1
ABORT_SET: Final = 2

PAGE: Final = {
    "magic": EntryField(0, "Q"),
    "version": EntryField(8, "Q"),
    "clock": EntryField(64, "q"),  # of the job: the sum of all pauses, or ~ of where it stands
    "paused_since_ns": EntryField(72, "q"),  # monotonic; 0: it runs
    "abort_state": EntryField(80, "Q"),
    "abort_nbytes": EntryField(88, "Q"),
    "break_generation": EntryField(96, "Q"),  # odd: being written
    "break_nbytes": EntryField(104, "Q"),
    "agent_pid": EntryField(128, "Q"),  # 0: there is none
    "agent_beat_ns": EntryField(136, "q"),  # monotonic
    "run": EntryField(192, "64s"),
}
PAGE_HEAD_NBYTES: Final = 256


def page_name(host: str) -> str:
    """The file of a host in the run folder."""
    return f"control-{host}"

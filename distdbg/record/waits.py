"""The waits in the state of a record: which threads wait for ops that they had begun earlier.

Threads write and clear them at any moment. An entry is believed when its check fits; one that is being
written is a wait that begins or ends just now, and is passed over.
"""

from __future__ import annotations

import struct
from typing import Final

from distdbg.record.entries import RecordedFrame, WorkWaitEntry
from distdbg.record.format import WAIT, WAIT_COUNT, WAIT_NBYTES, checksum
from distdbg.record.references import Damaged, References

WAITS_NBYTES: Final = WAIT_COUNT * WAIT_NBYTES

_WAIT: Final = struct.Struct("<" + "".join(field.code for field in WAIT.values()))
assert _WAIT.size == WAIT_NBYTES


def read_waits(data: bytes, references: References) -> tuple[WorkWaitEntry, ...]:
    """The entries that are there, the oldest first."""
    if not any(data):
        return ()
    found = []
    for start in range(0, len(data) - WAIT_NBYTES + 1, WAIT_NBYTES):
        entry = data[start : start + WAIT_NBYTES]
        number, since_ns, thread, site, check = _WAIT.unpack(entry)
        if number == 0 or check != checksum(entry[:-8]):
            continue
        stack: tuple[RecordedFrame, ...]
        try:
            stack = references.stack(site)
        except Damaged:
            stack = ()
        found.append(WorkWaitEntry(number=number, since_ns=since_ns, thread=thread, stack=stack))
    return tuple(sorted(found, key=lambda wait: wait.since_ns))

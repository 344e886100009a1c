"""The layout of a record, byte by byte; the same numbers are in native/core/record_layout.hpp.

A record is a file of fixed size, written through a shared mapping with plain stores:

    offset 0   Header   written once, before the file gets its name
    4096       State    words that change
    ...        sections by the header's table, each an array of entries of one size

Everything is little endian. Entries are never moved. Three rules keep a file readable after a kill at
any instruction, and a flipped bit from becoming a wrong event:

    CHECKED  The unchanging part of an entry ends with a check word: the sum of the words before it,
             modulo 2**64 - 1 (`checksum`). A writer stores 0 into the first word, then the rest, then
             the first word: an entry whose first word is 0 is not there. (One whose check fits the
             number that is looked for is: only its first word was cleared.)
    PACKED   A word that is set later holds 48 bits of value and 16 bits of check (`pack`); 0: not set.
    RING     Entry number n (from 1) lies at index n % count and is overwritten by number n + count.

References between entries: a string is an offset / 8 into the strings, a site is an index, a group, a
form and a text are numbers in their rings. 0: none.

Example: op 5 of a ring of 4096 begins at ring.offset + 5 * 128; issued at 1,000 ns, ended 250 ns later:
its word at 104 is pack(250) = 250 << 16 | (250 + 0x5A5A).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

MAGIC: Final = int.from_bytes(b"distdbgR", "little")
VERSION: Final = 1
BYTE_ORDER: Final = 0x01020304
CHECK_MODULUS: Final = 2**64 - 1
PACK_SALT: Final = 0x5A5A
MAX_PACKED: Final = 2**48 - 1

HEADER_NBYTES: Final = 4096
STATE_NBYTES: Final = 4096
GROUP_NBYTES: Final = 256
COUNTER_NBYTES: Final = 1024
FORM_NBYTES: Final = 512
SITE_NBYTES: Final = 32
TEXT_NBYTES: Final = 2048
OP_NBYTES: Final = 128
PARKED_NBYTES: Final = OP_NBYTES + FORM_NBYTES
BUCKET_COUNT: Final = 40
WAIT_NBYTES: Final = 32
WAIT_COUNT: Final = 32

#: A reader takes nothing larger; a writer writes nothing larger.
MAX_RECORD_NBYTES: Final = 2**28
MAX_STRING_NBYTES: Final = 1024
MAX_FRAMES: Final = 64


class Section(IntEnum):
    """Index into the header's table of sections; each row is `SECTION`."""

    GROUPS = 0
    COUNTERS = 1
    FORMS = 2
    SITES = 3
    STRINGS = 4  # entry size 1, count = nbytes
    TEXTS = 5
    PARKED = 6  # an op in flight that the ring was about to overwrite, with its form
    RING = 7


class EntryField(NamedTuple):
    """Where a field lies within its entry, and its `struct` code; "NNs": NUL-padded UTF-8."""

    offset: int
    code: str


#: One row of the table of sections: offset, count, entry_nbytes.
SECTION: Final = "<QII"

#: Written once. CHECKED by the last word of the page.
HEADER: Final = {
    "magic": EntryField(0, "Q"),
    "version": EntryField(8, "I"),
    "byte_order": EntryField(12, "I"),
    "header_nbytes": EntryField(16, "I"),
    "rank": EntryField(20, "i"),
    "world_size": EntryField(24, "i"),
    "pid": EntryField(28, "i"),
    "process_start": EntryField(
        32, "Q"
    ),  # ticks since boot, from /proc/<pid>/stat: tells a reused pid
    "wall_ns": EntryField(40, "q"),  # the clock pair, taken together when the record was made
    "monotonic_ns": EntryField(48, "q"),
    "total_nbytes": EntryField(56, "Q"),
    "sections": EntryField(64, "128s"),  # 8 rows of SECTION
    "host": EntryField(256, "64s"),
    "boot_id": EntryField(320, "40s"),
    "distdbg_version": EntryField(360, "32s"),
    "python_version": EntryField(392, "32s"),
    "run": EntryField(424, "64s"),
    "argv": EntryField(512, "3072s"),  # JSON; shortened arguments end with an ellipsis
    "check": EntryField(4088, "Q"),
}

#: Changes while the rank lives; nothing else in the file depends on it.
STATE: Final = {
    "heartbeat_ns": EntryField(0, "q"),  # monotonic: when the rank was last seen in native code
    "last_number": EntryField(8, "Q"),  # of the op issued last
    "exit": EntryField(16, "Q"),  # PACKED Exit
    "exit_text": EntryField(24, "Q"),  # PACKED text number: the exception
    "exit_ns": EntryField(32, "Q"),
    "lost_strings": EntryField(40, "Q"),  # how often there was no room for one
    "lost_sites": EntryField(48, "Q"),
    "lost_parked": EntryField(56, "Q"),
    "strings_nbytes": EntryField(64, "Q"),  # how much of the section is used
    "site_count": EntryField(72, "Q"),
    "last_form": EntryField(80, "Q"),
    "last_text": EntryField(88, "Q"),
    "last_group": EntryField(96, "Q"),
    "counter_count": EntryField(104, "Q"),
    "level": EntryField(112, "Q"),  # of the check: 0 off, 1 info, 2 detail
    "clock_offset_ns": EntryField(
        120, "q"
    ),  # by the agent: plus this host's monotonic is the root host's
    "clock_error_ns": EntryField(128, "Q"),  # how wrong that may be; 0: not estimated
    "lost_waits": EntryField(136, "Q"),  # how often there was no room for one
    "wait_changes": EntryField(144, "Q"),  # how often one began or ended
    "waits": EntryField(152, "1024s"),  # 32 entries WAIT
    "lost_counters": EntryField(
        1176, "Q"
    ),  # ops that are in no counter: there was no room for another
}

#: A thread that waits for an op that it began earlier; in the state. CHECKED by its last word, which
#: comes last and goes first; `number` 0: free. Files of writers that did not know it have zeros here.
WAIT: Final = {
    "number": EntryField(0, "Q"),  # of the op
    "since_ns": EntryField(8, "q"),  # monotonic
    "thread": EntryField(
        16, "I"
    ),  # the kernel's number; the highest bit: the wait has a limit of its own
    "site": EntryField(20, "I"),  # of the wait
    "check": EntryField(24, "Q"),
}


class Exit(IntEnum):
    """How far the rank has come in its life; not set: it runs, or was killed."""

    LEFT = 1  # destroyed its groups; the process may go on
    RETURNED = 2  # the program ended
    RAISED = 3  # by an exception that nobody caught


#: A process group. RING; CHECKED up to `check`; what follows changes.
GROUP: Final = {
    "number": EntryField(0, "Q"),
    "created_ns": EntryField(8, "q"),
    "name": EntryField(16, "I"),  # string
    "desc": EntryField(20, "I"),  # string: what messages call it
    "ranks": EntryField(24, "I"),  # string: global ranks by group rank, "0-3,7"
    "backend": EntryField(28, "I"),  # string
    "size": EntryField(32, "i"),
    "rank": EntryField(36, "i"),  # own group rank
    "timeout_ns": EntryField(40, "q"),
    "site": EntryField(48, "I"),
    "reserved": EntryField(52, "I"),
    "check": EntryField(56, "Q"),
    "closed_ns": EntryField(64, "Q"),  # 0: alive
    "issued_seq": EntryField(72, "Q"),  # of collectives
    "ended_seq": EntryField(80, "Q"),
    "current": EntryField(88, "Q"),  # number of the op issued last on the group
    "broken": EntryField(96, "Q"),  # PACKED text number
    "closed_site": EntryField(104, "Q"),  # where it was destroyed; 0: unknown
}

#: Per group, kind and dtype, since the group was made. Bucket i: values from 2**i below 2**(i+1), the last
#: one open, the first with 0.
COUNTER: Final = {
    "group": EntryField(0, "Q"),
    "kind": EntryField(8, "I"),
    "dtype": EntryField(12, "I"),  # string; none: the ops have none, or the writer did not know it
    "ended": EntryField(16, "Q"),
    "failed": EntryField(24, "Q"),
    "nbytes": EntryField(32, "Q"),  # of ops that ended well
    "duration_ns": EntryField(40, "Q"),  # issued to ended, of all
    "wait_ns": EntryField(48, "Q"),  # issued to started, of all
    "longest_ns": EntryField(56, "Q"),
    "duration_buckets": EntryField(64, "320s"),
    "wait_buckets": EntryField(384, "320s"),
    "size_buckets": EntryField(704, "320s"),
}

#: What calls of one shape have in common, as JSON (`forms.py` has the keys). RING.
#: The check is over the words before it and the padded text.
FORM: Final = {
    "number": EntryField(0, "Q"),
    "text_nbytes": EntryField(8, "Q"),
    "check": EntryField(16, "Q"),
    "text": EntryField(24, "488s"),
}

#: One frame; its caller is `parent`, so a stack is a chain, the call site first. CHECKED.
#: Index 0 is never used.
SITE: Final = {
    "file": EntryField(0, "I"),  # string
    "function": EntryField(4, "I"),  # string
    "line": EntryField(8, "I"),
    "parent": EntryField(12, "I"),  # site
    "index": EntryField(16, "Q"),
    "check": EntryField(24, "Q"),
}

#: Strings: nbytes, check (sum of the bytes and nbytes, modulo 2**32 - 1), then the bytes, padded to 8.
STRING: Final = {"nbytes": EntryField(0, "I"), "check": EntryField(4, "I")}

#: Long words: errors, findings, as JSON. RING; check as in FORM.
TEXT: Final = {
    "number": EntryField(0, "Q"),
    "text_nbytes": EntryField(8, "Q"),
    "check": EntryField(16, "Q"),
    "text": EntryField(24, "2024s"),
}


class EventType(IntEnum):
    """What an entry of the ring is."""

    OP = 1
    MARK = 2  # form: its name; value: the number given, NaN without one
    SPAN_BEGIN = 3
    SPAN_END = 4  # value: number of its SPAN_BEGIN
    FINDING = 5  # text: what a check found
    #: From here on what its thread does is part of a span of the user's own traces. seq, fingerprint: the
    #: upper and the lower half of the trace id; value: the span id; all 0: of none. Flag SAMPLED.
    CONTEXT = 6


class Flag(IntEnum):
    """Bits of an entry's flags."""

    ASYNC = 1
    MESSAGE = 2
    ASIDE = 4  # not counted among the collectives of its group; seq is a number of its own
    SAMPLED = 8  # of a CONTEXT: the user's trace is kept
    END_NOTICED = (
        16  # its backend tells no end: that is when somebody asked or waited, so at the latest
    )
    END_QUEUED = 32  # its backend tells when the device has it in its queue: it may end later


#: Flags of what is not counted among the collectives of its group.
NO_COLLECTIVE: Final = Flag.MESSAGE | Flag.ASIDE


class Aside(IntEnum):
    """Kinds that no engine knows: calls beside the data plane in which a rank may wait."""

    NEW_GROUP = 14  # also split_group; group: the one that it is made from
    MONITORED_BARRIER = 15
    BREAKPOINT = 16  # waits for the ranks that sit at `dist.breakpoint`; they are its members
    DEBUGGER = 17  # sits at the prompt of a debugger; waits for nobody, so it blocks nothing

    @property
    def label(self) -> str:
        """The spelling in messages and records: 'new_group'."""
        return self.name.lower()


class Status(IntEnum):
    """How an op ended; the numbers from 1 on are native Fault + 1."""

    OK = 0
    USAGE = 1
    TIMEOUT = 2
    PEER_LOST = 3
    NETWORK = 4
    STORE = 5
    MISMATCH = 6
    BROKEN = 7
    INTERRUPTED = 8
    SYSTEM = 9
    NONFINITE = 10
    CHANGED = 11
    DIVERGED = 12
    ABORTED = 13
    FAILED = 99  # a backend that is not ours


#: One entry of the ring. CHECKED up to `check`; what follows is PACKED and set later, `ended` last.
OP: Final = {
    "number": EntryField(0, "Q"),
    "issued_ns": EntryField(8, "q"),  # monotonic
    "seq": EntryField(
        16, "Q"
    ),  # collective: its number in the group; message: among those to or from peer
    "value": EntryField(
        24, "q"
    ),  # message: its tag; mark: the bits of a float64; span end: its begin
    "group": EntryField(32, "Q"),
    "form": EntryField(40, "Q"),
    "site": EntryField(48, "I"),
    "thread": EntryField(52, "I"),  # the kernel's number
    "peer": EntryField(56, "i"),  # group rank; -1: none or any
    "type": EntryField(60, "B"),
    "flags": EntryField(61, "B"),
    "kind": EntryField(62, "B"),  # runtime Kind
    "level": EntryField(63, "B"),
    "fingerprint": EntryField(64, "Q"),
    "text": EntryField(72, "Q"),  # finding: its text
    "comm": EntryField(80, "I"),  # string: record_comm
    "reserved": EntryField(84, "I"),
    "check": EntryField(88, "Q"),
    "started": EntryField(96, "Q"),  # ns after issued: when all ranks had come
    "ended": EntryField(104, "Q"),  # ns after issued
    "outcome": EntryField(112, "Q"),  # Status | (group rank a recv came from + 1) << 8
    "error": EntryField(120, "Q"),  # text number
}


def checksum(data: bytes | memoryview) -> int:
    """The check word of these bytes, whose number is a multiple of 8."""
    return int.from_bytes(data, "little") % CHECK_MODULUS


def pack(value: int) -> int:
    """A PACKED word."""
    value = min(value, MAX_PACKED)
    return value << 16 | _check16(value)


def unpack(word: int) -> int | None:
    """The value of a PACKED word that is set; None when its check is wrong."""
    value = word >> 16
    return value if word & 0xFFFF == _check16(value) else None


def _check16(value: int) -> int:
    total = (value & 0xFFFF) + (value >> 16 & 0xFFFF) + (value >> 32) + PACK_SALT
    return total % 0xFFFF

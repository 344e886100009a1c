"""The ops of one rank as columns: a million of them take 80 MB and are compared a slice at a time.

    ops = session.ranks[3].ops
    ops.seq[i], ops.group[i], ops.status[i]       one value of op i, in the order of issue
    matching.match(session)                       finds i by (group, seq)

What a column cannot hold is an index into a table of the session: groups, forms, stacks.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

#: `status` of an op that has not ended.
IN_FLIGHT: Final = 255
#: `ended_ns` and `started_ns` of an op to which that has not happened, or of which nobody knows.
NEVER: Final = -(2**63)
#: `group`, `peer` and `source` of an op that has none; `peer` of a recv from any rank.
NONE: Final = -1
#: `kind` of an op that this version has no number for; its form has the name.
OTHER_KIND: Final = 254


class OpRef(NamedTuple):
    """One op of one rank."""

    rank: int
    at: int
    """Its index into the columns of the rank."""


def _signed() -> array[int]:
    return array("q")


def _small() -> array[int]:
    return array("i")


def _bytes() -> array[int]:
    return array("B")


@dataclass(slots=True)
class Ops:
    """Columns of equal length. Times are the rank's own: add `RankLog.offset_ns`."""

    number: array[int] = field(default_factory=_signed)
    """As the rank counted its events."""
    issued_ns: array[int] = field(default_factory=_signed)
    started_ns: array[int] = field(default_factory=_signed)
    """When all ranks had come; NEVER."""
    ended_ns: array[int] = field(default_factory=_signed)
    """NEVER while it is in flight."""
    seq: array[int] = field(default_factory=_signed)
    """Collective: its number in the group; message: among those to or from the peer; aside: its own."""
    group: array[int] = field(default_factory=_small)
    """Index into `Session.groups`; NONE."""
    kind: array[int] = field(default_factory=_bytes)
    """As record.entries.KIND_LABELS and record.format.Aside; OTHER_KIND."""
    flags: array[int] = field(default_factory=_bytes)
    """record.format.Flag."""
    status: array[int] = field(default_factory=_bytes)
    """record.format.Status; IN_FLIGHT."""
    peer: array[int] = field(default_factory=_small)
    """The global rank that a message is with; NONE: no message, or from any."""
    source: array[int] = field(default_factory=_small)
    """The global rank that a recv came from; NONE."""
    tag: array[int] = field(default_factory=_signed)
    form: array[int] = field(default_factory=_small)
    """Index into `Session.forms`; 0: not known."""
    stack: array[int] = field(default_factory=_small)
    """Index into `Session.stacks`; 0: not known."""
    thread: array[int] = field(default_factory=_signed)
    """The kernel's number."""
    fingerprint: array[int] = field(default_factory=lambda: array("Q"))
    """Digest of what must be equal on all ranks; 0: not known, compare the forms."""
    comm: array[int] = field(default_factory=_small)
    """Index into `Session.comms`: what the program called it; 0: nothing."""
    errors: dict[int, str] = field(default_factory=dict)
    """What a failed op said, as JSON or as text, by index."""

    def __len__(self) -> int:
        return len(self.number)

    def append(
        self,
        *,
        number: int,
        issued_ns: int,
        seq: int,
        group: int,
        kind: int,
        started_ns: int = NEVER,
        ended_ns: int = NEVER,
        flags: int = 0,
        status: int = IN_FLIGHT,
        peer: int = NONE,
        source: int = NONE,
        tag: int = 0,
        form: int = 0,
        stack: int = 0,
        thread: int = 0,
        fingerprint: int = 0,
        comm: int = 0,
        error: str = "",
    ) -> int:
        """Add one op; returns its index."""
        index = len(self.number)
        self.number.append(number)
        self.issued_ns.append(issued_ns)
        self.started_ns.append(started_ns)
        self.ended_ns.append(ended_ns)
        self.seq.append(seq)
        self.group.append(group)
        self.kind.append(kind)
        self.flags.append(flags)
        self.status.append(status)
        self.peer.append(peer)
        self.source.append(source)
        self.tag.append(tag)
        self.form.append(form)
        self.stack.append(stack)
        self.thread.append(thread)
        self.fingerprint.append(fingerprint)
        self.comm.append(comm)
        if error:
            self.errors[index] = error
        return index

    def in_flight(self) -> Iterator[int]:
        """The indexes of those that have not ended, the oldest first."""
        data = self.status.tobytes()
        at = data.find(IN_FLIGHT)
        while at >= 0:
            yield at
            at = data.find(IN_FLIGHT, at + 1)

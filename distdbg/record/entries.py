"""What a reader gives: the entries of a record with their references resolved. Plain values.

Times are monotonic nanoseconds of the rank's host; `Header` has the clock pair that turns them into
wall time. What is None was overwritten, not set yet, or never known.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from distdbg.record.format import Aside, Exit, Status
from distdbg.record.forms import Form
from distdbg.record.recorded_frame import RecordedFrame

#: What an op that left no words has raised.
STATUS_ERRORS: Final[dict[int, str]] = {
    Status.USAGE: "UsageError",
    Status.TIMEOUT: "OpTimeout",
    Status.PEER_LOST: "PeerLost",
    Status.NETWORK: "DistNetworkError",
    Status.STORE: "DistStoreError",
    Status.MISMATCH: "MismatchError",
    Status.BROKEN: "CollectiveError",
    Status.INTERRUPTED: "KeyboardInterrupt",
    Status.SYSTEM: "DistBackendError",
    Status.NONFINITE: "NonFiniteError",
    Status.CHANGED: "BufferChangedError",
    Status.DIVERGED: "DivergedError",
    Status.ABORTED: "JobAborted",
    Status.FAILED: "DistBackendError",
}

#: By the number of the kind, for an op whose form was overwritten; as distdbg.ops.call.Kind.
KIND_LABELS: Final = (
    "broadcast",
    "all_reduce",
    "reduce",
    "all_gather",
    "gather",
    "scatter",
    "reduce_scatter",
    "all_to_all",
    "barrier",
    "send",
    "recv",
)


def label_of_kind(kind: int) -> str:
    """'all_reduce', 'new_group' ...; '' for a number that this version does not know."""
    if 0 <= kind < len(KIND_LABELS):
        return KIND_LABELS[kind]
    return Aside(kind).label if kind in set(Aside) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordHeader:
    """The rank that wrote the record, and when it began."""

    version: int
    rank: int
    world_size: int
    pid: int
    process_start: int
    wall_ns: int
    monotonic_ns: int
    host: str
    boot_id: str
    distdbg_version: str
    python_version: str
    run: str
    argv: tuple[str, ...]

    def to_wall_ns(self, monotonic_ns: int, *, clock_offset_ns: int = 0) -> int:
        """The wall time of a time in this record, by the clock pair taken at its beginning.

        With the header of a rank of the root host, and the `State.clock_offset_ns` of the record that
        the time is from, the times of all hosts are on one clock.
        """
        return self.wall_ns + monotonic_ns + clock_offset_ns - self.monotonic_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkWaitEntry:
    """A thread that waits for an op that it had begun earlier: `Work.wait()`."""

    #: The number of the op.
    number: int
    since_ns: int
    #: The kernel's number.
    thread: int
    #: Whether it ends at a limit of its own, and the op goes on.
    is_limited: bool = False
    #: Where it waits: the call site first, then its callers.
    stack: tuple[RecordedFrame, ...]

    @property
    def site(self) -> RecordedFrame | None:
        return self.stack[0] if self.stack else None


@dataclass(frozen=True, slots=True, kw_only=True)
class StateEntry:
    """What changes while the rank lives. Nothing protects these words but that they are few."""

    heartbeat_ns: int
    last_number: int
    exit: Exit | None
    exit_text: str | None
    exit_ns: int
    lost_strings: int
    lost_sites: int
    lost_parked: int
    #: Errors and findings that were ever written, also those whose words are gone.
    text_count: int
    level: int
    #: Added to a monotonic time of this host it gives the root host's; written by the agents.
    clock_offset_ns: int = 0
    #: How wrong that may be, either way; 0: nobody has estimated it.
    clock_error_ns: int = 0
    #: Threads that wait for an op in flight, the longest wait first. An op may have ended just now.
    work_waits: tuple[WorkWaitEntry, ...] = ()
    #: How often more threads waited than are kept.
    lost_waits: int = 0
    #: Ops that are in no counter: more groups, kinds and dtypes than there are places.
    lost_counters: int = 0


class Pulse(NamedTuple):
    """The part of the state that tells whether anything has happened; compared, not interpreted."""

    heartbeat_ns: int
    last_number: int
    #: PACKED; not 0: the rank has said how it leaves.
    exit_word: int
    text_count: int
    #: How often a thread began or ended to wait for an op that it had begun earlier.
    wait_changes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """What a process group is; it does not change."""

    number: int
    created_ns: int
    name: str
    desc: str
    #: Global ranks by group rank, compressed: "0-3,7".
    ranks: str
    backend: str
    size: int
    rank: int
    timeout_ns: int
    stack: tuple[RecordedFrame, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressEntry:
    """How far a process group has come."""

    closed_ns: int | None
    #: Where it was destroyed; None: unknown, or by no line of the program's.
    closed_at: RecordedFrame | None = None
    issued_seq: int
    ended_seq: int
    current: int
    #: Why it is broken; "" when it is but the words were overwritten.
    broken: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Counter:
    """Ops of one kind and dtype on one group since the group was made."""

    group: int
    kind: int
    #: "" for ops that have none, and in files of writers that did not tell dtypes apart.
    dtype: str = ""
    ended: int
    failed: int
    nbytes: int
    duration_ns: int
    wait_ns: int
    longest_ns: int
    #: Bucket i: from 2**i below 2**(i+1), the last one open, the first with 0.
    duration_buckets: tuple[int, ...]
    wait_buckets: tuple[int, ...]
    size_buckets: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """What all entries of the ring have."""

    number: int
    issued_ns: int
    thread: int
    #: The call site first, then its callers.
    stack: tuple[RecordedFrame, ...]

    @property
    def site(self) -> RecordedFrame | None:
        return self.stack[0] if self.stack else None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpEntry(Event):
    """One call of a collective or message."""

    group: Group | None
    group_number: int
    seq: int
    kind: int
    form: Form | None
    #: Group rank, of a message; None: not one, or from any.
    peer: int | None
    tag: int
    is_async: bool
    is_message: bool
    #: Not counted among the collectives of its group: new_group, monitored_barrier.
    is_aside: bool
    level: int
    fingerprint: int
    comm: str
    #: When all ranks had come.
    started_ns: int | None
    ended_ns: int | None
    #: None while it is in flight.
    status: int | None
    #: Group rank that a recv came from.
    source: int | None
    error: str | None
    #: Its end is when somebody noticed it: it may have ended before.
    is_end_noticed: bool = False
    #: Its end is when the device had it in its queue: it may have ended later.
    is_end_queued: bool = False

    @property
    def is_prompt(self) -> bool:
        """Whether it is a stop at the prompt of a debugger; its name says why."""
        return self.is_aside and self.kind == Aside.DEBUGGER

    @property
    def kind_label(self) -> str:
        known = label_of_kind(self.kind)
        return known or (self.form.kind if self.form else f"kind {self.kind}")

    @property
    def name(self) -> str:
        """The function that was called."""
        return (self.form.name if self.form else "") or self.kind_label

    @property
    def status_label(self) -> str:
        """'ok', 'timeout' ...; 'in flight' without one."""
        if self.status is None:
            return "in flight"
        try:
            return Status(self.status).name.lower()
        except ValueError:
            return f"status {self.status}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkEntry(Event):
    """A moment that the program named."""

    name: str | None
    value: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanBegin(Event):
    """The program entered a span."""

    name: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanEnd(Event):
    """The program left a span."""

    name: str | None
    #: The number of its SpanBegin.
    begin: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingEntry(Event):
    """What a check found, as JSON."""

    group: Group | None
    #: The number of the op that it is about; 0: none.
    seq: int
    text: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextEntry(Event):
    """Its thread has entered or left a span of the user's own traces; its later events are part of it.

    Written again now and then while nothing changes, so that the ring does not lose it.
    """

    #: As OpenTelemetry writes them, in hexadecimal; both "": the thread is in no span any more.
    trace_id: str
    span_id: str
    is_sampled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Events that are not there although others show that they were."""

    first: int
    last: int
    offset: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """All that a file says."""

    path: str
    header: RecordHeader
    state: StateEntry
    groups: tuple[Group, ...]
    progress: dict[int, ProgressEntry] = field(default_factory=dict)
    counters: tuple[Counter, ...] = ()
    events: tuple[Event, ...] = ()
    #: Without salvage the last of them is where reading stopped.
    gaps: tuple[Gap, ...] = ()

    @property
    def ops(self) -> tuple[OpEntry, ...]:
        return tuple(event for event in self.events if isinstance(event, OpEntry))

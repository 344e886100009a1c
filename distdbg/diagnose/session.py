"""Session: one start of a job, as its records, dumps or logs have it.

    session.ranks[3].ops            what rank 3 called (`ops`)
    session.groups[2].ranks         the members of group 2, by group rank
    session.time_ns(3, ops.issued_ns[i])      on the one clock of the session

Missing ranks, rings that wrapped around and clocks that differ are normal. What could not be read is in
`lacks`. This file reads no files: `load` does, and tests write sessions by hand
(`tests.support.session_builder`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from distdbg.diagnose.ops import IN_FLIGHT, NEVER, NONE, OpRef, Ops
from distdbg.record.ends import RankEnd
from distdbg.record.entries import KIND_LABELS, ContextEntry, Event
from distdbg.record.format import Aside, Exit, Flag, Status
from distdbg.record.forms import Form
from distdbg.record.join_calls import JoinCall
from distdbg.record.rank_state import RankState
from distdbg.record.recorded_frame import RecordedFrame

if TYPE_CHECKING:
    from distdbg.diagnose.finding import Finding

Stack = tuple[RecordedFrame, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupInfo:
    """A process group, the same on all its members."""

    name: str
    """Equal on all members; one that was made again after its end has '~2' behind it."""
    label: str
    """What messages call it."""
    ranks: tuple[int, ...]
    """Global ranks by group rank; () when nobody said."""
    backend: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupProgress:
    """How far one rank has come on one group."""

    issued_seq: int
    """The number of the collective issued last; 0: none."""
    ended_seq: int
    closed_ns: int | None = None
    """When this rank destroyed the group."""
    closed_at: str = ""
    """Where: 'train.py:88 (main)'; '' where that is not known."""
    broken: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkWait:
    """A thread that waits for an op that it had begun earlier (`Work.wait`)."""

    thread: int
    number: int
    """The number of the op, as `Ops.number`."""
    since_ns: int
    stack: int = 0
    is_limited: bool = False
    """Whether it ends at a limit of its own, and the op goes on."""
    is_guess: bool = False
    """Whether it is only likely: of several such ops the thread waited for one, the first of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedProblem:
    """What a rank wrote into its record: an error of an op, or what a check noticed."""

    type: str
    """'MismatchError', 'Suspicion' ...; '' when the words were lost."""
    what: str
    at_ns: int = NEVER
    group: str = ""
    seq: int = 0
    kind: str = ""
    ranks: tuple[int, ...] = ()
    how: str = ""
    details: tuple[str, ...] = ()
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """What a rank did when it was last looked at from outside; only agents know."""

    state: RankState
    since_ns: int
    """Rank's own clock, like all times of a RankLog."""
    why: str = ""
    site: str = ""
    """Where it was in its own code: 'data.py:12 (load)'."""
    stack: Stack = ()
    longest_gap_ns: int = 0
    """The longest time that it had made no progress before, by the agent's own looks."""
    is_patient: bool | None = None
    """Whether an agent has found it in that state for long enough; None: nobody has judged."""


@dataclass(slots=True, kw_only=True)
class RankLog:
    """One rank. Times are its own; `Session.time_ns` puts them on the session's clock."""

    rank: int
    host: str = ""
    pid: int = 0
    argv: tuple[str, ...] = ()
    source: str = ""
    """The file or files that it was read from."""
    offset_ns: int = 0
    """Added to a time of this rank it gives the session's."""
    clock_error_ns: int | None = None
    """How wrong that may be; None: nobody has estimated it."""
    began_ns: int = 0
    heartbeat_ns: int = 0
    """When it was last seen to do anything."""
    level: int = 0
    ops: Ops = field(default_factory=Ops)
    progress: dict[int, GroupProgress] = field(default_factory=dict)
    """By index into `Session.groups`; has the groups that the rank is a member of."""
    work_waits: tuple[WorkWait, ...] = ()
    notes: tuple[Event, ...] = ()
    """Marks and spans, in order."""
    contexts: tuple[ContextEntry, ...] = ()
    """When its threads entered or left spans of the program's own traces, in order."""
    found: tuple[RecordedProblem, ...] = ()
    exit: Exit | None = None
    """How far it says that it came."""
    exit_ns: int = NEVER
    exit_what: str = ""
    """What it raised; ''."""
    exit_where: str = ""
    exit_hint: str = ""
    """What its error itself advises."""
    exit_notes: tuple[str, ...] = ()
    """What was added to what it raised (add_note), as its error file has it."""
    exit_handled: str = ""
    """The error that it was handling then: 'ValueError: no number at load.py:52 (parse)'."""
    left_stack: Stack = ()
    """Where it raised, or crashed in native code, with the callers: the innermost first;
    () where nobody knows."""
    child_stack: Stack = ()
    """Where a child process of it crashed, that it waits for; () where nobody knows."""
    left_values: Mapping[tuple[str, int], Mapping[str, str]] = field(default_factory=dict)
    """What the variables of these frames held, by file and line: {'step': '= 14'}."""
    end: RankEnd | None = None
    """How its process ended, by whoever saw it."""
    join: JoinCall | None = None
    """Its last call of init_process_group, by its own note, of a process without a record."""
    activity: Activity | None = None
    activities: tuple[Activity, ...] = ()
    """All that was seen, in order, where more than the last is known."""
    longest_gap_ns: int = 0
    """The longest time between two ops that it came out of, where `ops` does not have them."""
    threads: frozenset[int] | None = None
    """The kernel's numbers of its living threads; None: not known."""
    issuers: frozenset[int] = frozenset()
    """Threads that have issued ops which `ops` does not have: a live session's have ended."""
    last_good_ns: int = NEVER
    """When the last op was issued that went well, where `ops` may not have it; NEVER: not known."""
    last_asides: dict[tuple[int, int], int] | None = None
    """By group and kind, the number of the aside it came to last; None: `ops` has them all."""
    lost: dict[str, int] = field(default_factory=dict)
    """How much of what is not there: 'ops' that the ring has overwritten, 'strings', 'sites', 'gaps'."""

    def seen_at(self, own_ns: int) -> Activity | None:
        """The last of what was seen until then."""
        earlier = [seen for seen in self.activities if seen.since_ns <= own_ns]
        if self.activity is not None and self.activity.since_ns <= own_ns:
            earlier.append(self.activity)
        return max(earlier, key=lambda seen: seen.since_ns, default=None)

    @property
    def exit_type(self) -> str:
        """The type of what it raised: 'ValueError', without its module; ''."""
        return self.exit_what.partition(":")[0].strip().rpartition(".")[2]

    @property
    def is_joining(self) -> bool:
        """Whether it waits in init_process_group, or did until somebody ended it."""
        return self.join is not None and self.join.is_waiting

    @property
    def has_failed(self) -> bool:
        """Whether its process ended badly, as far as is known: not where it left and nobody saw its end."""
        if self.end is None or not self.end.is_failure:
            return False
        return self.end.cause != "unknown" or self.exit not in (Exit.LEFT, Exit.RETURNED)

    @property
    def is_gone(self) -> bool:
        """Whether nothing more is to be expected of it."""
        if self.end is not None or self.exit in (Exit.RETURNED, Exit.LEFT):
            return True
        return self.activity is not None and self.activity.state.is_over


#: The fields of a `RankLog` that has not said how it leaves.
NO_EXIT: Final[Mapping[str, object]] = {
    "exit": None,
    "exit_ns": NEVER,
    "exit_what": "",
    "exit_where": "",
    "exit_hint": "",
    "exit_notes": (),
    "exit_handled": "",
    "left_stack": (),
    "left_values": {},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """One line that somebody printed, where it is worth showing."""

    text: str
    source: str
    """File and line: 'stderr.log:88'."""
    rank: int | None = None
    host: str = ""
    wall_ns: int | None = None


@dataclass(slots=True, kw_only=True)
class Session:
    """One start of a job."""

    source: str
    """What was read: a path."""
    format: str = "distdbg"
    """'distdbg', 'torch flight recorder', 'logs' ..."""
    run: str = ""
    attempt: int = 0
    attempts: int = 1
    """How many starts there were; this session is number `attempt` of them."""
    world_size: int = 0
    """0: not known."""
    is_live: bool = False
    """Whether some rank may still go on."""
    has_begun: bool = True
    """False where no rank left anything of its init_process_group: a record, read or not, a control page."""
    was_killed: bool = False
    """Whether all its processes are gone and none has left an end: its launcher, and the ranks with it."""
    now_ns: int = NEVER
    """When it was read, or when the last sign of life came, on the session's clock."""
    cut: Status | None = None
    """How the first op failed, if this is the session as it was then (`last_moment`)."""
    cut_words: str = ""
    """The same for people: 'the job was stopped by SIGTERM'; '' where a rank failed by itself."""
    stopped_by: str = ""
    """The user who ended it by `distdbg stop`; '' for nobody."""
    ranks: dict[int, RankLog] = field(default_factory=dict)
    groups: list[GroupInfo] = field(default_factory=list)
    forms: list[Form] = field(default_factory=lambda: [Form()])
    stacks: list[Stack] = field(default_factory=lambda: [()])
    comms: list[str] = field(default_factory=lambda: [""])
    """What programs have called their ops."""
    lines: list[LogLine] = field(default_factory=list)
    said: list[Finding] = field(default_factory=list)
    """What logs and other tools state; the diagnosis puts it in its place."""
    lacks: list[str] = field(default_factory=list)
    """What is missing or could not be read, each in one sentence."""

    def time_ns(self, rank: int, own_ns: int) -> int:
        """A time of a rank on the session's clock: wall time of the first host."""
        return NEVER if own_ns == NEVER else own_ns + self.ranks[rank].offset_ns

    def missing_ranks(self) -> tuple[int, ...]:
        """List the ranks that nothing is known of."""
        return tuple(rank for rank in range(self.world_size) if rank not in self.ranks)

    def ranks_without_record(self) -> tuple[int, ...]:
        """Those of a run of ours of which others tell alone: how they ended."""
        if self.format != "distdbg":
            return ()
        logs = self.ranks.values()
        return tuple(
            log.rank
            for log in logs
            if log.end is not None and not (log.source or len(log.ops) or log.is_joining)
        )

    def went_well_unused(self) -> bool:
        """Whether all that is left is that each rank ended with code 0: its program may never have joined."""
        blind = self.ranks_without_record()
        return (
            bool(blind)
            and len(blind) == len(self.ranks)
            and not (self.has_begun or self.is_live or self.missing_ranks())
            and not any(log.end is not None and log.end.is_failure for log in self.ranks.values())
        )

    def kind_of(self, op: OpRef) -> str:
        """'all_reduce', 'send', 'new_group' ..."""
        ops = self.ranks[op.rank].ops
        kind = ops.kind[op.at]
        if kind < len(KIND_LABELS):
            return KIND_LABELS[kind]
        if kind in set(Aside):
            return Aside(kind).label
        return self.forms[ops.form[op.at]].kind or "an op"

    def stack_of(self, op: OpRef) -> Stack:
        """Where it was called, with the callers."""
        return self.stacks[self.ranks[op.rank].ops.stack[op.at]]

    def site_of(self, op: OpRef) -> RecordedFrame | None:
        """Where it was called."""
        stack = self.stack_of(op)
        return stack[0] if stack else None

    def tag_of(self, op: OpRef) -> int:
        return self.ranks[op.rank].ops.tag[op.at]

    def form_of(self, op: OpRef) -> Form:
        """What its arguments were."""
        return self.forms[self.ranks[op.rank].ops.form[op.at]]

    def messages(self, rank: int, kind: str = "") -> Iterator[OpRef]:
        """The sends and recvs of a rank, in the order of issue; of one kind."""
        for at, flags in enumerate(self.ranks[rank].ops.flags):
            if flags & Flag.MESSAGE and (not kind or self.kind_of(OpRef(rank, at)) == kind):
                yield OpRef(rank, at)

    def group_of(self, op: OpRef) -> GroupInfo | None:
        index = self.ranks[op.rank].ops.group[op.at]
        return None if index == NONE else self.groups[index]

    def name_of(self, op: OpRef) -> str:
        """'all_reduce #1042 on group 'dp'', 'send #3 to rank 2 (tag 5) on group 'world''."""
        ops = self.ranks[op.rank].ops
        i = op.at
        kind = self.kind_of(op)
        group = self.group_of(op)
        where = f" on group '{group.label}'" if group else ""
        if kind == Aside.DEBUGGER.label:
            why = self.forms[ops.form[i]].name
            return "the debugger" + (f" ({why})" if why not in ("", kind) else "")
        if not ops.flags[i] & Flag.MESSAGE:
            name = self.forms[ops.form[i]].name or kind
            return f"{name} #{ops.seq[i]}{where}"
        whom = "any rank" if ops.peer[i] == NONE else f"rank {ops.peer[i]}"
        tag = f" (tag {ops.tag[i]})" if ops.tag[i] else ""
        return f"{kind} {'to' if kind == 'send' else 'from'} {whom}{tag}{where}"

    def is_in_flight(self, op: OpRef) -> bool:
        return self.ranks[op.rank].ops.status[op.at] == IN_FLIGHT

    def members(self, group: int) -> Sequence[int]:
        """Global ranks of a group; those that mention it when nobody said."""
        ranks = self.groups[group].ranks
        return ranks or tuple(r for r, log in sorted(self.ranks.items()) if group in log.progress)

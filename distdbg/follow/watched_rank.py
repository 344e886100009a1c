"""One rank of this host: its process and its record together."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from distdbg.follow.process_ends import Life
from distdbg.follow.processes import ProcessStat
from distdbg.follow.stacks import RankStacks, find_site
from distdbg.follow.status import RankStatus
from distdbg.follow.tail import CurrentOps, TailedRecord
from distdbg.record.ends import RankEnd
from distdbg.record.entries import OpEntry, Pulse
from distdbg.record.join_calls import CALL, JoinCall
from distdbg.record.rank_list import read_ranks
from distdbg.record.rank_state import RankState
from distdbg.record.recorded_frame import RecordedFrame
from distdbg.view.short_words import with_comm

#: After which a process without a record is asked about.
_STARTS_NS = 10 * 10**9
_OWN_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Was(NamedTuple):
    """A state that a rank was in."""

    state: RankState
    since_ns: int
    why: str
    site: str


#: A loop in Python that calls much native code looks like either from one moment to the next.
_ON_CPU = {RankState.BUSY, RankState.HOLDS_GIL}


@dataclass(slots=True)
class WatchedRank:
    """What is known of one rank; times are monotonic nanoseconds of this host."""

    rank: int
    host: str
    pid: int
    attempt: int = 0
    life: Life | None = None
    record: TailedRecord | None = None
    pulse: Pulse | None = None
    progress_ns: int = 0
    """When it last began or ended an op, as far as it was seen."""
    longest_gap_ns: int = 0
    """The longest time between two ops that it has come out of, as far as it was seen."""
    state: RankState = RankState.STARTING
    since_ns: int = 0
    why: str = ""
    site: str = ""
    """Where it was seen in its own code; '' when only its record is known."""
    starts_in: RankState | None = None
    """What a close look has found of a rank that has no record yet; its state is STARTING meanwhile."""
    stacks: RankStacks | None = None
    """What the last close look has found in this state."""
    end: RankEnd | None = None
    is_busy: bool = False
    """Whether it burned its core when it was looked at closely."""
    cpu_since_s: float = 0.0
    """What it had burned when it entered the state in which it was seen then."""
    has_left: bool = False
    """Whether it destroyed its groups: what it does later concerns nobody."""
    stat: ProcessStat | None = None
    stat_ns: int = 0
    blocked_ns: int = 0
    """Since when it is in uninterruptible I/O; 0: it is not."""
    is_resting: bool = False
    """Whether the clock of the job stands: nothing is expected of anybody."""
    rested_ns: int = 0
    """When it was last seen to stand."""
    looked_ns: int = 0
    """When it was last looked at closely."""
    current_ops: CurrentOps | None = None
    is_exact: bool = False
    """Whether `current_ops` was looked for after the rank had stopped moving."""
    seqs: tuple[tuple[str, int], ...] = field(default=())
    join: JoinCall | None = None
    """Its call of init_process_group, as long as it has no record."""
    join_why: str = ""
    """For whom it waits there: 'for rank 4, asleep in load() at x.py:5'."""
    was: Was | None = None
    """What it did before it was over."""

    def place_start(self, state: RankState, why: str, site: str, stacks: RankStacks | None) -> None:
        """Before its first op: what it does, and where."""
        self.starts_in, self.why, self.site, self.stacks = state, why, site, stacks

    def move(self, now_ns: int) -> None:
        """It has begun or ended an op."""
        is_own = self.state not in (RankState.WAITING, RankState.DEBUGGED, RankState.STARTING)
        if is_own and not self.is_resting and self.rested_ns < self.progress_ns:
            self.longest_gap_ns = max(self.longest_gap_ns, now_ns - self.progress_ns)
        self.progress_ns = now_ns

    def change(self, state: RankState, now_ns: int, why: str = "", site: str = "") -> bool:
        """Enter a state; True when it is another one than before."""
        if state.is_over and not self.state.is_over:
            self.was = Was(self.state, self.since_ns, self.why, self.site)
        self.why, self.site, self.stacks = why, site, None
        if state is self.state:
            return False
        is_same_work = {state, self.state} == _ON_CPU and self.since_ns >= self.progress_ns
        self.state = state
        if not is_same_work:
            self.since_ns = now_ns
        return True

    def place(self, stacks: RankStacks) -> None:
        """Its stacks were taken: where it is in its own code, if that was not known."""
        main = stacks.main
        frame = find_site(main.frames, _OWN_PACKAGE) if main is not None else None
        is_halted = self.state in (RankState.STOPPED, RankState.TRACED)
        if frame is not None and is_halted and not self.site:
            self.site = str(frame)

    @property
    def is_gone(self) -> bool:
        """Whether nothing more is to be expected of it."""
        return self.state.is_over or self.state is RankState.LEFT

    @property
    def is_joining(self) -> bool:
        """Whether it waits in init_process_group."""
        is_there = self.record is None and not self.is_gone
        return is_there and self.join is not None and self.join.is_waiting

    def row(self, now_ns: int) -> RankStatus:
        """What is known now, as it was last looked at."""
        if self.is_joining and self.join is not None:
            return self._row_of_joining(self.join, now_ns)
        op = self.current_ops.op if self.current_ops else None
        is_in = bool(self.current_ops and self.current_ops.is_in)
        if self.current_ops and self.current_ops.prompt is not None:
            op = next((one for one in self.current_ops.in_flight if not one.is_prompt), None)
        site = self.site
        where = self.current_ops.site if self.current_ops else None
        # A process that is stopped outside any op is not at the line of the op that it called before.
        is_elsewhere = self.state in (RankState.STOPPED, RankState.TRACED) and not is_in
        if not site and where is not None and not is_elsewhere:
            site = show_site(where)
        return RankStatus(
            rank=self.rank,
            host=self.host,
            pid=self.pid,
            state=self.state,
            attempt=self.attempt,
            state_age_s=round(max(0, now_ns - self.since_ns) / 1e9, 3),
            progress_age_s=round(max(0, now_ns - self.progress_ns) / 1e9, 3),
            last_number=self.pulse.last_number if self.pulse else 0,
            seqs=self.seqs,
            op=_called(op) if op is not None and is_in else "",
            site=site,
            why=self.why or self._why_no_record(now_ns),
            cpu_s=round(self.stat.cpu_s, 2) if self.stat else 0.0,
            rss_nbytes=self.stat.rss_nbytes if self.stat else 0,
        )

    def _row_of_joining(self, call: JoinCall, now_ns: int) -> RankStatus:
        age_s = round(max(0, now_ns - call.since_ns) / 1e9, 3)
        return RankStatus(
            rank=self.rank,
            host=self.host,
            pid=self.pid,
            state=RankState.WAITING,
            attempt=self.attempt,
            state_age_s=age_s,
            progress_age_s=age_s,
            op=CALL,
            site=call.site,
            why=self.join_why,
            cpu_s=round(self.stat.cpu_s, 2) if self.stat else 0.0,
            rss_nbytes=self.stat.rss_nbytes if self.stat else 0,
        )

    def _why_no_record(self, now_ns: int) -> str:
        # A program that uses another library is watched as well, from further away.
        if self.state is RankState.STARTING and self.starts_in is RankState.WAITING:
            return "waits for others, before its first op"
        is_unheard = self.state is RankState.STARTING and self.record is None
        if is_unheard and now_ns - self.since_ns > _STARTS_NS:
            return "it has not called distdbg's init_process_group"
        return ""


def _called(op: OpEntry) -> str:
    """Name an op with the words that the program, or what called it for the program, has for it."""
    return with_comm(name_op(op), "" if op.is_prompt else op.comm)


def name_op(op: OpEntry) -> str:
    """'all_reduce #1042 on group 'dp'', 'recv #1 from rank 2 (tag 5) on group 'world''."""
    if op.is_prompt:
        return "the debugger"
    group = f" on group '{op.group.desc or op.group.name}'" if op.group else ""
    return f"{op.name} #{op.seq}{_peer(op) if op.is_message else ''}{group}"


def _peer(op: OpEntry) -> str:
    names = ranks_of(op.group.ranks) if op.group else ()
    if op.peer is None:
        whom = "any rank"
    else:
        whom = f"rank {names[op.peer] if op.peer < len(names) else op.peer}"
    tag = f" (tag {op.tag})" if op.tag else ""
    return f" {'to' if op.kind_label == 'send' else 'from'} {whom}{tag}"


@lru_cache(64)
def ranks_of(text: str) -> tuple[int, ...]:
    """The ranks of a group, by their rank there; () when the record does not tell."""
    try:
        return tuple(read_ranks(text))
    except ValueError:
        return ()


def show_site(frame: RecordedFrame) -> str:
    """'train.py:88 (step)'."""
    return str(frame._replace(file=os.path.basename(frame.file)))

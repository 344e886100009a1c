"""Finds who waits for whom: the ops that block the threads of ranks, and the ranks that these ops need.

    waits = find_waits(session, matched)
    waits[0]        (Edge(rank=0, on=(1, 2), text="all_reduce #7 on group 'world'", ...),)

A rank is listed when it is blocked: its main thread, and each other thread that has ever issued an op and may
still run, is in an op, or in the wait for one, that needs other ranks. Whom such an op waits for:

    collective           all members that have not issued it. So also what is queued behind an earlier op of
                         its group is right: whom the earlier one waits for has not issued the later one
    send, recv           the peer, unless it is in a matching op: by peer and tag, in order
    recv from any        any other member, but those that left properly, unless somebody's message is there
    new_group            all its members that have not called it; old records do not name the members:
                         there, any member of the parent group that has not called one
    monitored_barrier    all members that have not called it
    breakpoint           the ranks that stop there, unless one has gone on since

A rank that has destroyed the group of the op never calls it, whatever it waits in now (`Edge.left`): the op
ends with an error, and its rank goes on. A rank at the prompt of a debugger waits for nobody: its user
continues it.

Records of a running job are not read at one moment. That makes no false deadlock: a rank that is shown in an
op which the others have called as well is known to be through by their records.

What is not known counts as "may go on": such a rank is left out, such a member not waited for. So what the
edges prove is true. Ranks in `on` that have no edges themselves run, or are gone, stuck or unknown.
Ranks in one op share one `on`, which `graph` needs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final, NamedTuple

from distdbg.diagnose.debugged import is_debugged
from distdbg.diagnose.finding import Edge
from distdbg.diagnose.matching import Matched
from distdbg.diagnose.messages import MessageMatcher, is_halted
from distdbg.diagnose.ops import IN_FLIGHT, NEVER, NONE, OpRef
from distdbg.diagnose.session import RankLog, Session, WorkWait
from distdbg.diagnose.wording import known_ns, say_site
from distdbg.record.format import Aside, Exit, Flag

#: In larger groups all receivers from any rank share one list of whom they wait for.
_MAX_OWN_LISTS: Final = 128
#: What is lost with these may be an op in flight.
_HOLES: Final = ("gaps", "parked")


class _Blocked(NamedTuple):
    """One thread, and the ops all of which it waits for."""

    thread: int
    ops: tuple[int, ...]
    wait: WorkWait | None


def find_waits(session: Session, matched: Matched) -> dict[int, tuple[Edge, ...]]:
    """Return for each blocked rank one edge per blocked thread, the main thread's first."""
    finder = _Finder(session)
    found = {}
    for rank, log in session.ranks.items():
        edges = finder.edges_of(rank, log)
        if edges:
            found[rank] = edges
    return found


class _Finder:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._messages = MessageMatcher(session)
        self._progress: dict[int, _Arrivals] = {}
        self._asides: dict[int, dict[tuple[int, int], int]] = {}
        self._any: dict[tuple[int, int], tuple[int, ...]] = {}
        self._closers: dict[int, frozenset[int]] = {}
        self._left: dict[tuple[int, int, bool], tuple[tuple[int, ...], tuple[int, ...]]] = {}

    def edges_of(self, rank: int, log: RankLog) -> tuple[Edge, ...]:
        """() when some thread may move."""
        if is_halted(log) or is_debugged(log) or any(log.lost.get(name) for name in _HOLES):
            return ()
        edges = []
        for blocked in _blocked_threads(log):
            edge = self._edge(rank, log, blocked)
            if edge is None:
                return ()
            edges.append(edge)
        return tuple(edges)

    def _edge(self, rank: int, log: RankLog, blocked: _Blocked) -> Edge | None:
        ways = []
        for at in blocked.ops:
            on, is_any = self._whom(OpRef(rank, at))
            if on:
                ways.append((at, on, is_any))
        if not ways:
            return None
        # To be held up by one of the ops is enough; an edge cannot say "any of these and all of those".
        ways = [way for way in ways if not way[2]] or ways[:1]
        wait = blocked.wait
        is_one = len(ways) == 1 or (wait is not None and wait.is_guess)
        # Where all are waited for, one whose group somebody has left ends the wait.
        found = [
            (at, on, is_any, self._who_left(on, is_any, log.ops.group[at]))
            for at, on, is_any in (ways[:1] if is_one else ways)
        ]
        at, on, is_any, left = next((one for one in found if one[3]), found[0])
        if not (is_one or left):
            on = self._union([on for _, on, _ in ways])
        op = OpRef(rank, at)
        stack = wait.stack if wait is not None and wait.stack else log.ops.stack[at]
        frames = self._session.stacks[stack] if stack < len(self._session.stacks) else ()
        since_ns = wait.since_ns if wait is not None else log.ops.issued_ns[at]
        return Edge(
            rank=rank,
            on=on,
            is_any=is_any,
            op=op,
            text=self._session.name_of(op),
            site=say_site(frames[0] if frames else None),
            since_ns=known_ns(self._session.time_ns(rank, since_ns)),
            left=left,
        )

    def _who_left(self, on: tuple[int, ...], is_any: bool, group: int) -> tuple[int, ...]:
        """Those of `on` that have destroyed the group, if that ends the op; one tuple for one `on`."""
        if group not in self._closers:
            self._closers[group] = frozenset(
                rank
                for rank, log in self._session.ranks.items()
                if (far := log.progress.get(group)) is not None and far.closed_ns is not None
            )
        closers = self._closers[group]
        if closers.isdisjoint(on):
            return ()
        key = id(on), group, is_any
        if key not in self._left:
            left = tuple(rank for rank in on if rank in closers)
            self._left[key] = on, left if not is_any or len(left) == len(on) else ()  # `on` is kept
        return self._left[key][1]

    def _union(self, parts: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        whole = tuple(sorted({rank for part in parts for rank in part}))
        return next((part for part in parts if part == whole), whole)

    # ------------------------------------------------------------------- whom an op waits for

    def _whom(self, op: OpRef) -> tuple[tuple[int, ...], bool]:
        """Return whom an op waits for, and whether any of them is enough; nobody where it makes progress."""
        log = self._session.ranks[op.rank]
        ops, at = log.ops, op.at
        group, flags = ops.group[at], ops.flags[at]
        if group == NONE or self._is_broken(group, op.rank):
            return (), False
        has_begun = ops.started_ns[at] != NEVER
        if flags & Flag.MESSAGE:
            return ((), False) if has_begun else self._whom_of_message(op)
        if flags & Flag.ASIDE:
            return self._whom_of_aside(op)
        return self._arrivals(group).missing(ops.seq[at], has_begun), False

    def _is_broken(self, group: int, rank: int) -> bool:
        """Whether the ops of the group are about to fail."""
        progress = self._session.ranks[rank].progress.get(group)
        return progress is not None and progress.broken is not None

    def _arrivals(self, group: int) -> _Arrivals:
        if group not in self._progress:
            self._progress[group] = _Arrivals(self._session, group)
        return self._progress[group]

    def _whom_of_message(self, op: OpRef) -> tuple[tuple[int, ...], bool]:
        ops = self._session.ranks[op.rank].ops
        kind, peer, group = self._session.kind_of(op), ops.peer[op.at], ops.group[op.at]
        if kind not in ("send", "recv") or self._messages.is_met(op, kind):
            return (), False
        if peer != NONE:
            return (peer,), False
        return (self._anybody(group, op.rank), True) if kind == "recv" else ((), False)

    def _anybody(self, group: int, rank: int) -> tuple[int, ...]:
        members = self._session.groups[group].ranks
        key = (group, rank if len(members) <= _MAX_OWN_LISTS else NONE)
        if key not in self._any:
            others = tuple(other for other in members if other != key[1])
            there = tuple(other for other in others if not self._has_left(other))
            self._any[key] = there if set(there) - {rank} else others
        return self._any[key]

    def _has_left(self, rank: int) -> bool:
        """Properly: who waits for a message from any rank does not miss it."""
        log = self._session.ranks.get(rank)
        return log is not None and log.exit in (Exit.RETURNED, Exit.LEFT)

    def _whom_of_aside(self, op: OpRef) -> tuple[tuple[int, ...], bool]:
        ops = self._session.ranks[op.rank].ops
        kind, group = ops.kind[op.at], ops.group[op.at]
        members = self._session.groups[group].ranks
        made = [range(*each) for each in self._session.forms[ops.form[op.at]].members.items]
        if made:  # also of a list that was cut: whom it has is waited for
            members = tuple(rank for rank in members if any(rank in each for each in made))
        absent = tuple(
            rank for rank in members if rank != op.rank and not self._may_be_at(rank, op)
        )
        return absent, not (made or kind == Aside.MONITORED_BARRIER)

    def _may_be_at(self, rank: int, aside: OpRef) -> bool:
        """Whether it came to the aside, also when it may be through already."""
        log = self._session.ranks.get(rank)
        if log is None:
            return False  # it counts as one that can move
        mine = self._session.ranks[aside.rank].ops
        kind, group, seq = mine.kind[aside.at], mine.group[aside.at], mine.seq[aside.at]
        if kind == Aside.BREAKPOINT:  # who stops there is in no op of that kind itself
            return not is_debugged(log) and self._has_op_since(rank, log, aside)
        if self._last_asides(rank, log).get((group, kind), 0) >= seq:
            return True
        in_flight = list(log.ops.in_flight())
        if kind == Aside.NEW_GROUP and any(
            log.ops.kind[i] == kind and log.ops.flags[i] & Flag.ASIDE for i in in_flight
        ):
            return True  # its number counts also the groups that others have nothing to do with
        if kind == Aside.NEW_GROUP and self._has_made_more(rank, aside):
            return True
        is_whole = not (self._session.is_live or log.lost.get("ops"))
        if is_whole or log.last_asides is not None:
            return False
        # What has ended is not shown: who came to its op after the aside had begun may be through.
        return self._has_op_since(rank, log, aside)

    def _has_op_since(self, rank: int, log: RankLog, aside: OpRef) -> bool:
        """Whether it is in an op that it may have begun after the aside."""
        mine = self._session.ranks[aside.rank].ops
        begun_ns = self._session.time_ns(aside.rank, mine.issued_ns[aside.at])
        return any(
            self._session.time_ns(rank, log.ops.issued_ns[i]) + (log.clock_error_ns or 0) > begun_ns
            for i in log.ops.in_flight()
        )

    def _has_made_more(self, rank: int, aside: OpRef) -> bool:
        """Whether it has a group of the members that the aside takes which the other has not yet."""
        form = self._session.forms[self._session.ranks[aside.rank].ops.form[aside.at]]
        made = [range(*each) for each in form.members.items]
        size = sum(map(len, made))

        def count(log: RankLog) -> int:
            return sum(
                len(members) == size and all(any(m in each for each in made) for m in members)
                for members in (self._session.groups[group].ranks for group in log.progress)
            )

        return bool(size) and count(self._session.ranks[rank]) > count(
            self._session.ranks[aside.rank]
        )

    def _last_asides(self, rank: int, log: RankLog) -> dict[tuple[int, int], int]:
        """By group and kind the highest number that the rank has come to."""
        found = self._asides.get(rank)
        if found is None:
            found = self._asides[rank] = dict(log.last_asides or {})
            for i, flags in enumerate(log.ops.flags):
                if flags & Flag.ASIDE:
                    key = (log.ops.group[i], log.ops.kind[i])
                    found[key] = max(found.get(key, 0), log.ops.seq[i])
        return found


class _Arrivals:
    """How far the members of one group have come."""

    def __init__(self, session: Session, group: int) -> None:
        ranks = session.ranks
        far = []
        #: Members that will not carry on with what they are in, and the last that they have ended.
        self._halted: list[tuple[int, int]] = []
        for member in session.members(group):
            log = ranks.get(member)
            progress = None if log is None else log.progress.get(group)
            far.append((0 if progress is None else progress.issued_seq, member))
            if log is not None and is_halted(log):
                self._halted.append((member, 0 if progress is None else progress.ended_seq))
        far.sort()
        self._seqs = [seq for seq, _ in far]
        self._members = [member for _, member in far]
        self._missing: dict[tuple[int, int], tuple[int, ...]] = {}

    def missing(self, seq: int, has_begun: bool) -> tuple[int, ...]:
        """Return who has not issued the op, and who is in it and will not carry on with it.

        One and the same tuple for all that are asked about it.
        """
        count = 0 if has_begun else bisect_left(self._seqs, seq)
        key = (count, seq if self._halted else 0)
        if key not in self._missing:
            absent = self._members[:count]
            halted = {member for member, ended in self._halted if ended < seq}
            self._missing[key] = tuple(sorted(halted.union(absent)))
        return self._missing[key]


# ---------------------------------------------------------------------------------- threads


def _blocked_threads(log: RankLog) -> list[_Blocked]:
    """One per thread, the main thread first; [] when some thread may be in no op."""
    ops = log.ops
    threads = set(ops.thread) | log.issuers
    waits: dict[int, list[WorkWait]] = {}
    for wait in log.work_waits:
        waits.setdefault(wait.thread, []).append(wait)
    threads.update(waits)
    if not any(threads):
        threads = {0}
    elif log.threads is not None:
        threads &= log.threads | {0}
    in_op: dict[int, list[int]] = {}
    for at in ops.in_flight():
        if not ops.flags[at] & Flag.ASYNC:
            in_op.setdefault(ops.thread[at], []).append(at)
    found = []
    if log.pid and any(threads):
        threads.add(log.pid)
    for thread in sorted(threads, key=lambda thread: (thread != log.pid, thread)):
        if thread in waits:
            if any(wait.is_limited for wait in waits[thread]):
                return []  # it goes on by itself
            waited = [_find(log, wait.number) for wait in waits[thread]]
            left = [at for at in waited if at is not None and ops.status[at] == IN_FLIGHT]
            if None in waited or not left:
                return []
            first = next(w for w in waits[thread] if _find(log, w.number) == left[0])
            found.append(_Blocked(thread, tuple(left), first))
        elif thread in in_op:
            found.append(_Blocked(thread, (in_op[thread][-1],), None))
        else:
            return []
    return found


def _find(log: RankLog, number: int) -> int | None:
    """The op of that number; the columns are in the order of issue, but for damage."""
    numbers = log.ops.number
    at = bisect_left(numbers, number)
    if at < len(numbers) and numbers[at] == number:
        return at
    return next((i for i, other in enumerate(numbers) if other == number), None)

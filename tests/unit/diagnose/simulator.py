"""Programs of a few ranks, run to the point where nothing moves, and who is then to blame.

    program = draw_program(Random(7))      see `drawn_programs`
    end = run(program, Random(8))          quiescent: no thread can take a step
    end.oracle().deadlocked                by trying all sets of ranks
    end.session()                          what the records of such a job would say

The semantics are those of the runtime: a send ends when it is received, messages meet by group, peer and
tag in order, the ops of a group run one after the other on each rank, a rank that ends waits for what it
has begun. The oracle knows ops and sets of ranks, nothing of graphs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from random import Random
from typing import Literal, NamedTuple

from distdbg.diagnose.ops import IN_FLIGHT, NEVER, NONE
from distdbg.diagnose.session import GroupInfo, GroupProgress, RankLog, Session, WorkWait
from distdbg.record.ends import RankEnd
from distdbg.record.format import Aside, Exit, Flag
from distdbg.record.forms import Form

Verb = Literal["collective", "barrier", "send", "recv", "wait", "compute", "crash"]

_COLLECTIVE, _SEND, _RECV = 1, 9, 10
_MAIN = 1000


class Step(NamedTuple):
    """One call of one thread; what has no meaning for its verb is left out."""

    verb: Verb
    group: int = 0
    peer: int = NONE
    tag: int = 0
    is_async: bool = False
    handle: int = 0
    """Of an async op, by which a wait names it."""


@dataclass(slots=True)
class Program:
    """By rank, the steps of its main thread and of at most one more."""

    groups: list[tuple[int, ...]]
    threads: list[list[list[Step]]]


@dataclass(slots=True)
class Op:
    rank: int
    thread: int
    step: Step
    seq: int
    number: int
    issued_at: int = 0
    ended_at: int = 0
    source: int = NONE

    @property
    def has_ended(self) -> bool:
        return self.ended_at > 0


@dataclass(slots=True)
class Thread:
    rank: int
    number: int
    steps: list[Step]
    at: int = 0
    op: Op | None = None
    """In which it is blocked."""
    handles: dict[int, Op] = field(default_factory=dict)
    computes: bool = False

    @property
    def is_blocked(self) -> bool:
        return self.op is not None and not self.op.has_ended

    @property
    def is_done(self) -> bool:
        return self.at >= len(self.steps) and self.op is None


class End:
    """The state in which nothing moves any more."""

    def __init__(self, program: Program) -> None:
        self.groups = program.groups
        self.now = 0
        self.size = len(program.threads)
        self.threads = [
            [Thread(rank, _MAIN + rank + 100 * i, steps) for i, steps in enumerate(mine)]
            for rank, mine in enumerate(program.threads)
        ]
        self.ops: list[list[Op]] = [[] for _ in range(self.size)]
        self.crashed = 0
        self.left = 0
        """Both as bits by rank."""
        #: By group and rank the collectives that have not ended, in order.
        self.queues = [{m: list[Op]() for m in group} for group in self.groups]
        self.issued = [dict.fromkeys(group, 0) for group in self.groups]
        self.barriers = [dict.fromkeys(group, 0) for group in self.groups]
        self.in_barrier = [dict[int, list[Op]]() for _ in self.groups]
        #: By group and receiver: receives that wait, and messages that came before theirs.
        self.posted = [{m: list[Op]() for m in group} for group in self.groups]
        self.offers = [{m: list[Op]() for m in group} for group in self.groups]

    # ------------------------------------------------------------------------- the runtime

    def step(self, thread: Thread) -> bool:
        """Take one step; False when it cannot."""
        if thread.op is not None:
            if not thread.op.has_ended:
                return False
            thread.op = None
            return True
        if thread.computes:
            return False
        if thread.at >= len(thread.steps):
            return not self.crashed >> thread.rank & 1 and self._leave(thread)
        step = thread.steps[thread.at]
        if step.verb == "compute":
            thread.computes = True
            return True
        thread.at += 1
        if step.verb == "crash":
            self._crash(thread)
        elif step.verb == "wait":
            op = thread.handles.pop(step.handle, None)
            if op is not None and not op.has_ended:
                thread.op = op
        else:
            op = self._issue(thread, step)
            if step.is_async:
                thread.handles[step.handle] = op
            elif not op.has_ended:
                thread.op = op
        return True

    def _leave(self, thread: Thread) -> bool:
        """At the end of the program: wait for what has been begun, then for the other thread."""
        for handle, op in list(thread.handles.items()):
            del thread.handles[handle]
            if not op.has_ended:
                thread.op = op
                return True
        if all(other.is_done and not other.handles for other in self.threads[thread.rank]):
            self.left |= 1 << thread.rank
        return False

    def _crash(self, thread: Thread) -> None:
        """Only where nothing is under way, so that it takes nothing back."""
        mine = self.threads[thread.rank]
        if len(mine) > 1 or any(not op.has_ended for op in self.ops[thread.rank]):
            return
        self.crashed |= 1 << thread.rank
        thread.at = len(thread.steps)

    def _issue(self, thread: Thread, step: Step) -> Op:
        rank, group = thread.rank, step.group
        ops = self.ops[rank]
        op = Op(rank, thread.number, step, 1, len(ops) + 1, self._tick())
        ops.append(op)
        if step.verb == "collective":
            self.issued[group][rank] += 1
            op.seq = self.issued[group][rank]
            self.queues[group][rank].append(op)
            self._run_collectives(group)
        elif step.verb == "barrier":
            self.barriers[group][rank] += 1
            op.seq = self.barriers[group][rank]
            there = self.in_barrier[group].setdefault(op.seq, [])
            there.append(op)
            if len(there) == len(self.groups[group]):
                for other in there:
                    other.ended_at = self._tick()
        elif step.verb == "send":
            self._send(op)
        else:
            self._receive(op)
        return op

    def _run_collectives(self, group: int) -> None:
        queues = self.queues[group].values()
        while all(queues):
            for queue in queues:
                queue.pop(0).ended_at = self._tick()

    def _send(self, op: Op) -> None:
        step = op.step
        posted = self.posted[step.group][step.peer]
        for recv in posted:
            if recv.step.peer in (op.rank, NONE) and recv.step.tag == step.tag:
                posted.remove(recv)
                self._meet(op, recv)
                return
        self.offers[step.group][step.peer].append(op)
        if step.peer == op.rank:  # the only one that is buffered
            op.ended_at = self._tick()

    def _meet(self, send: Op, recv: Op) -> None:
        recv.source = send.rank
        recv.ended_at = self._tick()
        send.ended_at = send.ended_at or self._tick()

    def _tick(self) -> int:
        self.now += 1
        return self.now

    def _receive(self, op: Op) -> None:
        step = op.step
        offers = self.offers[step.group][op.rank]
        for send in offers:
            if step.peer in (send.rank, NONE) and send.step.tag == step.tag:
                offers.remove(send)
                self._meet(send, op)
                return
        self.posted[step.group][op.rank].append(op)

    # -------------------------------------------------------------------------- the oracle

    @cached_property
    def gone(self) -> int:
        return self.left | self.crashed

    @cached_property
    def blocked(self) -> int:
        """Ranks whose main thread is in an op, and the other one too, unless it has ended."""
        return sum(
            1 << rank
            for rank, (main, *others) in enumerate(self.threads)
            if not self.gone >> rank & 1
            and main.is_blocked
            and all(thread.is_blocked or thread.is_done for thread in others)
        )

    def needs(self, op: Op) -> tuple[int, bool]:
        """Whose act an op needs (bits), and whether any of theirs is enough."""
        step, bit = op.step, 0
        members = self.groups[step.group]
        if step.verb == "collective":
            # Each op before it in any queue of the group has to end first.
            for seq in range(1, op.seq + 1):
                for member in members:
                    bit |= (self.issued[step.group][member] < seq) << member
            return bit, False
        if step.verb == "barrier":
            for member in members:
                bit |= (self.barriers[step.group][member] < op.seq) << member
            return bit, False
        if step.peer != NONE:
            return 1 << step.peer, False
        return sum(1 << m for m in members if m != op.rank), True

    def _ways(self, rank: int) -> list[tuple[int, bool]]:
        return [self.needs(t.op) for t in self.threads[rank] if t.op and t.is_blocked]

    def is_closed(self, ranks: int, *, errors_help: bool) -> bool:
        """Whether none of `ranks` (bits) moves although all other living ranks may do anything.

        `errors_help`: who waits for a rank that is gone gets an error, and goes on.
        """
        able = ~(ranks | self.gone)
        for rank in _ranks(ranks):
            for need, is_any in self._all_ways[rank]:
                if is_any:
                    if need & able:
                        return False
                    if errors_help and (need & self.crashed or not need & ~self.gone):
                        return False
                elif not need & ~able or (errors_help and need & self.gone):
                    return False
        return True

    @cached_property
    def _all_ways(self) -> dict[int, list[tuple[int, bool]]]:
        return {rank: self._ways(rank) for rank in _ranks(self.blocked)}

    def closed_sets(self, within: int, *, errors_help: bool) -> list[int]:
        """All of them, the empty one left out."""
        found = []
        subset = within
        while subset:
            if self.is_closed(subset, errors_help=errors_help):
                found.append(subset)
            subset = (subset - 1) & within
        return found

    def largest_closed(self, *, errors_help: bool) -> int:
        """The union of all: it is closed itself."""
        union = 0
        for each in self.closed_sets(self.blocked, errors_help=errors_help):
            union |= each
        return union

    # -------------------------------------------------------------------------- the record

    def session(self, logs: Mapping[int, RankLog] | None = None) -> Session:
        """As a reader of all records would have it; `logs` were read before."""
        session = Session(source="simulated", world_size=self.size)
        session.forms = [Form(), *FORMS.values()]
        session.groups = [
            GroupInfo(name=str(i), label=str(i), ranks=ranks) for i, ranks in enumerate(self.groups)
        ]
        for rank in range(self.size):
            session.ranks[rank] = self.log(rank) if logs is None else logs[rank]
        return session

    def log(self, rank: int, *, is_slow: bool = False) -> RankLog:
        """What the record of a rank says now; `is_slow`: who waits has not seen that its op is over."""
        log = RankLog(rank=rank, pid=_MAIN + rank)
        unseen = {t.op.number for t in self.threads[rank] if is_slow and t.op is not None}
        for op in self.ops[rank]:
            step = op.step
            has_ended = op.has_ended and (op.number not in unseen or step.verb == "recv")
            is_message = step.verb in ("send", "recv")
            log.ops.append(
                number=op.number,
                issued_ns=op.issued_at,
                started_ns=op.ended_at if has_ended else NEVER,
                ended_ns=op.ended_at if has_ended else NEVER,
                source=op.source,
                seq=op.seq,
                group=step.group,
                kind=_KINDS[step.verb],
                flags=Flag.ASYNC * step.is_async
                | Flag.MESSAGE * is_message
                | Flag.ASIDE * (step.verb == "barrier"),
                status=0 if has_ended else IN_FLIGHT,
                peer=step.peer,
                tag=step.tag,
                form=_FORM_NUMBERS[step.verb],
                thread=op.thread,
            )
        for group, members in enumerate(self.groups):
            if rank in members:
                issued = self.issued[group][rank]
                ended = issued - len(self.queues[group][rank])
                log.progress[group] = GroupProgress(issued_seq=issued, ended_seq=ended)
        log.work_waits = tuple(
            WorkWait(thread=thread.number, number=thread.op.number, since_ns=99)
            for thread in self.threads[rank]
            if thread.op
            and thread.op.step.is_async
            and (thread.is_blocked or (is_slow and thread.op.step.verb != "recv"))
        )
        log.threads = frozenset(
            thread.number
            for i, thread in enumerate(self.threads[rank])
            if i == 0 or not thread.is_done
        )
        if self.left >> rank & 1:
            log.exit = Exit.RETURNED
        if self.crashed >> rank & 1:
            log.end = RankEnd(
                rank=rank, pid=log.pid, host="", ended_ns=9, wall_ns=9, cause="signal", signal=9
            )
        return log


FORMS = {
    "collective": Form(name="all_reduce", kind="all_reduce"),
    "barrier": Form(name="monitored_barrier", kind="monitored_barrier"),
    "send": Form(name="send", kind="send"),
    "recv": Form(name="recv", kind="recv"),
}
_FORM_NUMBERS = {verb: i for i, verb in enumerate(FORMS, 1)}
_KINDS = {
    "collective": _COLLECTIVE,
    "barrier": int(Aside.MONITORED_BARRIER),
    "send": _SEND,
    "recv": _RECV,
}


def _ranks(bits: int) -> list[int]:
    return [rank for rank in range(bits.bit_length()) if bits >> rank & 1]


def ranks_of(bits: int) -> tuple[int, ...]:
    """Bits as ranks."""
    return tuple(_ranks(bits))


def bits_of(ranks: Sequence[int]) -> int:
    """Ranks as bits."""
    return sum(1 << rank for rank in ranks)


# ----------------------------------------------------------------------------------- running


def run(program: Program, random: Random) -> End:
    """Let threads step in a random order until none can."""
    end = End(program)
    advance(end, random)
    return end


def advance(end: End, random: Random, most_rounds: int = 10_000) -> None:
    """Go on with it, for some rounds at most."""
    for name in ("blocked", "gone", "_all_ways"):  # of the state before
        end.__dict__.pop(name, None)
    ready = [thread for mine in end.threads for thread in mine]
    for _ in range(most_rounds):
        random.shuffle(ready)
        moved = False
        for thread in ready:
            for _ in range(random.randrange(1, 4)):
                if not end.step(thread):
                    break
                moved = True
        if not moved:
            return


def stir(end: End, random: Random, count: int) -> None:
    """Let some threads try to take a step."""
    for _ in range(count):
        end.step(random.choice(end.threads[random.randrange(end.size)]))

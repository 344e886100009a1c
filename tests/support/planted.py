"""Makes large sessions in memory with one fault planted, fast: columns are copied, not appended to.

    session = plant(4096, 1000, "straggler")
    session = plant(64, 200, "healthy")

Ranks form 'tp' groups of 8 and 'dp' groups across them. Of ten ops eight are on the 'tp' group, one on
'dp', one on 'world'; each has a slot of 10 ms: its ranks come within 2 ms of each other, start when the
last has come, and take 1 ms. The fault is planted on the middle rank, or its group, after half of the ops.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Sequence
from dataclasses import fields
from random import Random
from typing import Final

from distdbg.diagnose.ops import IN_FLIGHT, NEVER, NONE, Ops
from distdbg.diagnose.session import (
    Activity,
    GroupInfo,
    GroupProgress,
    RankLog,
    RecordedProblem,
    Session,
    Stack,
)
from distdbg.record.ends import RankEnd
from distdbg.record.entries import KIND_LABELS
from distdbg.record.format import Exit, Flag, Status
from distdbg.record.forms import read_form, write_form
from distdbg.record.rank_state import RankState
from distdbg.record.recorded_frame import RecordedFrame

_WIDTH: Final = 8
_MS: Final = 1_000_000
_SLOT: Final = 10 * _MS
_PATTERN: Final = "ttttdttttw"
_ALL_REDUCE: Final = KIND_LABELS.index("all_reduce")
_BARRIER: Final = KIND_LABELS.index("barrier")
_JITTERS: Final = 61
_PERIOD: Final = len(_PATTERN)


def plant(ranks: int, ops: int, fault: str, *, seed: int = 0) -> Session:
    """A session with this fault of `FAULTS`; `ranks` is a multiple of 8, `ops` of 10."""
    session = _healthy(ranks, ops, Random(seed))
    FAULTS[fault](session, ranks // 2 + 3, ops // 2)
    return session


def _healthy(ranks: int, ops: int, random: Random) -> Session:
    session = Session(source="planted", run="planted", world_size=ranks)
    session.now_ns = (ops + 100) * _SLOT
    session.forms.append(
        read_form(
            write_form(
                name="all_reduce", kind="all_reduce", dtype="float32", inputs=[(1024,)], nbytes=4096
            )
        )
    )
    session.forms.append(read_form(write_form(name="barrier", kind="barrier")))
    session.stacks += [_stack(line) for line in range(80, 80 + _PERIOD)]
    _make_groups(session, ranks)
    jitters = [array("q", [random.randrange(2 * _MS) for _ in range(ops)]) for _ in range(_JITTERS)]
    slots = array("q", [at * _SLOT for at in range(1, ops + 1)])
    issued = [array("q", map(int.__add__, slots, jitter)) for jitter in jitters]
    started = array("q", [slot + 2 * _MS for slot in slots])
    ended = array("q", [slot + 3 * _MS for slot in slots])
    number = array("q", range(1, ops + 1))
    steps = ops // _PERIOD
    kinds = array("B", [_ALL_REDUCE]) * ops
    prints = array("Q", [7]) * ops
    nothing = array("i", [NONE]) * ops
    forms = array("i", [1]) * ops
    stacks = array("i", range(1, _PERIOD + 1)) * steps
    no_comms = array("i", [0]) * ops
    zeros, zero_bytes = array("q", [0]) * ops, array("B", [0]) * ops
    per_step = {letter: _PATTERN.count(letter) for letter in "tdw"}
    seqs = array("q")
    reached = dict.fromkeys("tdw", 0)
    for _ in range(steps):
        for letter in _PATTERN:
            reached[letter] += 1
            seqs.append(reached[letter])
    tensor_count = ranks // _WIDTH
    for rank in range(ranks):
        mine = {"w": 0, "t": 1 + rank // _WIDTH, "d": 1 + tensor_count + rank % _WIDTH}
        columns = Ops(
            number=number[:],
            issued_ns=issued[rank * 7 % _JITTERS][:],
            started_ns=started[:],
            ended_ns=ended[:],
            seq=seqs[:],
            group=array("i", [mine[letter] for letter in _PATTERN]) * steps,
            kind=kinds[:],
            flags=zero_bytes[:],
            status=zero_bytes[:],
            peer=nothing[:],
            source=nothing[:],
            tag=zeros[:],
            form=forms[:],
            stack=stacks[:],
            thread=array("q", [1000 + rank]) * ops,
            fingerprint=prints[:],
            comm=no_comms[:],
        )
        session.ranks[rank] = RankLog(
            rank=rank,
            host=f"n{rank // _WIDTH:04}",
            pid=1000 + rank,
            source=f"rank{rank:05}.ddr",
            clock_error_ns=100_000,
            heartbeat_ns=columns.issued_ns[-1],
            level=2,
            ops=columns,
            progress={
                mine[letter]: GroupProgress(
                    issued_seq=per_step[letter] * steps, ended_seq=per_step[letter] * steps
                )
                for letter in "wtd"
            },
        )
    return session


def _make_groups(session: Session, ranks: int) -> None:
    session.groups.append(GroupInfo(name="0", label="world", ranks=tuple(range(ranks))))
    for at in range(ranks // _WIDTH):
        members = tuple(range(at * _WIDTH, (at + 1) * _WIDTH))
        session.groups.append(GroupInfo(name=f"tp{at}", label=f"tp{at}", ranks=members))
    for at in range(_WIDTH):
        members = tuple(range(at, ranks, _WIDTH))
        session.groups.append(GroupInfo(name=f"dp{at}", label=f"dp{at}", ranks=members))


def _stack(line: int) -> Stack:
    return (
        RecordedFrame("/job/train.py", line, "step"),
        RecordedFrame("/job/train.py", 200, "main"),
    )


# --------------------------------------------------------------------------------------- faults


def _plant_nothing(session: Session, rank: int, at: int) -> None:
    pass


def _world_at(at: int) -> int:
    """The first op on 'world' from here on."""
    return at + _PATTERN.index("w") - at % _PERIOD


def _cut(session: Session, rank: int, at: int, *, keeps: bool = True) -> None:
    """The rank stops at this op: the last that it has issued, where it `keeps` it."""
    log = session.ranks[rank]
    ops = log.ops
    length = at + keeps
    for field in fields(ops):
        column = getattr(ops, field.name)
        if isinstance(column, array):
            del column[length:]
    if keeps:
        ops.status[at] = IN_FLIGHT
        ops.started_ns[at] = ops.ended_ns[at] = NEVER
    for group in log.progress:
        seqs = [s for g, s in zip(ops.group, ops.seq, strict=True) if g == group]
        issued = max(seqs, default=0)
        in_it = keeps and ops.group[at] == group
        log.progress[group] = GroupProgress(issued_seq=issued, ended_seq=issued - in_it)
    log.heartbeat_ns = ops.issued_ns[-1]


def _hang_in_world(session: Session, rank: int, at: int) -> int:
    """All but the rank are in an op of 'world' that it has not called."""
    at = _world_at(at)
    for other in session.ranks:
        _cut(session, other, at, keeps=other != rank)
    session.now_ns = (at + 500) * _SLOT
    return at


def _plant_missing(session: Session, rank: int, at: int) -> None:
    _hang_in_world(session, rank, at)
    log = session.ranks[rank]
    log.exit, log.exit_ns = Exit.RETURNED, log.heartbeat_ns + _MS


def _plant_dead(session: Session, rank: int, at: int) -> None:
    _hang_in_world(session, rank, at)
    log = session.ranks[rank]
    ended = log.heartbeat_ns + _MS
    log.end = RankEnd(
        rank=rank,
        pid=log.pid,
        host=log.host,
        ended_ns=ended,
        wall_ns=ended,
        cause="signal",
        signal=9,
    )


def _plant_stuck(session: Session, rank: int, at: int) -> None:
    _hang_in_world(session, rank, at)
    log = session.ranks[rank]
    log.activity = Activity(
        state=RankState.STOPPED, since_ns=log.heartbeat_ns + _MS, site="data.py:12 (load)"
    )


def _plant_mismatch(session: Session, rank: int, at: int) -> None:
    at = _world_at(at)
    for other in session.ranks:
        _cut(session, other, at)
        ops = session.ranks[other].ops
        ops.status[at] = Status.MISMATCH
        ops.started_ns[at] = ops.ended_ns[at] = ops.issued_ns[at] + 3 * _MS
    ops = session.ranks[rank].ops
    ops.kind[at], ops.form[at], ops.fingerprint[at] = _BARRIER, 2, 8
    seq = ops.seq[at]
    words = json.dumps(
        {
            "type": "MismatchError",
            "what": f"op #{seq} on group 'world' differs between ranks: barrier on rank {rank}, all_reduce "
            f"on the others",
            "seq": seq,
            "group": "world",
            "ranks": [rank],
        }
    )
    for log in session.ranks.values():
        log.ops.errors[at] = words


def _plant_deadlock(session: Session, rank: int, at: int) -> None:
    """Half of a 'tp' group is in 'world', the other half in an op that the first half has not called."""
    at = _world_at(at)
    for other in session.ranks:
        _cut(session, other, at)
    tensor = session.ranks[rank].ops.group[0]
    for other in session.groups[tensor].ranks[_WIDTH // 2 :]:
        log = session.ranks[other]
        log.ops.group[at], log.ops.seq[at] = tensor, log.progress[tensor].issued_seq + 1
        far, world = log.progress[tensor], log.progress[0]
        log.progress[tensor] = GroupProgress(issued_seq=far.issued_seq + 1, ended_seq=far.ended_seq)
        log.progress[0] = GroupProgress(issued_seq=world.ended_seq, ended_seq=world.ended_seq)
    session.now_ns = (at + 500) * _SLOT


def _delay(session: Session, rank: int, at: int, by_ns: int) -> None:
    """From this op on the rank comes so much later to each op, and its peers start so much later."""
    peers = {
        other for group in session.ranks[rank].progress for other in session.groups[group].ranks
    }
    mine = set(session.ranks[rank].progress)
    for other in peers:
        ops = session.ranks[other].ops
        for index in range(at, len(ops)):
            if ops.group[index] in mine:
                ops.started_ns[index] += by_ns
                ops.ended_ns[index] += by_ns
            if other == rank:
                ops.issued_ns[index] += by_ns


def _plant_straggler(session: Session, rank: int, at: int) -> None:
    _delay(session, rank, at, 6 * _MS)


def _plant_slow_link(session: Session, rank: int, at: int) -> None:
    tensor = session.ranks[rank].ops.group[0]
    for other in session.groups[tensor].ranks:
        ops = session.ranks[other].ops
        for index, group in enumerate(ops.group):
            if group == tensor:
                ops.ended_ns[index] += 5 * _MS


def _plant_inversion(session: Session, rank: int, at: int) -> None:
    """The rank and its peers begin the ops before and on 'world'; it does so the other way round."""
    at = _world_at(at)
    for log in session.ranks.values():
        ops = log.ops
        ops.flags[at - 1] = ops.flags[at] = Flag.ASYNC
        ops.ended_ns[at - 1] = ops.ended_ns[at]
    ops = session.ranks[rank].ops
    for column in (ops.group, ops.seq, ops.stack):
        column[at - 1], column[at] = column[at], column[at - 1]


def _plant_leak(session: Session, rank: int, at: int) -> None:
    for log in session.ranks.values():
        log.exit, log.exit_ns = Exit.RETURNED, session.now_ns
        log.progress = {
            group: GroupProgress(
                issued_seq=far.issued_seq, ended_seq=far.ended_seq, closed_ns=session.now_ns
            )
            for group, far in log.progress.items()
        }
    ops = session.ranks[rank].ops
    ops.flags[-1], ops.status[-1], ops.ended_ns[-1] = Flag.ASYNC, IN_FLIGHT, NEVER


def _tell(
    session: Session, ranks: Sequence[int], at: int, status: Status, found: RecordedProblem
) -> None:
    for rank in ranks:
        log = session.ranks[rank]
        log.found = (found,)
        log.ops.status[at] = status


def _plant_diverged(session: Session, rank: int, at: int) -> None:
    at = _world_at(at)
    seq = session.ranks[rank].ops.seq[at]
    found = RecordedProblem(
        type="DivergedError",
        what=f"all_reduce #{seq} on group 'world' left other results on rank {rank} than on the other ranks",
        at_ns=session.ranks[rank].ops.ended_ns[at],
        group="world",
        seq=seq,
        kind="all_reduce",
        ranks=(rank,),
    )
    _tell(session, list(session.ranks), at, Status.DIVERGED, found)


def _plant_nan(session: Session, rank: int, at: int) -> None:
    at = _world_at(at)
    seq = session.ranks[rank].ops.seq[at]
    found = RecordedProblem(
        type="NonFiniteError",
        what=f"all_reduce #{seq} on group 'world' was given NaN or Inf by rank {rank}: 1 of 1024 elements",
        at_ns=session.ranks[rank].ops.ended_ns[at],
        group="world",
        seq=seq,
        kind="all_reduce",
        ranks=(rank,),
    )
    _tell(session, list(session.ranks), at, Status.NONFINITE, found)


def _plant_lost(session: Session, rank: int, at: int) -> None:
    del session.ranks[rank]
    session.ranks[rank + 1].lost = {"ops": 100, "strings": 3}


#: What can be planted.
FAULTS: Final[dict[str, Callable[[Session, int, int], None]]] = {
    "healthy": _plant_nothing,
    "mismatch": _plant_mismatch,
    "missing rank": _plant_missing,
    "dead rank": _plant_dead,
    "deadlock": _plant_deadlock,
    "stuck rank": _plant_stuck,
    "straggler": _plant_straggler,
    "slow link": _plant_slow_link,
    "order inversion": _plant_inversion,
    "leaked work": _plant_leak,
    "diverged replicas": _plant_diverged,
    "NaN source": _plant_nan,
    "recording lost": _plant_lost,
}
